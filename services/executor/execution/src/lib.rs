//! One execution as a fold over its events, and what to do next.
//!
//! Everything here is pure: no clock, no files, no sockets, no protobuf. [`Execution::replay`] turns a list of events into the present;
//! [`Execution::advance`] decides what has to be recorded now; [`Execution::actions`] says what the world outside has to do. A driver
//! performs that and comes back with the answer. Recovery after a crash is therefore an ordinary start: replay, then go on.
//!
//! `apply` reads nothing but the event: digests, delays, deadlines and reasons all stand in it.

mod apply;
mod approval;
mod canonical;
mod event;
mod execution;
mod failure;
mod holds;
mod moves;
mod next;
mod time;

pub use apply::Impossible;
pub use approval::{
    ChangeKind, Decided, Decision, EffectSummary, Hold, Need, NeedKind, PathChange, PolicyDecision, Verdict,
};
pub use canonical::{Json, digest};
pub use event::{
    ApprovalMode, CallId, CallRequest, Created, Event, EventKind, Finished, Progress, Receipt, RecoveryClass,
    SkipReason, ToolFacts, WriteBound, WriteMechanism,
};
pub use execution::{Authorization, CallInFlight, Execution, FailedAttempt, StepView, Totals, Waiting};
pub use failure::{ErrorClass, Failure, LastOutput};
pub use moves::{EXECUTION_MOVES, ExecutionMove, ExecutionState, STEP_MOVES, StepMove, StepState};
pub use next::{Action, Surroundings};
pub use time::Timestamp;
