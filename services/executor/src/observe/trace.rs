//! The spans of one execution, created from its events once they are stored.
//!
//! No span is kept open: its id is derived from the execution's uid, the step, the attempt and the call, and its start time is in the
//! events. An execution that another process takes over therefore continues the same tree. Spans that ended before that are not sent again.

use std::{borrow::Cow, collections::BTreeMap};

use belay_agent::{Answered, Asked};
use belay_execution::{
    Body, Event, Execution, ExecutionEvent, Failure, OperationEnd, OperationEvent, OperationId, Payload, StepEvent,
    StepId, Timestamp, ToolCallEnd, Work,
};
use belay_plan::MODEL_TOOL;
use belay_reasons as reasons;
use belay_redaction::Redactor;
use belay_telemetry::{
    KeyValue, SpanKind, SpanRecord, Status, Telemetry, TraceContext,
    semconv::{self, operation},
};
use serde_json::Value;
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
    attempts: BTreeMap<StepId, (u32, Timestamp)>,
    /// The calls in flight: the tool of each, and when it was requested.
    calls: BTreeMap<OperationId, (String, Timestamp)>,
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
        let attempts = execution
            .steps()
            .filter_map(|step| Some((step.id().clone(), (step.attempt(), step.attempt_started_at()?))));
        let calls = execution.operations().filter_map(|operation| {
            let tool = operation.tool_call()?.tool.clone();
            Some((execution.operation_id(operation.key), (tool, operation.since)))
        });
        Self {
            telemetry: telemetry.clone(),
            execution: name.to_string(),
            attempts: attempts.collect(),
            calls: calls.collect(),
            uid,
            caller,
            span,
        }
    }

    /// The span of log lines about the execution.
    pub(crate) fn log_span(&self) -> Span {
        tracing::error_span!("drive", execution = %self.execution, trace_id = %self.span.trace_id())
    }

    /// The span of a call.
    pub(crate) fn call(&self, call: &OperationId) -> TraceContext {
        let OperationId { step, attempt, number } = call;
        let name = format_args!("{}/{step}/{attempt}.{number}", self.uid);
        self.telemetry.derived(&self.attempt(step, *attempt), name)
    }

    /// The span of an attempt of a step.
    pub(crate) fn attempt(&self, step: &StepId, attempt: u32) -> TraceContext {
        self.telemetry.derived(&self.span, format_args!("{}/{step}/{attempt}", self.uid))
    }

    /// Records events that are stored, and sends the spans that they end.
    pub(crate) fn record(&mut self, execution: &Execution, events: &[Event], redactor: &Redactor) {
        if !self.telemetry.records(&self.span) {
            return;
        }
        for event in events {
            self.take(execution, event, redactor);
        }
    }

    fn take(&mut self, execution: &Execution, event: &Event, redactor: &Redactor) {
        match &event.body {
            Body::Execution(kind) => match kind {
                ExecutionEvent::Finished(finished) => self.finish(execution, event.time, finished.failure.as_ref()),
                ExecutionEvent::Created(_)
                | ExecutionEvent::LimitsRequested
                | ExecutionEvent::LimitsAcquired
                | ExecutionEvent::Started
                | ExecutionEvent::Paused { .. }
                | ExecutionEvent::Resumed
                | ExecutionEvent::CancelRequested { .. }
                | ExecutionEvent::SignalReceived(_)
                | ExecutionEvent::Recovered { .. }
                | ExecutionEvent::Retried(_)
                | ExecutionEvent::PlanUpdated(_)
                | ExecutionEvent::BudgetReported(_)
                | ExecutionEvent::CompensationStarted { .. }
                | ExecutionEvent::DeadlineExceeded
                | ExecutionEvent::AwaitingApproval => {}
            },
            Body::Step { step, attempt, event: kind } => {
                let (state, failure) = match kind {
                    // What follows a resolution is the same attempt, and a span of its own.
                    StepEvent::Started | StepEvent::Resolved { .. } => {
                        self.attempts.insert(step.clone(), (*attempt, event.time));
                        return;
                    }
                    StepEvent::RetryScheduled { failure, .. }
                    | StepEvent::FallbackSwitched { failure, .. }
                    | StepEvent::Failed { failure, .. } => ("FAILED", Some(failure)),
                    StepEvent::Completed { .. } => ("COMPLETED", None),
                    StepEvent::Cancelled { .. } => (reasons::CANCELLED, None),
                    StepEvent::OutcomeUnknown { failure } => (reasons::OUTCOME_UNKNOWN, Some(failure)),
                    StepEvent::Skipped { .. } => ("SKIPPED", None),
                    StepEvent::ItemsListed { .. }
                    | StepEvent::CachedResultUsed { .. }
                    | StepEvent::ItemsCollected { .. }
                    | StepEvent::SkipRequested { .. }
                    | StepEvent::OutputSet { .. }
                    | StepEvent::ConversationCarriedOver { .. }
                    | StepEvent::RetryAdvanced { .. }
                    | StepEvent::RetryCancelled { .. } => return,
                };
                self.end_attempt(step, state, failure, event.time);
            }
            Body::Operation { id: call, event: kind } => {
                match kind {
                    OperationEvent::Requested(Work::ToolCall(request)) => {
                        self.calls.insert(call.clone(), (request.tool.clone(), event.time));
                    }
                    OperationEvent::Ended(OperationEnd::ToolCall(end)) => {
                        self.end_call(execution, (call, end), event.time, redactor);
                    }
                    // The time of a wait, of whatever kind, is in the span of its attempt; the execution of a plan has spans of its own.
                    OperationEvent::Requested(_)
                    | OperationEvent::Held(_)
                    | OperationEvent::Asked { .. }
                    | OperationEvent::Decided { .. }
                    | OperationEvent::Dispatched
                    | OperationEvent::Reported(_)
                    | OperationEvent::Ended(_) => {}
                }
            }
        }
    }

    fn finish(&self, execution: &Execution, end: Timestamp, failure: Option<&Failure>) {
        let plan = execution.plan().id();
        let mut draft = Draft {
            name: format!("{} {plan}", operation::INVOKE_WORKFLOW).into(),
            began: execution.resumed_after_end_at().unwrap_or(execution.created_at()),
            attributes: vec![
                KeyValue::new(semconv::GEN_AI_OPERATION_NAME, operation::INVOKE_WORKFLOW),
                KeyValue::new(semconv::GEN_AI_WORKFLOW_NAME, plan.to_owned()),
                KeyValue::new(semconv::GEN_AI_CONVERSATION_ID, self.execution.clone()),
                KeyValue::new(semconv::BELAY_EXECUTION, self.execution.clone()),
                KeyValue::new(semconv::BELAY_STATE, wire::state_name(execution)),
            ],
        };
        let labels = execution.created().labels.iter();
        draft
            .attributes
            .extend(labels.map(|(key, value)| KeyValue::new(format!("{}.{key}", semconv::BELAY_LABEL), value.clone())));
        let Some(resumed_after_end_at) = execution.resumed_after_end_at() else {
            let kind = if self.caller.is_some() { SpanKind::Server } else { SpanKind::Internal };
            return self.send(self.span.clone(), self.caller.clone(), kind, draft, end, failure);
        };
        // Its own span was sent at its first end.
        let again =
            self.telemetry.derived(&self.span, format_args!("{}/again/{}", self.uid, resumed_after_end_at.as_micros()));
        self.send(again, Some(self.span.clone()), SpanKind::Internal, draft, end, failure);
    }

    fn end_call(
        &mut self,
        execution: &Execution,
        (call, end): (&OperationId, &ToolCallEnd),
        time: Timestamp,
        redactor: &Redactor,
    ) {
        let Some((tool, began)) = self.calls.remove(call) else { return };
        let (state, failure) = match end {
            ToolCallEnd::Completed { .. } => ("COMPLETED", None),
            ToolCallEnd::Failed { failure, .. } => ("FAILED", Some(failure)),
            ToolCallEnd::Denied { failure, .. } => ("DENIED", Some(failure)),
            ToolCallEnd::Cancelled { failure, .. } => (reasons::CANCELLED, failure.as_ref()),
            ToolCallEnd::OutcomeUnknown { failure, .. } => (reasons::OUTCOME_UNKNOWN, Some(failure)),
        };
        let of_turn = if tool == MODEL_TOOL { self.turn(execution, call, end, redactor) } else { None };
        let (name, mut attributes) = of_turn.unwrap_or_else(|| {
            let attributes = vec![
                KeyValue::new(semconv::GEN_AI_OPERATION_NAME, operation::EXECUTE_TOOL),
                KeyValue::new(semconv::GEN_AI_TOOL_NAME, tool.clone()),
                KeyValue::new(semconv::GEN_AI_TOOL_CALL_ID, wire::call_name(&self.execution, call)),
            ];
            (format!("{} {tool}", operation::EXECUTE_TOOL), attributes)
        });
        attributes.push(KeyValue::new(semconv::BELAY_STATE, state));
        let draft = Draft { name: name.into(), began, attributes };
        let parent = self.attempt(&call.step, call.attempt);
        self.send(self.call(call), Some(parent), SpanKind::Client, draft, time, failure);
    }

    /// The name and the attributes of the span of a model's turn, as those who read traces of models expect them.
    fn turn(
        &self,
        execution: &Execution,
        call: &OperationId,
        end: &ToolCallEnd,
        redactor: &Redactor,
    ) -> Option<(String, Vec<KeyValue>)> {
        let step = execution.step(execution.step_key(&call.step)?);
        let model = step.asked_model()?;
        let number = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let mut attributes = vec![
            KeyValue::new(semconv::GEN_AI_OPERATION_NAME, operation::CHAT),
            KeyValue::new(semconv::GEN_AI_REQUEST_MODEL, model.to_owned()),
            KeyValue::new(semconv::GEN_AI_CONVERSATION_ID, self.execution.clone()),
        ];
        attributes.extend(step.turn().map(|turn| KeyValue::new(semconv::BELAY_TURN, i64::from(turn))));
        if let Some(usage) = end.usage() {
            attributes.extend([
                KeyValue::new(semconv::GEN_AI_USAGE_INPUT_TOKENS, number(usage.input_tokens)),
                KeyValue::new(semconv::GEN_AI_USAGE_CACHE_READ, number(usage.cached_input_tokens)),
                KeyValue::new(semconv::GEN_AI_USAGE_OUTPUT_TOKENS, number(usage.output_tokens)),
            ]);
        }
        if self.telemetry.has_messages() {
            let answer = match end {
                ToolCallEnd::Completed { result, .. } => Some(result),
                _ => None,
            };
            attributes.extend(messages(step.asked(), answer, redactor));
        }
        Some((format!("{} {model}", operation::CHAT), attributes))
    }

    /// A step without a running attempt may end too: one that never started is skipped, and one that waits for a retry can be cancelled.
    fn end_attempt(&mut self, step: &StepId, state: &'static str, failure: Option<&Failure>, end: Timestamp) {
        let Some((attempt, began)) = self.attempts.remove(step) else { return };
        let draft = Draft {
            name: format!("step {step}").into(),
            began,
            attributes: vec![
                KeyValue::new(semconv::BELAY_EXECUTION, self.execution.clone()),
                KeyValue::new(semconv::BELAY_STEP, step.as_str().to_owned()),
                KeyValue::new(semconv::BELAY_ATTEMPT, i64::from(attempt)),
                KeyValue::new(semconv::BELAY_STATE, state),
            ],
        };
        let context = self.attempt(step, attempt);
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

/// What a model was asked in a turn and has answered, with its secrets hidden. Of a value in a blob, which may be long and is not at hand, the digest.
fn messages(asked: Option<&Payload>, answered: Option<&Payload>, redactor: &Redactor) -> Vec<KeyValue> {
    let hidden = |value: &Value| redactor.redact_json::<&str>(value, &[]).shown.to_string();
    let in_blob = |payload: &Payload| {
        let digest = payload.blob().map(|blob| format!("[blob {}, {} bytes]", blob.digest, blob.size));
        digest.unwrap_or_default()
    };
    let mut attributes = Vec::new();
    if let Some(payload) = asked {
        let read = payload.inline().and_then(|json| serde_json::from_str::<Asked>(json.as_str()).ok());
        match read.as_ref().map(belay_agent::span_input) {
            Some((instructions, input)) => {
                let instructions = instructions.as_ref().map(hidden);
                attributes.extend(instructions.map(|text| KeyValue::new(semconv::GEN_AI_SYSTEM_INSTRUCTIONS, text)));
                attributes.push(KeyValue::new(semconv::GEN_AI_INPUT_MESSAGES, hidden(&input)));
            }
            None => attributes.push(KeyValue::new(semconv::GEN_AI_INPUT_MESSAGES, in_blob(payload))),
        }
    }
    if let Some(payload) = answered {
        let read = payload.inline().and_then(|json| serde_json::from_str::<Answered>(json.as_str()).ok());
        let output = read.as_ref().map(|answered| hidden(&belay_agent::span_output(answered)));
        // A person may have given any value as the answer.
        let given = || payload.inline().map(|json| hidden(&json.value()));
        let output = output.or_else(given).unwrap_or_else(|| in_blob(payload));
        attributes.push(KeyValue::new(semconv::GEN_AI_OUTPUT_MESSAGES, output));
    }
    attributes
}

#[cfg(test)]
mod tests;
