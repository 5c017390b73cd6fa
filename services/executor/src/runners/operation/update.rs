//! Reports of operations to their driver.

use belay_execution::{ApprovalRequirement, Json, OperationEvent, OperationKey, Receipt, ToolCallEnd};
use belay_proto::{runner_v1, v1};

use crate::store::{blobs::NewBlob, secrets::SecretsSnapshot};

/// A report of an operation to its driver.
pub(crate) enum Update {
    /// The call has ended. `is_copied`: its result was copied from the runner, which keeps it until the call is acknowledged.
    Ended { operation: OperationKey, end: ToolCallEnd, is_copied: bool },
    /// The result of a call that has completed, sealed to be a blob.
    ResultSealed(Box<SealedResult>),
    /// The runner holds the call until it is approved.
    Held(OperationKey, ApprovalRequirement),
    /// The exclusive call whose end this call waits for; empty when it no longer waits.
    WaitingForCall(OperationKey, String),
    /// These questions of the call are open at the runner.
    Asking(OperationKey, Vec<runner_v1::ToolCallQuestion>),
    /// The gate has created the approval, or asks the form.
    ApprovalRequested(OperationKey, Box<v1::Approval>),
    /// A service is at its limit; the call waits until it is retried.
    Busy(OperationKey, Busy),
    /// The runner is unavailable, or gives this answer, from which nothing follows.
    RunnerUnavailable(Option<String>),
    /// The gate is unavailable.
    GateUnavailable,
    /// By the runner's clock, no grant of the gate is valid now.
    ClocksDiffer,
    /// The runner has recognized these values as secrets in the output of a call.
    SecretsFound(Vec<String>),
    /// The gate refuses to ask the form.
    FormRefused(OperationKey, String),
    /// Approvals and forms that the gate had lost have been requested again, by the request with this number.
    RequestedAgain(u32),
    /// Another executor owns the shard.
    Fenced,
    /// The news about the execution of a step's plan, from the operation with this number.
    Child { key: OperationKey, number: u64, news: Vec<OperationEvent> },
    /// The operation failed by a fault in the executor.
    Fault(OperationKey),
}

/// A large result, sealed apart from the driver.
pub(crate) struct SealedResult {
    pub(crate) operation: OperationKey,
    pub(crate) receipt: Receipt,
    /// See [`Update::Ended`].
    pub(crate) is_copied: bool,
    pub(crate) large: Large,
}

/// A large value and the blob that it becomes.
pub(crate) struct Large {
    pub(crate) json: Json,
    pub(crate) blob: NewBlob,
    /// The execution's secrets with those of the value.
    pub(crate) secrets: SecretsSnapshot,
}

/// The service that is at its limit, or the executor itself with the steps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Busy {
    Runner,
    Gate,
    Steps,
}
