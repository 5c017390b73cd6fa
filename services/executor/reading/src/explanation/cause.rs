//! The causes for which an execution is in its state, which of them come first, and what can be done about each.

use belay_execution::{FailedAttempt, Failure, PolicyDecision, StepId, StepKey, Timestamp, Waiting};

use super::circumstances::{Blocker, Service};

/// A reason for which an execution has not ended, or ended as it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause<'a> {
    /// The kind of cause.
    pub kind: CauseKind,
    /// The wait or the blocker that it is; `None` for what is neither.
    pub source: Option<Source<'a>>,
    /// The step that it is about; `None` for the whole execution.
    pub step: Option<StepKey>,
    /// The object that it waits for, or that failed in its place.
    pub subject: Option<Subject>,
    /// Since when it is so; of a step that has ended, when it ended.
    pub since: Option<Timestamp>,
    /// When it ends by itself, or fails for lack of what it waits for.
    pub until: Option<Timestamp>,
    /// The failure: of a step that failed, or before the attempt that it waits for.
    pub failure: Option<&'a Failure>,
    /// The attempts that failed, in order.
    pub failed_attempts: &'a [FailedAttempt],
    /// The decision of the policy that requires the approval.
    pub decision: Option<&'a PolicyDecision>,
    /// The principal who paused or cancelled the execution; empty when no principal did.
    pub principal: &'a str,
    /// The reason that was given, or the answer of a service.
    pub reason: String,
    /// Actions that are available, the best first.
    pub actions: Vec<Action>,
}

impl Cause<'_> {
    /// A cause of which nothing is known but what it is.
    pub(super) fn of(kind: CauseKind) -> Self {
        Self {
            kind,
            source: None,
            step: None,
            subject: None,
            since: None,
            until: None,
            failure: None,
            failed_attempts: &[],
            decision: None,
            principal: "",
            reason: String::new(),
            actions: Vec::new(),
        }
    }
}

/// Where a cause was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// In the state of the execution.
    Wait(Waiting),
    /// Beside it.
    Blocker(&'a Blocker),
}

/// The kind of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// It is paused.
    Pause,
    /// It is paused because a budget is used up.
    Budget,
    /// A fault of the executor has stopped it.
    Fault,
    /// No process carries it on.
    NoDriver,
    /// A service does not answer, or gives an answer from which nothing follows.
    ServiceAway,
    /// The clocks of two services differ.
    ClockDifference,
    /// The sandbox cannot be started.
    SandboxUnavailable,
    /// It waits for the decision of an approval.
    Approval,
    /// It waits for the answer to a form.
    Form,
    /// The outcome of a call is not known.
    Outcome,
    /// It waits for a signal.
    Signal,
    /// The disk of the workspace is full.
    WorkspaceFull,
    /// The file system of the workspace is read-only.
    WorkspaceReadOnly,
    /// A service is at its limit.
    Limit,
    /// It waits for its turn in a limit over executions.
    ExecutionLimit,
    /// It waits before its next attempt.
    Backoff,
    /// It waits for a time.
    Time,
    /// It waits for the execution of a step's plan.
    Child,
    /// It waits for a call that has the workspace to itself.
    ExclusiveCall,
    /// Its own call runs.
    Call,
    /// A step failed.
    StepFailure,
    /// A step was running when the execution was stopped.
    StepCancellation,
    /// A principal cancelled the execution.
    Cancellation,
    /// The execution has run out of the time that its plan allows.
    TimeLimit,
}

/// Whether the cause is something that is waited for.
pub fn is_wait(kind: CauseKind) -> bool {
    rank(kind) < rank(CauseKind::StepFailure)
}

/// First what a person has to end, then what ends by itself, then what runs.
pub(super) fn rank(kind: CauseKind) -> u8 {
    match kind {
        CauseKind::Pause | CauseKind::Budget | CauseKind::Fault | CauseKind::NoDriver => 0,
        CauseKind::ServiceAway | CauseKind::ClockDifference | CauseKind::SandboxUnavailable => 1,
        CauseKind::Approval | CauseKind::Form | CauseKind::Outcome => 2,
        CauseKind::Signal | CauseKind::WorkspaceFull | CauseKind::WorkspaceReadOnly | CauseKind::Limit => 3,
        CauseKind::ExecutionLimit
        | CauseKind::Backoff
        | CauseKind::Time
        | CauseKind::Child
        | CauseKind::ExclusiveCall => 4,
        CauseKind::Call => 5,
        CauseKind::Cancellation | CauseKind::TimeLimit | CauseKind::StepFailure | CauseKind::StepCancellation => 6,
    }
}

pub(super) fn awaited_child(cause: &Cause<'_>) -> Option<String> {
    match &cause.subject {
        Some(Subject::Execution(name)) if cause.kind == CauseKind::Child => Some(name.clone()),
        _ => None,
    }
}

/// The object of a cause or an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An approval, by its name.
    Approval(String),
    /// A form that waits for its answer, by the name of its approval.
    Form(String),
    /// A signal, by its name.
    Signal(String),
    /// A step.
    Step(StepId),
    /// A service.
    Service(Service),
    /// A call, by its name.
    Call(String),
    /// An execution, by its name.
    Execution(String),
}

/// An action that a person or a program can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The verb of the action.
    pub verb: Verb,
    /// The execution in which, by name.
    pub execution: String,
    /// To what; `None` for the execution itself.
    pub subject: Option<Subject>,
}

/// The verb of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Approve it.
    Approve,
    /// Deny it.
    Deny,
    /// Answer the form.
    AnswerForm,
    /// Send the signal.
    SendSignal,
    /// Say what the call of the step did.
    Resolve,
    /// Resume the execution, or have it driven.
    Resume,
    /// Raise the budget in the plan.
    RaiseBudget,
    /// Have what failed or was stopped run again.
    Retry,
    /// Ask why the execution has not ended.
    Explain,
    /// Start the service.
    StartService,
    /// Restart the service.
    RestartService,
    /// Set the clock of the service.
    SetClock,
    /// Free space on the disk of the workspace.
    FreeSpace,
    /// Check the disk of the workspace, and mount its file system for writing.
    Remount,
}
