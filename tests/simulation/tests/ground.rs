//! Foundations of the simulations: a power loss loses what was not synced and nothing else, a dead machine changes nothing,
//! and the machines' faults do what their names say.

use std::cell::RefCell;
use std::future::pending;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use belay_simulation::fault::{Conditions, Fault};
use belay_simulation::machine::{self, Disk};
use belay_simulation::vfs;
use belay_simulation::world::World;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use turmoil::fs::shim::std::fs;

const HOST: &str = "host";
const DATABASE: &str = "/data/ground.db";
const LOG: &str = "/data/ground.db-wal";
const MAX_DURATION: Duration = Duration::from_secs(10);

const NOTHING_TORN: Conditions =
    Conditions { max_latency: Duration::from_millis(1), spontaneous_sync: 0.0, torn_block: None };

fn open(synchronous: &str) -> rusqlite::Result<Connection> {
    fs::create_dir_all("/data").and_then(|()| fs::sync_dir("/")).expect("turmoil's folders do not fail");
    let connection = Connection::open_with_flags_and_vfs(Path::new(DATABASE), OpenFlags::default(), vfs::NAME)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.execute_batch("CREATE TABLE IF NOT EXISTS kept (id INTEGER PRIMARY KEY)")?;
    Ok(connection)
}

fn ids(connection: &Connection) -> Vec<i64> {
    let mut select = connection.prepare("SELECT id FROM kept ORDER BY id").unwrap();
    select.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

/// The observations of the runs of the host, one entry a run.
type HostObservations<T> = Rc<RefCell<Vec<T>>>;

/// A host whose every run does `work` and then lives on. A task of tokio's holds what `work` returned second, as tonic's do:
/// at a crash it is dropped while its runtime is still current.
fn observe<T: 'static, H: Send + 'static>(
    world: &mut World,
    work: impl Fn(usize) -> (T, H) + 'static,
) -> HostObservations<T> {
    let seen = HostObservations::default();
    let (log, work) = (Rc::clone(&seen), Rc::new(work));
    world.host(HOST, move || {
        let (log, work) = (Rc::clone(&log), Rc::clone(&work));
        async move {
            let run = log.borrow().len();
            let (found, held) = work(run);
            tokio::spawn(async move {
                let _held = held;
                pending::<()>().await
            });
            // The task holds it before anyone goes on.
            tokio::task::yield_now().await;
            log.borrow_mut().push(found);
            pending().await
        }
    });
    seen
}

fn run_until_seen<T>(world: &mut World, seen: &HostObservations<T>, runs: usize) {
    assert!(world.run_until(MAX_DURATION, || seen.borrow().len() >= runs).unwrap(), "the host did not come up");
}

/// Inserts the run's number and says what was there before, and how long the log was.
fn insert_one_a_run(synchronous: &'static str) -> impl Fn(usize) -> ((Vec<i64>, u64), Connection) {
    move |run| {
        let log = fs::metadata(LOG).map_or(0, |metadata| metadata.len());
        let connection = open(synchronous).unwrap();
        let before = ids(&connection);
        connection.execute("INSERT INTO kept VALUES (?1)", [run as i64]).unwrap();
        ((before, log), connection)
    }
}

/// S2-NFR-005: a commit that was synced survives, and the log with it: a proper close would have emptied it.
#[test]
fn a_power_loss_keeps_what_was_synced_and_closes_nothing() {
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let seen = observe(&mut world, insert_one_a_run("FULL"));
    run_until_seen(&mut world, &seen, 1);
    world.power_cycle(HOST);
    run_until_seen(&mut world, &seen, 2);
    let (before, log) = seen.borrow()[1].clone();
    assert_eq!(before, [0]);
    assert!(log > 0, "the log was checkpointed and removed: the connection was closed");
}

/// `NORMAL` syncs at a checkpoint only, and so at a proper close, which this is not.
#[test]
fn a_power_loss_loses_what_was_not_synced() {
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let seen = observe(&mut world, insert_one_a_run("NORMAL"));
    run_until_seen(&mut world, &seen, 1);
    world.power_cycle(HOST);
    run_until_seen(&mut world, &seen, 2);
    assert_eq!(seen.borrow()[1].0, [] as [i64; 0]);
}

#[test]
fn a_killed_process_leaves_the_page_cache_and_closes_nothing() {
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let seen = observe(&mut world, insert_one_a_run("OFF"));
    run_until_seen(&mut world, &seen, 1);
    world.schedule(vec![(Duration::ZERO, Fault::Kill { host: HOST })]);
    run_until_seen(&mut world, &seen, 2);
    let (before, log) = seen.borrow()[1].clone();
    assert_eq!(before, [0]);
    assert!(log > 0, "the log was checkpointed and removed: the connection was closed");
}

#[test]
fn a_proper_close_leaves_no_log() {
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let seen = observe(&mut world, |_| {
        let connection = open("FULL").unwrap();
        let held = fs::exists(LOG);
        connection.close().unwrap();
        ((held, fs::exists(LOG)), ())
    });
    run_until_seen(&mut world, &seen, 1);
    assert_eq!(*seen.borrow(), [(true, false)]);
}

/// Power fails at every change of the disk that two commits make, in turn, with torn writes: the first is there each time
/// once it was done, and the second is there or not. S2-NFR-005.
#[test]
fn a_power_loss_at_any_change_of_the_disk_keeps_finished_commits() {
    let torn = Conditions { torn_block: Some(512), ..NOTHING_TORN };
    let mut finished = 0;
    for changes in 0..60 {
        let mut world = World::new(changes.into(), &torn, MAX_DURATION);
        let seen = observe(&mut world, move |run| {
            if run == 0 {
                machine::fail_power_after(HOST, changes);
                let commit = |connection: &Connection, id: i64| {
                    connection.execute("INSERT INTO kept VALUES (?1)", [id]).map(|_| id)
                };
                let connection = open("FULL").ok();
                let committed: Vec<i64> = connection
                    .iter()
                    .flat_map(|connection| (0..2).map_while(|id| commit(connection, id).ok()))
                    .collect();
                return (committed, connection);
            }
            let connection = open("FULL").unwrap();
            let integrity: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(integrity, "ok", "after {changes} changes");
            (ids(&connection), Some(connection))
        });
        run_until_seen(&mut world, &seen, 1);
        if machine::without_power().is_empty() && seen.borrow().len() == 1 && seen.borrow()[0].len() == 2 {
            finished += 1;
            world.power_cycle(HOST);
        }
        run_until_seen(&mut world, &seen, 2);
        let seen = seen.borrow();
        assert!(seen[1].starts_with(&seen[0]), "after {changes} changes: committed {:?}, found {:?}", seen[0], seen[1]);
    }
    assert!((1..60).contains(&finished), "{finished} of 60 runs finished: the fuse does not cover the commits");
}

/// The log is removed at the close, which nothing makes durable, and created again by the next process: its content must not
/// mix with, or go with, the old one's.
#[test]
fn a_log_that_is_created_again_after_a_close_is_whole() {
    let mut world = World::new(1, &Conditions { spontaneous_sync: 1.0, ..NOTHING_TORN }, MAX_DURATION);
    let seen = observe(&mut world, |run| {
        let connection = open("FULL").unwrap();
        connection.execute("INSERT INTO kept VALUES (?1)", [run as i64]).unwrap();
        let found = ids(&connection);
        match run {
            0 => (found, connection.close().map(|()| None).unwrap()),
            _ => (found, Some(connection)),
        }
    });
    run_until_seen(&mut world, &seen, 1);
    world.schedule(vec![(Duration::ZERO, Fault::Kill { host: HOST })]);
    run_until_seen(&mut world, &seen, 2);
    world.schedule(vec![(Duration::ZERO, Fault::Kill { host: HOST })]);
    run_until_seen(&mut world, &seen, 3);
    assert_eq!(seen.borrow()[2], [0, 1, 2]);
}

#[test]
fn a_second_handle_on_a_database_is_refused() {
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let seen = observe(&mut world, |_| {
        let first = open("FULL").unwrap();
        let while_open = open("FULL").map(drop).map_err(|error| error.sqlite_error_code());
        drop(first);
        ((while_open, open("FULL").is_ok()), ())
    });
    run_until_seen(&mut world, &seen, 1);
    assert_eq!(*seen.borrow(), [(Err(Some(ErrorCode::DatabaseBusy)), true)]);
}

/// A connection that outlives its machine, in whoever's hands, cannot touch the disk of the next.
#[test]
fn a_connection_of_an_earlier_run_is_dead() {
    let leaked: Rc<RefCell<Option<Connection>>> = Rc::default();
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let held = Rc::clone(&leaked);
    let seen = observe(&mut world, move |run| {
        if run == 0 {
            *held.borrow_mut() = Some(open("FULL").unwrap());
            return (None, None);
        }
        let connection = open("FULL").unwrap();
        let old = held.take().expect("the first run left it");
        let inserted = old.execute("INSERT INTO kept VALUES (7)", []).map_err(|error| error.sqlite_error_code());
        drop(old);
        connection.execute("INSERT INTO kept VALUES (8)", []).unwrap();
        (Some((inserted, ids(&connection))), Some(connection))
    });
    run_until_seen(&mut world, &seen, 1);
    world.schedule(vec![(Duration::ZERO, Fault::Kill { host: HOST })]);
    run_until_seen(&mut world, &seen, 2);
    assert_eq!(seen.borrow()[1], Some((Err(Some(ErrorCode::SystemIoFailure)), vec![8])));
}

#[test]
fn a_failing_and_a_full_disk_fail_commits_that_succeed_when_it_is_well() {
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let seen = observe(&mut world, |_| {
        let connection = open("FULL").unwrap();
        let insert = |id: i64| {
            connection.execute("INSERT INTO kept VALUES (?1)", [id]).map_err(|error| error.sqlite_error_code().unwrap())
        };
        let outcomes = [Disk::Failing { one_in: 1 }, Disk::Full, Disk::Well].map(|disk| {
            machine::set_disk(HOST, disk);
            insert(1)
        });
        ((outcomes, ids(&connection)), ())
    });
    run_until_seen(&mut world, &seen, 1);
    let expected = [Err(ErrorCode::SystemIoFailure), Err(ErrorCode::DiskFull), Ok(1)];
    assert_eq!(*seen.borrow(), [(expected, vec![1])]);
}

#[test]
fn time_in_sql_is_the_simulation_s() {
    let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
    let seen = observe(&mut world, |_| {
        let connection = open("FULL").unwrap();
        let now: String = connection.query_row("SELECT datetime('now')", [], |row| row.get(0)).unwrap();
        (now, ())
    });
    run_until_seen(&mut world, &seen, 1);
    assert_eq!(*seen.borrow(), ["2026-01-01 00:00:00"]);
}

/// Outside a machine nothing is opened, and nothing unwinds into SQLite.
#[test]
fn outside_a_simulation_there_is_no_disk() {
    vfs::register();
    let opened = Connection::open_with_flags_and_vfs(Path::new(DATABASE), OpenFlags::default(), vfs::NAME);
    assert_eq!(opened.map(drop).map_err(|error| error.sqlite_error_code()), Err(Some(ErrorCode::CannotOpen)));
}

/// Why a store checkpoints when it opens: a commit whose sync failed is reported as failed, but its frames stay in the page
/// cache. After a kill they are read as a commit, and nothing has synced them: whoever acknowledges that row loses it at the
/// next power loss. A checkpoint at the opening syncs what was found.
#[test]
fn a_commit_whose_sync_failed_comes_back_unsynced_unless_it_is_checkpointed() {
    let found_after_power_loss = |checkpoint: bool| {
        let mut world = World::new(1, &NOTHING_TORN, MAX_DURATION);
        let seen = observe(&mut world, move |run| {
            let connection = open("FULL").unwrap();
            let found = ids(&connection);
            match run {
                0 => {
                    machine::set_disk(HOST, Disk::Unsyncable);
                    connection.execute("INSERT INTO kept VALUES (1)", []).expect_err("its sync fails");
                    machine::set_disk(HOST, Disk::Well);
                }
                1 if checkpoint => {
                    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
                }
                _ => {}
            }
            (found, connection)
        });
        run_until_seen(&mut world, &seen, 1);
        world.schedule(vec![(Duration::ZERO, Fault::Kill { host: HOST })]);
        run_until_seen(&mut world, &seen, 2);
        assert_eq!(seen.borrow()[1], [1], "the failed commit did not come back");
        world.power_cycle(HOST);
        run_until_seen(&mut world, &seen, 3);
        seen.borrow()[2].clone()
    };
    assert_eq!(found_after_power_loss(false), [] as [i64; 0]);
    assert_eq!(found_after_power_loss(true), [1]);
}
