//! "To add …" in CONTRIBUTING.md names the files to touch. Held by an event and a step kind that were added that way: the files that know them are
//! exactly those that are named.

use std::{collections::BTreeSet, fs};

use crate::{
    house::root,
    source::{code, rust_files},
};

/// The source files that a walk names.
fn named(contributing: &str, walk: &str) -> BTreeSet<String> {
    let start = contributing.find(&format!("**{walk}**:"));
    let text = &contributing[start.unwrap_or_else(|| panic!("CONTRIBUTING.md does not say how to add {walk}"))..];
    let quoted = text.split("\n\n").next().unwrap_or_default().split('`').skip(1).step_by(2);
    quoted.filter(|path| path.ends_with(".rs") || path.ends_with(".proto")).map(str::to_owned).collect()
}

/// The source files whose code has one of these words, tests aside.
fn knowing(words: &[&str]) -> BTreeSet<String> {
    let mut knowing = BTreeSet::new();
    for file in ["services", "clients"].into_iter().flat_map(rust_files) {
        let text = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_test = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
        // Most files have none of them, and taking the comments out costs time.
        if !is_test && words.iter().any(|word| text.contains(word)) {
            let code = code(text);
            if words.iter().any(|word| code.contains(word)) {
                knowing.insert(file.path);
            }
        }
    }
    for entry in fs::read_dir(root().join("proto/belay/v1")).expect("the contract is there") {
        let path = entry.expect("it can be listed").path();
        let text = fs::read_to_string(&path).expect("a file of the contract can be read");
        if words.iter().any(|word| text.contains(&format!("message {word} "))) {
            let name = path.file_name().and_then(|name| name.to_str()).expect("our files have plain names");
            knowing.insert(format!("proto/belay/v1/{name}"));
        }
    }
    knowing
}

fn contributing() -> String {
    fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md is there")
}

#[test]
fn the_way_to_an_event_names_every_file() {
    assert_eq!(knowing(&["SignalReceived"]), named(&contributing(), "an event"));
}

#[test]
fn the_way_to_a_step_kind_names_every_file() {
    let words = [
        "WaitStep",
        "WaitStepDetail",
        "WaitDraft",
        "StepKind::Wait",
        "StepKindDraft::Wait",
        "Detail::Wait",
        "Work::Wait",
        "OperationKind::Wait",
        "OperationEnd::Wait",
    ];
    assert_eq!(knowing(&words), named(&contributing(), "a step kind"));
}

#[test]
fn a_file_that_is_not_named_is_seen() {
    let walk = "**an event**: `a.rs` and `b.proto` (`Name`).\n\n**another**: `c.rs`.";
    assert_eq!(named(walk, "an event"), ["a.rs", "b.proto"].map(str::to_owned).into());
    assert!(knowing(&["fn the_way_to_a_step_kind_names_every_file"]).is_empty(), "tests are left aside");
    assert!(knowing(&["struct StepRecord"]).contains("services/executor/execution/src/state/record.rs"));
}
