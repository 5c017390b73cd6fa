use belay_grant::{Change, ChangeKind, Kind, Subject, digest_of};

use std::sync::LazyLock;

use super::*;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::new);

fn preview(subject: &Subject, contents: &Contents) -> v1::Preview {
    super::preview(&REDACTOR, subject, contents)
}

pub(crate) fn subject() -> Subject {
    Subject {
        v: 1,
        kind: Kind::Effect,
        execution: "namespaces/default/executions/e".into(),
        step: "s".into(),
        tool: "run_terminal".into(),
        arguments: "{}".into(),
        arguments_digest: digest_of(b"{}"),
        command: vec!["make".into()],
        working_directory: String::new(),
        workspace: "/w".into(),
        enforced: vec!["namespaces".into(), "landlock".into()],
        policy_revision: 1,
        rule: "terminal_commands".into(),
        reason: "Commands are looked at.".into(),
        effect_digest: digest_of(b"effect"),
        changes: Vec::new(),
    }
}

/// A change from one content to another; nothing stands for no file.
fn change(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> Change {
    let kind = match (before, after) {
        (None, _) => ChangeKind::Created,
        (Some(_), Some(_)) => ChangeKind::Modified,
        (Some(_), None) => ChangeKind::Deleted,
    };
    let digest = |side: Option<&[u8]>| side.map(digest_of).unwrap_or_default();
    let (before, after) = (digest(before), digest(after));
    Change { path: path.into(), kind, before, after, what: "file 0644".into(), flags: Vec::new() }
}

fn contents(all: &[&[u8]]) -> Contents {
    all.iter().map(|bytes| (digest_of(bytes), Content::Verified(bytes.to_vec()))).collect()
}

fn shown_file(change: Change, contents: &Contents) -> v1::FileDiff {
    let mut shown = preview(&Subject { changes: vec![change], ..subject() }, contents);
    assert_eq!((shown.files.len(), shown.more_files), (1, 0));
    shown.files.remove(0)
}

/// S2-X-17: operation, files, what it may reach, and the content are shown.
#[test]
fn an_effect_is_shown_file_by_file() {
    let made = change("a", None, Some(b"one\n"));
    let gone = change("b", Some(b"two\n"), None);
    let changed = change("c", Some(b"x\ny\n"), Some(b"x\nz\n"));
    let subject = Subject { changes: vec![made, gone, changed], working_directory: "src".into(), ..subject() };
    let shown = preview(&subject, &contents(&[b"one\n", b"two\n", b"x\ny\n", b"x\nz\n"]));
    assert_eq!((shown.headline.as_str(), shown.working_directory.as_str()), ("run_terminal: make", "src"));
    assert_eq!(shown.reach, ["no network", "walls: namespaces, landlock"]);
    let files: Vec<_> = shown.files.iter().map(|file| (file.unified.as_str(), file.added, file.removed)).collect();
    assert_eq!(
        files,
        [("@@ -0,0 +1 @@\n+one\n", 1, 0), ("@@ -1 +0,0 @@\n-two\n", 0, 1), ("@@ -1,2 +1,2 @@\n x\n-y\n+z\n", 1, 1)]
    );
    let summary = summary(&subject);
    assert_eq!((summary.created, summary.modified, summary.deleted, summary.changes.len()), (1, 1, 1, 3));
}

#[test]
fn without_walls_nothing_is_said_of_the_network() {
    let inside = Subject { enforced: Vec::new(), ..subject() };
    assert_eq!(preview(&inside, &Contents::new()).reach, ["runs inside the tool runner, confined to the workspace"]);
    let without = Subject { enforced: vec!["landlock".into()], ..subject() };
    assert_eq!(preview(&without, &Contents::new()).reach, ["walls: landlock"]);
}

#[test]
fn what_has_no_text_says_why() {
    let note = |after: &[u8], known: &Contents| shown_file(change("f", None, Some(after)), known).note;
    let both: &[&[u8]] = &[b"a\0b", b"\xff\xfe\xfd", b""];
    let known = contents(both);
    assert_eq!(note(b"a\0b", &known), "file 0644: binary, 3 bytes");
    assert_eq!(note(b"\xff\xfe\xfd", &known), "file 0644: no UTF-8 text, 3 bytes");
    assert_eq!(note(b"", &known), "file 0644, empty");
    assert_eq!(note(b"large", &known), "file 0644: not shown: too large, or no text");
}

/// B-03: a content that is not what its digest says is not shown as it.
#[test]
fn a_forged_content_is_told_and_not_shown() {
    let forged = Contents::from([(digest_of(b"true\n"), Content::Forged)]);
    let file = shown_file(change("f", None, Some(b"true\n")), &forged);
    assert_eq!(file.unified, "");
    assert!(file.note.contains("not the one named by the digest"), "{}", file.note);
}

#[test]
fn rights_links_and_folders_are_said_in_words() {
    let known = contents(&[b"x"]);
    let rights = Change { what: "file 0755".into(), ..change("run.sh", Some(b"x"), Some(b"x")) };
    assert_eq!(shown_file(rights, &known).note, "content unchanged, now file 0755");
    let link = Change { before: String::new(), after: String::new(), ..change("l", None, None) };
    assert_eq!(
        shown_file(Change { what: "link to ../x\u{1b}[8m".into(), ..link }, &known).note,
        "link to ../x<U+001B>[8m"
    );
}

#[test]
fn what_to_look_at_twice_is_not_pushed_out_of_sight() {
    let mut changes: Vec<Change> = (0..250).map(|n| change(&format!("a{n:03}"), None, Some(b"x"))).collect();
    changes.push(Change { flags: vec!["link_leaves".into()], ..change("z", None, Some(b"x")) });
    let shown = preview(&Subject { changes, ..subject() }, &contents(&[b"x"]));
    assert_eq!((shown.files.len(), shown.more_files), (200, 51));
    let path = |index: usize| shown.files[index].change.as_ref().map(|change| change.path.clone()).unwrap();
    assert_eq!((path(0).as_str(), path(1).as_str()), ("z", "a000"));
}

#[test]
fn a_preview_stays_within_its_limits() {
    let text: String = (0..3_000).map(|n| format!("{n}\n")).collect();
    let changes = (0..15).map(|n| change(&n.to_string(), None, Some(text.as_bytes()))).collect();
    let shown = preview(&Subject { changes, ..subject() }, &contents(&[text.as_bytes()]));
    let lines: usize = shown.files.iter().map(|file| file.unified.lines().count()).sum();
    assert_eq!(lines, 20_000);
    assert_eq!(shown.files[0].note, "1,001 more lines are not shown");
    assert_eq!(shown.files[14].note, "3,001 more lines are not shown");
    assert_eq!(shown.files[14].added, 3_000, "what is not shown is counted");
}

/// Whatever a subject holds, and whatever its contents are: nothing of it acts on the screen.
#[test]
fn no_field_of_a_preview_can_fake_the_screen() {
    let evil = "\u{1b}[2J\u{202e}\r\n@@ -1 +1 @@\u{200b}\u{9b}0m";
    let text = format!("{evil}\nb\n");
    let hostile = Subject {
        kind: Kind::Call,
        tool: evil.into(),
        arguments: serde_json::json!({"path": evil, evil: evil}).to_string(),
        command: Vec::new(),
        working_directory: evil.into(),
        workspace: evil.into(),
        enforced: vec![evil.into()],
        changes: vec![
            Change { what: evil.into(), flags: vec![evil.into()], ..change(evil, Some(b"b\n"), Some(text.as_bytes())) },
            Change { what: evil.into(), ..change(evil, Some(b"b\n"), Some(b"b\n")) },
        ],
        ..subject()
    };
    let command = Subject { command: vec![evil.into(), evil.into()], ..hostile.clone() };
    for subject in [hostile, command] {
        let shown = preview(&subject, &contents(&[b"b\n", text.as_bytes()]));
        let mut texts = vec![shown.working_directory, shown.workspace, operation(&subject)];
        texts.extend(shown.reach);
        texts.extend(shown.headline.lines().map(str::to_owned));
        for file in shown.files {
            let change = file.change.unwrap();
            texts.extend([file.note, change.path]);
            texts.extend(change.flags);
            texts.extend(file.unified.lines().map(str::to_owned));
        }
        texts.extend(summary(&subject).changes.into_iter().map(|change| change.path));
        for text in texts {
            assert_eq!(text::visible(&text), text);
        }
        // The content's own `@@` stands behind its sign.
        let hunks = preview(&subject, &contents(&[b"b\n", text.as_bytes()])).files[0].unified.clone();
        assert_eq!(hunks.lines().filter(|line| line.starts_with("@@")).count(), 1, "{hunks}");
    }
}
