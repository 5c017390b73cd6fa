//! Belay's own services: an executor, a tool runner and an approval gate, each with its store on its machine's simulated disk; clients
//! that start executions, meddle with them and watch them; people who decide, and somebody who forges; while power, processes,
//! network and disks fail.
//!
//! ```text
//! alice, bob ── gRPC ──▶ executor (journal) ── gRPC ──▶ runner (ledger, workspaces) ──▶ tools ──▶ the outside world
//!                              │                          ▲   ▲
//!                              ▼           what is asked, │   │ forged grants
//! pat, quinn ─── gRPC ──▶ gate (approvals) ◀── policy ────┘   └── mallory
//! ```
//!
//! What clients and people were told and what the tools did is remembered outside of the machines. Once nothing fails any more every
//! execution has to end; then all machines lose power once more, and what is left is held against what was told and done.

mod audit;
mod auditor;
mod bugs;
mod calls;
mod client;
mod decisions;
mod effects;
mod forger;
mod hosts;
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

use belay_sqlite::Synchronous;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::audit::Evidence;
use self::auditor::Found;
use self::bugs::{Bugs, Memory};
use self::client::Order;
use self::hosts::{Inventory, Owners};
use self::outside::Outside;
use self::told::Told;
use self::workspaces::Flaw;
use crate::checker::Checker;
use crate::fault::{self, Conditions, Fault};
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
};

/// Within this time faults begin and executions are started.
const HORIZON: Duration = Duration::from_secs(4);
/// When everything has to have ended, counted from the moment at which nothing fails any more.
const PATIENCE: Duration = Duration::from_secs(60);
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

/// The bug of [`forgetting_calls`] as it meets grants: a runner that knows no call any more does not know which grants were spent
/// either.
///
/// # Errors
/// What was violated.
pub fn forgetting_grants(seed: u64) -> Result<(), String> {
    let (calls, kills) = (Memory::Replaced, 30);
    run(seed, Bugs { calls, kills, ..Bugs::default() })
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

fn run(seed: u64, bugs: Bugs) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let conditions = Conditions::generate(&mut random);
    let mut world = World::new(seed, &conditions, LONGEST);
    let checker = Checker::default();
    let told = Told::new(&checker);
    let policies = policy::generate(&mut random);
    let site = hosts::Site {
        bugs,
        outside: Outside::default(),
        checker: checker.clone(),
        seed: random.random(),
        owners: Owners::default(),
        policies,
        inventory: Inventory::default(),
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
    let kill = |_| (HORIZON.mul_f64(random.random()), Fault::Kill { host: RUNNER });
    world.schedule((0..bugs.kills).map(kill).collect());

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    let all_ended = || told.ended_count() == orders.len();
    world.run_until(HORIZON, all_ended).map_err(failed)?;
    trace::event("nothing fails any more");
    world.heal();
    told.set_healed();
    // Invariant 6 of REQUIREMENTS: nothing is stuck.
    if !world.run_until(PATIENCE, all_ended).map_err(failed)? {
        let requests: Vec<_> = orders.iter().map(|order| order.request_id.clone()).collect();
        checker.violation(format_args!("stuck: {:?}", told.open(&requests)));
    }

    for host in SITE.servers {
        world.power_cycle(host);
    }
    let found = Found::default();
    let owners = (bugs.calls == Memory::Kept).then(|| site.owners.clone());
    let auditor = auditor::read_everything(random.random(), told.clone(), owners, found.clone());
    world.client(AUDITOR, auditor);
    let is_read = || found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if !world.run_until(PATIENCE, is_read).map_err(failed)? {
        checker.violation("what is stored cannot be read after the last power loss");
    }
    site.inventory.ask();
    world.power_cycle(RUNNER);
    if !world.run_until(PATIENCE, || site.inventory.is_taken()).map_err(failed)? {
        checker.violation("the workspaces cannot be read after the last power loss");
    }
    let stored = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((stored, workspaces)) = stored.zip(site.inventory.take()) {
        let evidence = Evidence {
            stored: &stored,
            told: &told,
            outside: &site.outside,
            workspaces: (bugs.calls != Memory::Lost).then_some(&workspaces),
            orders: &orders,
            keys: &site.keys(),
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
