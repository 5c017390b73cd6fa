//! The calls of tools that an execution has made, gathered from its events. The fold keeps only those in flight; the events have all.

use std::collections::HashMap;

use belay_execution::{
    BlobRef, Body, ErrorClass, Event, Failure, OperationEnd, OperationEvent, OperationId, StepId, Timestamp,
    ToolCallEnd, ToolCallRequest, Work,
};

/// A call of a tool, as far as its events go.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The operation that it is.
    pub id: OperationId,
    /// The tool.
    pub tool: String,
    /// Its state.
    pub state: State,
    /// The name of its approval at the gate; empty without one.
    pub approval: String,
    /// When it was requested.
    pub requested_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// The size of its result, in bytes; 0 when it has none.
    pub result_bytes: u64,
    /// The blob that has its result, if one has.
    pub result_blob: Option<BlobRef>,
    /// The failure, when the call did not complete.
    pub failure: Option<Failure>,
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has no recorded end, and waits for nobody.
    Requested,
    /// It waits for approval before it runs or before its changes are committed.
    AwaitingApproval,
    /// It ended with a result.
    Completed,
    /// It ended with a failure.
    Failed,
    /// It exceeded its time limit and was stopped.
    TimedOut,
    /// A policy or a person denied it.
    Denied,
    /// It was cancelled, or has to run again because the workspace changed under it.
    Cancelled,
    /// The outcome cannot be known.
    OutcomeUnknown,
}

/// A page of an execution's calls, while it is gathered: the events of its calls are given to it in order, and the request after them.
#[derive(Debug)]
pub struct ToolCalls {
    /// Only the calls of this step.
    step: Option<StepId>,
    size: usize,
    /// The calls in the order of their requests, and the sequences of those.
    calls: Vec<(u64, ToolCall)>,
    /// The positions of the calls that have not ended.
    open: HashMap<OperationId, usize>,
    /// Whether a request after the page was seen.
    has_more: bool,
}

impl ToolCalls {
    /// An empty page of `size` calls of an execution, or of one of its steps.
    pub fn new(step: Option<StepId>, size: usize) -> Self {
        Self { step, size, calls: Vec::new(), open: HashMap::new(), has_more: false }
    }

    /// Takes the next event.
    pub fn apply(&mut self, event: &Event) {
        match &event.body {
            Body::Operation { id, event: body } => match body {
                OperationEvent::Requested(Work::ToolCall(request)) => {
                    self.requested(event.sequence, event.time, id, request);
                }
                OperationEvent::Held(_) => self.update(id, |found| found.state = State::AwaitingApproval),
                OperationEvent::Asked { approval, .. } => {
                    self.update(id, |found| found.approval.clone_from(approval));
                }
                OperationEvent::Decided { .. } | OperationEvent::Dispatched => {
                    self.update(id, |found| found.state = State::Requested);
                }
                OperationEvent::Ended(OperationEnd::ToolCall(end)) => {
                    self.update(id, |found| ended(found, event.time, end));
                    self.open.remove(id);
                }
                OperationEvent::Requested(_) | OperationEvent::Reported(_) | OperationEvent::Ended(_) => {}
            },
            Body::Execution(_) | Body::Step { .. } => {}
        }
    }

    fn requested(&mut self, sequence: u64, time: Timestamp, call: &OperationId, request: &ToolCallRequest) {
        if self.step.as_ref().is_some_and(|step| *step != call.step) {
            return;
        }
        if self.calls.len() == self.size {
            self.has_more = true;
            return;
        }
        let found = ToolCall {
            id: call.clone(),
            tool: request.tool.clone(),
            state: State::Requested,
            approval: String::new(),
            requested_at: time,
            ended_at: None,
            result_bytes: 0,
            result_blob: None,
            failure: None,
        };
        self.open.insert(call.clone(), self.calls.len());
        self.calls.push((sequence, found));
    }

    fn update(&mut self, call: &OperationId, change: impl FnOnce(&mut ToolCall)) {
        if let Some(&at) = self.open.get(call) {
            change(&mut self.calls[at].1);
        }
    }

    /// The calls as `show` returns them, each with how many bytes it has: of `max_bytes`, unless one alone has more. And the event after which the next page
    /// begins, unless this is the last.
    pub fn page<T>(self, max_bytes: usize, show: impl Fn(ToolCall) -> (T, usize)) -> (Vec<T>, Option<u64>) {
        let (mut bytes, mut last) = (0, None);
        let mut calls = Vec::with_capacity(self.calls.len());
        let (all, has_more) = (self.calls.len(), self.has_more);
        for (sequence, call) in self.calls {
            let (call, size) = show(call);
            bytes += size;
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

fn ended(call: &mut ToolCall, time: Timestamp, end: &ToolCallEnd) {
    let timed_out = |failure: &Failure| failure.class == ErrorClass::Timeout;
    let (state, failure) = match end {
        ToolCallEnd::Completed { result, .. } => {
            call.result_bytes = result.size();
            call.result_blob = result.blob().cloned();
            (State::Completed, None)
        }
        ToolCallEnd::Failed { failure, .. } if timed_out(failure) => (State::TimedOut, Some(failure)),
        ToolCallEnd::Failed { failure, .. } => (State::Failed, Some(failure)),
        ToolCallEnd::Denied { failure, .. } => (State::Denied, Some(failure)),
        ToolCallEnd::Cancelled { failure, .. } => (State::Cancelled, failure.as_ref()),
        ToolCallEnd::OutcomeUnknown { failure, .. } => (State::OutcomeUnknown, Some(failure)),
    };
    call.state = state;
    call.ended_at = Some(time);
    call.failure = failure.cloned();
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use belay_execution::{Json, Receipt};

    use super::*;

    fn event(sequence: u64, step: &str, event: OperationEvent) -> Event {
        let call = OperationId { step: step.into(), attempt: 1, number: 1 };
        let time = Timestamp::from_micros(i64::try_from(sequence).unwrap());
        Event { sequence, time, actor: None, body: Body::Operation { id: call, event } }
    }

    fn requested(sequence: u64, step: &str) -> Event {
        let request = ToolCallRequest {
            tool: "t".into(),
            arguments: Json::from_text("{}").into(),
            arguments_digest: String::new(),
            ledger_id: "l".into(),
            check: None,
            held: belay_execution::Amounts::default(),
            layers: None,
            namespace_hold: None,
            timeout: Duration::from_secs(1),
        };
        event(sequence, step, OperationEvent::Requested(Work::ToolCall(Arc::new(request))))
    }

    /// The steps of the calls on a page on which each call has ten bytes, and the token of the next page.
    fn page(size: usize, max_bytes: usize, step: Option<&str>) -> (Vec<String>, Option<u64>) {
        let mut calls = ToolCalls::new(step.map(Into::into), size);
        let events = [(3, "a"), (5, "b"), (8, "c")];
        events.iter().for_each(|(sequence, step)| calls.apply(&requested(*sequence, step)));
        calls.page(max_bytes, |call| (call.id.step.to_string(), 10))
    }

    #[test]
    fn a_page_ends_where_it_has_enough_calls_or_bytes() {
        let words = |steps: &[&str]| steps.iter().map(|&step| step.to_owned()).collect::<Vec<_>>();
        assert_eq!(page(3, 100, None), (words(&["a", "b", "c"]), None));
        assert_eq!(page(2, 100, None), (words(&["a", "b"]), Some(5)));
        assert_eq!(page(3, 29, None), (words(&["a", "b"]), Some(5)));
        assert_eq!(page(3, 1, None), (words(&["a"]), Some(3)), "one alone may have more");
        assert_eq!(page(1, 100, Some("b")), (words(&["b"]), None));
    }

    #[test]
    fn a_call_is_as_its_last_event_left_it() {
        let mut calls = ToolCalls::new(None, 9);
        calls.apply(&requested(1, "a"));
        calls.apply(&requested(2, "b"));
        let end =
            ToolCallEnd::Completed { result: Json::from_text("[1]").into(), receipt: Box::new(Receipt::default()) };
        calls.apply(&event(3, "a", OperationEvent::Ended(OperationEnd::ToolCall(end))));
        let failure = Failure::new(ErrorClass::Timeout, "TOOL_FAILED", "too slow");
        let end = ToolCallEnd::Failed { failure: failure.clone(), receipt: Box::new(Receipt::default()) };
        calls.apply(&event(4, "b", OperationEvent::Ended(OperationEnd::ToolCall(end))));
        let (found, _) = calls.page(usize::MAX, |call| (call, 1));
        let ended = |call: &ToolCall| (call.state, call.ended_at.map(Timestamp::as_micros), call.result_bytes);
        assert_eq!(ended(&found[0]), (State::Completed, Some(3), 3));
        assert_eq!(ended(&found[1]), (State::TimedOut, Some(4), 0));
        assert_eq!((&found[0].failure, &found[1].failure), (&None, &Some(failure)));
    }
}
