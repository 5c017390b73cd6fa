//! An execution as a fold over its events, and the decision about what to do next.
//!
//! Everything here is pure: no clock, no files, no sockets, no protobuf. [`Execution::replay`] turns a list of events into the current
//! state; [`Execution::advance`] decides which events have to be recorded now; [`Execution::actions`] lists what the driver has to do. A
//! driver performs the actions and records the results. Recovery after a crash is therefore an ordinary start: replay, then continue.
//!
//! `apply` reads nothing but the event: digests, delays, deadlines and reasons are all part of it.
//!
//! | to find | look in |
//! |---|---|
//! | what can happen | `event/`, one file a family |
//! | what an execution remembers | `state/` |
//! | the rules of a log | `violation.rs` |
//! | what an event changes | `apply/`, and the `apply` of each kind of step |
//! | what follows | `decide/`, and the `next` of each kind of step |
//! | a kind of step | `steps/`, one file each |

mod action;
mod amounts;
mod apply;
mod approval;
mod approvals;
mod budget;
mod canonical;
mod classify;
mod control;
mod decide;
mod decision;
mod event;
mod failure;
mod limits;
mod namespace_budget;
mod payload;
mod state;
mod steps;
mod time;
mod totals;
mod transitions;
mod violation;
mod window;
pub mod words;

pub use action::{Action, DecideContext, RequiredAction};
pub use amounts::{Amounts, BudgetUnit};
pub use approval::{
    ApprovalRequirement, ChangeKind, EffectSummary, PathChange, PendingApproval, PolicyDecision, RecordedDecision,
    Risk, SubjectKind, Verdict,
};
pub use canonical::{Json, digest};
pub use classify::classify;
pub use control::{CarriedOver, Control, NewPlan, Refused};
pub use decision::Decision;
pub use event::{
    Actor, Allotment, ApprovalMode, Body, BudgetLevel, BudgetReport, CachedFrom, CallIntent, CarriedLayers, Child,
    ChildEnd, CommittedFile, Created, CredentialUse, EscalationRetry, Event, ExecutionEvent, FileType, Finished, Form,
    MAX_HELD_ANSWERS, MAX_OPEN_QUESTIONS, MAX_QUESTIONS, ModelUsage, NetworkConnection, NetworkRoute, NetworkUse,
    OperationEnd, OperationEvent, OperationId, OperationReport, PauseCause, PlanUpdated, Progress, QuestionReply,
    Receipt, RecoveryClass, Resolution, Retried, RetryChange, RetryRequest, SignalReceived, SkipReason, StepEvent,
    StepId, StepLayers, StepOutput, Subject, ToolCallEnd, ToolCallRequest, ToolFacts, WaitCondition, WaitEnd, Work,
    Workspace, WriteBound, WriteMechanism,
};
pub use failure::{ErrorClass, Failure, LastOutput, QuotaState};
pub use limits::{LimitMove, limit_moves};
pub use namespace_budget::{NamespaceBudget, NamespaceHolds, WindowChange, WindowUse};
pub use payload::{
    Admission, BlobRef, BlobValue, Blobs, CachedResult, CallIdentity, ConditionResult, EarlierResult, LimitRoom,
    MAX_READ_BYTES, ModelFacts, NoBlobs, Payload, Room,
};
pub use state::{
    Authorization, ChildPause, Execution, FailedAttempt, LimitState, MAX_SIGNALS, NotRestored, Operation, OperationKey,
    OperationKind, Phase, SNAPSHOT_VERSION, StepKey, StepRole, StepView, Wait, Waiting,
};
pub use steps::agent::{CarriedOverTurns, NotCarriedOver};
pub use time::Timestamp;
pub use totals::Totals;
pub use transitions::{
    EXECUTION_TRANSITIONS, ExecutionState, ExecutionTrigger, STEP_TRANSITIONS, StepState, StepTrigger,
};
pub use violation::{ForbiddenChange, IllegalEvent, Violation};
pub use window::{NamespaceHold, Period, Window};
pub use words::Activity;

#[cfg(test)]
mod test_support;
