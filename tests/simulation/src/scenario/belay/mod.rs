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
//! What clients and people observed and what the tools did is recorded outside of the machines. After the last fault every execution has to
//! end; then all machines lose power once more, and their stored data is compared with the records.

mod archive;
mod audit;
mod auditor;
mod backup;
mod bugs;
mod calls;
mod children;
mod client;
mod damage;
mod decisions;
mod deletions;
mod documents;
mod effects;
mod escalations;
mod features;
mod forger;
mod forks;
mod hosts;
mod inputs;
mod knobs;
mod lateness;
mod looker;
mod observed;
mod outside;
mod people;
mod picture;
mod plans;
mod policy;
mod promises;
mod retention;
mod shared_journal;
mod slow_journal;
mod spending;
mod tools;
mod watcher;
mod webhooks;
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
use self::backup::Backup;
use self::bugs::{Bugs, Memory};
use self::client::Order;
use self::damage::Damaged;
use self::forger::Repeated;
use self::hosts::{Inventory, Owners};
use self::inputs::Inputs;
use self::knobs::Knobs;
use self::observed::Observations;
use self::outside::Outside;
use self::retention::Taken;
use self::webhooks::Mailbox;
use self::workspaces::Flaw;
use crate::checker::Checker;
use crate::fault::{self, Conditions, Fault};
use crate::machine::{self, Disk};
use crate::trace;
use crate::world::World;

const EXECUTOR: &str = "executor";
const RUNNER: &str = "runner";
const GATE: &str = "gate";
const CLIENTS: [&str; 2] = ["alice", "bob"];
const PEOPLE: [&str; 2] = ["pat", "quinn"];
const LOOKER: &str = "lou";
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

/// Faults begin and executions start within this time.
const HORIZON: Duration = Duration::from_secs(4);
/// Every execution must end within this time after the last fault, unless tools run: retries and forks of nested lists begin late and take long.
const MAX_RECOVERY: Duration = Duration::from_secs(60);
/// How often that time begins again while tools run.
const MAX_EXTENSIONS: usize = 4;
/// A tool runs within this time where something goes on.
const RECENTLY: Duration = Duration::from_secs(10);
/// The auditor has read everything within this time, one thing after the other: some seeds make hundreds of executions, each with approvals.
const MAX_READING: Duration = Duration::from_secs(300);
/// Additional faults that expose some bugs.
const EXECUTOR_OUTAGES: Option<(u32, Fault)> =
    Some((4, Fault::PowerLoss { host: EXECUTOR, down: Duration::from_millis(600) }));
const EXECUTOR_KILLS: Option<(u32, Fault)> = Some((6, Fault::Kill { host: EXECUTOR }));
const RUNNER_KILLS: Option<(u32, Fault)> = Some((6, Fault::Kill { host: RUNNER }));
const GATE_KILLS: Option<(u32, Fault)> = Some((4, Fault::Kill { host: GATE }));

/// A part of the runner's disk is full again and again.
const fn often_full(disk: Disk) -> Option<(u32, Fault)> {
    often_full_for(8, disk, Duration::from_millis(250))
}

/// The same as many times, each time this long.
const fn often_full_for(times: u32, disk: Disk, lasts: Duration) -> Option<(u32, Fault)> {
    Some((times, Fault::Disk { host: RUNNER, disk, lasts }))
}

/// A wall clock is set forward by 30 hours and put right again and again.
const fn often_ahead(host: &'static str) -> Option<(u32, Fault)> {
    Some((12, Fault::Clock { host, ahead: 30 * 3600, lasts: Duration::from_millis(300) }))
}

/// The limit of simulated time, longer than any run.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// Belay as it is: all guarantees hold.
///
/// # Errors
/// What was violated.
pub fn as_it_is(seed: u64) -> Result<(), String> {
    run(seed, Bugs::default())
}

/// Belay as it is, with steps that have plans of their own, whose steps may have plans again, and with inputs.
///
/// # Errors
/// What was violated.
pub fn nesting(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, ..Bugs::default() })
}

/// Belay as it is, with many executions of the plans of steps, most of which end as soon as they have begun: each ends for its step as it has ended.
///
/// # Errors
/// What was violated.
pub fn brooding(seed: u64) -> Result<(), String> {
    run(seed, Bugs { broods: true, looks: true, ..Bugs::default() })
}

/// Belay as it is, with executions that are deleted: those that a request has started after their end, and those of steps' plans as soon as that is
/// accepted. Some were forked before. Every other executor drives only what it is asked to: a child may end while its parent is not driven.
///
/// # Errors
/// What was violated.
pub fn deleting(seed: u64) -> Result<(), String> {
    let drives_some = seed % 2 == 1;
    let often = if drives_some { EXECUTOR_KILLS } else { None };
    run(seed, Bugs { nests: true, deletes: true, forks: true, looks: true, drives_some, often, ..Bugs::default() })
}

/// Belay as it is, with an executor that keeps few of the executions that have ended, or keeps them for a moment: it deletes them while others run, go on,
/// are forked and, in some, are deleted by clients.
///
/// # Errors
/// What was violated.
pub fn retaining(seed: u64) -> Result<(), String> {
    let drives_some = seed % 2 == 1;
    let often = if drives_some { EXECUTOR_KILLS } else { None };
    let deletes = seed % 3 == 2;
    let bugs = Bugs { nests: true, retains: true, forks: true, looks: true, ..Bugs::default() };
    run(seed, Bugs { deletes, drives_some, often, ..bugs })
}

/// A defect of the services' own code: [`Defect::RepetitionRefused`].
///
/// # Errors
/// What was violated.
pub fn repetition_refused(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, retains: true, forks: true, ..Bugs::planted(Defect::RepetitionRefused) })
}

/// A defect of the services' own code: [`Defect::ChildOfRunningTaken`].
///
/// # Errors
/// What was violated.
pub fn child_of_running_taken(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, retains: true, ..Bugs::planted(Defect::ChildOfRunningTaken) })
}

/// A defect of the services' own code: [`Defect::ForkForgetsOutput`].
///
/// # Errors
/// What was violated.
pub fn fork_forgets_output(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, forks: true, ..Bugs::planted(Defect::ForkForgetsOutput) })
}

/// A defect of the services' own code: [`Defect::UnrecordedChildDeleted`].
///
/// # Errors
/// What was violated.
pub fn unrecorded_child_deleted(seed: u64) -> Result<(), String> {
    let (drives_some, often) = (true, EXECUTOR_KILLS);
    run(seed, Bugs { nests: true, deletes: true, drives_some, often, ..Bugs::planted(Defect::UnrecordedChildDeleted) })
}

/// A defect of the services' own code: [`Defect::LostChildStartedAgain`].
///
/// # Errors
/// What was violated.
pub fn lost_child_started_again(seed: u64) -> Result<(), String> {
    let (drives_some, often) = (true, EXECUTOR_KILLS);
    run(seed, Bugs { nests: true, deletes: true, drives_some, often, ..Bugs::planted(Defect::LostChildStartedAgain) })
}

/// The execution of a step's plan works in a folder of its own.
///
/// # Errors
/// What was violated: how the defect is found.
pub fn child_in_another_folder(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, ..Bugs::planted(Defect::ChildInAnotherFolder) })
}

/// A parent takes a state of its child that is not an end for a failure.
///
/// # Errors
/// What was violated: how the defect is found.
pub fn stale_view(seed: u64) -> Result<(), String> {
    run(seed, Bugs { broods: true, ..Bugs::planted(Defect::StaleView) })
}

/// The same, as a client that only looks sees it.
///
/// # Errors
/// What was violated: how the defect is found.
pub fn stale_look(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, looks: true, ..Bugs::planted(Defect::StaleView) })
}

/// A defect of the services' own code: [`Defect::PauseOfChildKept`].
///
/// # Errors
/// What was violated: how the defect is found.
pub fn pause_of_child_kept(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::PauseOfChildKept) })
}

/// Belay as it is, with an executor that drives only what it is asked to, as one without a service does, and with it the executions of steps' plans.
///
/// # Errors
/// What was violated.
pub fn driving_some(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, drives_some: true, often: EXECUTOR_KILLS, ..Bugs::default() })
}

/// A defect of the services' own code: [`Defect::ChildNotDriven`].
///
/// # Errors
/// What was violated.
pub fn child_not_driven(seed: u64) -> Result<(), String> {
    let often = EXECUTOR_KILLS;
    run(seed, Bugs { nests: true, drives_some: true, often, ..Bugs::planted(Defect::ChildNotDriven) })
}

/// Belay as it is, with steps that run for each entry of a list, that fall back to other calls, that are undone, that have checks, and that share resources.
///
/// # Errors
/// What was violated.
pub fn extending(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::default() })
}

/// A defect of the services' own code: [`Defect::UnorderedCollection`].
///
/// # Errors
/// What was violated.
pub fn unordered_collection(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::UnorderedCollection) })
}

/// A defect of the services' own code: [`Defect::IncompleteCollection`].
///
/// # Errors
/// What was violated.
pub fn incomplete_collection(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::IncompleteCollection) })
}

/// A defect of the services' own code: [`Defect::StaleEntries`].
///
/// # Errors
/// What was violated.
pub fn stale_entries(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::StaleEntries) })
}

/// A defect of the services' own code: [`Defect::HeldBudgetIgnored`].
///
/// # Errors
/// What was violated.
pub fn held_budget_ignored(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::HeldBudgetIgnored) })
}

/// A defect of the services' own code: [`Defect::QuestionOfAnotherRun`].
///
/// # Errors
/// What was violated.
pub fn question_of_another_run(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::QuestionOfAnotherRun))
}

/// Belay as it is, with plans that have what fails run again after everything else, and then wait for a person, and with inputs.
///
/// # Errors
/// What was violated.
pub fn escalating(seed: u64) -> Result<(), String> {
    run(seed, Bugs { escalates: true, ..Bugs::default() })
}

/// A planted bug: the journal acknowledges before it commits.
///
/// # Errors
/// What was violated.
pub fn acknowledging_before_the_commit(seed: u64) -> Result<(), String> {
    let writes_behind = true;
    run(seed, Bugs { writes_behind, ..Bugs::default() })
}

/// A planted bug: after a restart, the runner runs calls again that it has already run.
///
/// # Errors
/// What was violated.
pub fn forgetting_calls(seed: u64) -> Result<(), String> {
    let calls = Memory::Replaced;
    run(seed, Bugs { calls, ..Bugs::default() })
}

/// Belay as it is, with a runner that loses its ledger whenever it stops: the outcome of a call may become unknown, which is reported. Nothing runs
/// twice because of it.
///
/// # Errors
/// What was violated.
pub fn losing_the_ledger(seed: u64) -> Result<(), String> {
    let calls = Memory::Lost;
    run(seed, Bugs { calls, ..Bugs::default() })
}

/// Belay as it is, with a gate that loses its store at many of its starts: pending approvals are created again, and nothing continues without an
/// approval.
///
/// # Errors
/// What was violated.
pub fn losing_the_gate(seed: u64) -> Result<(), String> {
    let gate = Memory::Lost;
    run(seed, Bugs { gate, often: GATE_KILLS, ..Bugs::default() })
}

/// Belay as it is, with a journal that is once replaced by an older copy and accepted: every execution that is left ends, and every watcher gets a
/// reset.
///
/// # Errors
/// What was violated.
pub fn restoring_the_journal(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::default() })
}

/// Belay as it is, with everything restored once from a backup that was made together: journal, blobs, ledger, the gate's store and the workspaces. What is left
/// is one history, in which nothing is stuck, lost or done twice.
///
/// # Errors
/// What was violated.
pub fn restoring_everything(seed: u64) -> Result<(), String> {
    let nests = seed.is_multiple_of(2);
    run(seed, Bugs { restores_all: true, nests, waits: !nests, ..Bugs::default() })
}

/// Belay as it is, with a ledger in which one bit of one row flips: it never becomes a result. The runner starts, the outcome of that call is
/// unknown, or known where only its name was damaged, and everything else continues.
///
/// # Errors
/// What was violated.
pub fn damaging_a_row(seed: u64) -> Result<(), String> {
    run(seed, Bugs { damages_a_row: true, often: RUNNER_KILLS, ..Bugs::default() })
}

/// Belay as it is, where all executions append to one file at once: a call that conflicts is repeated, at most three times.
///
/// # Errors
/// What was violated.
pub fn in_a_crowd(seed: u64) -> Result<(), String> {
    run(seed, Bugs { crowds: true, ..Bugs::default() })
}

/// Belay as it is, where steps wait for times, signals and people's answers: each wait ends once, by its time, by a signal that no other step has
/// taken, or by the answer that a person gave.
///
/// # Errors
/// What was violated.
pub fn waiting(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, ..Bugs::default() })
}

/// Belay as it is, with executors that another replaces while they run, and that do not notice. Nothing that they do later counts.
///
/// # Errors
/// What was violated.
pub fn replacing_executors(seed: u64) -> Result<(), String> {
    run(seed, Bugs { replaces_executors: true, ..Bugs::default() })
}

/// Belay as it is, with a webhook whose receiver is away now and then, while the executor's clock is set forward and back and the executor is killed: every
/// end is told, and nothing else is.
///
/// # Errors
/// What was violated.
pub fn telling(seed: u64) -> Result<(), String> {
    run(seed, Bugs { webhooks: true, nests: seed.is_multiple_of(3), ..Bugs::default() })
}

/// A defect of the services' own code: [`Defect::WallClockMessages`].
///
/// # Errors
/// What was violated.
pub fn wall_clock_messages(seed: u64) -> Result<(), String> {
    run(seed, Bugs { webhooks: true, ..Bugs::planted(Defect::WallClockMessages) })
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

/// A planted bug: an effect is applied to its workspace before its row is in the ledger.
///
/// # Errors
/// What was violated.
pub fn applying_before_the_row(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::AppliesBeforeTheRow;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A planted bug: staged effects are not synced.
///
/// # Errors
/// What was violated.
pub fn staging_without_sync(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::StagesWithoutSync;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A planted bug: applied effects are reported as synced although they are not.
///
/// # Errors
/// What was violated.
pub fn applying_without_sync(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::NeverSyncs;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A defect of the services' own code: [`Defect::AcknowledgementNotRetried`].
///
/// # Errors
/// What was violated.
pub fn acknowledgement_not_retried(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::AcknowledgementNotRetried))
}

/// A defect of the services' own code: [`Defect::UncommittedReportedUnknown`].
///
/// # Errors
/// What was violated.
pub fn uncommitted_reported_unknown(seed: u64) -> Result<(), String> {
    // Short and often: a write that fails before the commit leaves the call without an end.
    let often = often_full_for(24, Disk::StoresFull, Duration::from_millis(40));
    run(seed, Bugs { often, ..Bugs::planted(Defect::UncommittedReportedUnknown) })
}

/// A defect of the services' own code: [`Defect::FullDiskFailsSteps`].
///
/// # Errors
/// What was violated.
pub fn full_disk_fails_steps(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_full(Disk::WorkspacesFull), ..Bugs::planted(Defect::FullDiskFailsSteps) })
}

/// A defect of the services' own code: [`Defect::LostApprovalNotRecreated`].
///
/// # Errors
/// What was violated.
pub fn lost_approval_not_recreated(seed: u64) -> Result<(), String> {
    run(seed, Bugs { gate: Memory::Lost, often: GATE_KILLS, ..Bugs::planted(Defect::LostApprovalNotRecreated) })
}

/// A defect of the services' own code: [`Defect::WallClockTimers`].
///
/// # Errors
/// What was violated.
pub fn wall_clock_timers(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_ahead(EXECUTOR), ..Bugs::planted(Defect::WallClockTimers) })
}

/// A defect of the services' own code: [`Defect::ExpiredGrantDropsEffect`].
///
/// # Errors
/// What was violated.
pub fn expired_grant_drops_effect(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_ahead(RUNNER), ..Bugs::planted(Defect::ExpiredGrantDropsEffect) })
}

/// A defect of the services' own code: [`Defect::CursorAheadRejected`].
///
/// # Errors
/// What was violated.
pub fn cursor_ahead_rejected(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::CursorAheadRejected) })
}

/// A defect of the services' own code: [`Defect::StaleCursorTrusted`].
///
/// # Errors
/// What was violated.
pub fn stale_cursor_trusted(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::StaleCursorTrusted) })
}

/// A defect of the services' own code: [`Defect::UnreadableRowStopsStart`].
///
/// # Errors
/// What was violated.
pub fn unreadable_row_stops_start(seed: u64) -> Result<(), String> {
    run(seed, Bugs { damages_a_row: true, often: RUNNER_KILLS, ..Bugs::planted(Defect::UnreadableRowStopsStart) })
}

/// A defect of the services' own code: [`Defect::EndlessReruns`].
///
/// # Errors
/// What was violated.
pub fn endless_reruns(seed: u64) -> Result<(), String> {
    run(seed, Bugs { crowds: true, ..Bugs::planted(Defect::EndlessReruns) })
}

/// A defect of the services' own code: [`Defect::LostAnswerTrusted`].
///
/// # Errors
/// What was violated.
pub fn lost_answer_trusted(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::LostAnswerTrusted))
}

/// A defect of the services' own code: [`Defect::LostWakeUp`].
///
/// # Errors
/// What was violated.
pub fn lost_wake_up(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, ..Bugs::planted(Defect::LostWakeUp) })
}

/// A defect of the services' own code: [`Defect::LostTimer`].
///
/// # Errors
/// What was violated.
pub fn lost_timer(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, often: EXECUTOR_OUTAGES, ..Bugs::planted(Defect::LostTimer) })
}

/// A defect of the services' own code: [`Defect::LateTimer`].
///
/// # Errors
/// What was violated.
pub fn late_timer(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, often: EXECUTOR_OUTAGES, ..Bugs::planted(Defect::LateTimer) })
}

/// A defect of the services' own code: [`Defect::DoubleDispatch`].
///
/// # Errors
/// What was violated.
pub fn double_dispatch(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: EXECUTOR_KILLS, ..Bugs::planted(Defect::DoubleDispatch) })
}

/// The same with the executions of the plans that steps have.
///
/// # Errors
/// What was violated.
pub fn double_start(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::DoubleDispatch) })
}

/// A defect of the services' own code: [`Defect::UnorderedAppend`].
///
/// # Errors
/// What was violated.
pub fn unordered_append(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::UnorderedAppend))
}

/// A defect of the services' own code: [`Defect::GrantReuse`].
///
/// # Errors
/// What was violated.
pub fn grant_reuse(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: EXECUTOR_KILLS, ..Bugs::planted(Defect::GrantReuse) })
}

/// A defect of the services' own code: [`Defect::NoFence`].
///
/// # Errors
/// What was violated.
pub fn no_fence(seed: u64) -> Result<(), String> {
    run(seed, Bugs { replaces_executors: true, ..Bugs::planted(Defect::NoFence) })
}

fn run(seed: u64, bugs: Bugs) -> Result<(), String> {
    if let Some(defect) = bugs.defect {
        belay_defects::plant(defect);
    }
    let mut random = StdRng::seed_from_u64(seed);
    let conditions = Conditions::generate(&mut random);
    let mut world = World::new(seed, &conditions, MAX_DURATION);
    let checker = Checker::default();
    let damaged = Damaged::default();
    let (taken, backup) = (Taken::default(), Backup::default());
    let observed = Observations::new(
        &checker,
        bugs.gate == Memory::Kept,
        !bugs.restores_journal,
        damaged.clone(),
        taken.clone(),
        backup.clone(),
        bugs.reads_beside(),
    );
    let policies = policy::generate(&mut random);
    let mut knobs = Knobs::generate(&mut random, seed);
    if bugs.retains {
        knobs.executor.retention_interval = retention::interval(seed);
    }
    if bugs.webhooks {
        knobs.executor.max_message_delay = webhooks::max_delay(seed);
    }
    let mailbox = Mailbox::default();
    trace::event(format_args!("{knobs:?}"));
    machine::interleave(knobs.interleaving);
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
        damaged,
        taken: taken.clone(),
        mailbox: mailbox.clone(),
        backup: backup.clone(),
        number: seed,
    };

    let here = site.clone();
    world.host(GATE, move || hosts::gate(here.clone()));
    let here = site.clone();
    world.host(RUNNER, move || hosts::runner(here.clone()));
    let here = site.clone();
    world.host(EXECUTOR, move || hosts::executor(here.clone()));
    if bugs.webhooks {
        let mailbox = mailbox.clone();
        world.host(webhooks::RECEIVER, move || webhooks::receive(seed, mailbox.clone()));
    }
    let mut orders = orders(&mut random, bugs);
    if bugs.waits {
        let waits = if seed % 4 == 3 { plans::sleep } else { plans::add_waits };
        orders.iter_mut().for_each(|order| waits(&mut StdRng::seed_from_u64(order.seed), &mut order.plan));
    }
    if bugs.extends {
        for order in &mut orders {
            let random = &mut StdRng::seed_from_u64(order.seed ^ 4);
            if order.seed % 3 == 1 {
                order.plan = plans::listing(random, order.plan.id.clone());
                order.goes_on = 0.9;
                continue;
            }
            // Several executions of one plan, which use each other's results.
            if seed.is_multiple_of(3) && order.seed % 3 == 2 {
                order.plan = plans::recalling(random);
                order.goes_on = 0.6;
                continue;
            }
            plans::extend(random, &mut order.plan);
            // With numbers of its own, so that the rest of the plan is what it was without.
            plans::add_calls(&mut StdRng::seed_from_u64(order.seed ^ 16), &mut order.plan);
            features::add_checks(random, &mut order.plan);
            features::share(random, &mut order.plan);
            // Only where nothing is planted: the seeds that find what is planted stay what they are.
            if bugs.defect.is_none_or(|defect| defect == Defect::HeldBudgetIgnored) {
                features::limit(&mut StdRng::seed_from_u64(order.seed ^ 32), &mut order.plan);
            }
            features::wait_longer(random, &mut order.plan);
        }
    }
    if bugs.escalates || bugs.extends {
        for order in orders.iter_mut().filter(|order| bugs.escalates || order.seed.is_multiple_of(4)) {
            features::escalate(&mut StdRng::seed_from_u64(order.seed ^ 8), &mut order.plan);
        }
    }
    // As with budgets, and not where earlier results are looked for.
    if bugs.reads_beside() || bugs.defect == Some(Defect::QuestionOfAnotherRun) {
        for order in orders.iter_mut().filter(|order| order.plan.id != "recalling") {
            features::ask(&mut StdRng::seed_from_u64(order.seed ^ 64), &mut order.plan);
        }
    }
    if bugs.nests {
        orders
            .iter_mut()
            .for_each(|order| plans::add_plans(&mut StdRng::seed_from_u64(order.seed ^ 2), &mut order.plan));
    }
    for order in orders.iter_mut().filter(|order| order.seed.is_multiple_of(3)) {
        plans::add_conditions(&mut StdRng::seed_from_u64(order.seed ^ 1), &mut order.plan);
    }
    if bugs.escalates || bugs.nests {
        for order in &mut orders {
            order.inputs = inputs::add(&mut StdRng::seed_from_u64(order.seed ^ 16), &mut order.plan);
        }
    }
    if bugs.escalates || bugs.extends {
        for order in orders.iter_mut().filter(|order| order.seed.is_multiple_of(2)) {
            documents::write(&mut StdRng::seed_from_u64(order.seed ^ 32), order);
        }
    }
    orders.iter_mut().for_each(|order| order.is_driven = bugs.drives_some);
    if bugs.forks {
        orders.iter_mut().for_each(|order| order.forks = 0.5);
    }
    if bugs.deletes {
        orders.iter_mut().for_each(|order| order.deletes = 0.6);
    }
    for order in &orders {
        trace::detail(format_args!("{} asks for {:?}, as {:?}", order.request_id, order.plan, order.document));
    }
    for (index, name) in CLIENTS.into_iter().enumerate() {
        let own = orders.iter().skip(index).step_by(CLIENTS.len()).cloned().collect();
        world.client(name, client::work(own, observed.clone()));
    }
    if bugs.looks {
        world.client(LOOKER, looker::look(random.random(), observed.clone()));
    }
    for name in PEOPLE {
        world.client(name, people::decide(random.random(), observed.clone()));
    }
    let repeated = Repeated::default();
    // A runner that has lost what it knew cannot know that a grant was spent.
    let deletes = bugs.deletes || bugs.retains;
    let restores = bugs.restores_journal || bugs.restores_all;
    let keeps_all = bugs.calls == Memory::Kept && !bugs.damages_a_row && !restores && !deletes;
    let may_repeat = keeps_all.then(|| repeated.clone());
    let forger = forger::forge(random.random(), site.owners.clone(), site.keys(), observed.clone(), may_repeat);
    world.client(FORGER, forger);
    world.schedule(fault::generate(&mut random, SITE, HORIZON));
    if let Some((count, fault)) = bugs.often {
        world.schedule((0..count).map(|_| (HORIZON.mul_f64(random.random()), fault)).collect());
    }
    if bugs.webhooks {
        world.schedule(webhooks::faults(seed));
    }

    let failed = |error: Box<dyn std::error::Error>| error.to_string();
    let all_ended = || observed.ended_count() == orders.len();
    // A run that has shown a violation need not last as long as the others.
    let decided = || all_ended() || checker.verdict().is_err();
    if bugs.restores_all {
        backup.make_and_restore(&mut world, &site, &observed, seed, decided).map_err(failed)?;
    }
    world.run_until(HORIZON, decided).map_err(failed)?;
    checker.verdict()?;
    trace::event("all faults have ended");
    world.heal();
    mailbox.calm();
    observed.set_healed(world.now_micros());
    // Invariant 6 of REQUIREMENTS: nothing is stuck.
    let mut has_ended = world.run_until(MAX_RECOVERY, decided).map_err(failed)?;
    for _ in 0..MAX_EXTENSIONS {
        let runs = site.outside.runs().len();
        if has_ended || !world.run_until(RECENTLY, || site.outside.runs().len() > runs || decided()).map_err(failed)? {
            break;
        }
        has_ended = world.run_until(MAX_RECOVERY, decided).map_err(failed)?;
    }
    if !has_ended {
        let requests: Vec<_> = orders.iter().map(|order| order.request_id.clone()).collect();
        checker.violation(format_args!("stuck: {:?}", observed.open(&requests)));
    }

    checker.verdict()?;
    if bugs.webhooks {
        mailbox.look_again();
        if !world.run_until(webhooks::MAX_DELIVERY, || mailbox.waiting() == Some(0)).map_err(failed)? {
            checker.violation(format_args!("messages are not delivered: {:?} of them wait", mailbox.waiting()));
        }
        checker.verdict()?;
    }
    if bugs.restores_journal {
        // Executions that were lost with the journal cannot be compared; the watchers have checked their events.
        return Ok(());
    }
    site.owners.drive_all();
    taken.close();
    for host in SITE.servers {
        world.power_cycle(host);
    }
    let found = Found::default();
    let owners = (bugs.calls == Memory::Kept).then(|| site.owners.clone());
    let auditor = auditor::read_everything(random.random(), observed.clone(), owners, found.clone());
    world.client(AUDITOR, auditor);
    let is_read = || found.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if !world.run_until(MAX_READING, is_read).map_err(failed)? {
        checker.violation("what is stored cannot be read after the last power loss");
    }
    site.inventory.request();
    world.power_cycle(RUNNER);
    if !world.run_until(MAX_RECOVERY, || site.inventory.is_taken()).map_err(failed)? {
        checker.violation("the workspaces cannot be read after the last power loss");
    }
    let stored = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((stored, workspaces)) = stored.zip(site.inventory.take()) {
        let evidence = Evidence {
            stored: &stored,
            observed: &observed,
            outside: &site.outside,
            workspaces: &workspaces,
            ledger_lost: bugs.calls == Memory::Lost,
            orders: &orders,
            keys: &site.keys(),
            owners: &site.owners,
            archive: &site.archive,
            damaged: &site.damaged,
            repeated: &repeated,
            drives_some: bugs.drives_some,
        };
        let mut violations = audit::audit(&evidence);
        if bugs.webhooks {
            webhooks::audit(&evidence, &mailbox, seed, &mut violations);
        }
        for violation in violations {
            checker.violation(violation);
        }
    }
    checker.verdict()
}

/// 1 to 6 executions, which start while faults happen.
fn orders(random: &mut StdRng, bugs: Bugs) -> Vec<Order> {
    let count = random.random_range(1..=6);
    let order = |number| {
        if bugs.crowds {
            crowded(random, number)
        } else if bugs.broods || (bugs.deletes || bugs.retains) && number % 2 == 0 {
            let plan = plans::brood(random, format!("plan-{number}"));
            Order { plan, ..any_order(random, number) }
        } else {
            any_order(random, number)
        }
    };
    (0..count).map(order).collect()
}

fn any_order(random: &mut StdRng, number: usize) -> Order {
    Order {
        after: Duration::from_millis(random.random_range(0..3000)),
        approval_mode: policy::approval_mode(random),
        plan: plans::generate(random, format!("plan-{number}")),
        workspace: if random.random_bool(0.6) { hosts::SHARED_WORKSPACE.to_owned() } else { String::new() },
        request_id: format!("request-{number}"),
        given_before: 0,
        inputs: Inputs::default(),
        document: None,
        goes_on: 0.3,
        is_driven: false,
        forks: 0.0,
        deletes: 0.0,
        seed: random.random(),
    }
}

/// An execution whose steps append to one file at once, as those of all others do.
fn crowded(random: &mut StdRng, number: usize) -> Order {
    let plan = plans::crowd(random, format!("plan-{number}"));
    Order { plan, workspace: hosts::SHARED_WORKSPACE.to_owned(), ..any_order(random, number) }
}
