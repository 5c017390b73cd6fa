//! The waits of steps, and the questions that calls ask while they run.

use belay_proto::v1::{ExecutionEvent, Step, WaitStarted, WaitingReason, waiting_reason};
use pbjson_types::Timestamp;

use crate::render::event_description::{ApprovalChange, StepChange};

/// A question of a call that runs.
pub(super) struct Question {
    /// Where its step stands.
    place: usize,
    /// Its attempt and operation.
    operation: (i32, i32),
    waiting: WaitingReason,
    /// Its name at the gate; empty until it is asked there.
    approval: String,
}

/// A cause for which a step or a call of it waits.
pub(super) fn waiting_for(wait: &WaitStarted, since: Option<Timestamp>) -> WaitingReason {
    let (kind, who) = match (wait.signal.as_str(), &wait.form) {
        (_, Some(form)) => (waiting_reason::Kind::Form, format!("a person's answer to `{}`", form.title)),
        ("", None) => (waiting_reason::Kind::Time, String::new()),
        (signal, None) => (waiting_reason::Kind::Signal, format!("the signal `{signal}`")),
    };
    WaitingReason { kind: kind.into(), begin_time: since, until_time: wait.until_time, who, ..Default::default() }
}

/// Takes an event about a question of a call: the step runs on, and says for whom its call waits. Returns whether it was one.
pub(super) fn question(
    open: &mut Vec<Question>,
    place: usize,
    step: &mut Step,
    event: &ExecutionEvent,
    change: StepChange<'_>,
) -> bool {
    let operation = (event.attempt, event.operation);
    let at = open.iter().position(|question| (question.place, question.operation) == (place, operation));
    match (change, at) {
        (StepChange::WaitStarted(wait), _) if wait.asking_call > 0 => {
            let waiting = waiting_for(wait, event.record_time);
            step.waiting = Some(waiting.clone());
            open.push(Question { place, operation, waiting, approval: String::new() });
        }
        (StepChange::Approval(ApprovalChange::Requested(name)), Some(at)) => {
            name.clone_into(&mut open[at].approval);
            step.approvals.push(name.to_owned());
        }
        (StepChange::WaitEnded, Some(at)) => {
            let ended = open.remove(at);
            step.approvals.retain(|approval| *approval != ended.approval);
            let left = open.iter().rev().find(|question| question.place == place);
            step.waiting = left.map(|question| question.waiting.clone());
        }
        _ => return false,
    }
    true
}
