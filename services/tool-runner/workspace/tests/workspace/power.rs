//! The power fails. On a disk that keeps the order of its changes, a beginning of them is left, and contents that were not synced are not;
//! on one that keeps none, each folder is left as it was at some time.
//!
//! A run is a ledger with several commits one after the other, whose rows go as soon as they may. It is cut off at a random call, and a
//! random number of the changes that were not durable is undone. Then it is recovered, perhaps with another loss in between.
//!
//! `BELAY_POWER_SCRIPTS` sets how many random scripts are gone through (40, with 12 losses each).

use std::{error::Error, fs, path::Path, sync::Arc};

use belay_workspace::{Commit, CommitError, Limits, Order, Seam, Workspace};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::{
    blocks::Blocks,
    lossy::{Loses, Power},
    support::{FolderContents, Ground, InitialTree, Step, before, cases, path, script},
};

/// The disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Ordered,
    Unordered,
    /// Keeps no order, and is taken to keep one.
    Mistaken,
}

impl Disk {
    fn dies_at(self, ground: &Ground, dies_at: u64) -> Arc<dyn Loses> {
        match self {
            Self::Ordered => Power::dies_at(ground, dies_at),
            Self::Unordered => Blocks::dies_at(ground, dies_at, Order::Unknown),
            Self::Mistaken => Blocks::dies_at(ground, dies_at, Order::Kept),
        }
    }
}

/// The part of its commits that a runner keeps, in their order.
#[derive(Clone, Debug, Default)]
struct Ledger {
    rows: Vec<Commit>,
    /// How many commits there ever were.
    commits: usize,
    /// The last of them is being put in place.
    in_between: bool,
}

/// How a run behaves.
#[derive(Clone, Copy, Debug)]
struct Manner {
    disk: Disk,
    /// Everything is synced after each commit of an odd number.
    syncs: bool,
    /// Displaced entries go only after the next commit.
    finishes_late: bool,
    /// Beside each call another one is staged before it, and committed right after it: nothing is staged in between.
    holds: bool,
    /// Rows go too early: to see that it shows.
    forgets: bool,
}

fn done(workspace: &Workspace, ledger: &mut Ledger, commit: Commit) -> Result<Commit, Box<dyn Error>> {
    ledger.rows.push(commit.clone());
    ledger.commits += 1;
    ledger.in_between = true;
    workspace.apply(&commit)?;
    ledger.in_between = false;
    workspace.retire(&commit)?;
    Ok(commit)
}

/// Calls one after the other; the row of each goes when it is known to be on the disk. Ends early when the process dies.
fn calls(
    ground: &Ground,
    seam: Arc<dyn Seam>,
    scripts: &[Vec<Step>],
    manner: Manner,
    ledger: &mut Ledger,
) -> Result<(), Box<dyn Error>> {
    let workspace = Workspace::open_with(&ground.root, &[], seam)?;
    let mut late = None;
    for (n, script) in scripts.iter().enumerate() {
        let stage = |id: String, steps: &[Step]| -> Result<Commit, Box<dyn Error>> {
            let mut view = workspace.view(&id)?;
            for step in steps {
                // A step may be refused, also because the process is dead; then so is all that follows.
                step.in_view(&mut view);
            }
            let manifest = view.effect(Limits::default())?;
            Ok(workspace.stage(view, &manifest)?)
        };
        let held = match manner.holds {
            true => Some(stage(format!("held-{n}"), &[Step::Write(format!("held-{n}"), "held".into(), None)])?),
            false => None,
        };
        let commit = stage(format!("call-{n}"), script)?;
        ledger.rows.clear();
        for commit in [Some(commit), held].into_iter().flatten() {
            let commit = done(&workspace, ledger, commit)?;
            if manner.forgets {
                ledger.rows.clear();
            }
            let now = if manner.finishes_late { late.replace(commit) } else { Some(commit) };
            now.map_or(Ok(()), |commit| workspace.finish(&commit))?;
        }
        if manner.syncs && n % 2 == 1 {
            workspace.sync()?;
            ledger.rows.clear();
        }
    }
    workspace.sync()?;
    ledger.rows.clear();
    Ok(())
}

/// Recovers, as a new process does, with what it finds.
fn recover(ground: &Ground, seam: Arc<dyn Seam>, ledger: &mut Ledger) -> Result<(), Box<dyn Error>> {
    let workspace = Workspace::open_with(&ground.root, &[], seam)?;
    workspace.sweep(|id| ledger.rows.iter().any(|row| row.id == id))?;
    for row in &ledger.rows {
        match workspace.redo(row) {
            Ok(()) => workspace.retire(row)?,
            Err(CommitError::NotStaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    workspace.sync()?;
    for row in &ledger.rows {
        workspace.finish(row)?;
    }
    ledger.rows.clear();
    Ok(())
}

fn ground(before: &InitialTree) -> Ground {
    let ground = Ground::new();
    before.build(&ground.root);
    ground
}

/// The workspace after each commit, and how many calls to the disk there are.
fn undisturbed(before: &InitialTree, scripts: &[Vec<Step>], manner: Manner) -> (Vec<FolderContents>, u64) {
    let mut pictures = vec![ground(before).picture()];
    let mut reached = 0;
    for number in 1..=scripts.len() {
        let ground = ground(before);
        let seam = manner.disk.dies_at(&ground, u64::MAX);
        calls(&ground, Arc::clone(&seam) as Arc<dyn Seam>, &scripts[..number], manner, &mut Ledger::default()).unwrap();
        reached = seam.reached();
        let after = ground.picture();
        if manner.holds {
            let mut without = after.clone();
            without.remove(Path::new(&format!("held-{}", number - 1)));
            pictures.push(without);
        }
        pictures.push(after);
    }
    (pictures, reached)
}

/// Loses power once, and perhaps again in the recovery. Fails if the workspace is not what was committed.
fn lose(
    before: &InitialTree,
    scripts: &[Vec<Step>],
    manner: Manner,
    [dies_at, kept, again, kept_again]: [u64; 4],
    expected: &[FolderContents],
) -> Result<usize, String> {
    let ground = ground(before);
    let mut ledger = Ledger::default();
    let seam = manner.disk.dies_at(&ground, dies_at);
    let _ = calls(&ground, Arc::clone(&seam) as Arc<dyn Seam>, scripts, manner, &mut ledger);
    if manner.disk != Disk::Ordered && ledger.in_between {
        // Such a disk can lose a name on its way from one folder to the other, whatever is synced afterwards.
        return Ok(0);
    }
    seam.fail(kept);
    let left = ledger.rows.len();
    if again > 0 {
        let seam = manner.disk.dies_at(&ground, again);
        let _ = recover(&ground, Arc::clone(&seam) as Arc<dyn Seam>, &mut ledger);
        seam.fail(kept_again);
    }
    recover(&ground, manner.disk.dies_at(&ground, u64::MAX), &mut ledger).map_err(|error| error.to_string())?;
    let (found, expected) = (ground.picture(), &expected[ledger.commits]);
    if found != *expected {
        return Err(format!("after {} commits there is {found:#?}, and not {expected:#?}", ledger.commits));
    }
    let over = ["views", "commits", "trash"]
        .map(|folder| fs::read_dir(ground.root.join(".belay").join(folder)).unwrap().count());
    if over != [0; 3] {
        return Err(format!("{over:?} are left over"));
    }
    Ok(left)
}

fn scripts() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(script(1..4), 1..4)
}

/// A loss, as parts of a thousand.
fn losses() -> impl Strategy<Value = Vec<[u64; 4]>> {
    let again = prop_oneof![Just(0_u64), 1..200_u64];
    prop::collection::vec((0..=1000_u64, 0..=1000_u64, again, 0..=1000_u64).prop_map(Into::into), 12)
}

fn manner(disk: Disk) -> impl Strategy<Value = Manner> {
    any::<[bool; 3]>().prop_map(move |[finishes_late, holds, syncs]| Manner {
        disk,
        syncs,
        finishes_late,
        holds,
        forgets: false,
    })
}

fn config(cases: u32) -> Config {
    Config { cases, max_shrink_iters: 100, failure_persistence: None, ..Config::default() }
}

/// S2-NFR-005, B-01: whatever the power takes, what the ledger says was committed is there, all of it, and nothing else.
#[test]
fn what_was_committed_outlives_the_power() {
    outlives(Disk::Ordered, before(), scripts());
}

/// The same where it keeps no order.
#[test]
fn what_was_committed_outlives_the_power_without_order() {
    let before = before().prop_map(|before| before.and_files(&["x", "f/x", "f/g/z"]));
    outlives(Disk::Unordered, before, prop::collection::vec(prop_oneof![5 => files(1..4), 1 => script(1..4)], 1..6));
}

/// Steps most of which are about files in folders that are there.
fn files(steps: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let place = || prop::sample::select(vec!["x", "y", "z", "f/x", "f/y", "f/g/z"]).prop_map(str::to_owned);
    let mode = prop::option::weighted(0.2, prop::sample::select(vec![0o755, 0o600]));
    let step = prop_oneof![
        3 => (place(), "[a-z]{0,6}", mode).prop_map(|(at, contents, mode)| Step::Write(at, contents, mode)),
        1 => place().prop_map(Step::Remove),
    ];
    prop::collection::vec(step, steps)
}

fn outlives(disk: Disk, before: impl Strategy<Value = InitialTree>, scripts: impl Strategy<Value = Vec<Vec<Step>>>) {
    let mut runner = TestRunner::new(config(cases("BELAY_POWER_SCRIPTS", 40)));
    let (mut tried, mut with_rows) = (0, 0);
    let counts = (std::cell::RefCell::new(&mut tried), std::cell::RefCell::new(&mut with_rows));
    runner
        .run(&(before, scripts, manner(disk), losses()), |(before, scripts, manner, losses)| {
            let (expected, reached) = undisturbed(&before, &scripts, manner);
            for [dies_at, kept, again, kept_again] in losses {
                let loss = [dies_at * reached / 1000, kept, again, kept_again];
                let left = lose(&before, &scripts, manner, loss, &expected).map_err(TestCaseError::fail)?;
                **counts.0.borrow_mut() += 1;
                **counts.1.borrow_mut() += usize::from(left > 0);
            }
            Ok(())
        })
        .unwrap();
    eprintln!("{tried} losses of power, {with_rows} of them with rows that had to stay");
    assert!(with_rows * 4 > tried, "{with_rows} of {tried} are too few to mean anything");
}

/// That it would show: a row that goes before its effect is on the disk, and a disk without order that is not synced everywhere.
#[test]
fn a_row_that_goes_too_early_is_missed() {
    let ground = InitialTree::default();
    let scripts = [vec![Step::Write("a".into(), "x".into(), None)]];
    for (disk, forgets) in [(Disk::Ordered, true), (Disk::Mistaken, false), (Disk::Mistaken, true)] {
        let manner = Manner { disk, syncs: false, finishes_late: false, holds: false, forgets };
        let (expected, reached) = undisturbed(&ground, &scripts, manner);
        let is_lost = |at, how| lose(&ground, &scripts, manner, [at, how, 0, 0], &expected).is_err();
        let mut lost =
            (0..reached).flat_map(|at| (0..8).map(move |how| (at, how))).filter(|(at, how)| is_lost(*at, *how));
        assert!(lost.next().is_some(), "{disk:?}");
    }
}

/// Commits whose rows are left are redone in their order: the base of the second is what the first one made.
#[test]
fn what_is_redone_is_redone_in_order() {
    let ground = Ground::with(&[("f", "1")]);
    let seam = Power::dies_at(&ground, u64::MAX);
    let workspace = Workspace::open_with(&ground.root, &[], Arc::clone(&seam) as Arc<dyn Seam>).unwrap();
    let staged = |id: &str, text: &str| {
        let mut view = workspace.view(id).unwrap();
        view.write(&path("f"), text.as_bytes(), None).unwrap();
        let manifest = view.effect(Limits::default()).unwrap();
        workspace.stage(view, &manifest).unwrap()
    };
    let waits = staged("waits", "3");
    let mut ledger = Ledger::default();
    for (id, text) in [("away", "2"), ("back", "1")] {
        let commit = staged(id, text);
        ledger.rows.clear();
        workspace.check(&commit).unwrap();
        done(&workspace, &mut ledger, commit).unwrap();
    }
    workspace.check(&waits).unwrap();
    done(&workspace, &mut ledger, waits).unwrap();
    drop(workspace);
    seam.fail(0);
    assert_eq!((ground.read("f").as_str(), ledger.rows.len()), ("2", 2));
    recover(&ground, Power::dies_at(&ground, u64::MAX), &mut ledger).unwrap();
    assert_eq!(ground.read("f"), "3");
}

/// A commit of one file costs one sync, wherever that file is; and a commit of none one, too.
#[test]
fn a_commit_costs_one_sync() {
    let ground = Ground::with(&[("d/a", "1"), ("b", "2")]);
    let seam = Power::dies_at(&ground, u64::MAX);
    let workspace = Workspace::open_with(&ground.root, &[], Arc::clone(&seam) as Arc<dyn Seam>).unwrap();
    let steps = [
        Step::Write("new".into(), "x".into(), None),
        Step::Write("d/a".into(), "x".into(), None),
        Step::Write("d/n".into(), "x".into(), Some(0o755)),
        Step::Remove("b".into()),
    ];
    for (n, step) in steps.iter().enumerate() {
        let before = seam.syncs();
        let (_, commit) = crate::support::commit(&workspace, &n.to_string(), |view| assert!(step.in_view(view)));
        workspace.retire(&commit).unwrap();
        workspace.finish(&commit).unwrap();
        assert_eq!(seam.syncs() - before, 1, "{step:?}");
    }
}

/// A save that slipped in between the check and the crash is one all the same when the commit is redone, and is kept.
#[test]
fn a_save_before_the_crash_is_a_conflict_after_it() {
    let ground = Ground::with(&[("a", "1"), ("b", "1")]);
    let workspace = ground.open();
    let mut view = workspace.view("v").unwrap();
    for file in ["a", "b"] {
        view.write(&path(file), b"new", None).unwrap();
    }
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.check(&commit).unwrap();
    fs::write(ground.root.join("b"), "saved").unwrap();
    assert!(matches!(workspace.redo(&commit), Err(CommitError::Conflict { .. })));
    assert_eq!((ground.read("a"), ground.read("b")), ("1".into(), "saved".into()));
}

/// A file that a person wrote just before may lose its contents with the power. This is not a conflict: what was committed
/// over it stays.
#[test]
fn a_displaced_file_that_lost_its_contents_is_no_conflict() {
    for applied in [true, false] {
        let ground = Ground::with(&[("a", "just written"), ("b", "1")]);
        let workspace = ground.open();
        let mut view = workspace.view("v").unwrap();
        for file in ["a", "b"] {
            view.write(&path(file), b"new", None).unwrap();
        }
        let manifest = view.effect(Limits::default()).unwrap();
        let commit = workspace.stage(view, &manifest).unwrap();
        let slot = ground.root.join(".belay/commits/v/0");
        if applied {
            workspace.apply(&commit).unwrap();
        }
        let displaced = if applied { slot } else { ground.root.join("a") };
        let file = fs::File::options().write(true).open(&displaced).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        file.set_len(0).unwrap();
        file.set_modified(written).unwrap();
        workspace.redo(&commit).unwrap();
        assert_eq!((ground.read("a"), ground.read("b")), ("new".into(), "new".into()));
    }
}
