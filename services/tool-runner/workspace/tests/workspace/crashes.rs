//! The process dies: at every instant at which it changes the disk, in turn.
//!
//! Each run is cut off at one instant, then the workspace is opened again as after a crash, and the ledger's row (or its absence) decides
//! what must be there: all of the change or nothing of it. Recovery and undoing are cut off in the same way, at each of their instants.
//!
//! `BELAY_CRASH_SCRIPTS` sets how many random scripts are gone through (12, which is a few thousand crashes).

use std::{
    error::Error,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use belay_workspace::{Limits, Order, Seam, Workspace};
use proptest::test_runner::{Config, TestRunner};

use crate::{
    beside::MountedScript,
    overlay::possible,
    support::{Deadly, FolderContents, Ground, InitialTree, Step, before, cases, script},
};

/// The orders that the disk may be taken to keep, by which it is decided what is synced when.
const ORDERS: [Order; 2] = [Order::Kept, Order::Unknown];

/// All that outlives the process besides the disk.
#[derive(Clone, Debug, Default, PartialEq)]
enum Row {
    #[default]
    None,
    /// As it is stored.
    Committed(String),
    /// Going back was decided.
    TakenBack(String),
}

/// A call from beginning to end. Ends early when it dies; the row is what it had written by then.
fn call(ground: &Ground, seam: Arc<dyn Seam>, script: &[Step], row: &mut Row) -> Option<()> {
    let workspace = Workspace::open_with(&ground.root, &[], seam).ok()?;
    let mut view = workspace.view("call").ok()?;
    for step in script {
        // A step may be refused, also because the process is dead; then so is all that follows.
        step.in_view(&mut view);
    }
    let manifest = view.effect(Limits::default()).ok()?;
    let commit = workspace.stage(view, &manifest).ok()?;
    *row = Row::Committed(serde_json::to_string(&commit).unwrap());
    workspace.apply(&commit).ok()
}

/// Recovers, as a new process does, with what it finds.
fn recover(ground: &Ground, seam: Arc<dyn Seam>, row: &Row) -> Result<(), Box<dyn Error>> {
    let workspace = Workspace::open_with(&ground.root, &[], seam)?;
    workspace.sweep(|id| *row != Row::None && id == "call")?;
    match row {
        Row::None => {}
        Row::Committed(commit) => workspace.redo(&serde_json::from_str(commit)?)?,
        Row::TakenBack(commit) => workspace.rollback(&serde_json::from_str(commit)?)?,
    }
    Ok(())
}

/// Dies at each instant of `run` in turn, each time on a new ground. Returns how often.
fn at_each_instant(order: Order, mut run: impl FnMut(Arc<Deadly>)) -> u64 {
    for instant in 0.. {
        let seam = Deadly::at(instant, order);
        run(Arc::clone(&seam));
        if seam.reached() <= instant {
            return instant;
        }
    }
    unreachable!("some run is not disturbed")
}

/// The content that must be there after each row.
struct ExpectedTrees {
    before: FolderContents,
    after: FolderContents,
}

impl ExpectedTrees {
    fn check(&self, ground: &Ground, row: &Row) {
        let expected = if matches!(row, Row::Committed(_)) { &self.after } else { &self.before };
        assert_eq!(&ground.picture(), expected, "after {row:?}");
        let left = |folder: &str| fs::read_dir(ground.root.join(".belay").join(folder)).unwrap().count();
        let slots = usize::from(*row != Row::None);
        assert_eq!((left("views"), left("commits"), left("trash")), (0, slots, 0), "nothing is left over");
    }
}

fn ground(before: &InitialTree) -> Ground {
    let ground = Ground::new();
    before.build(&ground.root);
    ground
}

/// The whole script undisturbed, with its row.
fn done(order: Order, before: &InitialTree, script: &[Step]) -> (Ground, Row) {
    let ground = ground(before);
    let mut row = Row::None;
    call(&ground, Deadly::never(order), script, &mut row).expect("nothing disturbs it");
    (ground, row)
}

fn break_everywhere(order: Order, before: &InitialTree, script: &[Step]) -> u64 {
    let (undisturbed, _) = done(order, before, script);
    let expected = ExpectedTrees { before: ground(before).picture(), after: undisturbed.picture() };
    let mut crashes = at_each_instant(order, |seam| {
        let ground = ground(before);
        let mut row = Row::None;
        call(&ground, seam, script, &mut row);
        recover(&ground, Deadly::never(order), &row).expect("nothing disturbs it");
        expected.check(&ground, &row);
    });
    crashes += break_recovery(order, before, script, &expected);
    crashes + break_undoing(order, before, script, &expected)
}

/// Dies somewhere after the row is written, and again at each instant of the recovery.
fn break_recovery(order: Order, before: &InitialTree, script: &[Step], expected: &ExpectedTrees) -> u64 {
    let mut crashes = 0;
    // The first instant that leaves a row, and every third one after: the rest differs by what was done already.
    let mut first = 0..;
    let row_at = |instant: u64| {
        let ground = ground(before);
        let mut row = Row::None;
        let ended = call(&ground, Deadly::at(instant, order), script, &mut row);
        (ground, row, ended.is_some())
    };
    let start = first.find(|instant| row_at(*instant).1 != Row::None).expect("it ends");
    for instant in (start..).step_by(3) {
        if row_at(instant).2 {
            break;
        }
        crashes += 1 + at_each_instant(order, |seam| {
            let (ground, row, _) = row_at(instant);
            let _ = recover(&ground, seam, &row);
            recover(&ground, Deadly::never(order), &row).expect("nothing disturbs it");
            expected.check(&ground, &row);
        });
    }
    crashes
}

/// Dies at each instant of taking back, and of the recovery from that.
fn break_undoing(order: Order, before: &InitialTree, script: &[Step], expected: &ExpectedTrees) -> u64 {
    let taken_back = |row: &Row| match row {
        Row::Committed(commit) => Row::TakenBack(commit.clone()),
        other => panic!("{other:?}"),
    };
    let mut crashes = at_each_instant(order, |seam| {
        let (ground, row) = done(order, before, script);
        let row = taken_back(&row);
        let _ = recover(&ground, seam, &row);
        recover(&ground, Deadly::never(order), &row).expect("nothing disturbs it");
        expected.check(&ground, &row);
    });
    for instant in (0..crashes).step_by(5) {
        crashes += 1 + at_each_instant(order, |seam| {
            let (ground, row) = done(order, before, script);
            let row = taken_back(&row);
            let _ = recover(&ground, Deadly::at(instant, order), &row);
            let _ = recover(&ground, seam, &row);
            recover(&ground, Deadly::never(order), &row).expect("nothing disturbs it");
            expected.check(&ground, &row);
        });
    }
    crashes
}

/// S2-NFR-005, L6: before the row nothing happened, after it everything did, wherever the process dies and however often.
#[test]
fn all_or_nothing_wherever_it_dies() {
    let scripts = cases("BELAY_CRASH_SCRIPTS", 12);
    let crashes = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config {
        cases: scripts,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&(before(), script(1..6)), |(before, script)| {
        for order in ORDERS {
            crashes.fetch_add(break_everywhere(order, &before, &script), Ordering::Relaxed);
        }
        Ok(())
    });
    let crashes = crashes.into_inner();
    eprintln!("{crashes} crashes in {scripts} scripts");
    outcome.unwrap();
    assert!(crashes >= 100 * u64::from(scripts), "{crashes} crashes in {scripts} scripts are too few to mean anything");
}

/// The same for every kind of operation at once, with a folder's mode among them, which no file tool changes.
#[test]
fn every_kind_of_operation_survives_every_crash() {
    ORDERS.into_iter().for_each(|order| break_every_kind(order, |_| None));
}

/// B-17: the same under a mounted view in which a command has looked at everything, and continues after the crash and the recovery: it meets no
/// error.
#[test]
fn every_kind_of_operation_survives_every_crash_under_a_mounted_view() {
    if !possible("every_kind_of_operation_survives_every_crash_under_a_mounted_view") {
        return;
    }
    let script = "exec 3<a; find . -path ./.belay -prune -o -type f -exec cat {} + > /dev/null || exit 1; cd tree/p; echo in; read go; \
                  cat <&3 > /dev/null || exit 2; ls -lR ../.. > /dev/null; cd ../.. || exit 3; echo mine > d/e/y || exit 4; \
                  [ \"$(cat d/e/y)\" = mine ] || exit 5; mkdir -p n/m && echo mine > n/m/o || exit 6; echo done";
    let mount = |ground: &Ground| {
        // Our directory, which a view hides, has to exist.
        drop(ground.open());
        let folder = ground.root.with_extension("beside");
        fs::create_dir(&folder).unwrap();
        let mut beside = MountedScript::over(&ground.root, &folder, script);
        assert_eq!(beside.line(), "in");
        Some(beside)
    };
    break_every_kind(Order::Kept, mount);
}

fn break_every_kind(order: Order, mount: impl Fn(&Ground) -> Option<MountedScript>) {
    use std::os::unix::fs::PermissionsExt as _;
    let build =
        || Ground::with(&[("a", "1"), ("d/x", "2"), ("d/e/y", "3"), ("tree/p/q", "4"), ("f", "5"), ("l", "-> a")]);
    let command = |upper: &Path| -> std::io::Result<()> {
        fs::create_dir_all(upper.join("d/e"))?;
        fs::write(upper.join("d/e/y"), "new")?;
        fs::write(upper.join("d/n"), "new")?;
        fs::set_permissions(upper.join("d/e"), fs::Permissions::from_mode(0o700))?;
        fs::set_permissions(upper.join("d"), fs::Permissions::from_mode(0o500))
    };
    let script = [
        Step::Write("a".into(), "new".into(), None),
        Step::Remove("tree".into()),
        Step::Write("tree".into(), "a file now".into(), None),
        Step::Remove("f".into()),
        Step::Write("f/g/h".into(), "a folder now".into(), None),
        Step::Remove("l".into()),
        Step::Remove("d/x".into()),
    ];
    let run = |ground: &Ground, seam: Arc<dyn Seam>, row: &mut Row| -> Option<()> {
        let workspace = Workspace::open_with(&ground.root, &[], seam).ok()?;
        let mut view = workspace.view("call").ok()?;
        let done = script.iter().all(|step| step.in_view(&mut view));
        command(&view.directory().join("upper")).ok().filter(|()| done)?;
        let manifest = view.effect(Limits::default()).ok()?;
        let commit = workspace.stage(view, &manifest).ok()?;
        *row = Row::Committed(serde_json::to_string(&commit).unwrap());
        workspace.apply(&commit).ok()
    };
    let undisturbed = build();
    run(&undisturbed, Deadly::never(order), &mut Row::None).expect("nothing disturbs it");
    let expected = ExpectedTrees { before: build().picture(), after: undisturbed.picture() };
    assert_eq!(expected.after[Path::new("d")], "500 folder");
    assert_ne!(expected.before, expected.after);
    let crashes = at_each_instant(order, |seam| {
        let ground = build();
        let mut row = Row::None;
        let mut beside = mount(&ground);
        run(&ground, seam, &mut row);
        recover(&ground, Deadly::never(order), &row).expect("nothing disturbs it");
        expected.check(&ground, &row);
        if let Row::Committed(commit) = row {
            let row = Row::TakenBack(commit);
            recover(&ground, Deadly::never(order), &row).expect("nothing disturbs it");
            expected.check(&ground, &row);
        }
        if let Some(mut beside) = beside.take() {
            beside.go_on();
            assert_eq!(beside.line(), "done");
            beside.end();
        }
    });
    assert!(crashes > 80, "{crashes}");
}
