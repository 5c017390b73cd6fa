//! Steps that are one call of one tool. An attempt makes another call when one was discarded through no fault of its step.

use std::sync::Arc;

use belay_plan::{StepKind, ToolStep};
use belay_reasons as reasons;

use crate::{
    Blobs, Body, DecideContext, Decision, ErrorClass, Execution, Failure, Json, Life, Operation, OperationId,
    OperationKey, StepKey, StepState, StepTrigger, SubjectKind, Timestamp, ToolCallEnd, ToolCallEvent, ToolCallRequest,
    Verb, Work, digest,
    state::{Authorization, OperationEnd},
    steps::outputs::values,
};

pub(crate) fn apply(
    execution: &mut Execution,
    id: &OperationId,
    event: &ToolCallEvent,
    time: Timestamp,
) -> Result<(), String> {
    match event {
        ToolCallEvent::Requested(request) => requested(execution, id, request, time),
        ToolCallEvent::Held(requirement) => {
            call_in_flight(execution, id)?;
            execution.held(id, requirement, time)
        }
        ToolCallEvent::Dispatched => dispatched(execution, id),
        ToolCallEvent::Ended(end) => ended(execution, id, end, time),
    }
}

/// The call that an event names, which must be in flight.
fn call_in_flight<'a>(execution: &'a Execution, id: &OperationId) -> Result<&'a Operation, String> {
    let operation = execution.in_flight(id)?;
    operation.tool_call().map(|_| operation).ok_or_else(|| format!("{id} is no call of a tool"))
}

fn requested(
    execution: &mut Execution,
    id: &OperationId,
    request: &Arc<ToolCallRequest>,
    time: Timestamp,
) -> Result<(), String> {
    let step = execution.named(&id.step)?;
    let key = OperationKey { step, attempt: id.attempt, number: id.number };
    execution.check_is_next(key)?;
    let record = &execution.steps[step];
    if !matches!(record.spec.kind(), StepKind::Tool(_)) || record.is_for_each() {
        return Err(format!("step `{}` calls no tool", id.step));
    }
    if record.state == StepState::Ready {
        execution.transition_step(step, StepTrigger::OperationRequested, time)?;
    }
    execution.update_step(step, |record| record.operations = key.number);
    execution.ledger_id.clone_from(&request.ledger_id);
    let work = Work::ToolCall(Arc::clone(request));
    execution.insert_operation(Operation { key, since: time, work, life: Life::Dispatched, pending_approval: None });
    Ok(())
}

/// A call that was approved before it ran gets a slot.
fn dispatched(execution: &mut Execution, id: &OperationId) -> Result<(), String> {
    execution.check_can_start()?;
    let operation = call_in_flight(execution, id)?;
    let (key, life) = (operation.key, operation.life);
    if life != Life::Queued {
        return Err(format!("{id} does not wait for a slot"));
    }
    if !execution.has_unheld_slot() {
        return Err(format!("{id} has to wait for a slot"));
    }
    execution.update_operation(key, |operation| operation.life = Life::Dispatched);
    Ok(())
}

fn ended(execution: &mut Execution, id: &OperationId, end: &ToolCallEnd, time: Timestamp) -> Result<(), String> {
    let key = call_in_flight(execution, id)?.key;
    match end {
        ToolCallEnd::Completed { result, receipt } => {
            let end = execution.check_end(id, OperationEnd::Completed)?;
            let pending = execution.operations.get(key).and_then(|operation| operation.pending_approval.as_ref());
            let authorization = Authorization::of(receipt, pending).map(Box::new);
            execution.end_operation(key, end, time)?;
            execution.update_step(key.step, |record| {
                (record.authorization, record.output) = (authorization, Some(result.clone()));
            });
            Ok(())
        }
        ToolCallEnd::Failed { failure, .. } => {
            let end = execution.check_end(id, OperationEnd::Failed(failure.clone()))?;
            execution.end_operation(key, end, time)
        }
        ToolCallEnd::Denied { failure, .. } => {
            let end = execution.check_end(id, OperationEnd::Denied(failure.clone()))?;
            execution.end_operation(key, end, time)
        }
        ToolCallEnd::OutcomeUnknown { failure, .. } => {
            let end = execution.check_end(id, OperationEnd::Unknown(failure.clone()))?;
            execution.end_operation(key, end, time)
        }
        ToolCallEnd::Cancelled { failure, .. } => {
            let end = execution.check_end(id, OperationEnd::Cancelled)?;
            let reason = failure.as_ref().map(|failure| failure.reason.as_str());
            execution.update_step(key.step, |record| match reason {
                Some(reasons::CONFLICT) => record.conflicts += 1,
                Some(reasons::FAILED_BESIDE_COMMITS) => record.failed_beside = true,
                _ => {}
            });
            if execution.stop.is_some() {
                return execution.end_operation(key, end, time);
            }
            // The attempt goes on with another call.
            execution.remove_operation(key);
            match execution.steps[key.step].state {
                StepState::Running | StepState::AwaitingApproval => {
                    execution.transition_step(key.step, StepTrigger::CallDiscarded, time)
                }
                _ => Ok(()),
            }
        }
    }
}

/// Requests the step's call.
pub(crate) fn next(
    execution: &Execution,
    step: StepKey,
    call: &ToolStep,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Body> {
    let record = &execution.steps[step];
    let Some(facts) = execution.tool(&call.tool) else {
        let message = format!("Tool '{}' not found in the execution's record.", call.tool);
        return Some(execution.fail(step, Failure::new(ErrorClass::Internal, reasons::TOOL_FACTS_MISSING, message)));
    };
    let values = match values(execution, step, call.arguments.values(), blobs) {
        Ok(values) => values?,
        Err(failure) => return Some(execution.fail(step, failure)),
    };
    let arguments = match call.arguments.resolve(&|id, what| values.get(id, what)) {
        Ok(arguments) => Json::canonical(&arguments),
        Err(unresolved) => {
            let (class, message) = (ErrorClass::InvalidArguments, unresolved.to_string());
            return Some(execution.fail(step, Failure::new(class, reasons::UNRESOLVED_REFERENCE, message)));
        }
    };
    // The tool's own limit is for steps that say nothing: one that may take ten minutes may take them in one attempt.
    let spec = &record.spec;
    let limit = spec.attempt_timeout().or(spec.timeout()).unwrap_or(facts.default_timeout);
    let left = execution.step_deadline(step).map_or(limit, |deadline| deadline.since(context.now));
    let request = ToolCallRequest {
        tool: facts.tool.clone(),
        arguments_digest: digest(arguments.as_str().as_bytes()),
        arguments: blobs.payload(arguments),
        ledger_id: context.ledger_id.to_owned(),
        timeout: left.min(limit),
    };
    let call = execution.operation_id(execution.next_operation(step));
    Some(Body::ToolCall { call, event: ToolCallEvent::Requested(Arc::new(request)) })
}

/// While the execution is paused, a held call needs nothing, even if it is decided meanwhile.
pub(crate) fn action(execution: &Execution, operation: &Operation) -> Option<Verb> {
    if execution.stop.is_some() {
        return Some(Verb::Cancel);
    }
    let paused = execution.paused.as_ref();
    match operation.life {
        Life::Dispatched => match paused {
            Some(paused) if paused.discard_calls => Some(Verb::Cancel),
            Some(_) | None => Some(Verb::Dispatch),
        },
        Life::AwaitingApproval => (paused.is_none() && operation.is_to_request()).then_some(Verb::RequestApproval),
        Life::Decided => {
            let pending = operation.pending_approval.as_ref().filter(|_| paused.is_none())?;
            match (pending.decision()?, pending.requirement.kind) {
                (Decision::Approved, SubjectKind::Effect) => Some(Verb::Commit),
                (Decision::Approved, SubjectKind::Call) => Some(Verb::Dispatch),
                (Decision::Denied | Decision::Skipped | Decision::Expired, _) => Some(Verb::Discard),
            }
        }
        Life::Queued | Life::Waiting => None,
    }
}
