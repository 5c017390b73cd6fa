//! Uppers that the kernel's own overlay made, under a shell script that was run inside.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Output},
};

use belay_workspace::{Limits, OWN, UPPER, View, WORK, Workspace};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::support::{Ground, before, cases, path, place};

/// Runs a script in the mounted view, in a mount namespace of its own.
fn in_overlay(view: &View, script: &str) -> Output {
    let (upper, work) = (view.directory().join(UPPER), view.directory().join(WORK));
    fs::create_dir_all(&upper).unwrap();
    fs::create_dir(&work).unwrap();
    let merged = tempfile::tempdir().unwrap();
    let lower = view.lower();
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr,volatile",
        lower[0].display(),
        upper.display(),
        work.display()
    );
    // As root a mount namespace is enough; as a user it takes a user namespace.
    let unshare = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mounted = format!(
        "mount -t overlay overlay -o \"$0\" \"$1\" && cd \"$1\" && mount -t tmpfs -o ro none {OWN} && exec sh -c \"$2\""
    );
    let mut run = Command::new("unshare");
    run.args([unshare, "sh", "-c", &mounted, &options]).arg(merged.path()).arg(script).output().unwrap()
}

/// Whether an overlay can be mounted here; otherwise says so under the test's name.
pub(crate) fn possible(test: &str) -> bool {
    let ground = Ground::new();
    let workspace = ground.open();
    let view = workspace.view("probe").unwrap();
    let tried = in_overlay(&view, "true");
    if !tried.status.success() {
        eprintln!("skipped: {test}: no overlay can be mounted here: {}", String::from_utf8_lossy(&tried.stderr));
    }
    tried.status.success()
}

fn run_both(workspace: &Workspace, id: &str, plain: &Path, script: &str) {
    let view = workspace.view(id).unwrap();
    let inside = in_overlay(&view, script);
    let outside = Command::new("sh").args(["-c", script]).current_dir(plain).output().unwrap();
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(inside.status.code(), outside.status.code(), "{} / {}", said(&inside), said(&outside));
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
}

/// Makes each hard link a file of its own, as a copy-up does with those that an earlier call made.
fn part_links(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let place = entry.unwrap().path();
        let found = fs::symlink_metadata(&place).unwrap();
        if found.is_dir() {
            part_links(&place);
        } else if found.is_file() && found.nlink() > 1 {
            let contents = fs::read(&place).unwrap();
            fs::remove_file(&place).unwrap();
            fs::write(&place, contents).unwrap();
            fs::set_permissions(&place, found.permissions()).unwrap();
        }
    }
}

/// A command of a shell. Each may fail: it fails in both places or in none.
fn command() -> impl Strategy<Value = String> {
    let mode = prop::sample::select(vec!["644", "755", "600", "711"]);
    let folder_mode = prop::sample::select(vec!["755", "711", "700"]);
    prop_oneof![
        3 => (place(), "[a-z]{0,9}").prop_map(|(at, text)| format!("mkdir -p $(dirname {at}) && [ ! -h {at} ] && echo {text} > {at}")),
        2 => place().prop_map(|at| format!("[ -f {at} ] && [ ! -h {at} ] && echo more >> {at}")),
        3 => place().prop_map(|at| format!("rm -rf {at}")),
        2 => place().prop_map(|at| format!("rm -rf {at}; mkdir -p {at}")),
        3 => (place(), place()).prop_map(|(from, to)| format!("mv {from} {to}")),
        1 => (place(), place()).prop_map(|(from, to)| format!("cp -r {from} {to}")),
        2 => (place(), place()).prop_map(|(target, at)| format!("ln -s {target} {at}")),
        1 => (place(), place()).prop_map(|(target, at)| format!("ln {target} {at}")),
        2 => (place(), mode).prop_map(|(at, mode)| format!("[ -f {at} ] && [ ! -h {at} ] && chmod {mode} {at}")),
        2 => (place(), folder_mode).prop_map(|(at, mode)| format!("[ -d {at} ] && [ ! -h {at} ] && chmod {mode} {at}")),
        1 => place().prop_map(|at| format!("cat {at}")),
        1 => place().prop_map(|at| format!("[ ! -h {at} ] && touch {at}")),
    ]
}

/// S2-FR-044: what a command did in the overlay is what it would have done in the folder.
#[test]
fn commands_do_what_they_would_on_a_plain_folder() {
    if !possible("commands_do_what_they_would_on_a_plain_folder") {
        return;
    }
    let mut runner = TestRunner::new(Config {
        cases: cases("PROPTEST_CASES", 60),
        max_shrink_iters: 100,
        failure_persistence: None,
        ..Config::default()
    });
    let scripts = prop::collection::vec(prop::collection::vec(command(), 1..10), 1..3);
    let outcome = runner.run(&(before(), scripts), |(before, scripts)| {
        let (ours, plain) = (Ground::new(), Ground::new());
        before.build(&ours.root);
        before.build(&plain.root);
        let workspace = ours.open();
        for (n, commands) in scripts.iter().enumerate() {
            let script = format!("umask 022; {{ {}; }} 2>/dev/null; true", commands.join("; "));
            run_both(&workspace, &format!("call-{n}"), &plain.root, &script);
            prop_assert_eq!(ours.picture(), plain.picture(), "{}", script);
            part_links(&plain.root);
        }
        Ok(())
    });
    outcome.unwrap();
}

/// A file tool's marks are the kernel's: what was removed and replaced in this process is so under a mount of the same layers.
#[test]
fn a_mount_shows_what_the_file_tools_did() {
    if !possible("a_mount_shows_what_the_file_tools_did") {
        return;
    }
    let ground = Ground::with(&[
        ("gone", "1"),
        ("d/gone", "2"),
        ("d/kept", "3"),
        ("tree/old/x", "4"),
        ("f", "5"),
        ("changed", "6"),
    ]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.remove(&path("gone")).unwrap();
    view.remove(&path("d/gone")).unwrap();
    view.remove(&path("tree")).unwrap();
    view.write(&path("tree/new"), b"7", None).unwrap();
    view.remove(&path("f")).unwrap();
    view.write(&path("f/g"), b"8", None).unwrap();
    view.write(&path("changed"), b"9", None).unwrap();
    let shown = in_overlay(
        &view,
        "find . -path ./.belay -prune -o -type f -print | sort; cat changed; echo more >> d/kept; rm f/g; ls -A .belay",
    );
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "./changed\n./d/kept\n./f/g\n./tree/new\n9", "{shown:?}");
    assert_eq!(String::from_utf8(view.read(&path("d/kept"), 0, None).unwrap()).unwrap(), "3more\n");
    assert!(view.list(&path("f")).unwrap().is_empty());
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    assert_eq!((ground.read("d/kept"), ground.read("tree/new")), ("3more\n".into(), "7".into()));
}

/// A rename inside the overlay leaves a copy-up without an original, which is not mistaken for a removed file. One that was
/// removed is.
#[test]
fn a_rename_is_no_conflict_and_a_vanished_original_is() {
    if !possible("a_rename_is_no_conflict_and_a_vanished_original_is") {
        return;
    }
    let ground = Ground::with(&[("d/a", "1"), ("d/b", "2"), ("e/c", "3")]);
    let workspace = ground.open();
    let view = workspace.view("rename").unwrap();
    assert!(in_overlay(&view, "mv d/a d/renamed && echo more >> d/renamed").status.success());
    fs::write(ground.root.join("e/beside"), "").unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    assert_eq!(ground.read("d/renamed"), "1more\n");
    let view = workspace.view("vanished").unwrap();
    assert!(in_overlay(&view, "echo more >> d/b; echo more >> e/c").status.success());
    fs::remove_file(ground.root.join("d/b")).unwrap();
    fs::remove_dir_all(ground.root.join("e")).unwrap();
    let conflict = view.effect(Limits::default()).unwrap_err().to_string();
    assert!(conflict.contains("`d/b`, `e`"), "{conflict}");
}
