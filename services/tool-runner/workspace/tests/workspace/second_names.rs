//! Where no order of changes is kept, a file that was put has a second name in Belay's own folder until it is on the disk.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use belay_workspace::{Call, Commit, CommitError, Digest, Limits, Order, Seam, UPPER, Workspace};

use crate::support::{Ground, commit, path};

/// A disk that keeps no order, counts its syncs, and fails them if told to.
#[derive(Default)]
struct Unordered {
    syncs: AtomicU64,
    fails: AtomicBool,
}

impl Seam for Unordered {
    fn alive(&self, call: &Call<'_>) -> bool {
        let is_sync = call.name.contains("sync");
        self.syncs.fetch_add(u64::from(is_sync), Ordering::Relaxed);
        !(is_sync && self.fails.load(Ordering::Relaxed))
    }

    fn order(&self, _: Order) -> Order {
        Order::OfNames
    }
}

fn open(ground: &Ground) -> (Workspace, Arc<Unordered>) {
    let seam = Arc::new(Unordered::default());
    (Workspace::open_with(&ground.root, &[], Arc::clone(&seam) as Arc<dyn Seam>).unwrap(), seam)
}

fn write(workspace: &Workspace, id: &str, files: &[(&str, &str)]) -> Commit {
    commit(workspace, id, |view| {
        files.iter().for_each(|(at, text)| view.write(&path(at), text.as_bytes(), None).unwrap())
    })
    .1
}

/// What a new process does.
fn redo(ground: &Ground, commits: &[&Commit]) {
    let (workspace, _) = open(ground);
    workspace.sweep(|id| commits.iter().any(|commit| commit.id == id)).unwrap();
    commits.iter().for_each(|commit| workspace.redo(commit).unwrap());
    workspace.sync().unwrap();
}

fn names_of(ground: &Ground, file: &str) -> u64 {
    fs::metadata(ground.root.join(file)).unwrap().nlink()
}

/// S2-NFR-005: one sync for each file that is written, and a few in the end for all of them.
#[test]
fn a_file_costs_one_sync_each_time_it_is_written() {
    let ground = Ground::with(&[("d/f", "0")]);
    let (workspace, seam) = open(&ground);
    let before = seam.syncs.load(Ordering::Relaxed);
    for n in 1..=20 {
        let mut view = workspace.view(&n.to_string()).unwrap();
        view.write(&path("d/f"), n.to_string().as_bytes(), None).unwrap();
        let manifest = view.effect(Limits::default()).unwrap();
        assert_eq!(manifest.changes.len(), 1, "{manifest:?}");
        let commit = workspace.stage(view, &manifest).unwrap();
        workspace.check(&commit).unwrap();
        workspace.apply(&commit).unwrap();
        workspace.finish(&commit).unwrap();
        assert_eq!((ground.read("d/f"), names_of(&ground, "d/f")), (n.to_string(), 2));
    }
    assert_eq!(seam.syncs.load(Ordering::Relaxed) - before, 20);
    workspace.sync().unwrap();
    assert_eq!(seam.syncs.load(Ordering::Relaxed) - before, 22, "the file system, and that the commits are put away");
    assert_eq!(names_of(&ground, "d/f"), 1);
    assert_eq!(fs::read_dir(ground.root.join(".belay/commits")).unwrap().count(), 0);
}

/// Removing files costs the sync of the slots, and folders every sync there is.
#[test]
fn what_is_no_file_is_synced_at_once() {
    let ground = Ground::with(&[("f", "0"), ("d/f", "0")]);
    let (workspace, seam) = open(&ground);
    let syncs = |id: &str, at: &str| {
        let before = seam.syncs.load(Ordering::Relaxed);
        let (_, commit) = commit(&workspace, id, |view| view.remove(&path(at)).unwrap());
        (commit.kept, seam.syncs.load(Ordering::Relaxed) - before)
    };
    assert_eq!(syncs("file", "f"), (true, 1));
    let (kept, costs) = syncs("folder", "d");
    assert!(!kept && costs > 4, "{costs}");
    assert_eq!(fs::read_dir(ground.root.join(".belay/commits")).unwrap().count(), 1, "the file's commit went before");
}

/// A file with a name elsewhere: which folder its sync brings along is not certain.
#[test]
fn a_file_with_a_third_name_is_not_counted_on() {
    let ground = Ground::new();
    let (workspace, seam) = open(&ground);
    let mut view = workspace.view("v").unwrap();
    view.write(&path("f"), b"x", None).unwrap();
    let upper = ground.root.join(".belay/views/v").join(UPPER);
    let manifest = view.effect(Limits::default()).unwrap();
    fs::hard_link(upper.join("f"), ground.root.join("third")).unwrap();
    let before = seam.syncs.load(Ordering::Relaxed);
    workspace.stage(view, &manifest).unwrap();
    assert_eq!(seam.syncs.load(Ordering::Relaxed) - before, 2);
}

/// A second name that goes changes the file's time of change: no view may take that for somebody's work, nor what is held.
#[test]
fn a_second_name_that_goes_is_no_conflict() {
    let ground = Ground::with(&[("held", "0")]);
    let (workspace, _) = open(&ground);
    let held = {
        let mut view = workspace.view("held").unwrap();
        view.write(&path("held"), b"later", None).unwrap();
        let manifest = view.effect(Limits::default()).unwrap();
        workspace.stage(view, &manifest).unwrap()
    };
    write(&workspace, "one", &[("f", "1"), ("g", "1")]);
    let mut during = workspace.view("during").unwrap();
    workspace.sync().unwrap();
    assert_eq!(names_of(&ground, "f"), 2, "it waits for the view");
    during.write(&path("f"), b"2", None).unwrap();
    let manifest = during.effect(Limits::default()).unwrap();
    let commit = workspace.stage(during, &manifest).unwrap();
    assert_eq!(names_of(&ground, "f"), 1, "the view is gone");
    for commit in [&commit, &held] {
        workspace.check(commit).unwrap();
        workspace.apply(commit).unwrap();
    }
    let mut after = workspace.view("after").unwrap();
    after.write(&path("g"), b"3", None).unwrap();
    after.effect(Limits::default()).unwrap();
    assert_eq!((ground.read("f"), ground.read("held")), ("2".into(), "later".into()));
}

/// What came later than a commit stays when the commit is redone: a later commit's file, and somebody's save; the rest is put in place.
#[test]
fn what_came_later_stays() {
    let ground = Ground::with(&[("a", "0"), ("b", "0"), ("c", "0")]);
    let (workspace, _) = open(&ground);
    let one = write(&workspace, "one", &[("a", "1"), ("b", "1"), ("c", "1")]);
    let two = write(&workspace, "two", &[("c", "2")]);
    drop(workspace);
    fs::write(ground.root.join("saved"), "saved").unwrap();
    fs::rename(ground.root.join("saved"), ground.root.join("b")).unwrap();
    // The power took the one move, and nothing else.
    fs::remove_file(ground.root.join("a")).unwrap();
    redo(&ground, &[&one, &two]);
    assert_eq!(["a", "b", "c"].map(|file| ground.read(file)), ["1", "saved", "2"]);
}

/// What somebody did before the commit and the power took: a file that had gone is back, one that had a newer version has the older, and a
/// folder is gone. None of that is newer than the commit.
#[test]
fn what_is_older_is_no_reason_to_lose_a_commit() {
    let ground = Ground::with(&[("was/back", "old"), ("was/base", "old"), ("d/base", "newer"), ("e/g/", "")]);
    let (workspace, _) = open(&ground);
    let one = write(&workspace, "one", &[("d/back", "1"), ("d/base", "1"), ("e/g/f", "1")]);
    assert!(one.kept);
    drop(workspace);
    for gone in ["d", "e"] {
        fs::remove_dir_all(ground.root.join(gone)).unwrap();
    }
    // The files in it keep their times.
    fs::rename(ground.root.join("was"), ground.root.join("d")).unwrap();
    redo(&ground, &[&one]);
    assert_eq!(["d/back", "d/base", "e/g/f"].map(|file| ground.read(file)), ["1"; 3]);
}

/// What was staged has to be there, all of it, before anything is put in place again.
#[test]
fn nothing_is_put_in_place_again_when_a_second_name_is_gone() {
    let ground = Ground::with(&[("a", "0"), ("b", "0")]);
    let (workspace, _) = open(&ground);
    let mut view = workspace.view("one").unwrap();
    for file in ["a", "b"] {
        view.write(&path(file), b"1", None).unwrap();
    }
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    fs::remove_file(ground.root.join(".belay/commits/one/1.keep")).unwrap();
    let redone = workspace.redo(&commit);
    assert!(matches!(&redone, Err(CommitError::Altered { path }) if path.to_string() == "b"), "{redone:?}");
    assert_eq!(ground.read("a"), "0");
}

/// What a failed sync lost nobody knows: the next one says no more than that, and nothing is given up.
#[test]
fn a_sync_that_failed_is_not_made_good_by_another() {
    let ground = Ground::new();
    let (workspace, seam) = open(&ground);
    let one = write(&workspace, "one", &[("f", "1")]);
    seam.fails.store(true, Ordering::Relaxed);
    workspace.sync().unwrap_err();
    seam.fails.store(false, Ordering::Relaxed);
    workspace.sync().unwrap_err();
    workspace.finish(&one).unwrap();
    assert_eq!(names_of(&ground, "f"), 2);
}

/// A list of commits that are given up is believed when all of it is there, and only about commits.
#[test]
fn a_list_says_nothing_but_which_commits_go() {
    let ground = Ground::with(&[("f", "0")]);
    drop(open(&ground));
    let own = ground.root.join(".belay");
    let listed = |number: u32, digest: &str, ids: &str| {
        fs::write(own.join(format!("settled-{number}")), format!("{digest}\n{ids}")).unwrap();
    };
    for id in ["listed", "torn", "other"] {
        fs::create_dir(own.join("commits").join(id)).unwrap();
    }
    let ids = "../../f\nlisted\n..";
    listed(0, &Digest::of(ids.as_bytes()).to_string(), ids);
    listed(7, &Digest::of(b"torn\nother").to_string(), "torn");
    fs::write(own.join("settled-8"), "").unwrap();
    drop(open(&ground));
    let names = |folder: &str| {
        let entries = fs::read_dir(own.join(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(ground.read("f"), "0");
    assert_eq!(names("commits"), ["other", "torn"]);
    assert_eq!(names(""), [".gitignore", "commits", "lock", "trash", "views"]);
}
