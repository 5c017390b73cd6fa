//! Programs that people use.

use serde_json::json;

use crate::{
    harness::{Test, Verdict, tests},
    support::{Room, sh},
};

pub(crate) const TESTS: &[Test] = tests![git_keeps_a_history, make_builds, python_computes];

/// Whether commands have a program.
fn has(program: &str) -> bool {
    Room::new().call(sh(&format!("command -v {program}"))).is_ok()
}

fn lacks(program: &str) -> Verdict {
    Verdict::Skipped(format!("there is no {program} in /usr here"))
}

// S2-X-10.
fn git_keeps_a_history() -> Verdict {
    if !has("git") {
        return lacks("git");
    }
    let script = "set -e; git init -q; git config user.name A; git config user.email a@example.com
        git add file; git commit -q -m 'First; $(second)'; git log --format=%s; git status --short";
    // Belay's own folder is not among what git sees.
    assert_eq!(Room::new().script(script), "First; $(second)\n");
    Verdict::Passed
}

fn make_builds() -> Verdict {
    if !has("make") {
        return lacks("make");
    }
    let room = Room::new();
    std::fs::write(room.workspace.join("Makefile"), "all: copy\ncopy: file\n\tcp file copy\n").unwrap();
    let view = room.view();
    room.call_in(&view, json!({"command": ["make", "-s"]})).unwrap();
    assert_eq!(room.read_in(&view, "copy"), "as it was\n");
    Verdict::Passed
}

fn python_computes() -> Verdict {
    if !has("python3") {
        return lacks("python3");
    }
    let room = Room::new();
    let result = room.call(json!({"command": ["python3", "-c", "print(open('file').read() * 2, end='')"]})).unwrap();
    assert_eq!(result["stdout"], "as it was\nas it was\n");
    Verdict::Passed
}
