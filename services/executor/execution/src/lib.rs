//! One execution as a fold over its events, and the decision about what to do next.
//!
//! Everything here is pure: no clock, no files, no sockets, no protobuf. [`Execution::replay`] turns a list of events into the current
//! state; [`Execution::advance`] decides which events have to be recorded now; [`Execution::actions`] lists what the driver has to do. A
//! driver performs the actions and records the results. Recovery after a crash is therefore an ordinary start: replay, then continue.
//!
//! `apply` reads nothing but the event: digests, delays, deadlines and reasons are all part of it.

mod apply;
mod approval;
mod approvals;
mod canonical;
mod event;
mod execution;
mod failure;
mod next;
mod time;
mod transitions;

pub use apply::IllegalEvent;
pub use approval::{
    ApprovalRequirement, ChangeKind, Decided, Decision, EffectSummary, PathChange, PendingApproval, PolicyDecision,
    SubjectKind, Verdict,
};
pub use canonical::{Json, digest};
pub use event::{
    ApprovalMode, CallId, CallRequest, Created, Event, EventKind, Finished, Progress, Receipt, RecoveryClass,
    SkipReason, ToolFacts, WriteBound, WriteMechanism,
};
pub use execution::{Authorization, CallInFlight, Execution, FailedAttempt, StepView, Totals, Waiting};
pub use failure::{ErrorClass, Failure, LastOutput, QuotaState};
pub use next::{Action, DecideContext};
pub use time::Timestamp;
pub use transitions::{
    EXECUTION_TRANSITIONS, ExecutionState, ExecutionTrigger, STEP_TRANSITIONS, StepState, StepTrigger,
};
