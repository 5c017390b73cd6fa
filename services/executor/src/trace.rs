//! The spans of one execution, created from its events once they are stored.
//!
//! No span is kept open: its id is derived from the execution's uid, the step, the attempt and the call, and its start time is in the
//! events. An execution that another process takes over therefore continues the same tree. Spans that ended before that are not sent again.

use std::{borrow::Cow, collections::BTreeMap};

use belay_execution::{CallId, CallInFlight, Event, EventKind, Execution, Failure, Timestamp};
use belay_plan::Plan;
use belay_reasons as reasons;
use belay_telemetry::{
    KeyValue, SpanKind, SpanRecord, Status, Telemetry, TraceContext,
    semconv::{self, operation},
};
use tonic::metadata::MetadataMap;
use tracing::Span;

use crate::{names::ExecutionName, wire};

/// The trace context to store with a new execution: its caller's, else a new one.
pub(crate) fn initial_trace(telemetry: &Telemetry, metadata: &MetadataMap, uid: &str) -> (String, String) {
    let trace = TraceContext::of(metadata).unwrap_or_else(|| telemetry.root_named(uid));
    (trace.traceparent(), trace.tracestate().to_owned())
}

/// The span of an execution that was stored with this trace context, and its caller's span, if there is one.
pub(crate) fn span_of(
    telemetry: &Telemetry,
    uid: &str,
    traceparent: &str,
    tracestate: &str,
) -> (Option<TraceContext>, TraceContext) {
    match TraceContext::parse(traceparent, tracestate).ok() {
        Some(own) if own.is_span(uid) => (None, own),
        Some(caller) => {
            let span = telemetry.derived(&caller, uid);
            (Some(caller), span)
        }
        None => (None, telemetry.root_named(uid)),
    }
}

/// The spans of an execution that are still to be sent.
pub(crate) struct Trace {
    telemetry: Telemetry,
    execution: String,
    uid: String,
    /// The span of the caller that started it, if there is one.
    caller: Option<TraceContext>,
    span: TraceContext,
    /// The running attempts by step: the attempt's number, and when it started.
    attempts: BTreeMap<usize, (u32, Timestamp)>,
    /// The calls in flight: the tool of each, and when it was requested.
    calls: BTreeMap<CallId, (String, Timestamp)>,
}

/// A span without its context.
struct Draft {
    name: Cow<'static, str>,
    began: Timestamp,
    attributes: Vec<KeyValue>,
}

impl Trace {
    /// The trace of an execution in its current state.
    pub(crate) fn of(telemetry: &Telemetry, name: &ExecutionName, execution: &Execution) -> Self {
        let created = execution.created();
        let uid = created.uid.clone();
        let (caller, span) = span_of(telemetry, &uid, &created.trace.0, &created.trace.1);
        let steps = execution.steps().enumerate();
        let attempts = steps.filter_map(|(step, view)| Some((step, (view.attempt(), view.attempt_started_at()?))));
        let call =
            |in_flight: &CallInFlight| (in_flight.request.call, (in_flight.request.tool.clone(), in_flight.since));
        Self {
            telemetry: telemetry.clone(),
            execution: name.to_string(),
            attempts: attempts.collect(),
            calls: execution.in_flight().map(call).collect(),
            uid,
            caller,
            span,
        }
    }

    /// The execution's span, as `traceparent`.
    pub(crate) fn traceparent(&self) -> String {
        self.span.traceparent()
    }

    /// The span of log lines about the execution.
    pub(crate) fn log_span(&self) -> Span {
        tracing::error_span!("drive", execution = %self.execution, trace_id = %self.span.trace_id())
    }

    /// The span of a call.
    pub(crate) fn call(&self, plan: &Plan, call: CallId) -> TraceContext {
        let CallId { step, attempt, number } = call;
        let name = format_args!("{}/{}/{attempt}.{number}", self.uid, plan.steps()[step].id());
        self.telemetry.derived(&self.attempt(plan, step, attempt), name)
    }

    fn attempt(&self, plan: &Plan, step: usize, attempt: u32) -> TraceContext {
        self.telemetry.derived(&self.span, format_args!("{}/{}/{attempt}", self.uid, plan.steps()[step].id()))
    }

    /// Records events that are stored, and sends the spans that they end.
    pub(crate) fn record(&mut self, execution: &Execution, events: &[Event]) {
        if !self.telemetry.records(&self.span) {
            return;
        }
        for event in events {
            self.take(execution, event);
        }
    }

    fn take(&mut self, execution: &Execution, event: &Event) {
        use EventKind as K;
        let plan = execution.plan();
        match &event.kind {
            K::StepStarted { step, attempt } => {
                self.attempts.insert(*step, (*attempt, event.time));
            }
            K::CallRequested(request) => {
                self.calls.insert(request.call, (request.tool.clone(), event.time));
            }
            K::Finished(finished) => {
                let draft = Draft {
                    name: format!("{} {}", operation::INVOKE_WORKFLOW, plan.id()).into(),
                    began: execution.created_at(),
                    attributes: vec![
                        KeyValue::new(semconv::GEN_AI_OPERATION_NAME, operation::INVOKE_WORKFLOW),
                        KeyValue::new(semconv::GEN_AI_WORKFLOW_NAME, plan.id().to_owned()),
                        KeyValue::new(semconv::GEN_AI_CONVERSATION_ID, self.execution.clone()),
                        KeyValue::new(semconv::BELAY_EXECUTION, self.execution.clone()),
                        KeyValue::new(semconv::BELAY_STATE, wire::state_name(execution)),
                    ],
                };
                let kind = if self.caller.is_some() { SpanKind::Server } else { SpanKind::Internal };
                self.send(self.span.clone(), self.caller.clone(), kind, draft, event.time, finished.failure.as_ref());
            }
            kind => {
                if let Some((call, state, failure)) = end_of_call(kind) {
                    self.end_call(plan, call, state, failure, event.time);
                }
                if let Some((step, state, failure)) = end_of_attempt(kind) {
                    self.end_attempt(plan, step, state, failure, event.time);
                }
            }
        }
    }

    fn end_call(&mut self, plan: &Plan, call: CallId, state: &'static str, failure: Option<&Failure>, end: Timestamp) {
        let Some((tool, began)) = self.calls.remove(&call) else { return };
        let step = plan.steps()[call.step].id();
        let draft = Draft {
            name: format!("{} {tool}", operation::EXECUTE_TOOL).into(),
            began,
            attributes: vec![
                KeyValue::new(semconv::GEN_AI_OPERATION_NAME, operation::EXECUTE_TOOL),
                KeyValue::new(semconv::GEN_AI_TOOL_NAME, tool),
                KeyValue::new(
                    semconv::GEN_AI_TOOL_CALL_ID,
                    format!("{}/steps/{step}/calls/{}.{}", self.execution, call.attempt, call.number),
                ),
                KeyValue::new(semconv::BELAY_STATE, state),
            ],
        };
        let parent = self.attempt(plan, call.step, call.attempt);
        self.send(self.call(plan, call), Some(parent), SpanKind::Client, draft, end, failure);
    }

    fn end_attempt(
        &mut self,
        plan: &Plan,
        step: usize,
        state: &'static str,
        failure: Option<&Failure>,
        end: Timestamp,
    ) {
        let Some((attempt, began)) = self.attempts.remove(&step) else { return };
        let id = plan.steps()[step].id();
        let draft = Draft {
            name: format!("step {id}").into(),
            began,
            attributes: vec![
                KeyValue::new(semconv::BELAY_EXECUTION, self.execution.clone()),
                KeyValue::new(semconv::BELAY_STEP, id.to_owned()),
                KeyValue::new(semconv::BELAY_ATTEMPT, i64::from(attempt)),
                KeyValue::new(semconv::BELAY_STATE, state),
            ],
        };
        let context = self.attempt(plan, step, attempt);
        self.send(context, Some(self.span.clone()), SpanKind::Internal, draft, end, failure);
    }

    /// Sends a span. Of a failure it carries the class and the reason; the message is for people, and may quote a tool's arguments.
    fn send(
        &self,
        context: TraceContext,
        parent: Option<TraceContext>,
        kind: SpanKind,
        mut draft: Draft,
        end: Timestamp,
        failure: Option<&Failure>,
    ) {
        let status = failure.map_or(Status::Unset, |failure| {
            let class = wire::class_name(failure.class);
            draft.attributes.push(KeyValue::new(semconv::ERROR_TYPE, failure.reason.clone()));
            draft.attributes.push(KeyValue::new(semconv::BELAY_ERROR_CLASS, class));
            Status::error(failure.reason.clone())
        });
        let record = SpanRecord::new(context, draft.name, draft.began.as_micros(), end.as_micros());
        self.telemetry.emit(SpanRecord { parent, kind, attributes: draft.attributes, status, ..record });
    }
}

/// The call that this event ends, its state and its failure.
fn end_of_call(kind: &EventKind) -> Option<(CallId, &'static str, Option<&Failure>)> {
    use EventKind as K;
    Some(match kind {
        K::CallCompleted { call, .. } => (*call, "COMPLETED", None),
        K::CallFailed { call, failure, .. } => (*call, "FAILED", Some(failure)),
        K::CallDenied { call, failure, .. } => (*call, "DENIED", Some(failure)),
        K::CallCancelled { call, failure, .. } => (*call, reasons::CANCELLED, failure.as_ref()),
        K::CallOutcomeUnknown { call, failure, .. } => (*call, reasons::OUTCOME_UNKNOWN, Some(failure)),
        _ => return None,
    })
}

/// The step whose attempt this event ends, its state and its failure. A step without a running attempt may end too: one that never started
/// is skipped, and one that waits for a retry can be cancelled.
fn end_of_attempt(kind: &EventKind) -> Option<(usize, &'static str, Option<&Failure>)> {
    use EventKind as K;
    Some(match kind {
        K::RetryScheduled { step, failure, .. } | K::StepFailed { step, failure, .. } => {
            (*step, "FAILED", Some(failure))
        }
        K::StepCompleted { step, .. } => (*step, "COMPLETED", None),
        K::StepCancelled { step, .. } => (*step, reasons::CANCELLED, None),
        K::StepOutcomeUnknown { step, failure, .. } => (*step, reasons::OUTCOME_UNKNOWN, Some(failure)),
        K::StepSkipped { step, .. } => (*step, "SKIPPED", None),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
