//! Belay as it is, under different loads and losses.

use super::bugs::{Bugs, Memory};
use super::recurring_faults::{EXECUTOR_KILLS, GATE_KILLS, RUNNER_KILLS};
use super::run::run;

/// Belay as it is: all guarantees hold.
///
/// # Errors
/// A description of the violation.
pub fn as_it_is(seed: u64) -> Result<(), String> {
    run(seed, Bugs::default())
}

/// Belay as it is, with steps that have plans of their own, whose steps may have plans again, and with inputs.
///
/// # Errors
/// A description of the violation.
pub fn nesting(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, ..Bugs::default() })
}

/// Belay as it is, with many executions of the plans of steps, most of which end as soon as they have begun: each ends for its step as it has ended.
///
/// # Errors
/// A description of the violation.
pub fn brooding(seed: u64) -> Result<(), String> {
    run(seed, Bugs { broods: true, looks: true, ..Bugs::default() })
}

/// Belay as it is, with executions that are deleted: those that a request has started after their end, and those of steps' plans as soon as that is
/// accepted. Some were forked before. Every other executor drives only what it is asked to: a child may end while its parent is not driven.
///
/// # Errors
/// A description of the violation.
pub fn deleting(seed: u64) -> Result<(), String> {
    let drives_some = seed % 2 == 1;
    let often = if drives_some { EXECUTOR_KILLS } else { None };
    run(seed, Bugs { nests: true, deletes: true, forks: true, looks: true, drives_some, often, ..Bugs::default() })
}

/// Belay as it is, with an executor that keeps few of the executions that have ended, or keeps them for a moment: it deletes them while others run, resume,
/// are forked and, in some, are deleted by clients.
///
/// # Errors
/// A description of the violation.
pub fn retaining(seed: u64) -> Result<(), String> {
    let drives_some = seed % 2 == 1;
    let often = if drives_some { EXECUTOR_KILLS } else { None };
    let deletes = seed % 3 == 2;
    let bugs = Bugs { nests: true, retains: true, forks: true, looks: true, ..Bugs::default() };
    run(seed, Bugs { deletes, drives_some, often, ..bugs })
}

/// Belay as it is, with an executor that drives only what it is asked to, as one without a service does, and with it the executions of steps' plans.
///
/// # Errors
/// A description of the violation.
pub fn driving_some(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, drives_some: true, often: EXECUTOR_KILLS, ..Bugs::default() })
}

/// Belay as it is, with steps that run for each entry of a list, that fall back to other calls, that are undone, that have checks, and that share resources.
///
/// # Errors
/// A description of the violation.
pub fn extending(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::default() })
}

/// Belay as it is, with plans that have what fails run again after everything else, and then wait for a person, and with inputs.
///
/// # Errors
/// A description of the violation.
pub fn escalating(seed: u64) -> Result<(), String> {
    run(seed, Bugs { escalates: true, ..Bugs::default() })
}

/// Belay as it is, with a runner that loses its ledger whenever it stops: the outcome of a call may become unknown, which is reported. Nothing runs
/// twice because of it.
///
/// # Errors
/// A description of the violation.
pub fn losing_the_ledger(seed: u64) -> Result<(), String> {
    let calls = Memory::Lost;
    run(seed, Bugs { calls, ..Bugs::default() })
}

/// Belay as it is, with a gate that loses its store at many of its starts: pending approvals are created again, and nothing continues without an
/// approval.
///
/// # Errors
/// A description of the violation.
pub fn losing_the_gate(seed: u64) -> Result<(), String> {
    let gate = Memory::Lost;
    run(seed, Bugs { gate, often: GATE_KILLS, ..Bugs::default() })
}

/// Belay as it is, with a journal that is once replaced by an older copy and accepted: every execution that is left ends, and every watcher gets a
/// reset.
///
/// # Errors
/// A description of the violation.
pub fn restoring_the_journal(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::default() })
}

/// Belay as it is, with everything restored once from a backup that was made together: journal, blobs, ledger, the gate's store and the workspaces. What is left
/// is one history, in which nothing is stuck, lost or done twice.
///
/// # Errors
/// A description of the violation.
pub fn restoring_everything(seed: u64) -> Result<(), String> {
    let nests = seed.is_multiple_of(2);
    run(seed, Bugs { restores_all: true, nests, waits: !nests, ..Bugs::default() })
}

/// Belay as it is, with a ledger in which one bit of one row flips: it never becomes a result. The runner starts, the outcome of that call is
/// unknown, or known where only its name was damaged, and everything else continues.
///
/// # Errors
/// A description of the violation.
pub fn damaging_a_row(seed: u64) -> Result<(), String> {
    run(seed, Bugs { damages_a_row: true, often: RUNNER_KILLS, ..Bugs::default() })
}

/// Belay as it is, where all executions append to one file at once: a call that conflicts is repeated, at most three times.
///
/// # Errors
/// A description of the violation.
pub fn in_a_crowd(seed: u64) -> Result<(), String> {
    run(seed, Bugs { crowds: true, ..Bugs::default() })
}

/// Belay as it is, where steps wait for times, signals and people's answers: each wait ends once, by its time, by a signal that no other step has
/// taken, or by the answer that a person gave.
///
/// # Errors
/// A description of the violation.
pub fn waiting(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, ..Bugs::default() })
}

/// Belay as it is, with executors that another replaces while they run, and that do not notice. Nothing that they do later counts.
///
/// # Errors
/// A description of the violation.
pub fn replacing_executors(seed: u64) -> Result<(), String> {
    run(seed, Bugs { replaces_executors: true, ..Bugs::default() })
}

/// Belay as it is, with a webhook whose receiver is away now and then, while the executor's clock is set forward and back and the executor is killed: every
/// end is told, and nothing else is.
///
/// # Errors
/// A description of the violation.
pub fn telling(seed: u64) -> Result<(), String> {
    run(seed, Bugs { webhooks: true, nests: seed.is_multiple_of(3), ..Bugs::default() })
}
