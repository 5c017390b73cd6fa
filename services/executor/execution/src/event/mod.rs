//! The events of an execution: a header that says when, about what and on whose behalf, and a body by family.

mod budget;
mod child;
mod execution;
mod operation;
mod step;
mod tool_call;
mod wait;

pub(crate) use self::{budget::OUTPUT_HELD, child::child_id};
pub use self::{
    budget::{Allotment, BudgetLevel, BudgetReport},
    child::{Child, ChildEnd},
    execution::{
        ApprovalMode, Created, EscalationRetry, ExecutionEvent, Finished, PauseCause, PlanUpdated, RecoveryClass,
        Retried, RetryRequest, SignalReceived, ToolFacts, Workspace,
    },
    operation::{OperationEnd, OperationEvent, OperationReport, StepOutput, Work},
    step::{CachedFrom, Progress, Resolution, RetryChange, SkipReason, StepEvent},
    tool_call::{
        CallIntent, CarriedLayers, CommittedFile, CredentialUse, FileType, ModelUsage, NetworkConnection, NetworkRoute,
        NetworkUse, Receipt, StepLayers, ToolCallEnd, ToolCallRequest, WriteBound, WriteMechanism,
    },
    wait::{Form, MAX_HELD_ANSWERS, MAX_OPEN_QUESTIONS, MAX_QUESTIONS, QuestionReply, WaitCondition, WaitEnd},
};
pub(crate) use wait::holds_for_execution;

use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use crate::{BlobRef, Timestamp};

/// An event of an execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1, 2, 3, … without gaps.
    pub sequence: u64,
    /// When it was recorded.
    pub time: Timestamp,
    /// On whose behalf it happened; `None` for what the executor decided or learned by itself.
    pub actor: Option<Actor>,
    /// The event itself, with its subject.
    pub body: Body,
}

/// The principal who requested something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// The authenticated principal.
    pub principal: String,
    /// The id of the request; empty when it had none.
    pub request_id: String,
}

impl Actor {
    /// A principal whose request had no id.
    pub fn new(principal: impl Into<String>) -> Self {
        Self { principal: principal.into(), request_id: String::new() }
    }
}

/// The body of an event, by family. The variant says what the event is about, so an event about a call always names one.
///
/// No `match` outside tests has a catch-all arm: the compiler finds every place that must know a new kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// About the execution as a whole.
    Execution(ExecutionEvent),
    /// About an attempt at a step.
    Step {
        /// The step.
        step: StepId,
        /// The attempt, from 1; 0 for a step that never started.
        attempt: u32,
        /// The event.
        event: StepEvent,
    },
    /// About an operation of a step.
    Operation {
        /// The operation.
        id: OperationId,
        /// The event.
        event: OperationEvent,
    },
}

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The execution.
    Execution,
    /// An attempt at a step.
    Step {
        /// The step.
        step: &'a StepId,
        /// The attempt, from 1; 0 for a step that never started.
        attempt: u32,
    },
    /// An operation of a step.
    Operation(&'a OperationId),
}

impl<'a> Subject<'a> {
    /// The step; `None` for the execution.
    pub fn step(self) -> Option<&'a StepId> {
        match self {
            Self::Execution => None,
            Self::Step { step, .. } => Some(step),
            Self::Operation(operation) => Some(&operation.step),
        }
    }
}

impl Body {
    /// Returns the subject.
    pub fn subject(&self) -> Subject<'_> {
        match self {
            Self::Execution(_) => Subject::Execution,
            Self::Step { step, attempt, .. } => Subject::Step { step, attempt: *attempt },
            Self::Operation { id, .. } => Subject::Operation(id),
        }
    }

    /// The blob that it refers to. Signals, answers, and the values handed to and from a child are inline: they are limited.
    pub fn blob(&self) -> Option<&BlobRef> {
        match self {
            Self::Operation { event, .. } => event.blob(),
            Self::Step { event: StepEvent::ItemsCollected { output }, .. } => output.blob(),
            Self::Step { event: StepEvent::CachedResultUsed { result, .. }, .. } => result.blob(),
            Self::Step { event: StepEvent::ConversationCarriedOver { conversation, .. }, .. } => conversation.blob(),
            Self::Execution(ExecutionEvent::Finished(finished)) => finished.outputs.as_ref()?.as_ref().ok()?.blob(),
            Self::Execution(_) | Self::Step { .. } => None,
        }
    }

    /// The call of a tool that has ended, and how; `None` for all other events.
    pub fn call_end(&self) -> Option<(&OperationId, &ToolCallEnd)> {
        match self {
            Self::Operation { id, event: OperationEvent::Ended(OperationEnd::ToolCall(end)) } => Some((id, end)),
            Self::Operation { .. } | Self::Execution(_) | Self::Step { .. } => None,
        }
    }
}

impl From<ExecutionEvent> for Body {
    fn from(event: ExecutionEvent) -> Self {
        Self::Execution(event)
    }
}

/// A step's id: the author's for a step of the plan.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId(Arc<str>);

impl StepId {
    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for StepId {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

impl Deref for StepId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for StepId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies an operation by its step's id, the attempt, and the number of the operation within the attempt.
///
/// Derived, never random: the same operation has the same identity before and after a crash. An attempt makes more than one call when a call
/// was discarded through no fault of its step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    /// The step.
    pub step: StepId,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The number within the attempt, from 1.
    pub number: u32,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}.{}", self.step, self.attempt, self.number)
    }
}
