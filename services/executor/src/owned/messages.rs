//! Messages between the executor's parts: commands to drivers, decisions, and notices to the gate.

use std::sync::Arc;

use belay_execution::{Actor, Amounts, ChildEnd, Control};
use belay_journal::TakenMessage;
use belay_proto::v1::{self, approval::State};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::Status;

pub(crate) type Reply = oneshot::Sender<Result<Box<v1::Execution>, Status>>;

/// A command to a driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// A principal's request. The reply is the execution in BASIC view, once the request's events are durable.
    Control { control: Control, actor: Actor, etag: String, reply: Reply },
    /// The gate's decision about a call, or what became of a form. `answer` is the answer to a form.
    Decided { approval: Box<v1::Approval>, answer: Option<v1::Payload> },
    /// The gate has these pending approvals of the execution: request those that it lacks, and withdraw those that nothing waits for. The
    /// turn is dropped when that is done.
    CompareApprovals { pending: Vec<v1::Approval>, turn: Arc<OwnedSemaphorePermit> },
    /// A child has ended.
    ChildEnded(Box<EndedChild>),
    /// Messages of children may have come that brought nothing along: read them.
    ReviewChildren,
    /// It may be its turn in its limits: look again.
    ReviewLimits,
    /// Pause and discard running calls; reply when none is left.
    PauseAndDrain { principal: String, reason: String, reply: oneshot::Sender<()> },
    /// Reply when no call is left of an execution that its parent has paused.
    Drain { reply: oneshot::Sender<()> },
}

/// The end of a child, as its parent is to record it.
#[derive(Debug)]
pub(crate) struct EndedChild {
    /// The last part of its name.
    pub(crate) id: String,
    /// The message of its end, and the end; `None` when the child is not in the store.
    pub(crate) end: Option<(TakenMessage, ChildResult)>,
}

/// The result of a child.
#[derive(Debug)]
pub(crate) struct ChildResult {
    /// How it ended.
    pub(crate) end: ChildEnd,
    /// The values in its output that are secrets of the child.
    pub(crate) secrets: Vec<String>,
    /// The amounts that its calls have used.
    pub(crate) spent: Amounts,
}

impl Command {
    /// Answers a command that is not carried out.
    pub(crate) fn refuse(self, status: &Status) {
        match self {
            Self::Control { reply, .. } => drop(reply.send(Err(status.clone()))),
            // The decision stays undelivered, and the next watch returns it again.
            Self::Decided { .. } | Self::CompareApprovals { .. } => {}
            // It stays in the inbox.
            Self::ChildEnded(_) | Self::ReviewChildren => {}
            // The next driver looks anyway.
            Self::ReviewLimits => {}
            // Dropping the sender is the reply.
            Self::PauseAndDrain { .. } | Self::Drain { .. } => {}
        }
    }
}

/// A delivery from the gate: a decision, or the outcome of a form.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) approval: v1::Approval,
    /// The answer to a form.
    pub(crate) answer: Option<v1::Payload>,
}

/// A message to the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GateNotice {
    /// The decision, which does not approve, is stored; or no call waits for it.
    Delivered(String),
    /// The grant was spent.
    Consumed(String),
    /// The grant can no longer be spent.
    Stale(String),
    /// No call waits for this decision any more.
    Cancel(String),
    /// No approval is needed for this call any more, and it is not known whether the gate has one.
    Withdraw { execution: String, call: String },
}

impl GateNotice {
    /// The notices about a decision that no call waits for: it was delivered, and an approval will not be used.
    pub(crate) fn dropped(approval: &v1::Approval) -> Vec<Self> {
        let unused = approval.state() == State::Approved;
        let stale = unused.then(|| Self::Stale(approval.name.clone()));
        [Self::Delivered(approval.name.clone())].into_iter().chain(stale).collect()
    }
}
