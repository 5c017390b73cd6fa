//! Common programs in the sandbox.

use serde_json::json;

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, sh},
};

pub(crate) const TESTS: &[Test] = tests![git_works, make_works, python_works];

/// Whether the program is installed.
fn has(program: &str) -> bool {
    Fixture::new().call(sh(&format!("command -v {program}"))).is_ok()
}

fn lacks(program: &str) -> Verdict {
    Verdict::Skipped(format!("{program} is not installed in /usr"))
}

// S2-X-10.
fn git_works() -> Verdict {
    if !has("git") {
        return lacks("git");
    }
    let script = "set -e; git init -q; git config user.name A; git config user.email a@example.com
        git add file; git commit -q -m 'First; $(second)'; git log --format=%s; git status --short";
    // Git does not see Belay's own directory.
    assert_eq!(Fixture::new().script(script), "First; $(second)\n");
    Verdict::Passed
}

fn make_works() -> Verdict {
    if !has("make") {
        return lacks("make");
    }
    let fixture = Fixture::new();
    std::fs::write(fixture.workspace.join("Makefile"), "all: copy\ncopy: file\n\tcp file copy\n").unwrap();
    let view = fixture.view();
    fixture.call_in(&view, json!({"command": ["make", "-s"]})).unwrap();
    assert_eq!(fixture.read_in(&view, "copy"), "as it was\n");
    Verdict::Passed
}

fn python_works() -> Verdict {
    if !has("python3") {
        return lacks("python3");
    }
    let fixture = Fixture::new();
    let result = fixture.call(json!({"command": ["python3", "-c", "print(open('file').read() * 2, end='')"]})).unwrap();
    assert_eq!(result["stdout"], "as it was\nas it was\n");
    Verdict::Passed
}
