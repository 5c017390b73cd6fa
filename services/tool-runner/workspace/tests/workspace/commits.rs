//! Committing and taking back.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use belay_workspace::{Call, Commit, CommitError, Limits, Seam, UPPER, Workspace};

use crate::support::{Ground, commit, path};

const FILES: [(&str, &str); 5] = [("a", "1"), ("d/x", "2"), ("d/y", "3"), ("tree/p/q", "4"), ("link", "-> a")];

fn change_all(workspace: &Workspace) -> Commit {
    let (_, commit) = commit(workspace, "all", |view| {
        view.write(&path("a"), b"changed", Some(0o755)).unwrap();
        view.remove(&path("d/x")).unwrap();
        view.write(&path("d/n/deep"), b"new", None).unwrap();
        view.remove(&path("tree")).unwrap();
        view.write(&path("tree"), b"a file now", None).unwrap();
        view.remove(&path("link")).unwrap();
        view.write(&path("link/inside"), b"a folder now", None).unwrap();
    });
    commit
}

/// S2-FR-040, S2-NFR-007: applied as often as one likes, taken back as often, and applied again.
#[test]
fn a_commit_goes_forward_and_back() {
    let ground = Ground::with(&FILES);
    let before = ground.picture();
    let workspace = ground.open();
    let commit = change_all(&workspace);
    let after = ground.picture();
    assert_eq!(
        ["a", "d/n/deep", "tree", "link/inside", "d/y"].map(|at| ground.read(at)),
        ["changed", "new", "a file now", "a folder now", "3"]
    );
    assert!(!ground.root.join("d/x").exists());
    let stored = serde_json::to_string(&commit).unwrap();
    let commit: Commit = serde_json::from_str(&stored).unwrap();
    for _ in 0..2 {
        workspace.apply(&commit).unwrap();
        assert_eq!(ground.picture(), after);
    }
    for _ in 0..2 {
        workspace.rollback(&commit).unwrap();
        assert_eq!(ground.picture(), before);
    }
    workspace.apply(&commit).unwrap();
    assert_eq!(ground.picture(), after);
    assert!(
        matches!(workspace.discard(&commit), Err(CommitError::InPlace { .. })),
        "the old contents are not thrown away"
    );
    workspace.finish(&commit).unwrap();
    workspace.finish(&commit).unwrap();
    assert_eq!(ground.picture(), after);
    assert!(matches!(workspace.rollback(&commit), Err(CommitError::NotStaged { .. })));
}

/// B-03: what waited for a decision, perhaps for days, is put in place as it was decided about or not at all, also when somebody is at it
/// after the last check. Nobody is left half done.
#[test]
fn what_was_altered_in_its_slot_is_not_put_in_place() {
    type Alter = fn(&Path);
    let alterations: [Alter; 5] = [
        |slots| fs::write(slots.join("0"), "forged").unwrap(),
        |slots| {
            fs::write(slots.join("other"), "another").unwrap();
            fs::rename(slots.join("other"), slots.join("0")).unwrap();
        },
        |slots| fs::remove_file(slots.join("0")).unwrap(),
        |slots| fs::set_permissions(slots.join("0"), fs::Permissions::from_mode(0o777)).unwrap(),
        |slots| fs::write(slots.join("1"), "in the place of what is to go").unwrap(),
    ];
    for (nth, alter) in alterations.into_iter().enumerate() {
        for file in ["a", "made"] {
            let ground = Ground::with(&FILES);
            let before = ground.picture();
            let workspace = ground.open();
            let mut view = workspace.view("v").unwrap();
            view.write(&path(file), b"changed", None).unwrap();
            view.remove(&path("tree")).unwrap();
            let manifest = view.effect(Limits::default()).unwrap();
            let commit = workspace.stage(view, &manifest).unwrap();
            workspace.check(&commit).unwrap();
            alter(&ground.root.join(".belay/commits/v"));
            let checked = workspace.check(&commit);
            assert!(matches!(checked, Err(CommitError::Altered { .. })), "{nth} {file}: {checked:?}");
            let applied = workspace.apply(&commit);
            let told = matches!(applied, Err(CommitError::Altered { .. } | CommitError::Conflict { .. }));
            assert!(told, "{nth} {file}: {applied:?}");
            assert_eq!(ground.picture(), before);
        }
    }
}

/// Copies the workspace away and back with its modes and times, as a backup that is restored.
fn restore(ground: &Ground) {
    let backup = ground.root.with_file_name("backup");
    let copied = Command::new("cp").arg("-a").args([&ground.root, &backup]).status().unwrap();
    assert!(copied.success());
    // The original stays, so that the copy has no inode of it.
    fs::rename(&ground.root, ground.root.with_file_name("original")).unwrap();
    fs::rename(&backup, &ground.root).unwrap();
}

fn stage_all(workspace: &Workspace) -> Commit {
    let mut view = workspace.view("v").unwrap();
    view.write(&path("a"), b"changed", None).unwrap();
    view.write(&path("made"), b"new", None).unwrap();
    view.write(&path("d/n/deep"), b"new", None).unwrap();
    view.remove(&path("tree")).unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    workspace.stage(view, &manifest).unwrap()
}

/// B-03: what was decided about is put in place after the workspace was restored from a backup too, whatever had been put in place before.
#[test]
fn a_commit_goes_forward_and_back_after_a_restore() {
    let ground = Ground::with(&FILES);
    let before = ground.picture();
    let commit = stage_all(&ground.open());
    restore(&ground);
    let workspace = ground.open();
    workspace.check(&commit).unwrap();
    workspace.apply(&commit).unwrap();
    let after = ground.picture();
    assert_eq!(["a", "made", "d/n/deep"].map(|at| ground.read(at)), ["changed", "new", "new"]);
    assert!(!ground.root.join("tree").exists());
    drop(workspace);

    let again = Ground::with(&FILES);
    let commit = stage_all(&again.open());
    restore(&again);
    again.open().redo(&commit).unwrap();
    assert_eq!(again.picture(), after, "it was recorded and not yet put in place");
    fs::remove_dir_all(again.root.with_file_name("original")).unwrap();
    restore(&again);
    let workspace = again.open();
    workspace.redo(&commit).unwrap();
    assert_eq!(again.picture(), after, "it was in place");
    assert!(matches!(workspace.discard(&commit), Err(CommitError::InPlace { .. })));
    workspace.rollback(&commit).unwrap();
    assert_eq!(again.picture(), before);
    workspace.discard(&commit).unwrap();
}

/// B-03: a backup with other staged content than was decided about puts nothing in place.
#[test]
fn what_was_altered_in_a_backup_is_not_put_in_place() {
    for file in ["a", "made"] {
        let ground = Ground::with(&FILES);
        let before = ground.picture();
        let workspace = ground.open();
        let mut view = workspace.view("v").unwrap();
        view.write(&path(file), b"changed", None).unwrap();
        let manifest = view.effect(Limits::default()).unwrap();
        let commit = workspace.stage(view, &manifest).unwrap();
        drop(workspace);
        restore(&ground);
        fs::write(ground.root.join(".belay/commits/v/0"), "forged!").unwrap();
        let workspace = ground.open();
        let checked = workspace.check(&commit);
        assert!(matches!(checked, Err(CommitError::Altered { .. })), "{file}: {checked:?}");
        let redone = workspace.redo(&commit);
        assert!(matches!(redone, Err(CommitError::Altered { .. })), "{file}: {redone:?}");
        assert_eq!(ground.picture(), before, "{file}");
        workspace.discard(&commit).unwrap();
        assert_eq!(ground.picture(), before, "{file}");
    }
}

/// B-01: a file that a commit has replaced shows in a backup too that the commit is in place, also when a person has put the old content back.
#[test]
fn what_was_replaced_before_a_backup_stays_replaced() {
    for (content, is_theirs) in [("changed", false), ("1", true), ("their own", true)] {
        let ground = Ground::with(&FILES);
        let workspace = ground.open();
        let (_, commit) = commit(&workspace, "v", |view| view.write(&path("a"), b"changed", None).unwrap());
        drop(workspace);
        fs::write(ground.root.join("a"), content).unwrap();
        restore(&ground);
        let workspace = ground.open();
        workspace.redo(&commit).unwrap();
        assert_eq!(ground.read("a"), content);
        assert_eq!(workspace.rollback(&commit).is_err(), is_theirs, "{content}");
    }
}

/// B-06.
#[test]
fn a_discarded_commit_leaves_no_trace() {
    let ground = Ground::with(&FILES);
    let before = ground.picture();
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("a"), b"x", None).unwrap();
    view.remove(&path("d")).unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    assert_eq!(ground.picture(), before);
    workspace.discard(&commit).unwrap();
    workspace.discard(&commit).unwrap();
    assert_eq!(ground.picture(), before);
    assert_eq!(fs::read_dir(ground.root.join(".belay/commits")).unwrap().count(), 0);
}

/// A person's later work is not taken back with ours.
#[test]
fn what_was_changed_since_is_not_taken_back() {
    type Meddle = fn(&Path);
    let meddlings: [(&str, Meddle); 5] = [
        ("a", |root| fs::write(root.join("a"), "their own").unwrap()),
        ("d/n", |root| fs::write(root.join("d/n/theirs"), "").unwrap()),
        ("d/x", |root| fs::write(root.join("d/x"), "again").unwrap()),
        ("tree", |root| fs::remove_file(root.join("tree")).unwrap()),
        ("link", |root| fs::rename(root.join("link"), root.join("moved")).unwrap()),
    ];
    for (meant, meddle) in meddlings {
        let ground = Ground::with(&FILES);
        let workspace = ground.open();
        let commit = change_all(&workspace);
        meddle(&ground.root);
        let theirs = ground.picture();
        match workspace.rollback(&commit).unwrap_err() {
            CommitError::Conflict { paths } => assert_eq!(paths, [path(meant)]),
            other => panic!("{meant}: {other}"),
        }
        assert_eq!(ground.picture(), theirs, "{meant}: nothing was undone");
        workspace.apply(&commit).unwrap();
        assert_eq!(ground.picture(), theirs, "{meant}: what was applied is not applied again");
    }
}

/// A folder that a call closed is closed last, and taken back all the same.
#[test]
fn modes_of_folders_change_with_their_contents() {
    let ground = Ground::with(&[("d/x", "1"), ("d/e/y", "2"), ("d/e/z", "3")]);
    fs::set_permissions(ground.root.join("d/e"), fs::Permissions::from_mode(0o555)).unwrap();
    let before = ground.picture();
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("d/x"), b"new", None).unwrap();
    let upper = view.directory().join(UPPER);
    fs::create_dir(upper.join("d/e")).unwrap();
    fs::write(upper.join("d/e/y"), "new").unwrap();
    fs::set_permissions(upper.join("d/e"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::set_permissions(upper.join("d"), fs::Permissions::from_mode(0o500)).unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    for _ in 0..2 {
        workspace.apply(&commit).unwrap();
        let after = ground.picture();
        assert_eq!((&after[Path::new("d")], &after[Path::new("d/e")]), (&"500 folder".into(), &"500 folder".into()));
        assert_eq!((ground.read("d/x"), ground.read("d/e/y")), ("new".into(), "new".into()));
    }
    drop(workspace);
    restore(&ground);
    let workspace = ground.open();
    workspace.redo(&commit).unwrap();
    workspace.rollback(&commit).unwrap();
    assert_eq!(ground.picture(), before);
}

/// A call opened a folder, wrote to it and closed it again. What its owner may not write to cannot be committed to, and is named.
#[test]
fn a_closed_folder_is_named_before_anything_is_staged() {
    let ground = Ground::with(&[("d/x", "1"), ("e/y", "2")]);
    fs::set_permissions(ground.root.join("d"), fs::Permissions::from_mode(0o555)).unwrap();
    let before = ground.picture();
    let workspace = ground.open();
    let view = workspace.view("v").unwrap();
    let upper = view.directory().join(UPPER);
    fs::create_dir_all(upper.join("d")).unwrap();
    fs::write(upper.join("d/x"), "new").unwrap();
    fs::set_permissions(upper.join("d"), fs::Permissions::from_mode(0o555)).unwrap();
    let manifest = view.effect(Limits::default()).unwrap();
    let staged = workspace.stage(view, &manifest);
    if rustix::process::geteuid().is_root() {
        workspace.apply(&staged.unwrap()).unwrap();
        assert_eq!(ground.read("d/x"), "new");
        return;
    }
    let refused = staged.unwrap_err().to_string();
    assert!(refused.contains("`d/x` is, or is in, a directory that is not writable: give its owner"), "{refused}");
    assert_eq!(ground.picture(), before);
}

/// As root, what is committed belongs to whoever owns the workspace, and what is replaced keeps its owner.
#[test]
fn committed_files_belong_to_the_owner_of_the_workspace() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: committed_files_belong_to_the_owner_of_the_workspace: only root can give files away");
        return;
    }
    let ground = Ground::with(&[("theirs", "1"), ("d/x", "2")]);
    chown(&ground.root, Some(1234), Some(2345)).unwrap();
    chown(ground.root.join("theirs"), Some(77), Some(88)).unwrap();
    let workspace = ground.open();
    commit(&workspace, "v", |view| {
        view.write(&path("theirs"), b"new", None).unwrap();
        view.write(&path("n/m"), b"new", None).unwrap();
        std::os::unix::fs::symlink("m", view.directory().join(UPPER).join("n/link")).unwrap();
    });
    let owner = |at: &str| fs::symlink_metadata(ground.root.join(at)).map(|found| (found.uid(), found.gid())).unwrap();
    assert_eq!(["n", "n/m", "n/link"].map(owner), [(1234, 2345); 3]);
    assert_eq!(owner("theirs"), (77, 88));
}

/// Nobody sees extended attributes in a manifest, so none come in by a commit; those that were there stay.
#[test]
fn attributes_are_those_of_the_file_that_is_replaced() {
    let ground = Ground::with(&[("a", "1")]);
    let set = |place: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(place, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set(&ground.root.join("a"), "user.tag", b"kept");
    let workspace = ground.open();
    commit(&workspace, "v", |view| {
        view.write(&path("a"), b"2", None).unwrap();
        view.write(&path("n/b"), b"3", None).unwrap();
        let upper = view.directory().join(UPPER);
        set(&upper.join("a"), "user.tag", b"kept");
        set(&upper.join("a"), "user.more", b"x");
        set(&upper.join("n/b"), "user.tag", b"kept");
        set(&upper.join("n"), "user.overlay.opaque", b"y");
        if rustix::process::geteuid().is_root() {
            // cap_net_raw+ep
            set(&upper.join("n/b"), "security.capability", b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        }
    });
    let names = |at: &str| {
        let mut list = [0_u8; 256];
        let length = rustix::fs::listxattr(ground.root.join(at), &mut list[..]).unwrap();
        let names = String::from_utf8_lossy(&list[..length]).into_owned();
        names
            .split('\0')
            .filter(|name| name.starts_with("user.") || *name == "security.capability")
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!(["a", "n", "n/b"].map(names), ["user.tag", "", ""]);
}

/// Watches the order of renames and syncs, by inode.
#[derive(Default)]
struct Watch(Mutex<Vec<(&'static str, u64)>>);

impl Seam for Watch {
    fn alive(&self, call: &Call<'_>) -> bool {
        self.0.lock().unwrap().push((call.name, rustix::fs::fstat(call.on).unwrap().st_ino));
        true
    }
}

/// S2-NFR-005: power can fail too. What is put is on the disk before the caller writes its row, and the folders before it hears of success.
#[test]
fn everything_is_synced_before_it_counts() {
    let ground = Ground::with(&[("d/a", "1")]);
    let watch = Arc::new(Watch::default());
    let workspace = Workspace::open_with(&ground.root, &[], Arc::clone(&watch) as Arc<dyn Seam>).unwrap();
    let mut view = workspace.view("v").unwrap();
    view.write(&path("d/a"), b"2", None).unwrap();
    view.write(&path("n/m/f"), b"3", None).unwrap();
    let inode = |place: &Path| fs::metadata(place).unwrap().ino();
    let upper = view.directory().join(UPPER);
    let staged: Vec<u64> = ["d/a", "n", "n/m", "n/m/f"].map(|at| inode(&upper.join(at))).to_vec();
    let manifest = view.effect(Limits::default()).unwrap();
    watch.0.lock().unwrap().clear();
    let commit = workspace.stage(view, &manifest).unwrap();
    let calls = std::mem::take(&mut *watch.0.lock().unwrap());
    let synced = |calls: &[(&str, u64)], inode| calls.iter().rposition(|call| *call == ("fsync", inode));
    let slots = inode(&ground.root.join(".belay/commits/v"));
    let moved = calls.iter().rposition(|call| *call == ("rename", slots)).expect("the slots are filled");
    for file in staged {
        let written = synced(&calls, file).expect("it is synced");
        let changed = calls.iter().rposition(|(call, on)| *call != "fsync" && *on == file);
        assert!(changed.is_none_or(|changed| changed < written), "it is not changed after");
    }
    assert!(synced(&calls, slots).expect("the slots are synced") > moved);
    assert!(synced(&calls, inode(&ground.root.join(".belay/commits"))).is_some());
    workspace.apply(&commit).unwrap();
    let calls = std::mem::take(&mut *watch.0.lock().unwrap());
    let moved = calls.iter().rposition(|(call, _)| *call == "rename").unwrap();
    for folder in [ground.root.clone(), ground.root.join("d"), ground.root.join(".belay/commits/v")] {
        assert!(synced(&calls, inode(&folder)).expect("its names are synced") > moved, "{folder:?}");
    }
}

/// More files than are synced one by one.
#[test]
fn many_files_are_synced_at_once() {
    let ground = Ground::new();
    let watch = Arc::new(Watch::default());
    let workspace = Workspace::open_with(&ground.root, &[], Arc::clone(&watch) as Arc<dyn Seam>).unwrap();
    let (manifest, _) = commit(&workspace, "v", |view| {
        for n in 0..100 {
            view.write(&path(&format!("n/{n}")), n.to_string().as_bytes(), None).unwrap();
        }
    });
    assert_eq!(manifest.changes[0].after.len(), 101);
    assert_eq!(watch.0.lock().unwrap().iter().filter(|(call, _)| *call == "syncfs").count(), 1);
    assert_eq!(ground.read("n/99"), "99");
}
