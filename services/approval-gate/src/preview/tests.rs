use belay_grant::{Change, ChangeKind, Folder, Gravity, Kind, Risk, Subject, digest_of};

use std::sync::LazyLock;

use super::*;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::new);

fn preview(subject: &Subject, contents: &Contents) -> v1::Preview {
    super::preview(&REDACTOR, subject, contents)
}

pub(crate) fn subject() -> Subject {
    Subject {
        hidden: None,
        v: Subject::VERSION,
        kind: Kind::Effect,
        execution: "namespaces/default/executions/e".into(),
        step: "s".into(),
        tool: "run_terminal".into(),
        arguments: "{}".into(),
        arguments_digest: digest_of(b"{}"),
        command: vec!["make".into()],
        working_directory: String::new(),
        workspace: "/w".into(),
        enforced: ["user namespace", "root view", "workspace mount", "landlock"].map(String::from).to_vec(),
        policy_revision: 1,
        rule: "terminal_commands".into(),
        reason: "Commands are looked at.".into(),
        effect_digest: digest_of(b"effect"),
        risk: Risk::Low,
        changes: Vec::new(),
        folders: Vec::new(),
        network: None,
        reveals: Vec::new(),
    }
}

/// A change from one content to another; `None` means no file.
fn change(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> Change {
    let kind = match (before, after) {
        (None, _) => ChangeKind::Created,
        (Some(_), Some(_)) => ChangeKind::Modified,
        (Some(_), None) => ChangeKind::Deleted,
    };
    let digest = |side: Option<&[u8]>| side.map(digest_of).unwrap_or_default();
    let (before, after) = (digest(before), digest(after));
    Change {
        path: path.into(),
        path_digest: String::new(),
        kind,
        gravity: Gravity::Modified,
        protection: String::new(),
        before,
        after,
        what: "file 0644".into(),
        flags: Vec::new(),
        folder: None,
    }
}

fn contents(all: &[&[u8]]) -> Contents {
    all.iter().map(|bytes| (digest_of(bytes), bytes.to_vec())).collect()
}

fn shown_file(change: Change, contents: &Contents) -> v1::FileDiff {
    let mut shown = preview(&Subject { changes: vec![change], ..subject() }, contents);
    assert_eq!((shown.files.len(), shown.more_files), (1, 0));
    shown.files.remove(0)
}

/// S2-X-17: the preview shows operation, files, access and content.
#[test]
fn an_effect_is_shown_file_by_file() {
    let made = change("a", None, Some(b"one\n"));
    let gone = change("b", Some(b"two\n"), None);
    let changed = change("c", Some(b"x\ny\n"), Some(b"x\nz\n"));
    let subject = Subject { changes: vec![made, gone, changed], working_directory: "src".into(), ..subject() };
    let shown = preview(&subject, &contents(&[b"one\n", b"two\n", b"x\ny\n", b"x\nz\n"]));
    assert_eq!((shown.headline.as_str(), shown.working_directory.as_str()), ("run_terminal: make", "src"));
    assert_eq!(shown.reach, ["this workspace (read and write)", "/usr and other system folders (read)", "no network"]);
    let files: Vec<_> = shown.files.iter().map(|file| (file.unified.as_str(), file.added, file.removed)).collect();
    assert_eq!(
        files,
        [("@@ -0,0 +1 @@\n+one\n", 1, 0), ("@@ -1 +0,0 @@\n-two\n", 0, 1), ("@@ -1,2 +1,2 @@\n x\n-y\n+z\n", 1, 1)],
    );
    let summary = summary(&subject);
    assert_eq!((summary.created, summary.modified, summary.deleted, summary.changes.len()), (1, 1, 1, 3));
}

#[test]
fn without_a_network_namespace_no_screen_says_that_there_is_no_network() {
    let inside = Subject { enforced: Vec::new(), ..subject() };
    assert_eq!(preview(&inside, &Contents::new()).reach, ["runs inside the tool runner, confined to the workspace"]);
    let without = Subject { enforced: vec!["landlock".into()], ..subject() };
    assert_eq!(preview(&without, &Contents::new()).reach, ["this workspace (read and write)", "the network"]);
}

/// B-18: no byte of a content hides the rest of it.
#[test]
fn binary_content_is_shown_as_bytes() {
    let shown = |after: &[u8], known: &Contents| shown_file(change("f", None, Some(after)), known);
    let both: &[&[u8]] = &[b"a\0b\n", b"rm -rf \xff\n", b"\xff\xfe\xfd", b""];
    let known = contents(both);
    assert_eq!(shown(b"a\0b\n", &known).unified, "@@ -0,0 +1 @@\n+a<U+0000>b\n");
    assert_eq!(shown(b"rm -rf \xff\n", &known).unified, "@@ -0,0 +1 @@\n+rm -rf <0xFF>\n");
    // What reads like a byte that is written out is another content.
    let literal = "rm -rf <0xFF> \u{10ffff}\n".as_bytes();
    let literal = shown_file(change("f", None, Some(literal)), &contents(&[literal]));
    assert_eq!(literal.unified, "@@ -0,0 +1 @@\n+rm -rf <U+003C>0xFF> <0xF4><0x8F><0xBF><0xBF>\n");
    let binary = shown(b"\xff\xfe\xfd", &known);
    assert!(binary.unified.contains("+00000000  ff fe fd "), "{}", binary.unified);
    assert_eq!(binary.note, format!("binary: after 3 bytes, {}", digest_of(b"\xff\xfe\xfd")));
    assert_eq!(shown(b"", &known).note, "file 0644, empty");
    assert_eq!(shown(b"large", &known).note, format!("file 0644; too large to be shown: {}", digest_of(b"large")));
}

#[test]
fn permissions_links_and_folders_are_described_in_notes() {
    let known = contents(&[b"x"]);
    let rights = Change { what: "file 0755".into(), ..change("run.sh", Some(b"x"), Some(b"x")) };
    assert_eq!(shown_file(rights, &known).note, "content unchanged, now file 0755");
    let link = Change { before: String::new(), after: String::new(), ..change("l", None, None) };
    assert_eq!(
        shown_file(Change { what: "link to ../x\u{1b}[8m".into(), ..link }, &known).note,
        "link to ../x<U+001B>[8m"
    );
}

fn paths(shown: &v1::Preview) -> Vec<String> {
    shown.files.iter().filter_map(|file| Some(file.change.clone()?.path)).collect()
}

/// B-18: what the subject has first is shown first, plain creations last, grouped as the runner grouped them, and each names its place in the subject.
#[test]
fn changes_are_shown_in_the_order_of_the_subject() {
    let protected = Change { protection: "Git runs it".into(), ..change("[REDACTED]", Some(b"g"), Some(b"h")) };
    let mut changes = vec![
        Change { gravity: Gravity::Protected, ..protected },
        change("[REDACTED]", Some(b"a"), Some(b"b")),
        Change { gravity: Gravity::Created, ..change("alone", None, Some(b"x")) },
    ];
    let made = |n| Change { gravity: Gravity::Created, folder: Some(0), ..change(&format!("d/{n}"), None, Some(b"x")) };
    changes.extend((0..300).map(made));
    let folders = vec![Folder { path: "d".into(), changes: 300 }];
    let subject = Subject { changes, folders, ..subject() };
    let known = contents(&[b"x", b"g", b"h", b"a", b"b"]);
    let shown = preview(&subject, &known);
    assert_eq!(paths(&shown), ["[REDACTED]", "[REDACTED]", "d/", "alone"]);
    let places: Vec<_> = shown.files.iter().map(|file| (file.change.clone().unwrap().index, file.count)).collect();
    assert_eq!((places, shown.more_files), (vec![(0, 0), (1, 0), (0, 300), (2, 0)], 0));
    assert_eq!(shown.files[0].change.clone().unwrap().flags, ["protected"]);
    assert!(shown.files[0].note.starts_with("Git runs it"), "{}", shown.files[0].note);
    assert_eq!(shown.files[2].note, "300 created; no other changes in this folder");
    // Whatever they are called, each has its own content.
    for (file, content) in [(&shown.files[0], "+h"), (&shown.files[1], "+b")] {
        assert!(file.unified.contains(content), "{}", file.unified);
    }
    let listed = listed(&REDACTOR, &subject);
    assert_eq!((listed.len(), listed[0].index, listed[302].index), (303, 0, 302));
    let opened = OpenedSubject::new("a".into(), subject.clone(), known);
    let whole = |place| whole_file(&REDACTOR, (place, opened.change(place).unwrap()), &opened.contents).unified;
    assert!(whole(0).contains("+h") && whole(1).contains("+b"), "{}{}", whole(0), whole(1));
    assert_eq!(opened.change(303), None);
    assert_eq!(gravest(&subject).unwrap().gravity, Gravity::Protected);
    let summary = summary(&subject);
    assert_eq!((summary.created, summary.modified, summary.changes.len()), (301, 2, MAX_PATHS));
}

/// B-18: no file displaces another.
#[test]
fn a_preview_stays_within_its_limits_and_shares_them() {
    let text: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    let mut changes: Vec<Change> = (0..19).map(|n| change(&format!("a{n:02}"), None, Some(text.as_bytes()))).collect();
    changes.push(change("z", None, Some(b"small\n")));
    let shown = preview(&Subject { changes, ..subject() }, &contents(&[text.as_bytes(), b"small\n"]));
    let lines: usize = shown.files.iter().map(|file| file.unified.lines().count()).sum();
    assert!(lines <= MAX_LINES + 20, "{lines}");
    assert!(shown.files[0].note.ends_with(" more lines are not shown here"), "{}", shown.files[0].note);
    assert_eq!(shown.files[0].added, 20_000, "what is not shown is counted");
    assert_eq!(shown.files[19].unified, "@@ -0,0 +1 @@\n+small\n");
    let whole = whole_file(&REDACTOR, (0, &change("a", None, Some(text.as_bytes()))), &contents(&[text.as_bytes()]));
    assert_eq!(whole.unified.lines().count(), 20_001, "and all of it can be had");
}

/// No text in a subject or a content can manipulate the terminal.
#[test]
fn no_field_of_a_preview_can_manipulate_the_terminal() {
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
            assert_eq!(belay_text::harmless(&text), text);
        }
        // The content's own `@@` follows its sign.
        let hunks = preview(&subject, &contents(&[b"b\n", text.as_bytes()])).files[0].unified.clone();
        assert_eq!(hunks.lines().filter(|line| line.starts_with("@@")).count(), 1, "{hunks}");
    }
}
