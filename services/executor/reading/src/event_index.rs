//! An index of an execution's events: which of them say what its artifacts and its calls are, so that a page of these needs the events of the page alone.
//!
//! It is made of the events with their secrets, in order, and has no texts but ids of steps. It grows as far as pages need it.

use std::{
    collections::{BTreeSet, HashMap},
    mem::size_of,
};

use belay_execution::{
    Body, Event, ExecutionEvent, OperationEnd, OperationEvent, OperationId, StepId, ToolCallEnd, Work,
};
use belay_plan::Plan;

use crate::artifacts::{Artifacts, Graph};

/// An estimate of the memory that is kept of a step of the plan, in bytes.
const STEP_BYTES: usize = 320;

/// An estimate of the memory that is kept of a call beside its events, in bytes.
const CALL_BYTES: usize = 128;

/// An estimate of the memory that is kept of a path, in bytes.
const PATH_BYTES: usize = 64;

/// The index of an execution's events up to one.
#[derive(Debug, Default)]
pub struct EventIndex {
    /// The sequence of the last event that was taken.
    last: u64,
    artifacts: Artifacts,
    graph: Graph,
    /// The calls in the order of their requests.
    calls: Vec<Call>,
    /// The positions of the calls that have not ended.
    open: HashMap<OperationId, usize>,
    /// How many files of a step's calls are in no receipt.
    unlisted: HashMap<StepId, u64>,
    bytes: usize,
}

/// The events of a call.
#[derive(Debug)]
struct Call {
    step: StepId,
    /// Their sequences, the first that of the request.
    events: Vec<u64>,
    has_ended: bool,
}

impl EventIndex {
    /// The sequence of the last event that was taken; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// An estimate of the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The artifacts.
    pub fn artifacts(&self) -> &Graph {
        &self.graph
    }

    /// How many files of the calls of a step, or of all, no artifact stands for.
    pub fn unlisted(&self, step: Option<&StepId>) -> u64 {
        match step {
            Some(step) => self.unlisted.get(step).copied().unwrap_or(0),
            None => self.unlisted.values().sum(),
        }
    }

    /// The sequences of all events of the `size` calls of a step, or of all steps, that were requested after an event; and that of the next request after these.
    /// `None` while a later event may be one of them.
    pub fn calls(&self, step: Option<&StepId>, after: u64, size: usize, is_complete: bool) -> Option<BTreeSet<u64>> {
        let from = self.calls.partition_point(|call| call.events[0] <= after);
        let mut calls = self.calls[from..].iter().filter(|call| step.is_none_or(|step| *step == call.step));
        let page: Vec<&Call> = calls.by_ref().take(size).collect();
        let next = calls.next().map(|call| call.events[0]);
        let is_whole = next.is_some() && page.iter().all(|call| call.has_ended);
        let sequences = || page.iter().flat_map(|call| call.events.iter().copied()).chain(next).collect();
        (is_whole || is_complete).then(sequences)
    }

    /// Takes the next event, with its secrets.
    pub fn apply(&mut self, event: &Event) {
        self.last = event.sequence;
        match &event.body {
            Body::Execution(ExecutionEvent::Created(created)) => self.bytes += plan_bytes(&created.plan),
            Body::Execution(ExecutionEvent::PlanUpdated(updated)) => self.bytes += plan_bytes(&updated.plan),
            Body::Operation { id, event: body } => match body {
                OperationEvent::Requested(Work::ToolCall(_)) => {
                    self.bytes += CALL_BYTES;
                    self.open.insert(id.clone(), self.calls.len());
                    self.calls.push(Call { step: id.step.clone(), events: Vec::new(), has_ended: false });
                    self.call(id, event.sequence);
                }
                OperationEvent::Held(_)
                | OperationEvent::Asked { .. }
                | OperationEvent::Decided { .. }
                | OperationEvent::Dispatched => self.call(id, event.sequence),
                OperationEvent::Ended(OperationEnd::ToolCall(end)) => {
                    self.call(id, event.sequence);
                    if let Some(at) = self.open.remove(id) {
                        self.calls[at].has_ended = true;
                        self.calls[at].events.shrink_to_fit();
                    }
                    self.ended(id, end);
                }
                OperationEvent::Requested(_) | OperationEvent::Reported(_) | OperationEvent::Ended(_) => {}
            },
            Body::Execution(_) | Body::Step { .. } => {}
        }
        if let Some(entry) = self.artifacts.apply(event) {
            self.bytes += self.graph.add(event.sequence, entry);
        }
    }

    fn call(&mut self, call: &OperationId, sequence: u64) {
        if let Some(&at) = self.open.get(call) {
            self.calls[at].events.push(sequence);
            self.bytes += size_of::<u64>();
        }
    }

    fn ended(&mut self, call: &OperationId, end: &ToolCallEnd) {
        let (ToolCallEnd::Completed { receipt, .. } | ToolCallEnd::Failed { receipt, .. }) = end else { return };
        self.bytes += receipt.files.len() * PATH_BYTES;
        if receipt.unlisted_files > 0 {
            *self.unlisted.entry(call.step.clone()).or_default() += receipt.unlisted_files;
        }
    }
}

fn plan_bytes(plan: &Plan) -> usize {
    plan.steps().iter().map(|step| STEP_BYTES + step.dependencies().len() * size_of::<StepId>()).sum()
}
