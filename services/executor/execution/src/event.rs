//! What can happen to an execution.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use belay_plan::Plan;

use crate::{Decision, EffectSummary, ExecutionState, Failure, Json, Need, PolicyDecision, Timestamp};

/// Something that happened, in its place in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1, 2, 3, … without a gap.
    pub sequence: u64,
    /// When it was recorded.
    pub time: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// A call of a tool: the step by its place in the plan, the attempt, and which call of that attempt it is.
///
/// Derived, never random: the same call has the same identity before and after a crash. The number within an attempt rises when a call
/// was discarded without its step being at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The step's place in the plan, from 0.
    pub step: usize,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Which call of the attempt, from 1.
    pub number: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} call {}.{}", self.step, self.attempt, self.number)
    }
}

/// What happens where policy asks a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Wait for the person.
    #[default]
    Wait,
    /// Fail the step.
    Fail,
    /// Skip the step.
    Skip,
    /// Approve without a person, where policy allows that.
    Auto,
}

/// What may be done about a call whose end nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryClass {
    /// Changes nothing: may always run again.
    ReadOnly,
    /// Running twice is the same as running once.
    Idempotent,
    /// Works in a view; an unfinished call left nothing behind.
    Transactional,
    /// Reaches out of the workspace: never runs again by itself.
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
    /// A person was asked, and said to leave it out.
    ApprovalSkipped,
    /// A person would have been asked, and the execution was started to ask nobody.
    NonInteractive,
}

/// The facts about a tool that an execution relies on. They stand in its first event, so that a runner that changes its mind later
/// cannot change the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFacts {
    /// The name the plan uses.
    pub used_as: String,
    /// The canonical name.
    pub tool: String,
    /// What may be done after a loss.
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
    /// What happens where policy asks a person.
    pub approval_mode: ApprovalMode,
    /// The workspace its tools are confined to.
    pub workspace: String,
    /// Labels for finding it again.
    pub labels: BTreeMap<String, String>,
    /// Who started it, as authenticated.
    pub principal: String,
    /// The facts about every tool the plan names.
    pub tools: Vec<ToolFacts>,
    /// When its time limit ends it.
    pub deadline: Option<Timestamp>,
    /// The `traceparent` and `tracestate` it belongs to; empty when unknown.
    pub trace: (String, String),
    /// The shard it belongs to.
    pub shard: u32,
}

/// How many steps ended, out of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps that ended.
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
    /// What may be done after a loss.
    pub recovery: RecoveryClass,
    /// The ledger that is expected to keep the call.
    pub ledger_id: String,
    /// How long it may take.
    pub timeout: Duration,
}

/// What a runner vouches for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The ledger in which the call stands.
    pub ledger_id: String,
    /// How long the tool worked.
    pub duration: Duration,
    /// The policy that let it happen.
    pub decision: Option<PolicyDecision>,
    /// The digest of what it changed and committed; empty when it changed nothing.
    pub effect_digest: String,
    /// What it changed and committed.
    pub effect: Option<EffectSummary>,
    /// The nonce of the grant that was spent on it; empty when none was needed.
    pub grant_nonce: String,
    /// The walls that stood around it, by name.
    pub enforced: Vec<String>,
    /// Whether the workspace is a folder that a person works in too.
    pub live_base: bool,
    /// The calls that committed in the workspace meanwhile, the last of them only.
    pub commits_beside: Vec<String>,
    /// How many commits those were.
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
    /// From the acceptance to the end.
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
    /// Nothing new starts. `discard_calls`: running calls are stopped and will run again after the resumption.
    Paused { principal: String, reason: String, discard_calls: bool, request_id: String },
    /// It goes on.
    Resumed { principal: String, request_id: String },
    /// Somebody asked it to stop.
    CancelRequested { principal: String, reason: String, request_id: String },
    /// An executor took it up again; these calls' ends were not recorded.
    Recovered { in_doubt: Vec<CallId> },
    /// Its time limit ran out.
    DeadlineExceeded,
    /// Nothing goes on before somebody has decided.
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
    /// Nobody knows what a step's call did.
    StepOutcomeUnknown { step: usize, attempt: u32, failure: Failure },

    /// A call goes out.
    CallRequested(Arc<CallRequest>),
    /// A call ended with a result.
    CallCompleted { call: CallId, result: Json, receipt: Receipt },
    /// A call ended with a failure.
    CallFailed { call: CallId, failure: Failure, receipt: Receipt },
    /// A call was stopped; it left nothing behind. `failure` says why, when nobody asked for it; `grant_nonce` which grant was spent on
    /// it all the same.
    CallCancelled { call: CallId, failure: Option<Failure>, grant_nonce: String },
    /// A policy or a person said no to a call; nothing of it is left.
    CallDenied { call: CallId, failure: Failure, receipt: Receipt },
    /// A call waits for a decision, before its work or before its commit.
    CallHeld { call: CallId, need: Box<Need> },
    /// The gate holds the approval: a person is asked.
    ApprovalRequested { call: CallId, approval: String, subject_digest: String },
    /// Somebody has decided, or the execution's approval mode has (`approval` and `principal` are empty then).
    ApprovalDecided { call: CallId, approval: String, decision: Decision, principal: String, reason: String },
    /// A call's end cannot be known; which grant was spent on it can.
    CallOutcomeUnknown { call: CallId, failure: Failure, grant_nonce: String },
}

impl EventKind {
    /// The step it is about, if it is about one.
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

    /// The call it is about, if it is about one.
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

    /// The nonce of the grant that was spent on the call that has ended with it; empty when none was, and for everything else.
    pub fn grant_nonce(&self) -> &str {
        match self {
            Self::CallCompleted { receipt, .. }
            | Self::CallFailed { receipt, .. }
            | Self::CallDenied { receipt, .. } => &receipt.grant_nonce,
            Self::CallCancelled { grant_nonce, .. } | Self::CallOutcomeUnknown { grant_nonce, .. } => grant_nonce,
            _ => "",
        }
    }

    /// Whether the call it is about has ended with it.
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
