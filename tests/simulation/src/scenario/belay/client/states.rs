//! Meaning of the states of executions and steps to a client.

use belay_proto::v1::{self, execution, step};

use super::super::records::Observations;
use super::super::tools;

pub(in super::super) fn is_terminal(state: execution::State) -> bool {
    use execution::State as S;
    matches!(state, S::Completed | S::Partial | S::Failed | S::Cancelled | S::TimedOut)
}

/// Whether its plan has paused it because of what failed.
pub(super) fn is_paused_by_plan(execution: &v1::Execution) -> bool {
    use step::State as S;
    let is_over = |step: &v1::Step| matches!(step.state(), S::Completed | S::Failed | S::Skipped | S::Cancelled);
    let escalation = execution.plan.as_ref().and_then(|plan| plan.escalation.as_ref());
    escalation.is_some_and(|escalation| escalation.pause)
        && execution.steps.iter().all(is_over)
        && execution.steps.iter().any(|step| step.state() == S::Failed)
}

/// Whether the execution of a step's plan waits for a person to resume it: one that was paused with its parent resumes with it.
pub(super) fn is_paused_by_person(child: &v1::Execution) -> bool {
    let is_by_parent = |reason: &v1::WaitingReason| reason.principal == child.parent_step;
    child.state() == execution::State::Paused && !child.waiting.iter().any(is_by_parent)
}

pub(super) fn carries_out_plans(execution: &v1::Execution) -> bool {
    let is_plan = |step: &v1::Step| matches!(step.detail, Some(step::Detail::Plan(_)));
    execution.steps.iter().any(|step| is_plan(step) && step.state() == step::State::Running)
}

/// Whether a person has to find out what a step's call did. Only calls with external effects, calls of a lost ledger or of a damaged row, and calls whose
/// outcome a replaced journal no longer has and the runner has forgotten, can have an unknown outcome. Anything else that is stuck stays so, and is found.
pub(super) fn is_in_doubt(observed: &Observations, step: &v1::Step) -> bool {
    let failed_for = |reason: &str| step.failure.as_ref().is_some_and(|failure| failure.reason == reason);
    let is_lost = failed_for("LEDGER_CHANGED")
        || (failed_for("CALL_ACKNOWLEDGED") && !observed.journal_remembers())
        || observed.is_row_damaged(&step.name);
    step.state() == step::State::OutcomeUnknown
        && (matches!(&step.detail, Some(step::Detail::Tool(detail)) if tools::reaches_out(&detail.tool)) || is_lost)
}

/// A step that waits for its next attempt, and has had a call to fall back to.
pub(super) fn to_fall_back(execution: &v1::Execution) -> Option<&v1::Step> {
    let specs = || execution.plan.iter().flat_map(|plan| &plan.steps);
    let falls_back = |step: &&v1::Step| {
        let id = step.step_id.split('~').next().unwrap_or_default();
        let has_fallback = |spec: &v1::StepSpec| spec.id == id && !spec.fallback.is_empty();
        step.state() == step::State::BackingOff && specs().any(has_fallback)
    };
    execution.steps.iter().find(falls_back)
}
