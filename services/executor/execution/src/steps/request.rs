//! The intent to make a call: the step's own, or one that a check takes.

use std::{sync::Arc, time::Duration};

use belay_plan::{CheckPlace, JUDGE_TOOL, MODEL_TOOL, ToolStep, asks_model, is_own_tool, not_allowed};
use belay_reasons as reasons;

use super::{agent, layers};
use crate::{
    Admission, Amounts, Blobs, Body, DecideContext, ErrorClass, Execution, ExecutionEvent, Failure, Json,
    OperationEvent, PauseCause, StepKey, Timestamp, ToolCallRequest, Work, digest, event::OUTPUT_HELD,
    state::TurnSupply,
};

/// The least time for which a namespace's budget pauses an execution.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// Requests the step's call, or the one that a check takes.
pub(super) fn call(
    execution: &Execution,
    step: StepKey,
    call: &ToolStep,
    check: Option<CheckPlace>,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Body> {
    if let Some(instead) = execution.exhausted(step) {
        return Some(instead);
    }
    let record = &execution.steps[step];
    let Some(facts) = execution.tool(&call.tool) else {
        let message = format!("Tool '{}' not found in the execution's record.", call.tool);
        return Some(execution.fail(step, Failure::new(ErrorClass::Internal, reasons::TOOL_FACTS_MISSING, message)));
    };
    // What a model writes is taken as it is: `${` means nothing in it.
    let values;
    let resolved = if check.is_none() && record.is_of_agent() {
        match agent::arguments(execution, step, blobs)? {
            Ok(arguments) => Ok(arguments),
            Err(failure) => return Some(execution.fail(step, failure)),
        }
    } else {
        values = match super::outputs::values(execution, step, call.arguments.values(), blobs) {
            Ok(values) => values?,
            Err(failure) => return Some(execution.fail(step, failure)),
        };
        call.arguments.resolve(&|id, what| values.get(id, what))
    };
    let arguments = match resolved {
        Ok(arguments) => {
            if let Some(message) = not_allowed(&facts.tool, execution.plan().allowed_commands(), &arguments) {
                let message = format!("The command was not started: {message}.");
                let failure = Failure::new(ErrorClass::PolicyDenied, reasons::PROGRAM_NOT_ALLOWED, message);
                return Some(execution.fail(step, failure));
            }
            Json::canonical(&agent::with_judge(execution, step, &facts.tool, arguments))
        }
        Err(unresolved) => {
            let (class, message) = (ErrorClass::InvalidArguments, unresolved.to_string());
            return Some(execution.fail(step, Failure::new(class, reasons::UNRESOLVED_REFERENCE, message)));
        }
    };
    if asks_model(&facts.tool)
        && let Some(failure) = agent::without_price(execution, step, &facts.tool, &arguments, blobs)
    {
        return Some(execution.fail(step, failure));
    }
    let turn = match &*facts.tool {
        MODEL_TOOL => agent::may_use(execution, step, &arguments, blobs)?,
        JUDGE_TOOL => agent::judge_may_use(&arguments, blobs),
        _ => Amounts::default(),
    };
    match execution.turn_supply(step, turn) {
        TurnSupply::Enough => {}
        // Its end is an event, and then it is decided again.
        TurnSupply::Held => return None,
        TurnSupply::TooLittle { account, unit, left } => {
            return Some(execution.too_little(step, account, unit, left, turn.of(unit)));
        }
    }
    // Last, so that whatever is held is recorded.
    let needed = match is_own_tool(&facts.tool) {
        true => turn,
        false => Amounts { calls: 1, output_bytes: OUTPUT_HELD, ..Amounts::default() },
    };
    let namespace_hold = match execution.admission(step, needed, blobs) {
        Admission::Unlimited => None,
        Admission::Held(hold) => Some(hold),
        Admission::Wanted => return None,
        Admission::Exhausted { reason, until } => return Some(paused_until(reason, until, context.now)),
    };
    // The tool's own limit is for steps that say nothing: one that may take ten minutes may take them in one attempt.
    let spec = &record.spec;
    // That of a step with a goal is for all of its entries together.
    let of_step = spec.timeout().filter(|_| !record.is_of_agent());
    let limit = spec.attempt_timeout().or(of_step).unwrap_or(facts.default_timeout);
    let left = execution.step_deadline(step).map_or(limit, |deadline| deadline.since(context.now));
    let request = ToolCallRequest {
        tool: facts.tool.clone(),
        arguments_digest: digest(arguments.as_str().as_bytes()),
        arguments: blobs.payload(arguments),
        ledger_id: context.ledger_id.to_owned(),
        timeout: left.min(limit),
        check,
        held: execution.held_for_call(step, &facts.tool, turn),
        layers: layers::of_call(execution, step),
        namespace_hold,
    };
    let call = execution.operation_id(execution.next_operation(step));
    Some(Body::Operation { id: call, event: OperationEvent::Requested(Work::ToolCall(Arc::new(request))) })
}

/// The pause until the window ends for which the namespace's budget is used up. A window that has ended by the execution's time has not by the clock that the
/// budget goes by: the next attempt is after a while, and not at once.
fn paused_until(reason: String, until: Timestamp, now: Timestamp) -> Body {
    let resume_at = Some(until.max(now.saturating_add(RECHECK_AFTER)));
    ExecutionEvent::Paused { reason, discard_calls: false, resume_at, cause: PauseCause::Budget }.into()
}
