//! The writer's operations and their results.

use belay_proto::{
    gate_v1, runner_v1,
    v1::{self, Approval},
};
use belay_sqlite::DamagedRow;

use crate::decide::Refusal;

/// An approval to create.
#[derive(Clone, Debug)]
pub(crate) struct NewApproval {
    /// In BASIC view; the store assigns its revision.
    pub(crate) basic: Approval,
    pub(crate) namespace: String,
    /// The fencing token of the executor that asks.
    pub(crate) fence: i64,
    pub(crate) subject: Vec<u8>,
    pub(crate) rendered: ApprovalContent,
}

/// The content that a person sees before deciding.
#[derive(Clone, Debug)]
pub(crate) enum ApprovalContent {
    /// For a call or an effect.
    Preview(v1::Preview),
    /// For a form.
    Form(v1::Form),
}

/// The id that a caller gave to a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId {
    /// The caller and its id.
    pub(crate) id: String,
    /// The digest of the rest of the request.
    pub(crate) digest: String,
}

/// A transition; returns `None` when the approval does not change.
pub(super) type Change = Box<dyn FnOnce(&Approval) -> Result<Option<Approval>, Refusal> + Send>;

/// An order to the writer.
pub(super) enum Op {
    Create(Box<NewApproval>),
    /// The time; approvals due by then are expired first.
    Change {
        name: String,
        now: i64,
        /// The request of the change, if it has an id: made again, it changes nothing.
        request: Option<RequestId>,
        /// The sealed answer that the change stores.
        answer: Option<Vec<u8>>,
        /// The fencing token of the executor whose change this is; `None` for a person's.
        fence: Option<i64>,
        change: Change,
    },
    /// Asks for an approval that exists; a form that has this revision is asked again.
    Attach {
        name: String,
        fence: i64,
        asks_again: Option<i64>,
    },
    Lapse {
        now: i64,
    },
    Acknowledge(gate_v1::AcknowledgeApprovalsRequest),
    Grant {
        approval: String,
        grant: runner_v1::Grant,
        /// Whether it replaces an existing one.
        renews: bool,
    },
    Policy(v1::SignedPolicy),
    /// The executions to forget.
    Forget(Vec<String>),
}

/// The writer's results.
pub(super) enum Reply {
    Done,
    Approval(Option<Approval>),
    Refused(Refusal),
    Grant(runner_v1::Grant),
    /// The rows are deleted, and a reader keeps their bytes in the write-ahead log for now.
    LogInUse,
    /// The operation needs a row that is damaged; nothing was changed.
    Damaged(DamagedRow),
}
