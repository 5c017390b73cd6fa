//! Somebody else works in the same folder: what is noticed, when, and what it leaves.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use belay_workspace::{Call, Commit, CommitError, EffectError, Limits, Manifest, Seam, View, Workspace};

use crate::support::{Ground, commit, path};

fn paths(conflict: &EffectError) -> Vec<String> {
    match conflict {
        EffectError::Conflict { paths } => paths.iter().map(ToString::to_string).collect(),
        other => panic!("{other}"),
    }
}

fn in_commit(conflict: &CommitError) -> Vec<String> {
    match conflict {
        CommitError::Conflict { paths } => paths.iter().map(ToString::to_string).collect(),
        other => panic!("{other}"),
    }
}

fn proposed(workspace: &Workspace, id: &str, change: impl FnOnce(&mut View)) -> (View, Manifest) {
    let mut view = workspace.view(id).unwrap();
    change(&mut view);
    let manifest = view.effect(Limits::default()).unwrap();
    (view, manifest)
}

/// An editor that saves by writing a new file and renaming it.
fn save(place: &Path, text: &str) {
    let beside = place.with_file_name(".saving");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, place).unwrap();
}

/// A manifest from a store that shows something else than it would do.
#[test]
fn a_manifest_that_shows_something_else_is_not_staged() {
    let tamper: [fn(&mut Manifest); 3] = [
        |manifest| manifest.changes[0].after[0].mode = 0o600,
        |manifest| manifest.changes[0].before.clear(),
        |manifest| manifest.changes[1].before[0].mode = 0o600,
    ];
    for (n, tamper) in tamper.into_iter().enumerate() {
        let ground = Ground::with(&[("a", "1"), ("b", "2")]);
        let workspace = ground.open();
        let (view, mut manifest) = proposed(&workspace, "v", |view| {
            view.write(&path("a"), b"ours", None).unwrap();
            view.remove(&path("b")).unwrap();
        });
        tamper(&mut manifest);
        let refused = workspace.stage(view, &manifest).unwrap_err();
        assert!(matches!(refused, CommitError::Altered { .. }), "{n}: {refused}");
    }
}

type Change = fn(&Path);

/// The first window: between the view's beginning and its effect.
#[test]
fn a_touched_path_that_changes_during_the_call_is_a_conflict() {
    let changes: [(&str, Change); 9] = [
        ("a", |root| save(&root.join("a"), "theirs")),
        ("a", |root| fs::write(root.join("a"), "theirs").unwrap()),
        ("a", |root| fs::remove_file(root.join("a")).unwrap()),
        ("a", |root| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
        }),
        ("d", |root| fs::write(root.join("d/deep/added"), "").unwrap()),
        ("d", |root| fs::write(root.join("d/deep/file"), "theirs").unwrap()),
        ("d", |root| fs::remove_file(root.join("d/deep/file")).unwrap()),
        ("new", |root| fs::write(root.join("new"), "theirs").unwrap()),
        ("new", |root| fs::create_dir(root.join("new")).unwrap()),
    ];
    for (n, (meant, change)) in changes.into_iter().enumerate() {
        let ground = Ground::with(&[("a", "1"), ("b", "2"), ("d/deep/file", "3")]);
        let workspace = ground.open();
        let mut view = workspace.view("v").unwrap();
        view.write(&path("a"), b"ours", None).unwrap();
        view.remove(&path("d")).unwrap();
        view.write(&path("new"), b"ours", None).unwrap();
        change(&ground.root);
        let theirs = ground.picture();
        let conflict = view.effect(Limits::default()).unwrap_err();
        assert_eq!(paths(&conflict), [meant], "change {n}");
        assert!(conflict.to_string().contains("changed by someone else during the call"), "{conflict}");
        drop(view);
        assert_eq!(ground.picture(), theirs);
    }
}

/// Untouched paths do not count, not even beside touched ones.
#[test]
fn an_unrelated_change_is_no_conflict() {
    let ground = Ground::with(&[("d/a", "1"), ("d/b", "2"), ("e/x", "3")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("d/a"), b"ours", None).unwrap();
    view.write(&path("d/new"), b"ours", None).unwrap();
    save(&ground.root.join("d/b"), "theirs");
    fs::write(ground.root.join("d/theirs"), "").unwrap();
    fs::remove_dir_all(ground.root.join("e")).unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    fs::write(ground.root.join("d/more"), "").unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    assert_eq!(["d/a", "d/b", "d/new"].map(|at| ground.read(at)), ["ours", "theirs", "ours"]);
}

/// Two calls on one base: the first to commit wins, on a file and on a folder that both make.
#[test]
fn the_first_committer_wins() {
    let ground = Ground::with(&[("a", "1")]);
    let workspace = ground.open();
    let mut late = workspace.view("late").unwrap();
    let mut later = workspace.view("later").unwrap();
    commit(&workspace, "early", |view| {
        view.write(&path("a"), b"early", None).unwrap();
        view.write(&path("out/early"), b"", None).unwrap();
    });
    late.write(&path("a"), b"late", None).unwrap();
    assert_eq!(paths(&late.effect(Limits::default()).unwrap_err()), ["a"]);
    later.write(&path("other"), b"", None).unwrap();
    assert!(later.effect(Limits::default()).is_ok());
    assert_eq!(ground.read("a"), "early");
}

/// The second window: an approval may take days.
#[test]
fn what_changes_while_a_person_decides_is_a_conflict_unless_it_changes_back() {
    let ground = Ground::with(&[("a", "1"), ("d/x", "2"), ("e/deep/f", "3")]);
    let workspace = ground.open();
    let (view, manifest) = proposed(&workspace, "v", |view| {
        view.write(&path("a"), b"ours", None).unwrap();
        view.remove(&path("d")).unwrap();
        view.remove(&path("e")).unwrap();
        view.write(&path("n/m"), b"ours", None).unwrap();
    });
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.check(&commit).unwrap();
    save(&ground.root.join("a"), "theirs");
    fs::write(ground.root.join("d/y"), "").unwrap();
    fs::write(ground.root.join("e/deep/f"), "!").unwrap();
    fs::create_dir(ground.root.join("n")).unwrap();
    let theirs = ground.picture();
    let conflict = workspace.check(&commit).unwrap_err();
    assert_eq!(in_commit(&conflict), ["a", "d", "e", "n"]);
    assert_eq!(in_commit(&workspace.apply(&commit).unwrap_err()).len(), 1, "and applying finds out for itself");
    assert_eq!(ground.picture(), theirs, "nothing was changed");
    save(&ground.root.join("a"), "1");
    fs::remove_file(ground.root.join("d/y")).unwrap();
    fs::write(ground.root.join("e/deep/f"), "3").unwrap();
    fs::remove_dir(ground.root.join("n")).unwrap();
    workspace.check(&commit).unwrap();
    workspace.apply(&commit).unwrap();
    assert_eq!(
        (ground.read("a"), ground.read("n/m"), ground.root.join("d").exists()),
        ("ours".into(), "ours".into(), false)
    );
}

#[test]
fn a_conflict_is_found_before_anything_is_staged() {
    let ground = Ground::with(&[("a", "1")]);
    let workspace = ground.open();
    let (view, manifest) = proposed(&workspace, "v", |view| view.write(&path("a"), b"ours", None).unwrap());
    save(&ground.root.join("a"), "theirs");
    assert_eq!(in_commit(&workspace.stage(view, &manifest).unwrap_err()), ["a"]);
    let left = |folder: &str| fs::read_dir(ground.root.join(".belay").join(folder)).unwrap().count();
    assert_eq!((left("commits"), left("views")), (0, 0));
}

/// A view that a straggler wrote to after the effect was taken is not what was agreed to.
#[test]
fn a_view_that_changed_after_its_effect_is_not_staged() {
    let ground = Ground::with(&[("a", "1")]);
    let workspace = ground.open();
    let (view, manifest) = proposed(&workspace, "v", |view| view.write(&path("n/a"), b"agreed", None).unwrap());
    fs::write(view.directory().join("upper/n/a"), "worse!").unwrap();
    let refused = workspace.stage(view, &manifest).unwrap_err();
    assert!(matches!(&refused, CommitError::Altered { path } if path.to_string() == "n"), "{refused}");
    assert!(!ground.root.join("n").exists());
}

/// The third window: a hand on the disk just before a rename.
struct Interference {
    before: usize,
    change: Change,
    root: PathBuf,
    renames: Mutex<usize>,
}

impl Seam for Interference {
    fn alive(&self, call: &Call<'_>) -> bool {
        if call.name == "rename" {
            let mut renames = self.renames.lock().unwrap();
            if *renames == self.before {
                (self.change)(&self.root);
            }
            *renames += 1;
        }
        true
    }
}

/// `a` and `c` are written, `b` goes, `n` is new: in this order.
const FILES: [(&str, &str); 3] = [("a", "1"), ("b/x", "2"), ("c", "3")];

/// Commits in a workspace that another process changes just before the rename of one of the four operations.
fn interrupted_commit(ground: &Ground, before: usize, change: Change) -> (Workspace, Commit, Result<(), CommitError>) {
    let workspace = ground.open();
    let (view, manifest) = proposed(&workspace, "v", |view| {
        view.write(&path("a"), b"ours", None).unwrap();
        view.remove(&path("b")).unwrap();
        view.write(&path("c"), b"ours", None).unwrap();
        view.write(&path("n"), b"ours", None).unwrap();
    });
    let commit = workspace.stage(view, &manifest).unwrap();
    drop(workspace);
    // Only renames after opening count.
    let opening = renames_of(|seam| drop(Workspace::open_with(&ground.root, &[], seam).unwrap()));
    let seam = Interference { before: opening + before, change, root: ground.root.clone(), renames: Mutex::new(0) };
    let workspace = Workspace::open_with(&ground.root, &[], Arc::new(seam)).unwrap();
    workspace.check(&commit).unwrap();
    let applied = workspace.apply(&commit);
    (workspace, commit, applied)
}

/// A person saves in the very instant between the check and the exchange, at every rename of the commit in turn.
#[test]
fn a_save_that_slips_in_is_exchanged_back() {
    // With the last rename before which it comes in time: that of its own path.
    let changes: [(usize, Change); 5] = [
        (0, |root| save(&root.join("a"), "theirs")),
        (1, |root| fs::write(root.join("b/x"), "theirs").unwrap()),
        (2, |root| save(&root.join("c"), "x")), // as long as what it replaces
        (2, |root| fs::remove_file(root.join("c")).unwrap()),
        (3, |root| fs::write(root.join("n"), "theirs").unwrap()),
    ];
    for (last, change) in changes {
        for before in 0..=last {
            let (ground, other) = (Ground::with(&FILES), Ground::with(&FILES));
            change(&other.root);
            let (workspace, commit, applied) = interrupted_commit(&ground, before, change);
            assert!(matches!(applied, Err(CommitError::Conflict { .. })), "{before} of {last}: {applied:?}");
            assert_eq!(ground.picture(), other.picture(), "all as it was, with their save");
            workspace.discard(&commit).unwrap();
        }
    }
}

/// After the exchange of its path a save is a change to the new contents, like any later one.
#[test]
fn a_save_after_the_exchange_stays() {
    let ground = Ground::with(&FILES);
    let (_, _, applied) = interrupted_commit(&ground, 1, |root| save(&root.join("a"), "theirs"));
    applied.unwrap();
    assert_eq!((ground.read("a"), ground.read("c"), ground.read("n")), ("theirs".into(), "ours".into(), "ours".into()));
}

/// The one case that is not atomic: another process changed an applied file before the rollback.
/// Theirs is not overwritten, and it is said.
#[test]
fn rollback_keeps_a_concurrent_save() {
    let changes: [Change; 2] = [
        |root| {
            save(&root.join("a"), "theirs");
            save(&root.join("c"), "theirs");
        },
        |root| {
            fs::write(root.join("a"), "theirs").unwrap();
            fs::write(root.join("c"), "theirs").unwrap();
        },
    ];
    for change in changes {
        let ground = Ground::with(&FILES);
        let (workspace, commit, applied) = interrupted_commit(&ground, 2, change);
        let stuck = applied.unwrap_err();
        assert!(matches!(&stuck, CommitError::Stuck { .. }), "{stuck}");
        assert!(
            stuck.to_string().contains("reverting it failed too: changed by someone else meanwhile: `a`"),
            "{stuck}"
        );
        assert_eq!(
            (ground.read("a"), ground.read("b/x"), ground.read("c")),
            ("theirs".into(), "2".into(), "theirs".into())
        );
        assert!(!ground.root.join("n").exists());
        assert!(matches!(workspace.discard(&commit), Err(CommitError::InPlace { .. })));
    }
}

fn renames_of(run: impl FnOnce(Arc<dyn Seam>)) -> usize {
    let counter =
        Arc::new(Interference { before: usize::MAX, change: |_| {}, root: PathBuf::new(), renames: Mutex::new(0) });
    run(Arc::clone(&counter) as Arc<dyn Seam>);
    *counter.renames.lock().unwrap()
}
