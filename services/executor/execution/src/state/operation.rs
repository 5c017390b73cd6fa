//! Operations: what is in flight for the steps of an execution.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

use belay_plan::is_own_tool;

use crate::{
    Allotment, Amounts, Child, Decision, PendingApproval, QuestionReply, StepKey, SubjectKind, Timestamp, ToolCallEnd,
    ToolCallRequest, WaitCondition, event::OUTPUT_HELD,
};

/// The position of an operation: its step in the arena, the attempt, and its number within the attempt. It sorts in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationKey {
    /// The step.
    pub step: StepKey,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The number within the attempt, from 1.
    pub number: u32,
}

/// An operation whose intent is recorded and whose end is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its position in the execution.
    pub key: OperationKey,
    /// When its intent was recorded.
    pub since: Timestamp,
    /// Its kind, with the state that only this kind has.
    pub kind: OperationKind,
    /// How far it is.
    pub phase: Phase,
    /// The approval that it waits for or waited for.
    pub pending_approval: Option<PendingApproval>,
    /// The outcomes of the questions that it has asked, by their ids: the tool runner is told until it knows.
    pub replies: BTreeMap<Arc<str>, QuestionReply>,
}

/// The kind of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OperationKind {
    /// A call of a tool.
    ToolCall(Arc<ToolCallRequest>),
    /// A wait for a time, a signal or a person's answer.
    Wait(Wait),
    /// An execution of a step's plan.
    Child {
        /// The execution, as it is started.
        child: Child,
        /// Whether it is known to have been created.
        created: bool,
        /// Whether it is paused with this one.
        pause: ChildPause,
    },
}

/// Whether the execution of a step's plan is paused with the step's execution.
///
/// A pause and its end are carried out in the child before they are recorded here, and what carries them out may be lost in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildPause {
    /// It runs.
    Runs,
    /// It is paused.
    Paused,
    /// The step's execution was paused or resumed since that was known.
    Unknown,
}

/// A wait in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The condition.
    pub condition: WaitCondition,
    /// The name of the form at the gate, once the gate has confirmed that it asks for the answer; `None` for other waits.
    pub approval: Option<String>,
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It may be running; sending it again attaches to it.
    Dispatched,
    /// It waits for an approval.
    AwaitingApproval,
    /// It was approved before it ran, and waits for a slot.
    Queued,
    /// Its approval was decided, and the decision is to be carried out: its effect committed, or the operation discarded.
    Decided,
    /// It waits for a time, a signal or a person's answer.
    Waiting,
}

impl Operation {
    /// An operation whose intent is recorded.
    pub(crate) fn new(key: OperationKey, since: Timestamp, kind: OperationKind, phase: Phase) -> Self {
        Self { key, since, kind, phase, pending_approval: None, replies: BTreeMap::new() }
    }

    /// The call's request; `None` for other operations.
    pub fn tool_call(&self) -> Option<&Arc<ToolCallRequest>> {
        match &self.kind {
            OperationKind::ToolCall(request) => Some(request),
            OperationKind::Wait(_) | OperationKind::Child { .. } => None,
        }
    }

    /// The condition of the wait; `None` for other operations.
    pub fn wait(&self) -> Option<&WaitCondition> {
        match &self.kind {
            OperationKind::Wait(wait) => Some(&wait.condition),
            OperationKind::ToolCall(_) | OperationKind::Child { .. } => None,
        }
    }

    /// The execution of its step's plan; `None` for other operations.
    pub fn child(&self) -> Option<&Child> {
        match &self.kind {
            OperationKind::Child { child, .. } => Some(child),
            OperationKind::ToolCall(_) | OperationKind::Wait(_) => None,
        }
    }

    /// Whether it is the execution of its step's plan, and that is known to have been created.
    pub fn is_created_child(&self) -> bool {
        matches!(self.kind, OperationKind::Child { created: true, .. })
    }

    /// The approval that it waits for, once it has been requested.
    pub fn requested_approval(&self) -> Option<&str> {
        self.pending_approval.as_ref().filter(|pending| pending.decided.is_none())?.approval.as_deref()
    }

    /// The name of its form at the gate, once the gate asks for the answer.
    pub fn requested_answer(&self) -> Option<&str> {
        match &self.kind {
            OperationKind::Wait(wait) => wait.approval.as_deref(),
            OperationKind::ToolCall(_) | OperationKind::Child { .. } => None,
        }
    }

    /// The digest of what a person has to decide or answer about it; `None` when nothing of it is undecided.
    pub fn asked_subject(&self) -> Option<&str> {
        match (&self.pending_approval, self.wait().and_then(WaitCondition::form)) {
            (Some(pending), _) => pending.decided.is_none().then_some(&pending.requirement.subject_digest),
            (None, form) => form.map(|form| &form.subject_digest),
        }
        .map(String::as_str)
    }

    /// Whether its approval is still to be requested.
    pub(crate) fn needs_approval_request(&self) -> bool {
        let unrequested = |pending: &PendingApproval| pending.approval.is_none() && pending.decided.is_none();
        self.pending_approval.as_ref().is_some_and(unrequested)
    }

    /// Where a decision about its approval takes it.
    pub(crate) fn phase_after(pending: &PendingApproval, decision: Decision) -> Phase {
        match (pending.requirement.kind, decision) {
            (SubjectKind::Call, Decision::Approved) => Phase::Queued,
            (SubjectKind::Effect, Decision::Approved)
            | (_, Decision::Denied | Decision::Skipped | Decision::Expired) => Phase::Decided,
        }
    }
}

impl Operation {
    /// The amounts that are held for it.
    pub(crate) fn held(&self) -> Amounts {
        match &self.kind {
            OperationKind::ToolCall(request) if is_own_tool(&request.tool) => request.held,
            // Nothing is said of what was not limited when it began, and may be by now.
            OperationKind::ToolCall(request) => Amounts {
                calls: request.held.calls.max(1),
                output_bytes: match request.held.output_bytes {
                    0 => OUTPUT_HELD,
                    held => held,
                },
                ..Amounts::default()
            },
            OperationKind::Child { child, .. } => child.allotment.map(Allotment::held).unwrap_or_default(),
            OperationKind::Wait(_) => Amounts::default(),
        }
    }

    /// Whether it is a call that was to be approved before it ran, and has not been sent since.
    pub(crate) fn has_not_run(&self) -> bool {
        let is_before = |pending: &PendingApproval| pending.requirement.kind == SubjectKind::Call;
        self.pending_approval.as_ref().is_some_and(is_before) && self.phase != Phase::Dispatched
    }

    /// The amounts that a call has used when it ends like this.
    pub(crate) fn used(&self, end: &ToolCallEnd) -> Amounts {
        match self.tool_call() {
            Some(call) if !self.has_not_run() => end.used(&call.tool, self.held()),
            Some(_) | None => Amounts::default(),
        }
    }

    /// The amounts that the execution of a step's plan has used; all that it was given where they are not known.
    pub(crate) fn used_by_child(&self, spent: Option<Amounts>) -> Amounts {
        spent.unwrap_or_else(|| self.held())
    }
}

/// The operations in flight.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Operations(BTreeMap<OperationKey, Operation>);

impl Operations {
    pub(crate) fn get(&self, key: OperationKey) -> Option<&Operation> {
        self.0.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: OperationKey) -> Option<&mut Operation> {
        self.0.get_mut(&key)
    }

    pub(super) fn insert(&mut self, operation: Operation) {
        self.0.insert(operation.key, operation);
    }

    pub(super) fn remove(&mut self, key: OperationKey) -> Option<Operation> {
        self.0.remove(&key)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Operation> {
        self.0.values()
    }

    /// Returns the operations of one step, in order.
    pub(crate) fn of_step(&self, step: StepKey) -> impl DoubleEndedIterator<Item = &Operation> {
        let first = OperationKey { step, attempt: 0, number: 0 };
        let last = OperationKey { step, attempt: u32::MAX, number: u32::MAX };
        self.0.range(first..=last).map(|(_, operation)| operation)
    }
}
