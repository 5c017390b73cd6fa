//! Belay's own services: an executor, a tool runner and an approval gate, each with its store on its machine's simulated disk; clients
//! that start, pause, resume, cancel and watch executions; people who decide, and an attacker who forges grants; while power, processes,
//! network and disks fail and clocks are wrong.
//!
//! ```text
//! alice, bob ── gRPC ──▶ executor (journal) ── gRPC ──▶ runner (ledger, workspaces) ──▶ tools ──▶ the outside world
//!                              │                          ▲   ▲
//!                              ▼           what is asked, │   │ forged grants
//! pat, quinn ─── gRPC ──▶ gate (approvals) ◀── policy ────┘   └── mallory
//! ```
//!
//! What clients and people were shown and what the tools did is kept outside of the machines. After the last fault every execution has to
//! end; then all machines lose power once more, and what they have stored is compared with what was shown and done.

mod archive;
mod audit;
mod auditor;
mod bugs;
mod calls;
mod client;
mod decisions;
mod effects;
mod forger;
mod hosts;
mod knobs;
mod outside;
mod people;
mod picture;
mod plans;
mod policy;
mod told;
mod tools;
mod watcher;
mod workspaces;

use std::sync::PoisonError;
use std::time::Duration;

use belay_defects::Defect;
use belay_sqlite::Synchronous;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::archive::Archive;
use self::audit::Evidence;
use self::auditor::Found;
use self::bugs::{Bugs, Memory};
use self::client::Order;
use self::hosts::{Inventory, Owners};
use self::knobs::Knobs;
use self::outside::Outside;
use self::told::Told;
use self::workspaces::Flaw;
use crate::checker::Checker;
use crate::fault::{self, Conditions, Fault};
use crate::machine::Disk;
use crate::trace;
use crate::world::World;

const EXECUTOR: &str = "executor";
const RUNNER: &str = "runner";
const GATE: &str = "gate";
const CLIENTS: [&str; 2] = ["alice", "bob"];
const PEOPLE: [&str; 2] = ["pat", "quinn"];
const FORGER: &str = "mallory";
const AUDITOR: &str = "auditor";
const SITE: fault::Site = fault::Site {
    servers: &[EXECUTOR, RUNNER, GATE],
    everyone: &[EXECUTOR, RUNNER, GATE, CLIENTS[0], CLIENTS[1], PEOPLE[0], PEOPLE[1]],
    requests: &[
        ("AcknowledgeToolCalls", [EXECUTOR, RUNNER]),
        ("AcknowledgeToolCalls", [EXECUTOR, RUNNER]),
        ("AcknowledgeApprovals", [EXECUTOR, GATE]),
        ("CallTool", [EXECUTOR, RUNNER]),
        ("CancelToolCall", [EXECUTOR, RUNNER]),
        ("CommitEffect", [EXECUTOR, RUNNER]),
        ("CreateApproval", [EXECUTOR, GATE]),
        ("GetEffect", [GATE, RUNNER]),
        ("GetGrant", [EXECUTOR, GATE]),
        ("DecideApproval", [GATE, GATE]),
        ("StartExecution", [EXECUTOR, EXECUTOR]),
    ],
    for_good: true,
};

/// Within this time faults begin and executions are started.
const HORIZON: Duration = Duration::from_secs(4);
/// How long after the last fault every execution has to have ended.
const MAX_RECOVERY: Duration = Duration::from_secs(60);
/// What brings some bugs to light.
const EXECUTOR_KILLS: Option<(u32, Fault)> = Some((6, Fault::Kill { host: EXECUTOR }));
const GATE_KILLS: Option<(u32, Fault)> = Some((4, Fault::Kill { host: GATE }));

/// A part of the runner's disk is full again and again.
const fn often_full(disk: Disk) -> Option<(u32, Fault)> {
    Some((8, Fault::Disk { host: RUNNER, disk, lasts: Duration::from_millis(250) }))
}

/// A wall clock is set forward by 30 hours and put right again and again.
const fn often_ahead(host: &'static str) -> Option<(u32, Fault)> {
    Some((12, Fault::Clock { host, ahead: 30 * 3600, lasts: Duration::from_millis(300) }))
}

/// Longer than all of it.
const LONGEST: Duration = Duration::from_secs(600);

/// Belay as it is: everything it promises holds.
///
/// # Errors
/// What was violated.
pub fn as_it_is(seed: u64) -> Result<(), String> {
    run(seed, Bugs::default())
}

/// A planted bug: the journal acknowledges before it commits.
///
/// # Errors
/// What was violated.
pub fn acknowledging_before_the_commit(seed: u64) -> Result<(), String> {
    let writes_behind = true;
    run(seed, Bugs { writes_behind, ..Bugs::default() })
}

/// A planted bug: after a restart of the runner a call that it has carried out is carried out again.
///
/// # Errors
/// What was violated.
pub fn forgetting_calls(seed: u64) -> Result<(), String> {
    let calls = Memory::Replaced;
    run(seed, Bugs { calls, ..Bugs::default() })
}

/// Belay as it is, on a runner that loses its ledger whenever it stops: what a call did may not be known any more, and then
/// that is said. Nothing runs twice for it.
///
/// # Errors
/// What was violated.
pub fn losing_the_ledger(seed: u64) -> Result<(), String> {
    let calls = Memory::Lost;
    run(seed, Bugs { calls, ..Bugs::default() })
}

/// Belay as it is, with a gate that loses its store at many of its starts: what waits for a decision is asked again, and nothing goes on that
/// nobody approved.
///
/// # Errors
/// What was violated.
pub fn losing_the_gate(seed: u64) -> Result<(), String> {
    let gate = Memory::Lost;
    run(seed, Bugs { gate, often: GATE_KILLS, ..Bugs::default() })
}

/// Belay as it is, with a journal that is replaced once by an older copy and accepted so: whatever is gone with it, every execution that
/// is left ends, and every watcher is told that what it has seen may not have happened.
///
/// # Errors
/// What was violated.
pub fn restoring_the_journal(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::default() })
}

/// The bug of [`forgetting_calls`] as it meets grants: a runner that knows no call any more does not know which grants were spent
/// either.
///
/// # Errors
/// What was violated.
pub fn forgetting_grants(seed: u64) -> Result<(), String> {
    let (calls, often) = (Memory::Replaced, Some((30, Fault::Kill { host: RUNNER })));
    run(seed, Bugs { calls, often, ..Bugs::default() })
}

/// A planted bug: the journal's commits are acknowledged before they are synced.
///
/// # Errors
/// What was violated.
pub fn journal_without_sync(seed: u64) -> Result<(), String> {
    let journal = Synchronous::Normal;
    run(seed, Bugs { journal, ..Bugs::default() })
}

/// A planted bug: a call begins before its row in the ledger is synced.
///
/// # Errors
/// What was violated.
pub fn ledger_without_sync(seed: u64) -> Result<(), String> {
    let ledger = Synchronous::Normal;
    run(seed, Bugs { ledger, ..Bugs::default() })
}

/// A planted bug: what a call changed is in its workspace before the ledger says that it counts.
///
/// # Errors
/// What was violated.
pub fn applying_before_the_row(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::AppliesBeforeTheRow;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A planted bug: what waits for a commit is not on the disk for good.
///
/// # Errors
/// What was violated.
pub fn staging_without_sync(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::StagesWithoutSync;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A planted bug: the runner is told that effects are on the disk for good which are not.
///
/// # Errors
/// What was violated.
pub fn applying_without_sync(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::NeverSyncs;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A defect of the services' own code: [`Defect::AcknowledgesOnce`].
///
/// # Errors
/// What was violated.
pub fn acknowledging_once(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::AcknowledgesOnce))
}

/// A defect of the services' own code: [`Defect::DoubtsWhatDidNotHappen`].
///
/// # Errors
/// What was violated.
pub fn doubting_what_did_not_happen(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_full(Disk::StoresFull), ..Bugs::planted(Defect::DoubtsWhatDidNotHappen) })
}

/// A defect of the services' own code: [`Defect::FailsForWantOfRoom`].
///
/// # Errors
/// What was violated.
pub fn failing_for_want_of_room(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_full(Disk::WorkspacesFull), ..Bugs::planted(Defect::FailsForWantOfRoom) })
}

/// A defect of the services' own code: [`Defect::AsksOnce`].
///
/// # Errors
/// What was violated.
pub fn asking_once(seed: u64) -> Result<(), String> {
    run(seed, Bugs { gate: Memory::Lost, often: GATE_KILLS, ..Bugs::planted(Defect::AsksOnce) })
}

/// A defect of the services' own code: [`Defect::WaitsByTheWallClock`].
///
/// # Errors
/// What was violated.
pub fn waiting_by_the_wall_clock(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_ahead(EXECUTOR), ..Bugs::planted(Defect::WaitsByTheWallClock) })
}

/// A defect of the services' own code: [`Defect::DropsGrantsThatRanOut`].
///
/// # Errors
/// What was violated.
pub fn dropping_grants_that_ran_out(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_ahead(RUNNER), ..Bugs::planted(Defect::DropsGrantsThatRanOut) })
}

/// A defect of the services' own code: [`Defect::RefusesCursorsAhead`].
///
/// # Errors
/// What was violated.
pub fn refusing_cursors_ahead(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::RefusesCursorsAhead) })
}

/// A defect of the services' own code: [`Defect::TrustsCursorsFromBefore`].
///
/// # Errors
/// What was violated.
pub fn trusting_cursors_from_before(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::TrustsCursorsFromBefore) })
}

fn run(seed: u64, bugs: Bugs) -> Result<(), String> {
    if let Some(defect) = bugs.defect {
        belay_defects::plant(defect);
    }
    let mut random = StdRng::seed_from_u64(seed);
    let conditions = Conditions::generate(&mut random);
    let mut world = World::new(seed, &conditions, LONGEST);
    let checker = Checker::default();
    let told = Told::new(&checker, bugs.gate == Memory::Kept, !bugs.restores_journal);
    let policies = policy::generate(&mut random);
    let knobs = Knobs::generate(&mut random);
    trace::event(format_args!("{knobs:?}"));
    let site = hosts::Site {
        bugs,
        outside: Outside::default(),
        checker: checker.clone(),
        seed: random.random(),
        owners: Owners::default(),
        policies,
        inventory: Inventory::default(),
        knobs,
        archive: Archive::default(),
    };

    let here = site.clone();
    world.host(GATE, move || hosts::gate(here.clone()));
    let here = site.clone();
    world.host(RUNNER, move || hosts::runner(here.clone()));
    let here = site.clone();
    world.host(EXECUTOR, move || hosts::executor(here.clone()));
    let orders = orders(&mut random);
    for (index, name) in CLIENTS.into_iter().enumerate() {
        let own = orders.iter().skip(index).step_by(CLIENTS.len()).cloned().collect();
        world.client(name, client::work(own, told.clone()));
    }
    for name in PEOPLE {
        world.client(name, people::decide(random.random(), told.clone()));
    }
    world.client(FORGER, forger::forge(random.random(), told.clone(), site.owners.clone(), site.keys()));
    world.schedule(fault::generate(&mut random, SITE, HORIZON));
    if let Some((count, fault)) = bugs.often {
        world.schedule((0..count).map(|_| (HORIZON.mul_f64(random.random()), fault)).collect());
    }

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    let all_ended = || told.ended_count() == orders.len();
    world.run_until(HORIZON, all_ended).map_err(failed)?;
    trace::event("nothing fails any more");
    world.heal();
    told.set_healed();
    // Invariant 6 of REQUIREMENTS: nothing is stuck.
    if !world.run_until(MAX_RECOVERY, all_ended).map_err(failed)? {
        let requests: Vec<_> = orders.iter().map(|order| order.request_id.clone()).collect();
        checker.violation(format_args!("stuck: {:?}", told.open(&requests)));
    }

    if bugs.restores_journal {
        // What the journal has lost is not there to be held against what was told: the watchers have looked at what they were shown.
        return checker.verdict();
    }
    for host in SITE.servers {
        world.power_cycle(host);
    }
    let found = Found::default();
    let owners = (bugs.calls == Memory::Kept).then(|| site.owners.clone());
    let auditor = auditor::read_everything(random.random(), told.clone(), owners, found.clone());
    world.client(AUDITOR, auditor);
    let is_read = || found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if !world.run_until(MAX_RECOVERY, is_read).map_err(failed)? {
        checker.violation("what is stored cannot be read after the last power loss");
    }
    site.inventory.ask();
    world.power_cycle(RUNNER);
    if !world.run_until(MAX_RECOVERY, || site.inventory.is_taken()).map_err(failed)? {
        checker.violation("the workspaces cannot be read after the last power loss");
    }
    let stored = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((stored, workspaces)) = stored.zip(site.inventory.take()) {
        let evidence = Evidence {
            stored: &stored,
            told: &told,
            outside: &site.outside,
            workspaces: &workspaces,
            ledger_lost: bugs.calls == Memory::Lost,
            orders: &orders,
            keys: &site.keys(),
            owners: &site.owners,
            archive: &site.archive,
        };
        for violation in audit::audit(&evidence) {
            checker.violation(violation);
        }
    }
    checker.verdict()
}

/// 1 to 6 executions, to be started while things fail.
fn orders(random: &mut StdRng) -> Vec<Order> {
    let count = random.random_range(1..=6);
    let order = |number| Order {
        after: Duration::from_millis(random.random_range(0..3000)),
        approval_mode: policy::approval_mode(random),
        plan: plans::generate(random, format!("plan-{number}")),
        workspace: if random.random_bool(0.6) { hosts::SHARED_WORKSPACE.to_owned() } else { String::new() },
        request_id: format!("request-{number}"),
        seed: random.random(),
    };
    (0..count).map(order).collect()
}
