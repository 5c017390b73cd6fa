//! A subject has one spelling and one digest.

use belay_grant::{
    CallWords, Change, ChangeKind, Folder, Gravity, HiddenWords, InvalidSeal, Kind, Network, Risk, Subject, digest_of,
};
use proptest::prelude::*;

use crate::support::subject;

fn call() -> Subject {
    Subject { kind: Kind::Call, effect_digest: String::new(), changes: Vec::new(), ..subject() }
}

fn network(profile: &str, reach: &[&str]) -> Option<Network> {
    Some(Network { profile: profile.into(), reach: reach.iter().map(|&line| line.into()).collect() })
}

fn words() -> CallWords {
    CallWords {
        arguments: r#"{"command":["make"]}"#.into(),
        command: vec!["make".into()],
        working_directory: "a".into(),
    }
}

fn hidden(rule: &str, values: u32) -> HiddenWords {
    HiddenWords { digest: digest_of(&words().canonical_bytes()), rules: [(rule.to_owned(), values)].into() }
}

/// B-18: who may decide gets the words by their digest; a log never has them.
#[test]
fn the_words_of_a_call_have_one_spelling() {
    let bytes = words().canonical_bytes();
    assert_eq!(CallWords::parse(&bytes), Ok(words()));
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        r#"{"arguments":"{\"command\":[\"make\"]}","command":["make"],"working_directory":"a"}"#
    );
    assert!(CallWords::parse(br#"{"arguments":"{}","command":[],"working_directory":"", "a":1}"#).is_err());
    assert_eq!(format!("{:?}", words()), "CallWords(…)");
    let subject = Subject { hidden: Some(hidden("named", 1)), ..subject() };
    assert_eq!(Subject::parse(&subject.canonical_bytes()), Ok(subject));
}

#[test]
fn what_is_written_is_read() {
    for subject in [subject(), call()] {
        let bytes = subject.canonical_bytes();
        assert_eq!(subject.digest(), digest_of(&bytes));
        assert_eq!(Subject::parse(&bytes), Ok(subject));
    }
}

/// Approvals are bound to these bytes and outlive the version that wrote them.
#[test]
fn the_bytes_stay_as_they_are() {
    let text = String::from_utf8(subject().canonical_bytes()).unwrap();
    assert_eq!(
        text,
        format!(
            concat!(
                r#"{{"v":3,"kind":"effect","execution":"namespaces/default/executions/e","step":"s","tool":"run_terminal","#,
                r#""arguments":"{{\"command\":[\"make\"]}}","arguments_digest":"{arguments}","command":["make","-j 2"],"#,
                r#""working_directory":"","workspace":"/home/ann/project","enforced":["landlock"],"policy_revision":3,"#,
                r#""rule":"terminal_commands","reason":"what a command changed is shown before it is kept","#,
                r#""effect_digest":"{manifest}","risk":"low","changes":[{{"path":"out/a.txt","kind":"created","gravity":"remarkable","before":"","#,
                r#""after":"{content}","what":"file 0644","flags":["executable"]}}]}}"#,
            ),
            arguments = digest_of(b"arguments"),
            manifest = digest_of(b"manifest"),
            content = digest_of(b"content"),
        )
    );
}

// B-03: a decision echoes the digest, and the digest covers everything that the person saw.
#[test]
fn every_field_is_in_the_digest() {
    let base = subject();
    let change = |edit: fn(&mut Change)| {
        let mut changed = base.clone();
        edit(&mut changed.changes[0]);
        changed
    };
    let others = [
        Subject { v: 4, ..base.clone() },
        Subject { risk: Risk::High, ..base.clone() },
        Subject { kind: Kind::Call, ..base.clone() },
        Subject { execution: "namespaces/default/executions/f".into(), ..base.clone() },
        Subject { step: "t".into(), ..base.clone() },
        Subject { tool: "write_file".into(), ..base.clone() },
        Subject { arguments: r#"{"command":["rm"]}"#.into(), ..base.clone() },
        Subject { arguments_digest: digest_of(b"other"), ..base.clone() },
        // Joined, both are `make -j 2`.
        Subject { command: vec!["make".into(), "-j".into(), "2".into()], ..base.clone() },
        Subject { working_directory: "sub".into(), ..base.clone() },
        Subject { workspace: "/home/ann/other".into(), ..base.clone() },
        Subject { enforced: Vec::new(), ..base.clone() },
        Subject { policy_revision: 4, ..base.clone() },
        Subject { rule: "other".into(), ..base.clone() },
        Subject { reason: String::new(), ..base.clone() },
        Subject { effect_digest: digest_of(b"other"), ..base.clone() },
        Subject { changes: Vec::new(), ..base.clone() },
        change(|change| change.path.push('x')),
        change(|change| change.kind = ChangeKind::Modified),
        change(|change| change.before = digest_of(b"before")),
        change(|change| change.after = digest_of(b"other")),
        change(|change| change.what = "file 0755".into()),
        change(|change| change.flags.clear()),
        change(|change| change.gravity = Gravity::Protected),
        change(|change| change.path_digest = digest_of(b"path")),
        change(|change| change.protection = "is obeyed".into()),
        change(|change| change.folder = Some(0)),
        Subject { folders: vec![Folder { path: "out".into(), changes: 1 }], ..base.clone() },
        Subject { hidden: Some(hidden("named", 1)), ..base.clone() },
        Subject { hidden: Some(hidden("named", 2)), ..base.clone() },
        Subject { hidden: Some(hidden("jwt", 1)), ..base.clone() },
        Subject { network: network("ci", &["https://a.example.com:443"]), ..base.clone() },
        Subject { reveals: vec!["forge in $FORGE_TOKEN".into()], ..base.clone() },
        Subject { network: network("other", &["https://a.example.com:443"]), ..base.clone() },
        Subject { network: network("ci", &["https://a.example.com:443", "https://b.example.com:443"]), ..base.clone() },
    ];
    let mut digests: Vec<String> = others.iter().chain([&base]).map(Subject::digest).collect();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), others.len() + 1);
}

#[test]
fn what_is_no_subject_is_refused() {
    let good = String::from_utf8(subject().canonical_bytes()).unwrap();
    let at = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    for bad in [
        format!("{good} "),
        at(r#"{"v":3,"#, r#"{"v":3,"v":3,"#),
        at(r#"{"v":3,"#, r#"{"v":3,"approved":true,"#),
        at(r#"{"path""#, r#"{"safe":true,"path""#),
        at(r#"{"v":3,"#, r#"{"v":2,"#),
        at(r#"{"v":3,"#, r#"{"v":3.0,"#),
        at(r#""kind":"effect""#, r#""kind":"call""#),
        at(r#""kind":"effect""#, r#""kind":"Effect""#),
        at(&digest_of(b"manifest"), ""),
        at(r#""command":["make","-j 2"]"#, r#""command":["make", "-j 2"]"#),
        at(r#""command":["make","-j 2"]"#, r#""command":null"#),
        at("out/a.txt", r"\u006fut/a.txt"),
        at("out/a.txt", r"\ud800"),
        good[..good.len() - 1].to_owned(),
        "[]".into(),
    ] {
        assert!(matches!(Subject::parse(bad.as_bytes()), Err(InvalidSeal::Malformed(_))), "{bad}");
    }
    assert!(Subject::parse(good.as_bytes()).is_ok(), "as it was");
    let mut elsewhere = subject();
    elsewhere.changes[0].folder = Some(0);
    assert!(Subject::parse(&elsewhere.canonical_bytes()).is_err(), "in a folder that is not listed");
    elsewhere.folders = vec![Folder { path: "out".into(), changes: 1 }];
    assert_eq!(Subject::parse(&elsewhere.canonical_bytes()), Ok(elsewhere));
    let with_digest = Subject { effect_digest: digest_of(b"manifest"), ..call() };
    assert!(Subject::parse(&with_digest.canonical_bytes()).is_err(), "a call that has not run has no effect");
}

#[test]
fn more_bytes_than_a_subject_may_have_are_not_looked_at() {
    let said = Subject::parse(&vec![b'['; Subject::MAX_BYTES + 1]).unwrap_err().to_string();
    assert!(said.contains(&Subject::MAX_BYTES.to_string()), "{said}");
}

proptest! {
    #[test]
    fn any_text_survives(texts in prop::array::uniform4("\\PC{0,30}|[\\x00-\\x7f]{0,20}"), revision in any::<i64>()) {
        let [arguments, path, reason, word] = texts;
        let mut subject = Subject { arguments, reason, policy_revision: revision, command: vec![word], ..subject() };
        subject.changes[0].path = path;
        prop_assert_eq!(Subject::parse(&subject.canonical_bytes()), Ok(subject));
    }

    #[test]
    fn no_bytes_panic_and_what_is_read_has_no_other_spelling(bytes in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        prop_assert!(Subject::parse(&bytes).is_err());
        let mut near = subject().canonical_bytes();
        let at = at.index(near.len());
        near[at] = byte;
        if let Ok(read) = Subject::parse(&near) {
            prop_assert_eq!(read.canonical_bytes(), near);
        }
    }
}
