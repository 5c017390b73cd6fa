//! Events about operations: one family for all kinds of work.

use std::sync::Arc;

use crate::{
    Amounts, ApprovalRequirement, BlobRef, Child, ChildEnd, Decision, Payload, ToolCallEnd, ToolCallRequest,
    WaitCondition, WaitEnd,
};

/// An event in the life of an operation: it is requested, may wait for a person's decision, may report, and ends.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationEvent {
    /// The intent, recorded before anything of it is done.
    Requested(Work),
    /// The runner holds the call until it is approved, before it runs or before its changes are committed.
    Held(Box<ApprovalRequirement>),
    /// The gate asks a person: for the approval of a held call, or for the answer to a form.
    Asked {
        /// The approval's name at the gate.
        approval: String,
        /// The digest of its subject.
        subject_digest: String,
    },
    /// The approval of a held call was decided: by the event's actor, or by the execution's approval mode when there is none.
    Decided {
        /// The approval's name at the gate; empty when the approval mode decided.
        approval: String,
        /// The decision.
        decision: Decision,
        /// The reason that was given.
        reason: String,
    },
    /// The call was approved before it ran, and holds a slot again: it goes to the runner with its grant.
    Dispatched,
    /// News that do not end it.
    Reported(OperationReport),
    /// The end.
    Ended(OperationEnd),
}

/// The work of an operation, by kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A call of a tool. It holds one of the plan's `parallelism` slots, and goes to the runner.
    ToolCall(Arc<ToolCallRequest>),
    /// A wait for a time, a signal or a person's answer. It holds no slot.
    Wait(WaitCondition),
    /// An execution of the step's plan, recorded before it is started.
    Child(Child),
}

/// News about an operation that do not end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationReport {
    /// The child was created. From here on it is there, and when it is not, it was lost.
    ChildCreated,
    /// The child was paused with this execution, or has ended before that.
    ChildPaused,
    /// The child was resumed with this execution.
    ChildResumed,
}

/// The end of an operation, by kind.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationEnd {
    /// The end of a call.
    ToolCall(ToolCallEnd),
    /// The end of a wait.
    Wait(WaitEnd),
    /// The end of a child execution.
    Child {
        /// Its end.
        end: ChildEnd,
        /// The amounts that it has used; `None` when they are not known.
        spent: Option<Amounts>,
    },
}

/// The output of a step, as the end of its operation gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutput {
    /// A value that the end has.
    Value(Payload),
    /// The payload of a signal.
    OfSignal {
        /// The sequence number of the event that brought it.
        sequence: u64,
    },
}

impl OperationEvent {
    /// The blob that the event refers to.
    pub fn blob(&self) -> Option<&BlobRef> {
        match self {
            Self::Requested(Work::ToolCall(request)) => request.arguments.blob(),
            Self::Ended(OperationEnd::ToolCall(ToolCallEnd::Completed { result, .. })) => result.blob(),
            Self::Ended(OperationEnd::ToolCall(
                ToolCallEnd::Failed { .. }
                | ToolCallEnd::Denied { .. }
                | ToolCallEnd::Cancelled { .. }
                | ToolCallEnd::OutcomeUnknown { .. },
            ))
            | Self::Requested(Work::Wait(_) | Work::Child(_))
            | Self::Held(_)
            | Self::Asked { .. }
            | Self::Decided { .. }
            | Self::Dispatched
            | Self::Reported(_)
            | Self::Ended(OperationEnd::Wait(_) | OperationEnd::Child { .. }) => None,
        }
    }
}
