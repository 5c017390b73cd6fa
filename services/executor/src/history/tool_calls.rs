//! The calls of tools that an execution has made, gathered from its events. The fold keeps only those in flight; the events have all.

use std::collections::HashMap;

use belay_execution::{
    ApprovalEvent, Body, ErrorClass, Event, Failure, OperationId, Timestamp, ToolCallEnd, ToolCallEvent,
    ToolCallRequest,
};
use belay_proto::v1::{self, tool_call::State};
use prost::Message as _;

use crate::wire;

/// One page of an execution's calls, while it is gathered: the events of its calls are given to it in order, and the request after them.
#[derive(Debug)]
pub(crate) struct ToolCalls {
    execution: String,
    /// Only the calls of this step.
    step: Option<String>,
    size: usize,
    /// The calls in the order of their requests, and the sequences of those.
    calls: Vec<(u64, v1::ToolCall)>,
    /// The positions of the calls that have not ended.
    open: HashMap<OperationId, usize>,
    /// Whether a request after the page was seen.
    has_more: bool,
}

impl ToolCalls {
    /// An empty page of `size` calls of the execution with this name, or of one of its steps.
    pub(crate) fn new(execution: String, step: Option<String>, size: usize) -> Self {
        Self { execution, step, size, calls: Vec::new(), open: HashMap::new(), has_more: false }
    }

    /// Takes the next event.
    pub(crate) fn apply(&mut self, event: &Event) {
        match &event.body {
            Body::ToolCall { call, event: ToolCallEvent::Requested(request) } => {
                self.requested(event.sequence, event.time, call, request);
            }
            Body::ToolCall { call, event: ToolCallEvent::Held(_) } => self.update(call, |found| {
                found.set_state(State::AwaitingApproval);
            }),
            Body::ToolCall { call, event: ToolCallEvent::Dispatched } => self.update(call, |found| {
                found.set_state(State::Requested);
            }),
            Body::ToolCall { call, event: ToolCallEvent::Ended(end) } => {
                self.update(call, |found| ended(found, event.time, end));
                self.open.remove(call);
            }
            Body::Approval { operation, event } => self.update(operation, |found| match event {
                ApprovalEvent::Requested { approval, .. } => found.approval.clone_from(approval),
                ApprovalEvent::Decided { .. } => found.set_state(State::Requested),
            }),
            Body::Execution(_) | Body::Step { .. } | Body::Wait { .. } | Body::Child { .. } => {}
        }
    }

    fn requested(&mut self, sequence: u64, time: Timestamp, call: &OperationId, request: &ToolCallRequest) {
        if self.step.as_ref().is_some_and(|step| step != call.step.as_str()) {
            return;
        }
        if self.calls.len() == self.size {
            self.has_more = true;
            return;
        }
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let found = v1::ToolCall {
            name: wire::call_name(&self.execution, call),
            step_id: call.step.as_str().to_owned(),
            attempt: number(call.attempt),
            operation: number(call.number),
            tool: request.tool.clone(),
            state: State::Requested.into(),
            request_time: Some(wire::time(time)),
            ..v1::ToolCall::default()
        };
        self.open.insert(call.clone(), self.calls.len());
        self.calls.push((sequence, found));
    }

    fn update(&mut self, call: &OperationId, change: impl FnOnce(&mut v1::ToolCall)) {
        if let Some(&at) = self.open.get(call) {
            change(&mut self.calls[at].1);
        }
    }

    /// The calls, of `max_bytes` unless one alone has more; and the event after which the next page begins, unless this is the last.
    pub(crate) fn page(self, max_bytes: usize) -> (Vec<v1::ToolCall>, Option<u64>) {
        let (mut bytes, mut last) = (0, None);
        let mut calls = Vec::with_capacity(self.calls.len());
        let (all, has_more) = (self.calls.len(), self.has_more);
        for (sequence, call) in self.calls {
            bytes += call.encoded_len();
            if bytes > max_bytes && !calls.is_empty() {
                break;
            }
            last = Some(sequence);
            calls.push(call);
        }
        let is_last = calls.len() == all && !has_more;
        (calls, last.filter(|_| !is_last))
    }
}

fn ended(call: &mut v1::ToolCall, time: Timestamp, end: &ToolCallEnd) {
    let timed_out = |failure: &Failure| failure.class == ErrorClass::Timeout;
    let (state, failure) = match end {
        ToolCallEnd::Completed { result, .. } => {
            call.result_bytes = i64::try_from(result.size()).unwrap_or(i64::MAX);
            call.result_blob = result.blob().map(wire::blob_ref);
            (State::Completed, None)
        }
        ToolCallEnd::Failed { failure, .. } if timed_out(failure) => (State::TimedOut, Some(failure)),
        ToolCallEnd::Failed { failure, .. } => (State::Failed, Some(failure)),
        ToolCallEnd::Denied { failure, .. } => (State::Denied, Some(failure)),
        ToolCallEnd::Cancelled { failure, .. } => (State::Cancelled, failure.as_ref()),
        ToolCallEnd::OutcomeUnknown { failure, .. } => (State::OutcomeUnknown, Some(failure)),
    };
    call.set_state(state);
    call.end_time = Some(wire::time(time));
    call.failure = failure.map(wire::failure);
}
