//! Events about an execution as a whole.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

use belay_plan::{LimitClaim, Plan};

use crate::{
    Allotment, Amounts, BudgetReport, ExecutionState, Failure, Json, OperationId, Payload, StepId, Timestamp, Totals,
};

/// The cause of a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PauseCause {
    /// A principal, the escalation of its plan, or a rate limit.
    #[default]
    Request,
    /// A budget is used up, and no principal has paused it.
    Budget,
    /// A model asks for the verification of what its step has done.
    Verification,
}

/// An event of an execution as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutionEvent {
    /// It was accepted. The event's actor started it.
    Created(Box<Created>),
    /// It asked for its limits: it waits for its turn.
    LimitsRequested,
    /// It holds all of its limits, until it ends.
    LimitsAcquired,
    /// It began.
    Started,
    /// A principal paused it, or a rate limit or a budget did: nothing new starts.
    Paused {
        /// The principal's reason.
        reason: String,
        /// Running calls are cancelled, and run again after the execution is resumed.
        discard_calls: bool,
        /// When it resumes automatically; `None` until a principal resumes it.
        resume_at: Option<Timestamp>,
        /// The cause.
        cause: PauseCause,
    },
    /// How far a budget is used.
    BudgetReported(BudgetReport),
    /// A principal resumed it, or its time had come.
    Resumed,
    /// A principal cancelled it.
    CancelRequested {
        /// The principal's reason.
        reason: String,
        /// Kill running calls at once, and compensate nothing.
        kill: bool,
    },
    /// A principal sent it a signal. It is kept until a step waits for it.
    SignalReceived(SignalReceived),
    /// An executor took over the execution; the ends of these operations were not recorded.
    Recovered {
        /// The operations.
        in_doubt: Vec<OperationId>,
    },
    /// A principal had steps run again that had ended, in an execution that had ended or had not.
    Retried(Box<Retried>),
    /// A principal changed its plan.
    PlanUpdated(Box<PlanUpdated>),
    /// Its time limit ran out.
    DeadlineExceeded,
    /// No step can make progress until an approval is decided.
    AwaitingApproval,
    /// It does not complete, and nothing of it runs any more: what steps have done is undone, each by a step of its own.
    CompensationStarted {
        /// The steps whose work is undone, in the order in which it is: the last to complete comes first.
        steps: Vec<StepId>,
    },
    /// It ended.
    Finished(Box<Finished>),
}

/// The first event: everything that is fixed for the execution's life.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// The execution's random identity.
    pub uid: String,
    /// The plan.
    pub plan: Plan,
    /// The approval mode, for calls for which policy requires approval.
    pub approval_mode: ApprovalMode,
    /// The workspace its tools are confined to.
    pub workspace: Workspace,
    /// Labels to find it by.
    pub labels: BTreeMap<String, String>,
    /// When its first step may start; `None` means at once.
    pub start_at: Option<Timestamp>,
    /// The values of the plan's inputs: an object.
    pub inputs: Json,
    /// The facts about every tool the plan names.
    pub tools: Vec<ToolFacts>,
    /// The time at which its time limit ends it.
    pub deadline: Option<Timestamp>,
    /// The `traceparent` and `tracestate` it belongs to; empty when unknown.
    pub trace: (String, String),
    /// The shard it belongs to.
    pub shard: u32,
    /// The name of the step whose plan it carries out; empty for one that a request has started.
    pub parent_step: String,
    /// The name of the execution from whose state it began; empty for one that began with its plan.
    pub forked_from: String,
    /// The share of the budgets of the step whose plan it carries out; `None` for one that a request has started, and where nothing is limited.
    pub allotment: Option<Allotment>,
    /// The amounts that the execution had used from which it was forked; they count as used by it.
    pub spent: Amounts,
    /// The limits that it shares with other executions of its namespace: those of its plan, with their keys resolved. A later version of the plan does not
    /// change them.
    pub limits: Vec<LimitClaim>,
}

/// The workspace of an execution. The executions of its steps' plans and its forks have the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// A directory that a request named, by its absolute path.
    Directory(String),
    /// A folder that the tool runner makes, by its id, which is unique in the namespace.
    MadeFolder(String),
}

/// How an execution treats a call for which policy requires approval.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryClass {
    /// Changes nothing; always safe to run again.
    ReadOnly,
    /// Idempotent: running it again is safe.
    Idempotent,
    /// Works in a view; a call that was interrupted has changed nothing.
    Transactional,
    /// Has effects outside the workspace; never run again automatically.
    #[default]
    Manual,
}

/// The facts about a tool that an execution relies on. The first event records them, so that later changes at the runner do not affect
/// executions that have started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// The name the plan uses.
    pub used_as: String,
    /// The canonical name.
    pub tool: String,
    /// How to recover a call whose outcome is not known.
    pub recovery: RecoveryClass,
    /// The time limit of one call when the plan sets none.
    pub default_timeout: Duration,
    /// The arguments that the tool's schema marks as secret, as JSON pointers in which `*` stands for every member or item.
    pub secret_arguments: Vec<String>,
    /// The same of the result.
    pub secret_result: Vec<String>,
    /// Whether its calls have the network profile of the plan, where their step names none.
    pub takes_network: bool,
    /// What the tool does, for models; empty unless a model may call it.
    pub description: String,
    /// The JSON schema of its arguments, for models; empty unless a model may call it.
    pub parameters: String,
}

/// A signal.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalReceived {
    /// Its name: steps wait for it by this.
    pub signal: String,
    /// The payload; it becomes the result of the step that waits for the signal.
    pub payload: Json,
}

/// Steps that had ended run again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retried {
    /// The steps that run again, in the plan's order. No step depends on one of them that is not among them and has started.
    pub steps: Vec<StepId>,
    /// The request.
    pub request: RetryRequest,
    /// The time at which the execution's time limit ends it from now on.
    pub deadline: Option<Timestamp>,
    /// Set when the plan's escalation has them run again, and no principal.
    pub escalation: Option<EscalationRetry>,
}

/// A retry by the plan's escalation: the execution is paused until it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscalationRetry {
    /// The number of the retry, from 1.
    pub number: u32,
    /// How many there are.
    pub retries: u32,
    /// When the steps run again.
    pub resume_at: Timestamp,
}

/// A version of the plan that takes the place of the one before it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanUpdated {
    /// The plan. What has started or ended is as it was.
    pub plan: Plan,
    /// The facts about every tool that it names.
    pub tools: Vec<ToolFacts>,
    /// 1 for the first change, 2, 3, …
    pub revision: u32,
    /// The time at which the execution's time limit ends it from now on.
    pub deadline: Option<Timestamp>,
    /// The principal's reason.
    pub reason: String,
}

/// A request to have steps of an execution run again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryRequest {
    /// This step, and all that depend on it, run again also if they have completed.
    pub from: Option<StepId>,
    /// The steps that failed are skipped, and those that depend on them run.
    pub skip_failed: bool,
    /// The execution is paused before anything runs.
    pub start_paused: bool,
    /// The digest of the plan with which it continues; empty when the plan stays.
    pub plan_digest: String,
    /// The principal's reason.
    pub reason: String,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// A terminal state.
    pub state: ExecutionState,
    /// How its steps ended.
    pub totals: Totals,
    /// The failure of the first step that failed.
    pub failure: Option<Failure>,
    /// From acceptance to the end.
    pub duration: Duration,
    /// The outputs that its plan declares, or why there are none; `None` when the plan declares none or the execution has not come to its end.
    pub outputs: Option<Result<Payload, Failure>>,
}
