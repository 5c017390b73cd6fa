//! Restricts `unsafe` and the machine's clock to listed places, each with its reason, and checks that every crate has the workspace's lints.

use std::collections::BTreeSet;

use crate::{house, source};

/// The folders that may contain `unsafe`, and why.
const UNSAFE: &[(&str, &str)] = &[
    ("clients/cli/src/allocator.rs", "what the allocator is asked for has no safe interface"),
    ("services/shared/sqlite/tests/page_caches.rs", "SQLite says how large its caches are to C alone"),
    ("services/shared/service-kit/src/peer_process.rs", "no crate asks for the process at the other end of a socket"),
    ("services/tool-runner/proxy/src/sys.rs", "no crate closes descriptors that it does not own"),
    ("services/tool-runner/sandbox/", "it talks to the kernel: namespaces, Landlock, seccomp, limits"),
    ("tests/plans/tests/plans/fuzz/allocator.rs", "it counts what is allocated"),
    ("tests/simulation/", "it replaces libc's clock and randomness, and SQLite's disk"),
];

/// The files that may use the machine's clock, and why.
const CLOCKS: &[(&str, &str)] = &[
    ("clients/cli/src/clock.rs", "what a person reads and types; a client may not import service-kit"),
    ("services/shared/service-kit/src/clock.rs", "the one clock of the services"),
    (
        "services/tool-runner/sandbox/examples/launch_ratio.rs",
        "it measures the cost of a launch, compared with a bare one",
    ),
    ("tests/simulation/src/scenario/randomness.rs", "it checks that the simulated clock is stopped"),
];

/// The places in the code with one of the words, as `path:line`. `except` has path prefixes.
fn places(files: &[source::File], words: &[&str], except: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        if except.iter().any(|(allowed, _)| file.path.starts_with(allowed)) {
            continue;
        }
        for (line, code) in (1..).zip(source::code(&file.text).lines()) {
            let mut named = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            if named.any(|word| words.contains(&word)) {
                found.push(format!("{}:{line}", file.path));
            }
        }
    }
    found
}

/// Exceptions that are no longer used.
fn unused<'a>(files: &[source::File], words: &[&str], except: &[(&'a str, &str)]) -> Vec<&'a str> {
    let all: BTreeSet<String> = places(files, words, &[]).into_iter().collect();
    let used = |allowed: &str| all.iter().any(|place| place.starts_with(allowed));
    except.iter().map(|(allowed, _)| *allowed).filter(|allowed| !used(allowed)).collect()
}

/// Whether the manifest has `[lints]` with `workspace = true`.
fn has_the_lints(manifest: &str) -> bool {
    let section = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    section.take_while(|line| !line.starts_with('[')).any(|line| line == "workspace = true")
}

#[test]
fn unsafe_code_is_only_in_listed_folders() {
    let files = source::rust_files("");
    let words = ["unsafe", "unsafe_code"];
    let found = places(&files, &words, UNSAFE);
    assert!(
        found.is_empty(),
        "`unsafe` outside the folders listed in tests/architecture/src/manners.rs:\n{}\n",
        found.join("\n")
    );
    let unused = unused(&files, &words, UNSAFE);
    assert!(
        unused.is_empty(),
        "there is no `unsafe` in {unused:?}: remove them from tests/architecture/src/manners.rs"
    );
}

#[test]
fn only_the_listed_files_read_the_machines_clock() {
    let files = source::rust_files("");
    let words = ["disallowed_methods"];
    let found = places(&files, &words, CLOCKS);
    assert!(found.is_empty(), "take a clock as an argument instead:\n{}\n", found.join("\n"));
    let unused = unused(&files, &words, CLOCKS);
    assert!(unused.is_empty(), "{unused:?} do not use the clock: remove them from tests/architecture/src/manners.rs");
}

#[test]
fn every_crate_has_the_workspaces_lints() {
    let without: Vec<String> = house::crates()
        .into_iter()
        .map(|member| format!("{}/Cargo.toml", member.folder))
        .filter(|path| !has_the_lints(&std::fs::read_to_string(house::root().join(path)).unwrap()))
        .collect();
    assert!(without.is_empty(), "add `[lints]` with `workspace = true` to {without:?}");
}

#[test]
fn a_word_counts_only_in_code_and_outside_the_exceptions() {
    let file = |path: &str, text: &str| source::File { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("a/x.rs", "// unsafe\nlet s = \"unsafe\";\nunsafe { f() }\n"),
        file("b/x.rs", "unsafe { f() }\n"),
        file("c/x.rs", "not_unsafe();\n"),
    ];
    assert_eq!(places(&files, &["unsafe"], &[("b/", "")]), ["a/x.rs:3"]);
    assert_eq!(unused(&files, &["unsafe"], &[("b/", ""), ("c/", "")]), ["c/"]);
}

#[test]
fn the_lints_count_in_their_own_section_only() {
    assert!(has_the_lints("[package]\n\n[lints]\nworkspace = true\n"));
    assert!(!has_the_lints("[lints]\n\n[dependencies]\nworkspace = true\n"));
    assert!(!has_the_lints("[dependencies.x]\nworkspace = true\n"));
}
