//! Runs a tool under its time limit and until it is cancelled, and validates its result.

use std::{future::poll_fn, panic::AssertUnwindSafe, pin::pin, task::Poll, time::Duration};

use belay_proto::{
    payload::MAX_RESULT_BYTES,
    v1::{ErrorClass, NetworkUse, tool_call::State},
};
use belay_reasons as reasons;
use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    CallRequest,
    record::{self, Unsuccessful},
};
use crate::{
    Invocation, MayRead, Recovery, StopRequest, ToolFailure, ToolResult, ViewHandle,
    output::OutputBuffer,
    questions::{Questions, time_is_over},
    registry::RegisteredTool,
    stop::{self, Stop},
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// Parses the arguments and validates them against the tool's schema.
pub(super) fn arguments(request: &CallRequest) -> Result<Value, ToolFailure> {
    let invalid = |message| ToolFailure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message);
    let arguments =
        serde_json::from_str(&request.arguments).map_err(|error| invalid(format!("arguments: not JSON: {error}")))?;
    match request.tool.parameters.violations(&arguments).first() {
        None => Ok(arguments),
        Some(violation) => Err(invalid(format!("arguments{}: {}", violation.pointer, violation.message))),
    }
}

/// Runs the tool.
pub(super) async fn work(
    request: &CallRequest,
    arguments: Value,
    (view, may_read): (Option<ViewHandle>, MayRead),
    output: Arc<OutputBuffer>,
    questions: Option<Questions>,
    (enforced, network_use): (Arc<OnceLock<Vec<String>>>, Arc<OnceLock<NetworkUse>>),
    cancelled: &watch::Receiver<Stop>,
) -> Result<Value, Unsuccessful> {
    let RegisteredTool { spec, result: result_schema, secret_result, tool, .. } = &*request.tool;
    let hides_result = !secret_result.is_empty();
    let limit = limit_of(request);
    let never_began = Arc::<AtomicBool>::default();
    let invocation = Invocation {
        name: request.name.clone(),
        attempt: request.attempt,
        arguments,
        view,
        output,
        questions: questions.clone(),
        trace: request.trace.as_ref().map(record::trace).unwrap_or_default(),
        context: request.context.clone(),
        enforced,
        limit,
        stop: StopRequest::new(cancelled.clone()),
        never_began: Arc::clone(&never_began),
        network: request.network.clone().ok().flatten(),
        reveals: Vec::new(),
        asks: tool.asks(),
        network_use,
        may_read,
    };
    let is_manual = request.recovery() == Recovery::Manual;
    let grace = tool.stop_grace();
    let mut work = AssertUnwindSafe(async move { tool.call(invocation).await }).catch_unwind().boxed();
    let mut timer = pin!(time_is_over(limit, questions.as_ref()));
    let mut over = pin!(stop::is_over(cancelled.clone(), grace));
    // The result is polled first: one that is ready counts even if the time is just over.
    let end = poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            let result = result.unwrap_or_else(|_| Err(panicked(spec.name)));
            // A tool that was asked to end has not completed, whatever it says; but what a MANUAL call has completed is done.
            return Poll::Ready(match &result {
                Ok(_) if is_manual => End::Returned(result),
                _ if *cancelled.borrow() != Stop::No => End::Cancelled,
                _ => End::Returned(result),
            });
        }
        if over.as_mut().poll(context).is_ready() {
            return Poll::Ready(End::Cancelled);
        }
        timer.as_mut().poll(context).map(|()| End::TimedOut)
    })
    .await;
    drop(work);
    if let Some(questions) = &questions {
        questions.close();
    }
    match end {
        End::Returned(Ok(result)) => match result_schema.violations(&result).first() {
            None if belay_json::is_too_deep(&result) => Err((State::Failed, too_deep())),
            None => match belay_json::size(&result) as u64 {
                ..=MAX_RESULT_BYTES => Ok(result),
                length => Err((State::Failed, too_large(length))),
            },
            Some(violation) => {
                // The violation may quote a value that the schema marks as secret.
                let message = match hides_result {
                    true => "it is not said how, because the schema marks parts of it as secret",
                    false => violation.message.as_str(),
                };
                let message = format!(
                    "The result of `{}` does not match its schema: {}: {message}",
                    spec.name, violation.pointer
                );
                Err((State::Failed, ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, message)))
            }
        },
        End::Returned(Err(failure)) if failure.class == ErrorClass::OutcomeUnknown => {
            Err((State::OutcomeUnknown, failure))
        }
        // A MANUAL call may have had an effect before it hit the full disk.
        End::Returned(Err(failure)) if is_manual && !record::never_started(&failure) => Err((State::Failed, failure)),
        End::Returned(Err(failure)) => Err(record::unsuccessful(failure)),
        End::Cancelled => Err(stopped_by(request, StopCause::Cancelled, never_began.load(Ordering::Acquire))),
        End::TimedOut => Err(stopped_by(request, StopCause::TimedOut, never_began.load(Ordering::Acquire))),
    }
}

/// Why a running call was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopCause {
    Cancelled,
    TimedOut,
}

/// The end of a call that was stopped while it ran, or before its process was started.
pub(super) fn stopped_by(request: &CallRequest, why: StopCause, never_began: bool) -> Unsuccessful {
    if request.recovery() == Recovery::Manual && !never_began {
        let message =
            "The call was stopped while it ran and may have had effects outside the workspace; its outcome is unknown.";
        return (
            State::OutcomeUnknown,
            ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message),
        );
    }
    match why {
        StopCause::Cancelled => (State::Cancelled, record::cancelled()),
        StopCause::TimedOut => (State::TimedOut, record::timed_out(limit_of(request))),
    }
}

/// The time limit of a call, from the start of its tool until its effect is staged.
pub(super) fn limit_of(request: &CallRequest) -> Duration {
    request.timeout.unwrap_or(request.tool.spec.default_timeout)
}

enum End {
    Returned(ToolResult),
    Cancelled,
    TimedOut,
}

/// The failure of a call whose result is larger than an executor takes. Nothing of it is committed.
fn too_large(length: u64) -> ToolFailure {
    let message = format!("result: has {length} bytes and the limit is {MAX_RESULT_BYTES}");
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::TOO_LARGE, message)
}

/// The failure of a call whose result is nested deeper than JSON is read. Nothing of it is committed.
fn too_deep() -> ToolFailure {
    let message = format!("result: is nested deeper than {} levels: flatten it", belay_json::MAX_DEPTH);
    ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, message)
}

fn panicked(tool: &str) -> ToolFailure {
    ToolFailure::new(
        ErrorClass::Internal,
        reasons::INTERNAL,
        format!("The tool `{tool}` panicked. This is a bug in Belay."),
    )
}
