//! The work of a tool: within its time, until it is cancelled, with its result held to the schema.

use std::{future::poll_fn, panic::AssertUnwindSafe, pin::pin, task::Poll, time::Duration};

use belay_proto::v1::{ErrorClass, tool_call::State};
use belay_reasons as reasons;
use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::watch;

use super::{Order, record, stop_asked};
use crate::{Invocation, Recovery, ToolFailure, ToolResult, ViewHandle, output::Kept, registry::Registered};
use std::sync::{Arc, OnceLock};

/// How work ended that did not succeed.
pub(super) type Unfinished = (State, ToolFailure);

/// The arguments, if they fit the tool's schema.
pub(super) fn arguments(order: &Order) -> Result<Value, ToolFailure> {
    let invalid = |message| ToolFailure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message);
    let arguments =
        serde_json::from_str(&order.arguments).map_err(|error| invalid(format!("arguments: not JSON: {error}")))?;
    match order.tool.parameters.violations(&arguments).first() {
        None => Ok(arguments),
        Some(violation) => Err(invalid(format!("arguments{}: {}", violation.pointer, violation.message))),
    }
}

/// Has the tool do its work.
pub(super) async fn work(
    order: &Order,
    arguments: Value,
    view: Option<ViewHandle>,
    output: Arc<Kept>,
    enforced: Arc<OnceLock<Vec<String>>>,
    cancelled: &mut watch::Receiver<bool>,
) -> Result<Value, Unfinished> {
    let Registered { spec, result: result_schema, tool, .. } = &*order.tool;
    let limit = limit_of(order);
    let invocation = Invocation {
        name: order.name.clone(),
        attempt: order.attempt,
        arguments,
        view,
        output,
        trace: order.trace.as_ref().map(record::trace).unwrap_or_default(),
        enforced,
        limit,
    };
    let mut work = AssertUnwindSafe(async move { tool.call(invocation).await }).catch_unwind().boxed();
    let mut timer = pin!(tokio::time::sleep(limit));
    let mut stop = pin!(stop_asked(cancelled));
    // A result that is there counts, even when the time is just over.
    let end = poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(End::Worked(result.unwrap_or_else(|_| Err(broken(spec.name)))));
        }
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(End::Stopped);
        }
        timer.as_mut().poll(context).map(|()| End::OutOfTime)
    })
    .await;
    drop(work);
    match end {
        End::Worked(Ok(result)) => match result_schema.violations(&result).first() {
            None => Ok(result),
            Some(violation) => {
                let message = format!(
                    "The result of `{}` does not fit its schema: {}: {}",
                    spec.name, violation.pointer, violation.message
                );
                Err((State::Failed, ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, message)))
            }
        },
        // What reached out may have done something before it met the full disk.
        End::Worked(Err(failure)) if spec.recovery == Recovery::Manual => Err((State::Failed, failure)),
        End::Worked(Err(failure)) => Err(record::unfinished(failure)),
        End::Stopped => Err(broken_off(order, Why::Cancelled)),
        End::OutOfTime => Err(broken_off(order, Why::OutOfTime)),
    }
}

/// Why a call was broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Cancelled,
    OutOfTime,
}

/// How a call ends that was broken off while it worked.
pub(super) fn broken_off(order: &Order, why: Why) -> Unfinished {
    if order.tool.spec.recovery == Recovery::Manual {
        let message = "The call was stopped while it reached out; what it did cannot be known.";
        return (
            State::OutcomeUnknown,
            ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message),
        );
    }
    match why {
        Why::Cancelled => (State::Cancelled, record::cancelled()),
        Why::OutOfTime => (State::TimedOut, record::timed_out(limit_of(order))),
    }
}

/// How long a call may take, from the beginning of its work until its effect is staged.
pub(super) fn limit_of(order: &Order) -> Duration {
    order.timeout.unwrap_or(order.tool.spec.default_timeout)
}

enum End {
    Worked(ToolResult),
    Stopped,
    OutOfTime,
}

fn broken(tool: &str) -> ToolFailure {
    ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, format!("The tool `{tool}` broke off: a fault in Belay."))
}
