//! Rules: which matches, which wins. S2-FR-049.

use crate::support::*;

#[test]
fn the_strictest_wins_and_of_equals_the_first() {
    let policy = ruled(&[
        "{id: a, on: intent, tools: [run_terminal], decide: auto}",
        "{id: b, on: intent, programs: [git], decide: prompt}",
        "{id: c, on: intent, programs: [git], decide: prompt}",
        "{id: d, on: intent, programs: [git], arguments: [push], decide: deny}",
        "{id: e, on: intent, programs: [git], arguments: [status], decide: preview}",
    ]);
    assert_eq!(brief(&command(&policy, "make")), (Auto, "a"));
    assert_eq!(brief(&command(&policy, "git status")), (Prompt, "b"));
    assert_eq!(brief(&command(&policy, "git push")), (Deny, "d"));
    assert_eq!(brief(&intent(&policy, FileRead, "", &["x"])), (Auto, "file_read"), "no rule matches");
}

// S2-FR-051
#[test]
fn programs_are_those_found_on_the_path_and_arguments_are_compared_one_by_one() {
    let policy =
        ruled(&["{id: r, on: intent, programs: [curl, 'python*'], arguments: ['push*', '--url=*'], decide: deny}"]);
    for (words, met) in [
        ("curl push", true),
        ("/workspace/curl pushes", false),
        ("./curl -v push", false),
        ("x/curl push", false),
        ("python3.12 push", true),
        ("curl --url=https://a/b", true),
        ("curl", false),
        ("curl -v", false),
        ("curl xpush", false),
        ("Curl push", false),
        ("xcurl push", false),
        ("curl/x push", false),
        ("env curl push", false),
        ("push curl", false),
        ("", false),
    ] {
        assert_eq!(command(&policy, words).rule == "r", met, "{words:?}");
    }
}

#[test]
fn the_program_is_no_argument() {
    let policy = ruled(&["{id: r, on: intent, arguments: [push], decide: deny}"]);
    assert_eq!(command(&policy, "git push").rule, "r");
    assert_ne!(command(&policy, "push git").rule, "r");
}

#[test]
fn all_conditions_of_a_rule_have_to_be_met() {
    let policy = ruled(&[
        "{id: i, on: intent, tools: [run_terminal], programs: [make], arguments: [all], paths: [out/*], decide: deny}",
        "{id: e, on: effect, tools: [run_terminal], paths: [out/*], changes: [create], flags: [executable], decide: deny}",
    ]);
    let said = |kind, words, path| intent(&policy, kind, words, &[path]).rule == "i";
    assert!(said(Terminal, "make all", "out/x"));
    assert!(!said(Other, "make all", "out/x"));
    assert!(!said(Terminal, "cmake all", "out/x"));
    assert!(!said(Terminal, "make one", "out/x"));
    assert!(!said(Terminal, "make all", "in/x"));
    assert_ne!(command(&policy, "make all").rule, "i", "a rule on paths needs a path");
    let did = |kind, change| effect(&policy, kind, Auto, &[change]).rule == "e";
    assert!(did(Terminal, ("out/x", Created, &["executable"])));
    assert!(did(Terminal, ("out/x", Created, &["made_writable", "executable"])));
    assert!(!did(FileWrite, ("out/x", Created, &["executable"])));
    assert!(!did(Terminal, ("in/x", Created, &["executable"])));
    assert!(!did(Terminal, ("out/x", Modified, &["executable"])));
    assert!(!did(Terminal, ("out/x", Created, &["made_writable"])));
}

#[test]
fn globs_of_paths_keep_to_their_folders() {
    for (glob, paths, others) in [
        ("deploy/**", &["deploy", "deploy/a", "deploy/a/b"][..], &["deployer", "x/deploy/a", "Deploy/a"][..]),
        ("*.rs", &["a.rs", ".rs"], &["src/a.rs", "a.rsx"]),
        ("**/*.rs", &["a.rs", "x/y/a.rs"], &["a.r"]),
        ("a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["a/zz", "b/a/z"]),
        ("a?c", &["abc"], &["a/c", "ac"]),
        ("{a,b}/[xy]", &["a/x", "b/y"], &["a/z", "c/x"]),
        (r"a\*", &["a*"], &["ab"]),
        ("**", &["a", "a/b", "a\nb"], &[]),
    ] {
        let policy = ruled(&[
            &format!("{{id: i, on: intent, paths: ['{glob}'], decide: deny}}"),
            &format!("{{id: e, on: effect, paths: ['{glob}'], decide: deny}}"),
        ]);
        for (path, met) in paths.iter().map(|path| (path, true)).chain(others.iter().map(|path| (path, false))) {
            assert_eq!(intent(&policy, FileWrite, "", &[path]).rule == "i", met, "{glob} {path:?}");
            assert_eq!(effect(&policy, FileWrite, Auto, &[(path, Created, &[])]).rule == "e", met, "{glob} {path:?}");
        }
    }
}

#[test]
fn a_declared_path_cannot_hide_where_it_leads() {
    let policy = ruled(&["{id: no, on: intent, paths: ['deploy/**'], decide: deny}"]);
    for path in
        ["deploy/x", "./deploy/x", "deploy//x", "src/../deploy/x", "src/a/../../deploy/./x", "deploy/", "a/../deploy"]
    {
        assert_eq!(brief(&intent(&policy, FileWrite, "", &[path])), (Deny, "no"), "{path}");
    }
    for path in ["src/deploy/x", "deploy/../src/x", "../deploy/x", "../../deploy/x", "a/../../deploy/x"] {
        assert_eq!(intent(&policy, FileWrite, "", &[path]).verdict, Auto, "{path}");
    }
}

/// Otherwise one harmless path could allow all others.
#[test]
fn each_path_of_a_call_is_judged_separately() {
    let policy = policy(
        "{file_write: prompt, rules: [{id: docs, on: intent, paths: ['docs/**'], decide: auto}, {id: no, on: intent, paths: [key], decide: deny}]}",
    );
    assert_eq!(brief(&intent(&policy, FileWrite, "", &["docs/a"])), (Auto, "docs"));
    assert_eq!(brief(&intent(&policy, FileWrite, "", &["docs/a", "src/b"])), (Preview, "file_write"));
    assert_eq!(brief(&intent(&policy, FileWrite, "", &["src/b", "docs/a"])), (Preview, "file_write"));
    assert_eq!(brief(&intent(&policy, FileWrite, "", &["docs/a", "key"])), (Deny, "no"));
    let many = ["docs/a", "docs/b", "src/c"];
    let ruled = ruled(&[
        "{id: docs, on: effect, paths: ['docs/**'], decide: auto}",
        "{id: src, on: effect, paths: ['src/**'], decide: prompt}",
    ]);
    let changes: Vec<_> = many.iter().map(|path| (*path, Deleted, &[][..])).collect();
    assert_eq!(brief(&effect(&ruled, Terminal, Preview, &changes[..2])), (Auto, "docs"));
    assert_eq!(brief(&effect(&ruled, Terminal, Preview, &changes)), (Prompt, "src"));
}

/// The reason of docs/adr/0003: a rule can relax a setting for some paths.
#[test]
fn a_rule_that_matches_overrides_the_setting() {
    let policy = policy(
        "
file_write: deny
file_delete: prompt
terminal_commands: deny
rules:
  - {id: write-docs, on: intent, tools: [write_file], paths: ['docs/**'], decide: auto}
  - {id: tests, on: intent, programs: [cargo], decide: preview}
  - {id: output, on: effect, paths: ['target/**'], decide: auto}
",
    );
    assert_eq!(brief(&intent(&policy, FileWrite, "", &["docs/a"])), (Auto, "write-docs"));
    assert_eq!(effect(&policy, FileWrite, Auto, &[("docs/a", Created, &[])]).verdict, Auto);
    assert_eq!(intent(&policy, FileWrite, "", &["src/a"]).verdict, Deny);
    assert_eq!(brief(&command(&policy, "cargo test")), (Preview, "tests"));
    assert_eq!(command(&policy, "make").verdict, Deny);
    let did = |path, kind| effect(&policy, Terminal, Preview, &[(path, kind, &[])]);
    assert_eq!(brief(&did("target/debug/a", Created)), (Auto, "output"));
    assert_eq!(brief(&did("target", Deleted)), (Auto, "output"));
    assert_eq!(brief(&did("src/a", Modified)), (Deny, "file_write"));
    assert_eq!(did("src/a", Deleted).verdict, Prompt, "a rule let the command run, so its setting asks at most");
}

#[test]
fn a_command_that_a_rule_allows_may_write() {
    let policy = ruled(&[
        "{id: fmt, on: intent, programs: [cargo], decide: auto}",
        "{id: lock, on: effect, paths: [Cargo.lock], decide: prompt}",
    ]);
    assert_eq!(brief(&command(&policy, "cargo fmt")), (Auto, "fmt"));
    let did = |changes: &[FlaggedChange<'_>]| effect(&policy, Terminal, Auto, changes);
    assert_eq!(brief(&did(&[("new", Created, &[]), ("src/a.rs", Modified, &[])])), (Auto, "file_write"));
    assert_eq!(brief(&did(&[("old", Deleted, &[]), ("src/a.rs", Modified, &[])])), (Prompt, "file_delete"));
    assert_eq!(brief(&did(&[("src/a.rs", Modified, &[]), ("Cargo.lock", Modified, &[])])), (Prompt, "lock"));
    assert_eq!(brief(&did(&[(".git/hooks/pre-commit", Created, &[])])), (Prompt, "protected"));
}

#[test]
fn rules_apply_to_reading_and_to_unknown_tools_too() {
    let policy = ruled(&[
        "{id: secret, on: intent, tools: [read_file], paths: ['**/.env'], decide: deny}",
        "{id: deploy, on: intent, tools: [deploy_production], decide: auto}",
    ]);
    assert_eq!(brief(&intent(&policy, FileRead, "", &["a/.env"])), (Deny, "secret"));
    assert_eq!(brief(&intent(&policy, FileRead, "", &["a/env"])), (Auto, "file_read"));
    assert_eq!(brief(&intent(&policy, Other, "", &[])), (Auto, "deploy"));
}

/// A rule that allows a program by name matches only that program: not a file of the plan with the same name, and not when variables change
/// what the program does.
#[test]
fn what_lies_in_the_workspace_never_passes_for_a_program() {
    let policy = ruled(&["{id: fmt, on: intent, programs: [rustfmt], decide: auto}"]);
    assert_eq!(brief(&command(&policy, "rustfmt a.rs")), (Auto, "fmt"));
    for words in ["x/rustfmt", "./rustfmt", "/workspace/rustfmt", "../rustfmt"] {
        assert_ne!(command(&policy, words).rule, "fmt", "{words}");
    }
    assert_ne!(command_in(&policy, "rustfmt a.rs", "", &["RUSTFMT_CONFIG"]).rule, "fmt");
}

#[test]
fn rules_see_the_directory_and_the_names_of_variables() {
    let policy = ruled(&[
        "{id: build, on: intent, programs: [make], cwd: [., 'src/**'], env: [CI, 'CARGO_TERM_*'], decide: auto}",
        "{id: flags, on: intent, env: ['*FLAGS'], decide: deny}",
        "{id: vendor, on: intent, cwd: [vendor], decide: prompt}",
    ]);
    for (directory, environment, answer) in [
        ("", &[][..], (Auto, "build")),
        (".", &["CI"], (Auto, "build")),
        ("src/a", &["CI", "CARGO_TERM_COLOR"], (Auto, "build")),
        ("./src", &[], (Auto, "build")),
        ("docs", &[], (Preview, "terminal_commands")),
        ("src/../docs", &[], (Preview, "terminal_commands")),
        ("", &["CI", "SHELL"], (Preview, "terminal_commands")),
        ("", &["CI", "MAKEFLAGS"], (Deny, "flags")),
        ("vendor", &[], (Prompt, "vendor")),
        ("vendor/x", &[], (Preview, "terminal_commands")),
    ] {
        assert_eq!(
            brief(&command_in(&policy, "make all", directory, environment)),
            answer,
            "{directory} {environment:?}"
        );
    }
}

#[test]
fn an_allowed_program_may_not_delete_or_change_protected_paths() {
    let policy = ruled(&["{id: fmt, on: intent, programs: [rustfmt], decide: auto}"]);
    let did = |change| brief(&effect(&policy, Terminal, Auto, &[("ok.rs", Modified, &[]), change])).0;
    assert_eq!(did(("b.rs", Created, &["executable"])), Auto);
    assert_eq!(did(("b.rs", Deleted, &[])), Prompt);
    assert_eq!(did((".git/hooks/pre-commit", Created, &[])), Prompt);
    assert_eq!(did(("b", Created, &["link_leaves"])), Prompt);
    let cleans = ruled(&[
        "{id: fmt, on: intent, programs: [rustfmt], decide: auto}",
        "{id: out, on: effect, paths: ['out/**'], changes: [delete], decide: auto}",
    ]);
    assert_eq!(brief(&effect(&cleans, Terminal, Auto, &[("out/x", Deleted, &[])])), (Auto, "out"));
}

#[test]
fn the_decision_names_the_gravest_of_equally_strict_changes() {
    let preset = policy("{}");
    let changes: Vec<FlaggedChange<'_>> = vec![
        ("+000.md", Created, &[]),
        ("a", Deleted, &[]),
        ("b", Modified, &[]),
        ("c", Created, &["odd_name"]),
        ("z/.git/config", Modified, &[]),
    ];
    for (count, path) in [(1, "+000.md"), (2, "a"), (3, "a"), (4, "c"), (5, "z/.git/config")] {
        let decision = effect(&preset, Terminal, Preview, &changes[..count]);
        assert!(decision.reason.starts_with(&format!("`{path}`: ")), "{count}: {decision:?}");
    }
    let denied = policy("{file_delete: deny}");
    let decision = effect(&denied, Terminal, Preview, &[("a", Deleted, &[]), (".envrc", Deleted, &[])]);
    assert!(decision.reason.starts_with("`.envrc`: "), "{decision:?}");
}
