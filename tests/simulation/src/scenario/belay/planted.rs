//! Belay with a defect, each of which a run has to find.

use std::time::Duration;

use belay_defects::Defect;
use belay_sqlite::Synchronous;

use super::bugs::{Bugs, Memory};
use super::recurring_faults::{
    EXECUTOR_KILLS, EXECUTOR_OUTAGES, GATE_KILLS, RUNNER_KILLS, often_ahead, often_full, often_full_for,
};
use super::run::run;
use super::site::{EXECUTOR, RUNNER};
use super::workspaces::Flaw;
use crate::machine::Disk;

/// A defect of the services' own code: [`Defect::RepetitionRefused`].
///
/// # Errors
/// A description of the violation.
pub fn repetition_refused(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, retains: true, forks: true, ..Bugs::planted(Defect::RepetitionRefused) })
}

/// A defect of the services' own code: [`Defect::ChildOfRunningTaken`].
///
/// # Errors
/// A description of the violation.
pub fn child_of_running_taken(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, retains: true, ..Bugs::planted(Defect::ChildOfRunningTaken) })
}

/// A defect of the services' own code: [`Defect::ForkForgetsOutput`].
///
/// # Errors
/// A description of the violation.
pub fn fork_forgets_output(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, forks: true, ..Bugs::planted(Defect::ForkForgetsOutput) })
}

/// A defect of the services' own code: [`Defect::UnrecordedChildDeleted`].
///
/// # Errors
/// A description of the violation.
pub fn unrecorded_child_deleted(seed: u64) -> Result<(), String> {
    let (drives_some, often) = (true, EXECUTOR_KILLS);
    run(seed, Bugs { nests: true, deletes: true, drives_some, often, ..Bugs::planted(Defect::UnrecordedChildDeleted) })
}

/// A defect of the services' own code: [`Defect::UnstoredEndDropped`].
///
/// # Errors
/// A description of the violation.
pub fn unstored_end_dropped(seed: u64) -> Result<(), String> {
    let (drives_some, often) = (true, EXECUTOR_KILLS);
    run(seed, Bugs { broods: true, deletes: true, drives_some, often, ..Bugs::planted(Defect::UnstoredEndDropped) })
}

/// A defect of the services' own code: [`Defect::LostChildStartedAgain`].
///
/// # Errors
/// A description of the violation.
pub fn lost_child_started_again(seed: u64) -> Result<(), String> {
    let (drives_some, often) = (true, EXECUTOR_KILLS);
    run(seed, Bugs { nests: true, deletes: true, drives_some, often, ..Bugs::planted(Defect::LostChildStartedAgain) })
}

/// The execution of a step's plan works in a folder of its own.
///
/// # Errors
/// A description of the violation by which the defect is found.
pub fn child_in_another_folder(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, ..Bugs::planted(Defect::ChildInAnotherFolder) })
}

/// A parent takes a state of its child that is not an end for a failure.
///
/// # Errors
/// A description of the violation by which the defect is found.
pub fn stale_view(seed: u64) -> Result<(), String> {
    run(seed, Bugs { broods: true, ..Bugs::planted(Defect::StaleView) })
}

/// The same, as a client that only looks sees it.
///
/// # Errors
/// A description of the violation by which the defect is found.
pub fn stale_look(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, looks: true, ..Bugs::planted(Defect::StaleView) })
}

/// A defect of the services' own code: [`Defect::PauseOfChildKept`].
///
/// # Errors
/// A description of the violation by which the defect is found.
pub fn pause_of_child_kept(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::PauseOfChildKept) })
}

/// A defect of the services' own code: [`Defect::ChildNotDriven`].
///
/// # Errors
/// A description of the violation.
pub fn child_not_driven(seed: u64) -> Result<(), String> {
    let often = EXECUTOR_KILLS;
    run(seed, Bugs { nests: true, drives_some: true, often, ..Bugs::planted(Defect::ChildNotDriven) })
}

/// A defect of the services' own code: [`Defect::UnorderedCollection`].
///
/// # Errors
/// A description of the violation.
pub fn unordered_collection(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::UnorderedCollection) })
}

/// A defect of the services' own code: [`Defect::IncompleteCollection`].
///
/// # Errors
/// A description of the violation.
pub fn incomplete_collection(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::IncompleteCollection) })
}

/// A defect of the services' own code: [`Defect::StaleEntries`].
///
/// # Errors
/// A description of the violation.
pub fn stale_entries(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::StaleEntries) })
}

/// A defect of the services' own code: [`Defect::LayerLeftOut`].
///
/// # Errors
/// A description of the violation.
pub fn layer_left_out(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::LayerLeftOut) })
}

/// A defect of the services' own code: [`Defect::HeldBudgetIgnored`].
///
/// # Errors
/// A description of the violation.
pub fn held_budget_ignored(seed: u64) -> Result<(), String> {
    run(seed, Bugs { extends: true, ..Bugs::planted(Defect::HeldBudgetIgnored) })
}

/// A defect of the services' own code: [`Defect::NamespaceHoldsForgotten`].
///
/// # Errors
/// A description of the violation.
pub fn namespace_holds_forgotten(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::NamespaceHoldsForgotten))
}

/// A defect of the services' own code: [`Defect::QuestionOfAnotherRun`].
///
/// # Errors
/// A description of the violation.
pub fn question_of_another_run(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::QuestionOfAnotherRun))
}

/// A planted bug: the journal acknowledges before it commits.
///
/// # Errors
/// A description of the violation.
pub fn acknowledging_before_the_commit(seed: u64) -> Result<(), String> {
    let writes_behind = true;
    run(seed, Bugs { writes_behind, ..Bugs::default() })
}

/// A planted bug: after a restart, the runner runs calls again that it has already run.
///
/// # Errors
/// A description of the violation.
pub fn forgetting_calls(seed: u64) -> Result<(), String> {
    let calls = Memory::Replaced;
    run(seed, Bugs { calls, ..Bugs::default() })
}

/// A defect of the services' own code: [`Defect::WallClockMessages`].
///
/// # Errors
/// A description of the violation.
pub fn wall_clock_messages(seed: u64) -> Result<(), String> {
    run(seed, Bugs { webhooks: true, ..Bugs::planted(Defect::WallClockMessages) })
}

/// A planted bug: the journal's commits are acknowledged before they are synced.
///
/// # Errors
/// A description of the violation.
pub fn journal_without_sync(seed: u64) -> Result<(), String> {
    let journal = Synchronous::Normal;
    run(seed, Bugs { journal, ..Bugs::default() })
}

/// A planted bug: a call begins before its row in the ledger is synced.
///
/// # Errors
/// A description of the violation.
pub fn ledger_without_sync(seed: u64) -> Result<(), String> {
    let ledger = Synchronous::Normal;
    run(seed, Bugs { ledger, ..Bugs::default() })
}

/// A planted bug: an effect is applied to its workspace before its row is in the ledger.
///
/// # Errors
/// A description of the violation.
pub fn applying_before_the_row(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::AppliesBeforeTheRow;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A planted bug: staged effects are not synced.
///
/// # Errors
/// A description of the violation.
pub fn staging_without_sync(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::StagesWithoutSync;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A planted bug: applied effects are reported as synced although they are not.
///
/// # Errors
/// A description of the violation.
pub fn applying_without_sync(seed: u64) -> Result<(), String> {
    let workspaces = Flaw::NeverSyncs;
    run(seed, Bugs { workspaces, ..Bugs::default() })
}

/// A defect of the services' own code: [`Defect::AcknowledgementNotRetried`].
///
/// # Errors
/// A description of the violation.
pub fn acknowledgement_not_retried(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::AcknowledgementNotRetried))
}

/// A defect of the services' own code: [`Defect::UncommittedReportedUnknown`].
///
/// # Errors
/// A description of the violation.
pub fn uncommitted_reported_unknown(seed: u64) -> Result<(), String> {
    // Short and often: a write that fails before the commit leaves the call without an end.
    let often = often_full_for(24, Disk::StoresFull, Duration::from_millis(40));
    run(seed, Bugs { often, ..Bugs::planted(Defect::UncommittedReportedUnknown) })
}

/// A defect of the services' own code: [`Defect::FullDiskFailsSteps`].
///
/// # Errors
/// A description of the violation.
pub fn full_disk_fails_steps(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_full(Disk::WorkspacesFull), ..Bugs::planted(Defect::FullDiskFailsSteps) })
}

/// A defect of the services' own code: [`Defect::LostApprovalNotRecreated`].
///
/// # Errors
/// A description of the violation.
pub fn lost_approval_not_recreated(seed: u64) -> Result<(), String> {
    run(seed, Bugs { gate: Memory::Lost, often: GATE_KILLS, ..Bugs::planted(Defect::LostApprovalNotRecreated) })
}

/// A defect of the services' own code: [`Defect::WallClockTimers`].
///
/// # Errors
/// A description of the violation.
pub fn wall_clock_timers(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_ahead(EXECUTOR), ..Bugs::planted(Defect::WallClockTimers) })
}

/// A defect of the services' own code: [`Defect::ExpiredGrantDropsEffect`].
///
/// # Errors
/// A description of the violation.
pub fn expired_grant_drops_effect(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: often_ahead(RUNNER), ..Bugs::planted(Defect::ExpiredGrantDropsEffect) })
}

/// A defect of the services' own code: [`Defect::CursorAheadRejected`].
///
/// # Errors
/// A description of the violation.
pub fn cursor_ahead_rejected(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::CursorAheadRejected) })
}

/// A defect of the services' own code: [`Defect::StaleCursorTrusted`].
///
/// # Errors
/// A description of the violation.
pub fn stale_cursor_trusted(seed: u64) -> Result<(), String> {
    run(seed, Bugs { restores_journal: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::StaleCursorTrusted) })
}

/// A defect of the services' own code: [`Defect::UnreadableRowStopsStart`].
///
/// # Errors
/// A description of the violation.
pub fn unreadable_row_stops_start(seed: u64) -> Result<(), String> {
    run(seed, Bugs { damages_a_row: true, often: RUNNER_KILLS, ..Bugs::planted(Defect::UnreadableRowStopsStart) })
}

/// A defect of the services' own code: [`Defect::EndlessReruns`].
///
/// # Errors
/// A description of the violation.
pub fn endless_reruns(seed: u64) -> Result<(), String> {
    run(seed, Bugs { crowds: true, ..Bugs::planted(Defect::EndlessReruns) })
}

/// A defect of the services' own code: [`Defect::LostAnswerTrusted`].
///
/// # Errors
/// A description of the violation.
pub fn lost_answer_trusted(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::LostAnswerTrusted))
}

/// A defect of the services' own code: [`Defect::LostWakeUp`].
///
/// # Errors
/// A description of the violation.
pub fn lost_wake_up(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, ..Bugs::planted(Defect::LostWakeUp) })
}

/// A defect of the services' own code: [`Defect::LostTimer`].
///
/// # Errors
/// A description of the violation.
pub fn lost_timer(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, often: EXECUTOR_OUTAGES, ..Bugs::planted(Defect::LostTimer) })
}

/// A defect of the services' own code: [`Defect::LateTimer`].
///
/// # Errors
/// A description of the violation.
pub fn late_timer(seed: u64) -> Result<(), String> {
    run(seed, Bugs { waits: true, often: EXECUTOR_OUTAGES, ..Bugs::planted(Defect::LateTimer) })
}

/// A defect of the services' own code: [`Defect::DoubleDispatch`].
///
/// # Errors
/// A description of the violation.
pub fn double_dispatch(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: EXECUTOR_KILLS, ..Bugs::planted(Defect::DoubleDispatch) })
}

/// The same with the executions of the plans that steps have.
///
/// # Errors
/// A description of the violation.
pub fn double_start(seed: u64) -> Result<(), String> {
    run(seed, Bugs { nests: true, often: EXECUTOR_KILLS, ..Bugs::planted(Defect::DoubleDispatch) })
}

/// A defect of the services' own code: [`Defect::UnorderedAppend`].
///
/// # Errors
/// A description of the violation.
pub fn unordered_append(seed: u64) -> Result<(), String> {
    run(seed, Bugs::planted(Defect::UnorderedAppend))
}

/// A defect of the services' own code: [`Defect::GrantReuse`].
///
/// # Errors
/// A description of the violation.
pub fn grant_reuse(seed: u64) -> Result<(), String> {
    run(seed, Bugs { often: EXECUTOR_KILLS, ..Bugs::planted(Defect::GrantReuse) })
}

/// A defect of the services' own code: [`Defect::NoFence`].
///
/// # Errors
/// A description of the violation.
pub fn no_fence(seed: u64) -> Result<(), String> {
    run(seed, Bugs { replaces_executors: true, ..Bugs::planted(Defect::NoFence) })
}
