//! Steps that wait for a time or a signal. A waiting step holds no slot, and its execution can leave memory.

use belay_plan::{StepKind, WaitFor, WaitStep};
use belay_reasons as reasons;

use crate::{
    Body, DecideContext, ErrorClass, Execution, Failure, Json, Life, Operation, OperationId, OperationKey, StepKey,
    StepTrigger, Timestamp, Verb, WaitCondition, WaitEnd, WaitEvent, Work, state::OperationEnd,
};

pub(crate) fn apply(
    execution: &mut Execution,
    id: &OperationId,
    event: &WaitEvent,
    time: Timestamp,
) -> Result<(), String> {
    match event {
        WaitEvent::Started(condition) => started(execution, id, condition, time),
        WaitEvent::Ended(end) => ended(execution, id, end, time),
    }
}

fn started(
    execution: &mut Execution,
    id: &OperationId,
    condition: &WaitCondition,
    time: Timestamp,
) -> Result<(), String> {
    let step = execution.named(&id.step)?;
    let key = OperationKey { step, attempt: id.attempt, number: id.number };
    execution.check_is_next(key)?;
    if !matches!(execution.steps[step].spec.kind(), StepKind::Wait(_)) {
        return Err(format!("step `{}` waits for nothing", id.step));
    }
    execution.update_step(step, |record| record.operations = key.number);
    let work = Work::Wait(condition.clone());
    execution.insert_operation(Operation { key, since: time, work, life: Life::Waiting, pending_approval: None });
    execution.transition_step(step, StepTrigger::WaitStarted, time)
}

fn ended(execution: &mut Execution, id: &OperationId, end: &WaitEnd, time: Timestamp) -> Result<(), String> {
    let operation = execution.in_flight(id)?;
    let key = operation.key;
    let Work::Wait(condition) = &operation.work else { return Err(format!("{id} is no wait")) };
    let (output, end) = match (end, condition) {
        (WaitEnd::Elapsed, WaitCondition::Time { until }) if *until <= time => {
            (Some(Json::from_text("null")), OperationEnd::Completed)
        }
        (WaitEnd::Signalled { sequence }, WaitCondition::Signal { signal, .. }) => {
            let signal = signal.clone();
            let payload = execution.signals.take(&signal, *sequence);
            let none = || format!("event {sequence} is not the oldest signal `{signal}` that is kept");
            (Some(payload.ok_or_else(none)?), OperationEnd::Completed)
        }
        (WaitEnd::TimedOut, WaitCondition::Signal { signal, until: Some(until) }) if *until <= time => {
            let message = format!("The signal `{signal}` did not come within the step's time limit.");
            (None, OperationEnd::Failed(Failure::new(ErrorClass::Timeout, reasons::STEP_TIMEOUT, message)))
        }
        (WaitEnd::Cancelled, _) if execution.stop.is_some() => (None, OperationEnd::Cancelled),
        (end, condition) => return Err(format!("{id}, which waits for {condition:?}, cannot end by {end:?}")),
    };
    execution.remove_operation(key);
    execution.transition_step(key.step, StepTrigger::WaitEnded, time)?;
    execution.update_step(key.step, |record| {
        (record.end, record.output) = (Some(end), output);
    });
    Ok(())
}

/// Starts the wait.
pub(crate) fn next(execution: &Execution, step: StepKey, wait: &WaitStep, context: DecideContext<'_>) -> Body {
    let condition = match &wait.wait_for {
        WaitFor::Duration(duration) => WaitCondition::Time { until: context.now.saturating_add(*duration) },
        WaitFor::Time(micros) => WaitCondition::Time { until: Timestamp::from_micros(*micros) },
        WaitFor::Signal(signal) => {
            WaitCondition::Signal { signal: signal.clone(), until: execution.step_deadline(step) }
        }
    };
    let wait = execution.operation_id(execution.next_operation(step));
    Body::Wait { wait, event: WaitEvent::Started(condition) }
}

/// A wait needs nothing of a service: its end is decided when its time or its signal has come.
pub(crate) fn action() -> Option<Verb> {
    None
}

/// The end of the first wait that can end now: by its signal, else by its time.
pub(crate) fn due(execution: &Execution, now: Timestamp) -> Option<Body> {
    let ended = |key, end| Body::Wait { wait: execution.operation_id(key), event: WaitEvent::Ended(end) };
    let signalled = |&key: &OperationKey| {
        let Work::Wait(condition) = &execution.operations.get(key)?.work else { return None };
        let sequence = execution.signals.first(condition.signal()?)?;
        Some(ended(key, WaitEnd::Signalled { sequence }))
    };
    if execution.signals.len() > 0
        && let Some(end) = execution.index.waits_for_signal.iter().find_map(signalled)
    {
        return Some(end);
    }
    let &(_, key) = execution.index.timers.first().filter(|(until, _)| *until <= now)?;
    let is_limit = execution.index.waits_for_signal.contains(&key);
    Some(ended(key, if is_limit { WaitEnd::TimedOut } else { WaitEnd::Elapsed }))
}

/// The end of the first wait of an execution that is being stopped.
pub(crate) fn cancelled(execution: &Execution) -> Option<Body> {
    let wait = execution.operations.iter().find(|operation| matches!(operation.work, Work::Wait(_)))?;
    let event = WaitEvent::Ended(WaitEnd::Cancelled);
    Some(Body::Wait { wait: execution.operation_id(wait.key), event })
}
