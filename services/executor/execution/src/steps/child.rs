//! Steps that carry out a plan, as an execution of its own: a child of theirs.
//!
//! Its id follows from the step and its attempt, so that an executor that starts it again finds it. It is stopped and paused with the step's
//! execution; its failure is that of the attempt, and each attempt has a child of its own.

use belay_defects::{Defect, is_planted};
use belay_plan::{AuditLevel, PlanStep, StepKind, limits::MAX_INPUT_BYTES};
use belay_reasons as reasons;
use serde_json::json;

use super::outputs::values;
use crate::{
    Amounts, Blobs, Body, Child, ChildEnd, ChildPause, DecideContext, ErrorClass, Execution, Failure, Json, Operation,
    OperationEvent, OperationId, OperationKey, OperationKind, OperationReport, Phase, RequiredAction, StepKey,
    StepOutput, StepState, StepTrigger, Timestamp, Violation, Work,
    event::child_id,
    state::AttemptEnd,
    words::{self, Activity, Severity, Words},
};

/// A child is to be started.
pub(super) fn started(
    execution: &mut Execution,
    id: &OperationId,
    child: &Child,
    time: Timestamp,
) -> Result<(), Violation> {
    let step = execution.named(&id.step)?;
    let key = OperationKey { step, attempt: id.attempt, number: id.number };
    execution.check_is_next(key)?;
    let record = &execution.steps[step];
    if !matches!(record.spec.kind(), StepKind::Plan(_)) || record.has_entries() || record.compensates().is_some() {
        return Err(Violation::NoPlan(id.step.clone()));
    }
    if record.state == StepState::Ready {
        execution.transition_step(step, StepTrigger::OperationRequested, time)?;
    }
    execution.update_step(step, |record| record.operations = key.number);
    let kind = OperationKind::Child { child: child.clone(), created: false, pause: ChildPause::Runs };
    execution.insert_operation(Operation::new(key, time, kind, Phase::Dispatched));
    Ok(())
}

/// The child that an event names, which must be in flight; whether it is created, and whether it is paused.
fn in_flight<'a>(
    execution: &'a Execution,
    id: &OperationId,
) -> Result<(&'a Operation, &'a Child, bool, ChildPause), Violation> {
    let operation = execution.in_flight(id)?;
    let OperationKind::Child { child, created, pause } = &operation.kind else {
        return Err(Violation::NotAChild(id.clone()));
    };
    Ok((operation, child, *created, *pause))
}

/// News about a child.
pub(super) fn reported(execution: &mut Execution, id: &OperationId, report: OperationReport) -> Result<(), Violation> {
    match report {
        OperationReport::ChildCreated => created(execution, id),
        OperationReport::ChildPaused => set_pause(execution, id, ChildPause::Paused),
        OperationReport::ChildResumed => set_pause(execution, id, ChildPause::Runs),
    }
}

fn created(execution: &mut Execution, id: &OperationId) -> Result<(), Violation> {
    let (operation, child, was_created, pause) = in_flight(execution, id)?;
    if was_created {
        return Err(Violation::ChildCreatedBefore(id.clone()));
    }
    let (key, kind) = (operation.key, OperationKind::Child { child: child.clone(), created: true, pause });
    execution.update_operation(key, |operation| operation.kind = kind);
    Ok(())
}

fn set_pause(execution: &mut Execution, id: &OperationId, pause: ChildPause) -> Result<(), Violation> {
    let (operation, child, created, before) = in_flight(execution, id)?;
    if before == pause || (pause == ChildPause::Paused) != execution.paused.is_some() {
        return Err(Violation::NotToPause(id.clone()));
    }
    let (key, kind) = (operation.key, OperationKind::Child { child: child.clone(), created, pause });
    execution.update_operation(key, |operation| operation.kind = kind);
    Ok(())
}

/// A child has ended.
pub(super) fn ended(
    execution: &mut Execution,
    id: &OperationId,
    end: &ChildEnd,
    spent: Option<Amounts>,
    time: Timestamp,
) -> Result<(), Violation> {
    let (operation, ..) = in_flight(execution, id)?;
    let (key, used) = (operation.key, operation.used_by_child(spent));
    let (end, output) = match end {
        ChildEnd::Completed { output } => (AttemptEnd::Completed, Some(output.clone().into())),
        ChildEnd::Failed { failure } => (AttemptEnd::Failed(failure.clone()), None),
        ChildEnd::Cancelled if execution.stop.is_some() => (AttemptEnd::Cancelled, None),
        ChildEnd::Cancelled => return Err(Violation::NotCancelled(id.clone())),
    };
    execution.end_operation(key, end, time)?;
    execution.spend(key.step, used);
    execution.update_step(key.step, |record| record.output = output);
    Ok(())
}

/// Takes note that the execution is paused, or not any more: whether its children are is not known until they were told.
pub(crate) fn forget_pauses(execution: &mut Execution) {
    if is_planted(Defect::PauseOfChildKept) {
        return;
    }
    let children: Vec<OperationKey> =
        execution.operations().filter(|operation| operation.child().is_some()).map(|operation| operation.key).collect();
    for key in children {
        execution.update_operation(key, |operation| {
            if let OperationKind::Child { pause, .. } = &mut operation.kind {
                *pause = ChildPause::Unknown;
            }
        });
    }
}

/// The intent to start the child; `None` while it needs a blob that is not at hand.
pub(super) fn next(
    execution: &Execution,
    step: StepKey,
    PlanStep { inputs, .. }: &PlanStep,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Body> {
    if let Some(instead) = execution.exhausted(step) {
        return Some(instead);
    }
    let refused = |reason, message| execution.fail(step, Failure::new(ErrorClass::InvalidArguments, reason, message));
    let values = match values(execution, step, inputs.values(), blobs) {
        Ok(values) => values?,
        Err(failure) => return Some(execution.fail(step, failure)),
    };
    let inputs = match inputs.resolve(&|id, what| values.get(id, what)) {
        Ok(inputs) => Json::canonical(&inputs),
        Err(unresolved) => return Some(refused(reasons::UNRESOLVED_REFERENCE, unresolved.to_string())),
    };
    let size = inputs.as_str().len();
    if size > MAX_INPUT_BYTES {
        let message = format!(
            "inputs: have {size} bytes with their references resolved, and the limit is {MAX_INPUT_BYTES}: let a step write a file, and hand over \
             its path."
        );
        return Some(refused(reasons::CHILD_REFUSED, message));
    }
    let attempt_ends = execution.steps[step].spec.attempt_timeout().map(|limit| context.now.saturating_add(limit));
    let until = [attempt_ends, execution.step_deadline(step)].into_iter().flatten().min();
    let child = execution.operation_id(execution.next_operation(step));
    let event = OperationEvent::Requested(Work::Child(Child {
        execution: child_id(&execution.created.uid, child.step.as_str(), child.attempt, child.number),
        inputs,
        until,
        allotment: execution.allotment_for(step),
    }));
    Some(Body::Operation { id: child, event })
}

/// It is created, paused and resumed with this execution, and cancelled with it. Its end is sent, so that waiting for it needs nothing.
pub(crate) fn action(execution: &Execution, created: bool, pause: ChildPause) -> Option<RequiredAction> {
    match (execution.stop, &execution.paused) {
        (Some(stop), _) => Some(RequiredAction::to_stop(stop)),
        (None, Some(_)) => (pause != ChildPause::Paused).then_some(RequiredAction::Pause),
        (None, None) => (!created || pause != ChildPause::Runs).then_some(RequiredAction::Dispatch),
    }
}

/// The words of a child that is to be started.
pub(super) fn words_started(id: &OperationId, child: &Child) -> Words {
    let until = child.until.map(|until| until.as_micros() / 1_000);
    let details = json!({"executionId": child.execution, "untilUnixMs": until});
    let message = format!("Step `{}` starts the execution `{}`", id.step, child.execution);
    Words::new(AuditLevel::Standard, Severity::Info, message, details)
}

/// The words of news about a child.
pub(super) fn words_reported(id: &OperationId, report: OperationReport) -> Words {
    let (level, what) = match report {
        OperationReport::ChildCreated => (AuditLevel::Verbose, "was created"),
        OperationReport::ChildPaused => (AuditLevel::Standard, "was paused with this one"),
        OperationReport::ChildResumed => (AuditLevel::Standard, "was resumed with this one"),
    };
    Words::new(level, Severity::Info, format!("The execution of step `{}` {what}", id.step), json!({}))
}

/// The words of a child's end.
pub(super) fn words_ended(child: &OperationId, end: &ChildEnd) -> Words {
    use AuditLevel::{Minimal, Standard};
    use Severity::{Error, Info, Warn};
    let step = &child.step;
    match end {
        ChildEnd::Completed { .. } => {
            Words::new(Standard, Info, format!("The execution of step `{step}` completed"), json!({}))
        }
        ChildEnd::Failed { failure: failed } => {
            let message = words::because(&format!("The execution of step `{step}` failed"), &failed.message);
            Words::new(Minimal, Error, message, words::failure(failed))
        }
        ChildEnd::Cancelled => {
            Words::new(Standard, Warn, format!("The execution of step `{step}` was cancelled with this one"), json!({}))
        }
    }
}

/// The activity of a step from news about its child on.
pub(super) fn activity_reported(report: OperationReport) -> Option<Activity> {
    match report {
        OperationReport::ChildCreated => None,
        OperationReport::ChildPaused => Some(Activity::Waits),
        OperationReport::ChildResumed => Some(Activity::Runs),
    }
}

/// The output that a child's end gives its step.
pub(super) fn output(end: &ChildEnd) -> Option<StepOutput> {
    match end {
        ChildEnd::Completed { output } => Some(StepOutput::Value(output.clone().into())),
        ChildEnd::Failed { .. } | ChildEnd::Cancelled => None,
    }
}
