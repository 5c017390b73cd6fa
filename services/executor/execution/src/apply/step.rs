//! Applies the events about attempts at steps.

use std::sync::Arc;

use belay_plan::RunWhen;
use belay_reasons as reasons;

use crate::{
    ErrorClass, Execution, ExecutionState, ExecutionTrigger, Failure, Resolution, SkipReason, StepEvent, StepId,
    StepKey, StepState, StepTrigger, Timestamp,
    state::{OperationEnd, Stop},
};

pub(super) fn apply(
    execution: &mut Execution,
    id: &StepId,
    attempt: u32,
    event: &StepEvent,
    time: Timestamp,
) -> Result<(), String> {
    let step = execution.named(id)?;
    match event {
        StepEvent::Started => started(execution, step, attempt, time)?,
        StepEvent::RetryScheduled { failure, not_before, .. } => {
            check(execution, step, attempt, StepTrigger::RetryScheduled)?;
            execution.transition_step(step, StepTrigger::RetryScheduled, time)?;
            execution.update_step(step, |record| {
                record.not_before = Some(*not_before);
                record.failed(attempt, failure, time);
                (record.end, record.attempt_started_at) = (None, None);
            });
        }
        StepEvent::Completed { .. } => {
            check(execution, step, attempt, StepTrigger::Completed)?;
            execution.transition_step(step, StepTrigger::Completed, time)?;
            end(execution, step, time);
            execution.totals.completed += 1;
            execution.update_step(step, |record| record.failure = None);
            release_dependents(execution, step, time)?;
        }
        StepEvent::Failed { failure, .. } => {
            check(execution, step, attempt, StepTrigger::Failed)?;
            execution.transition_step(step, StepTrigger::Failed, time)?;
            end(execution, step, time);
            execution.totals.failed += 1;
            execution.update_step(step, |record| match attempt {
                // Its condition has no value: there was no attempt.
                0 => record.failure = Some(Box::new(failure.clone())),
                _ => record.failed(attempt, failure, time),
            });
            execution.first_failure.get_or_insert_with(|| failure.clone());
            skip_dependents(execution, step, SkipReason::DependencyFailed, time)?;
            let stops = execution.created.plan.stop_on_error() || failure.class == ErrorClass::Fatal;
            if execution.stop.is_none() && stops {
                execution.stop = Some(Stop::Error { step });
            }
        }
        StepEvent::Skipped { reason, because, .. } => {
            let because = because.as_ref().map(|because| execution.named(because)).transpose()?;
            let record = &execution.steps[step];
            // So that whoever asks for the first reason goes from step to step against the dependencies, and never round in a circle.
            let is_of_dependency = matches!(reason, SkipReason::DependencyFailed | SkipReason::DependencySkipped);
            let depends_on = |on: StepKey| record.spec.dependencies().iter().any(|&other| StepKey::new(other) == on);
            if is_of_dependency && !because.is_some_and(depends_on) {
                return Err(format!("step `{id}` depends on no step because of which it is skipped"));
            }
            if record.attempt > 0 && !matches!(record.end, Some(OperationEnd::Skipped)) {
                return Err(format!("step `{id}` has started, and can no longer be skipped"));
            }
            execution.transition_step(step, StepTrigger::Skipped, time)?;
            end(execution, step, time);
            execution.totals.skipped += 1;
            execution.update_step(step, |record| record.skipped = Some((*reason, because)));
            skip_dependents(execution, step, SkipReason::DependencySkipped, time)?;
        }
        StepEvent::Cancelled { .. } => {
            check(execution, step, attempt, StepTrigger::Cancelled)?;
            execution.transition_step(step, StepTrigger::Cancelled, time)?;
            end(execution, step, time);
            execution.totals.cancelled += 1;
            skip_dependents(execution, step, SkipReason::DependencySkipped, time)?;
        }
        StepEvent::Resolved { resolution, reason } => {
            if execution.stop.is_some() {
                return Err("the execution is being stopped, which resolves its steps".to_owned());
            }
            check(execution, step, attempt, StepTrigger::Resolved)?;
            execution.transition_step(step, StepTrigger::Resolved, time)?;
            if execution.state == ExecutionState::AwaitingApproval {
                execution.transition_execution(ExecutionTrigger::StepResolved, None)?;
            }
            execution.update_step(step, |record| {
                record.attempt_started_at = Some(time);
                match resolution {
                    Resolution::Completed(result) => {
                        (record.end, record.output) = (Some(OperationEnd::Completed), Some(result.clone().into()));
                    }
                    Resolution::Failed => record.end = Some(OperationEnd::Denied(resolved_as_failed(reason))),
                    Resolution::Again => {}
                }
            });
        }
        StepEvent::OutcomeUnknown { failure } => {
            check(execution, step, attempt, StepTrigger::OutcomeUnknown)?;
            execution.transition_step(step, StepTrigger::OutcomeUnknown, time)?;
            execution.update_step(step, |record| {
                record.failure = Some(Box::new(failure.clone()));
                (record.end, record.attempt_started_at) = (None, None);
            });
        }
    }
    Ok(())
}

/// The failure of a step of whose call a principal says that it has failed.
fn resolved_as_failed(reason: &str) -> Failure {
    let how = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let message = format!("The outcome of the call was unknown, and was found to be a failure{how}.");
    Failure::new(ErrorClass::OutcomeUnknown, reasons::RESOLVED_AS_FAILED, message)
}

/// Checks what the table of transitions cannot express: an event must name the step's current attempt, and must follow from how the step's
/// operation ended.
fn check(execution: &Execution, step: StepKey, attempt: u32, by: StepTrigger) -> Result<(), String> {
    let record = &execution.steps[step];
    let id = &record.id;
    if attempt != record.attempt {
        return Err(format!("attempt {attempt} of step `{id}` is not the one under way, which is {}", record.attempt));
    }
    let to_request = record.is_to_request();
    let leads_there = match (record.state, by) {
        (StepState::Running, StepTrigger::Completed) => matches!(record.end, Some(OperationEnd::Completed)),
        (StepState::Running, StepTrigger::RetryScheduled) => matches!(record.end, Some(OperationEnd::Failed(_))),
        (StepState::Running, StepTrigger::OutcomeUnknown) => matches!(record.end, Some(OperationEnd::Unknown(_))),
        (StepState::Running, StepTrigger::Failed) => {
            to_request || matches!(record.end, Some(OperationEnd::Failed(_) | OperationEnd::Denied(_)))
        }
        (StepState::Running, StepTrigger::Cancelled) => {
            to_request || matches!(record.end, Some(OperationEnd::Cancelled))
        }
        // A step whose condition has no value fails before its first attempt.
        (StepState::Ready, StepTrigger::Failed) => {
            to_request || record.attempt == 0 && record.spec.condition().is_some()
        }
        (StepState::Ready, StepTrigger::Cancelled) => to_request,
        _ => true,
    };
    if !leads_there {
        let state = record.state;
        return Err(format!("step `{id}`, which is {state:?}, has no operation whose end leads to the move {by:?}"));
    }
    Ok(())
}

fn started(execution: &mut Execution, step: StepKey, attempt: u32, time: Timestamp) -> Result<(), String> {
    execution.check_can_start()?;
    let record = &execution.steps[step];
    let id = &record.id;
    if attempt != record.attempt + 1 || record.is_to_request() {
        return Err(format!("attempt {attempt} of step `{id}` does not follow attempt {}", record.attempt));
    }
    let open = |&&on: &&usize| !execution.steps[StepKey::new(on)].state.is_terminal();
    if let Some(&on) = record.spec.dependencies().iter().find(open) {
        let on = &execution.steps[StepKey::new(on)].id;
        return Err(format!("step `{id}` started before step `{on}`, which it depends on, had ended"));
    }
    execution.transition_step(step, StepTrigger::Started, time)?;
    execution.update_step(step, |record| {
        (record.attempt, record.operations) = (attempt, 0);
        (record.conflicts, record.failed_beside) = (0, false);
        record.not_before = None;
        record.attempt_started_at = Some(time);
        record.started_at.get_or_insert(time);
    });
    Ok(())
}

/// What all ends of a step share; the table of transitions has already rejected a second end.
fn end(execution: &mut Execution, step: StepKey, time: Timestamp) {
    execution.update_step(step, |record| {
        record.ended_at = Some(time);
        (record.attempt_started_at, record.end) = (None, None);
        (record.not_before, record.to_skip) = (None, None);
    });
}

/// A step that has completed is one less for the steps that depend on it to wait for.
fn release_dependents(execution: &mut Execution, step: StepKey, time: Timestamp) -> Result<(), String> {
    for index in 0..execution.steps[step].dependents.len() {
        let dependent = execution.steps[step].dependents[index];
        release(execution, dependent, step, time)?;
    }
    Ok(())
}

/// One of the steps that `dependent` waits for has ended as it wants; `last` is that step.
fn release(execution: &mut Execution, dependent: StepKey, last: StepKey, time: Timestamp) -> Result<(), String> {
    let record = &mut execution.steps[dependent];
    record.open_dependencies -= 1;
    if record.open_dependencies > 0 || record.state != StepState::Pending {
        return Ok(());
    }
    let spec = Arc::clone(&record.spec);
    let runs = match spec.run_when() {
        RunWhen::Success | RunWhen::Always => true,
        RunWhen::Failure => spec.dependencies().iter().any(|&on| {
            let root = execution.skipped_because(StepKey::new(on));
            execution.steps[root].state == StepState::Failed
        }),
    };
    if runs {
        return execution.transition_step(dependent, StepTrigger::DependenciesCompleted, time);
    }
    if execution.stop.is_none() {
        execution.update_step(dependent, |record| {
            record.to_skip.get_or_insert((SkipReason::ConditionFalse, last));
        });
    }
    Ok(())
}

/// What the end of a step that has not completed means for those that depend on it: they are skipped, or have one less to wait for. Once the execution is
/// being stopped, nothing starts, and the stop is the reason.
fn skip_dependents(
    execution: &mut Execution,
    step: StepKey,
    reason: SkipReason,
    time: Timestamp,
) -> Result<(), String> {
    if execution.stop.is_some() {
        return Ok(());
    }
    for index in 0..execution.steps[step].dependents.len() {
        let dependent = execution.steps[step].dependents[index];
        let record = &execution.steps[dependent];
        if record.state != StepState::Pending {
            continue;
        }
        match record.spec.run_when() {
            RunWhen::Success => execution.update_step(dependent, |record| {
                record.to_skip.get_or_insert((reason, step));
            }),
            RunWhen::Failure | RunWhen::Always => release(execution, dependent, step, time)?,
        }
    }
    Ok(())
}
