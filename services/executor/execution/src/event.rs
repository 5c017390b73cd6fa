//! The events of an execution.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use belay_plan::Plan;

use crate::{ApprovalRequirement, Decision, EffectSummary, ExecutionState, Failure, Json, PolicyDecision, Timestamp};

/// One event of an execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1, 2, 3, … without gaps.
    pub sequence: u64,
    /// When it was recorded.
    pub time: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// Identifies a call of a tool by the step's index in the plan, the attempt, and the number of the call within the attempt.
///
/// Derived, never random: the same call has the same identity before and after a crash. An attempt makes more than one call when a call was
/// discarded through no fault of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The step's index in the plan, from 0.
    pub step: usize,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The number of the call within the attempt, from 1.
    pub number: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} call {}.{}", self.step, self.attempt, self.number)
    }
}

/// What happens when policy requires approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Wait for the decision.
    #[default]
    Wait,
    /// Fail the step.
    Fail,
    /// Skip the step.
    Skip,
    /// Approve automatically, where policy allows that.
    Auto,
}

/// How to recover a call whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryClass {
    /// Changes nothing; always safe to run again.
    ReadOnly,
    /// Idempotent: running it again is safe.
    Idempotent,
    /// Works in a view; a call that was interrupted has changed nothing.
    Transactional,
    /// Has effects outside the workspace; never run again automatically.
    Manual,
}

/// Why a step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// A step it depends on failed.
    DependencyFailed,
    /// A step it depends on was skipped or cancelled.
    DependencySkipped,
    /// Another step failed, and the plan says to stop then.
    StopOnError,
    /// The execution was cancelled first.
    Cancelled,
    /// The execution ran out of time first.
    TimedOut,
    /// The decision on its approval was to skip it.
    ApprovalSkipped,
    /// Its call required approval, and the execution was started not to ask.
    NonInteractive,
}

/// The facts about a tool that an execution relies on. The first event records them, so that later changes at the runner do not affect
/// executions that have started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFacts {
    /// The name the plan uses.
    pub used_as: String,
    /// The canonical name.
    pub tool: String,
    /// How to recover a call whose outcome is not known.
    pub recovery: RecoveryClass,
    /// The time limit of one call when the plan sets none.
    pub default_timeout: Duration,
}

/// The first event: everything that is fixed for the execution's life.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// The execution's random identity.
    pub uid: String,
    /// The plan.
    pub plan: Plan,
    /// What happens when policy requires approval.
    pub approval_mode: ApprovalMode,
    /// The workspace its tools are confined to.
    pub workspace: String,
    /// Labels to find it by.
    pub labels: BTreeMap<String, String>,
    /// The authenticated principal that started it.
    pub principal: String,
    /// The facts about every tool the plan names.
    pub tools: Vec<ToolFacts>,
    /// The time at which its time limit ends it.
    pub deadline: Option<Timestamp>,
    /// The `traceparent` and `tracestate` it belongs to; empty when unknown.
    pub trace: (String, String),
    /// The shard it belongs to.
    pub shard: u32,
}

/// How many steps have ended, out of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps that have ended.
    pub done: usize,
    /// All steps.
    pub total: usize,
}

/// The intent to make a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRequest {
    /// The call.
    pub call: CallId,
    /// The tool's canonical name.
    pub tool: String,
    /// The arguments, templates resolved, canonical.
    pub arguments: Json,
    /// The digest of the arguments.
    pub arguments_digest: String,
    /// How to recover a call whose outcome is not known.
    pub recovery: RecoveryClass,
    /// The ledger that is expected to record the call.
    pub ledger_id: String,
    /// The time limit of the call.
    pub timeout: Duration,
}

/// What the runner certifies about a finished call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The ledger that records the call.
    pub ledger_id: String,
    /// How long the tool ran.
    pub duration: Duration,
    /// The policy decision that allowed it.
    pub decision: Option<PolicyDecision>,
    /// The digest of what it changed and committed; empty when it changed nothing.
    pub effect_digest: String,
    /// What it changed and committed.
    pub effect: Option<EffectSummary>,
    /// The nonce of the grant that was spent on it; empty when none was needed.
    pub grant_nonce: String,
    /// The sandbox layers that were active, by name.
    pub enforced: Vec<String>,
    /// Whether the workspace is a directory in which people work as well.
    pub live_base: bool,
    /// The last of the calls that committed in the workspace while this one ran.
    pub commits_beside: Vec<String>,
    /// The number of those commits.
    pub commit_count_beside: i64,
    /// The special files that the call left and that were not committed, the first of them only.
    pub left_out: Vec<String>,
    /// How many those were.
    pub left_out_count: i64,
    /// The bounds on what it could write.
    pub write_bounds: Vec<WriteBound>,
}

/// A bound on what a call could write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBound {
    /// What is bounded.
    pub place: String,
    /// What enforced it.
    pub mechanism: WriteMechanism,
    /// Bytes; 0 means relative to the disk.
    pub bytes: i64,
    /// Files, folders and links; 0 means relative to the disk.
    pub files: i64,
}

/// What enforces a bound on what a call writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMechanism {
    /// Not said, or by a runner of a later version.
    Unknown,
    /// The size of a file system in memory.
    Tmpfs,
    /// A launcher that measures and ends.
    Watcher,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// A terminal state.
    pub state: ExecutionState,
    /// How its steps ended.
    pub totals: crate::Totals,
    /// The failure of the first step that failed.
    pub failure: Option<Failure>,
    /// From acceptance to the end.
    pub duration: Duration,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the fields repeat the names of the events' parts documented above and in the contract
pub enum EventKind {
    /// The execution was accepted.
    Created(Box<Created>),
    /// It began.
    Started,
    /// Nothing new starts. With `discard_calls`, running calls are cancelled and run again after the execution is resumed.
    Paused { principal: String, reason: String, discard_calls: bool, request_id: String },
    /// It was resumed.
    Resumed { principal: String, request_id: String },
    /// A principal cancelled it.
    CancelRequested { principal: String, reason: String, request_id: String },
    /// An executor took over the execution; the ends of these calls were not recorded.
    Recovered { in_doubt: Vec<CallId> },
    /// Its time limit ran out.
    DeadlineExceeded,
    /// No step can make progress until an approval is decided.
    AwaitingApproval,
    /// It ended.
    Finished(Box<Finished>),

    /// An attempt at a step started.
    StepStarted { step: usize, attempt: u32 },
    /// Another attempt is planned.
    RetryScheduled {
        step: usize,
        attempt: u32,
        failure: Failure,
        retry_count: u32,
        delay: Duration,
        not_before: Timestamp,
    },
    /// A step completed; its output is its last call's result.
    StepCompleted { step: usize, attempt: u32, progress: Progress, duration: Duration },
    /// A step failed for good.
    StepFailed { step: usize, attempt: u32, failure: Failure, progress: Progress },
    /// A step will not run.
    StepSkipped { step: usize, reason: SkipReason, because: Option<usize>, progress: Progress },
    /// A step that had started was stopped.
    StepCancelled { step: usize, attempt: u32, progress: Progress },
    /// Whether a step's call took effect is not known.
    StepOutcomeUnknown { step: usize, attempt: u32, failure: Failure },

    /// The intent to make a call.
    CallRequested(Arc<CallRequest>),
    /// A call ended with a result.
    CallCompleted { call: CallId, result: Json, receipt: Receipt },
    /// A call ended with a failure.
    CallFailed { call: CallId, failure: Failure, receipt: Receipt },
    /// A call was cancelled and left no changes. `failure` is set when the executor did not request that; `grant_nonce` names the grant
    /// that was spent on the call nevertheless.
    CallCancelled { call: CallId, failure: Option<Failure>, grant_nonce: String },
    /// A policy or a person denied a call; nothing of it is left.
    CallDenied { call: CallId, failure: Failure, receipt: Receipt },
    /// The runner holds a call until it is approved, before it runs or before its changes are committed.
    CallHeld { call: CallId, requirement: Box<ApprovalRequirement> },
    /// The gate has created the approval.
    ApprovalRequested { call: CallId, approval: String, subject_digest: String },
    /// The approval was decided, by a person or by the execution's approval mode (`approval` and `principal` are empty then).
    ApprovalDecided { call: CallId, approval: String, decision: Decision, principal: String, reason: String },
    /// The outcome of a call cannot be known. The grant that was spent on it can.
    CallOutcomeUnknown { call: CallId, failure: Failure, grant_nonce: String },
}

impl EventKind {
    /// The step that the event is about, if any.
    pub fn step(&self) -> Option<usize> {
        match self {
            Self::StepStarted { step, .. }
            | Self::RetryScheduled { step, .. }
            | Self::StepCompleted { step, .. }
            | Self::StepFailed { step, .. }
            | Self::StepSkipped { step, .. }
            | Self::StepCancelled { step, .. }
            | Self::StepOutcomeUnknown { step, .. } => Some(*step),
            _ => self.call().map(|call| call.step),
        }
    }

    /// The call that the event is about, if any.
    pub fn call(&self) -> Option<CallId> {
        match self {
            Self::CallRequested(request) => Some(request.call),
            Self::CallCompleted { call, .. }
            | Self::CallFailed { call, .. }
            | Self::CallCancelled { call, .. }
            | Self::CallDenied { call, .. }
            | Self::CallHeld { call, .. }
            | Self::ApprovalRequested { call, .. }
            | Self::ApprovalDecided { call, .. }
            | Self::CallOutcomeUnknown { call, .. } => Some(*call),
            _ => None,
        }
    }

    /// The nonce of the grant that was spent on the call that this event ends; empty when no grant was spent, and for all other events.
    pub fn grant_nonce(&self) -> &str {
        match self {
            Self::CallCompleted { receipt, .. }
            | Self::CallFailed { receipt, .. }
            | Self::CallDenied { receipt, .. } => &receipt.grant_nonce,
            Self::CallCancelled { grant_nonce, .. } | Self::CallOutcomeUnknown { grant_nonce, .. } => grant_nonce,
            _ => "",
        }
    }

    /// Whether the event ends its call.
    pub fn ends_call(&self) -> bool {
        matches!(
            self,
            Self::CallCompleted { .. }
                | Self::CallFailed { .. }
                | Self::CallCancelled { .. }
                | Self::CallDenied { .. }
                | Self::CallOutcomeUnknown { .. }
        )
    }
}
