//! Why an execution is in its state.

use belay_execution::{Execution, StepKey};
use belay_proto::v1::{self, action, cause, subject};
use belay_reading::explanation::{
    Action, Blocker, BlockerKind, Cause, CauseKind, Service, SkippedStep, Source, StepChange, Subject, Verb,
};

use super::{
    StepDetails,
    approval::policy_to,
    execution::{authorization, failed_attempt, waiting_reason},
    failure, failure_without_output, plan, skip_reason, time,
};
use crate::names::ExecutionName;

/// The blocker of an execution or a step that is in no event, as readers see it.
pub(crate) fn blocker(Blocker { since, kind }: &Blocker) -> v1::WaitingReason {
    use v1::waiting_reason::Kind;
    let (shown, who) = match kind {
        BlockerKind::ServiceAway(Service::ToolRunner) => {
            (Kind::Runner, "the tool runner, which does not answer".to_owned())
        }
        BlockerKind::ServiceAway(Service::ApprovalGate) => {
            (Kind::Approval, "the approval gate, which does not answer".to_owned())
        }
        BlockerKind::ServiceAway(Service::Executor) => (Kind::Fault, "the executor, which does not answer".to_owned()),
        BlockerKind::RunnerAnswer(answer) => (Kind::Runner, format!("the tool runner, which answers {answer}")),
        BlockerKind::ClockDifference => (
            Kind::Runner,
            "the clocks of the tool runner and the approval gate, which differ by more than a day: set them".to_owned(),
        ),
        BlockerKind::WorkspaceFull => (Kind::Workspace, "free space on the workspace's disk, which is full".to_owned()),
        BlockerKind::WorkspaceReadOnly => (
            Kind::Workspace,
            "the workspace's file system, which is read-only: check its disk and remount it for writing".to_owned(),
        ),
        BlockerKind::SandboxUnavailable => {
            (Kind::Runner, "the tool runner, which could not test or start its sandbox and tries again".to_owned())
        }
        BlockerKind::Limit(service) => (Kind::Limit, limited(*service).to_owned()),
        BlockerKind::NamespaceBudget(reason) => (Kind::Limit, reason.clone()),
        BlockerKind::ExclusiveCall(call) => (Kind::Call, format!("{call}, which has the workspace to itself")),
        BlockerKind::Fault => (
            Kind::Fault,
            "a restart of the executor, in which a fault stopped it; the executor's log names the fault".to_owned(),
        ),
    };
    v1::WaitingReason { kind: shown.into(), begin_time: Some(time(*since)), who, ..v1::WaitingReason::default() }
}

fn limited(service: Service) -> &'static str {
    match service {
        Service::ToolRunner => "the tool runner, which is at its limit of calls (`services.runner.calls`)",
        Service::ApprovalGate => {
            "the approval gate, which is at its limit of open approvals or previews (`services.gate`): decide open approvals"
        }
        Service::Executor => {
            "other executions, which have as many steps in memory as they may (`services.executor.steps`)"
        }
    }
}

/// A cause; its secrets are still to be hidden. In FULL view it has the step as the plan has it, and what its calls printed last.
pub(crate) fn cause(name: &ExecutionName, execution: &Execution, cause: &Cause<'_>, details: StepDetails) -> v1::Cause {
    let is_full = details == StepDetails::Full;
    let who = match cause.source {
        Some(Source::Wait(waiting)) => waiting_reason(name, execution, waiting).who,
        Some(Source::Blocker(found)) => blocker(found).who,
        None => String::new(),
    };
    let about_step = cause.step.map(|step| of_step(execution, step, is_full)).unwrap_or_default();
    let failure = cause.failure.map(if is_full { failure } else { failure_without_output });
    v1::Cause {
        kind: cause_kind(cause.kind).into(),
        subject: cause.subject.as_ref().map(subject),
        begin_time: cause.since.map(time),
        until_time: cause.until.map(time),
        who,
        failure,
        failed_attempts: cause.failed_attempts.iter().map(|failed| failed_attempt(failed, details)).collect(),
        decision: cause.decision.map(policy_to),
        principal: cause.principal.to_owned(),
        reason: cause.reason.clone(),
        actions: cause.actions.iter().map(action).collect(),
        ..about_step
    }
}

/// The part of a cause that describes its step.
fn of_step(execution: &Execution, step: StepKey, is_full: bool) -> v1::Cause {
    let view = execution.step(step);
    // A step that the plan does not name has the words of the one that it is for.
    let is_planned = view.spec().id() == view.id().as_str();
    v1::Cause {
        step_id: view.id().as_str().to_owned(),
        title: view.title().to_owned(),
        attempt: i32::try_from(view.attempt()).unwrap_or(i32::MAX),
        max_attempts: i32::try_from(view.max_attempts()).unwrap_or(i32::MAX),
        spec: (is_full && is_planned).then(|| plan::spec_message(view.spec())),
        tool: view.call().map(|call| call.tool.clone()).unwrap_or_default(),
        ..v1::Cause::default()
    }
}

fn cause_kind(kind: CauseKind) -> cause::Kind {
    match kind {
        CauseKind::Pause => cause::Kind::Pause,
        CauseKind::Budget => cause::Kind::Budget,
        CauseKind::Fault => cause::Kind::Fault,
        CauseKind::NoDriver => cause::Kind::NoDriver,
        CauseKind::ServiceAway => cause::Kind::ServiceAway,
        CauseKind::ClockDifference => cause::Kind::ClockDifference,
        CauseKind::SandboxUnavailable => cause::Kind::SandboxUnavailable,
        CauseKind::Approval => cause::Kind::Approval,
        CauseKind::Form => cause::Kind::Form,
        CauseKind::Outcome => cause::Kind::Outcome,
        CauseKind::Signal => cause::Kind::Signal,
        CauseKind::WorkspaceFull => cause::Kind::WorkspaceFull,
        CauseKind::WorkspaceReadOnly => cause::Kind::WorkspaceReadOnly,
        CauseKind::Limit => cause::Kind::Limit,
        CauseKind::ExecutionLimit => cause::Kind::ExecutionLimit,
        CauseKind::Backoff => cause::Kind::Backoff,
        CauseKind::Time => cause::Kind::Time,
        CauseKind::Child => cause::Kind::Child,
        CauseKind::ExclusiveCall => cause::Kind::ExclusiveCall,
        CauseKind::Call => cause::Kind::Call,
        CauseKind::StepFailure => cause::Kind::StepFailure,
        CauseKind::StepCancellation => cause::Kind::StepCancellation,
        CauseKind::Cancellation => cause::Kind::Cancellation,
        CauseKind::TimeLimit => cause::Kind::TimeLimit,
    }
}

fn subject(about: &Subject) -> v1::Subject {
    let service = |service: Service| match service {
        Service::Executor => subject::Service::Executor,
        Service::ToolRunner => subject::Service::ToolRunner,
        Service::ApprovalGate => subject::Service::ApprovalGate,
    };
    let kind = match about {
        Subject::Approval(name) => subject::Kind::Approval(name.clone()),
        Subject::Form(name) => subject::Kind::Form(name.clone()),
        Subject::Signal(name) => subject::Kind::Signal(name.clone()),
        Subject::Step(id) => subject::Kind::StepId(id.as_str().to_owned()),
        Subject::Service(about) => subject::Kind::Service(service(*about).into()),
        Subject::Call(name) => subject::Kind::ToolCall(name.clone()),
        Subject::Execution(name) => subject::Kind::Execution(name.clone()),
    };
    v1::Subject { kind: Some(kind) }
}

/// An available action, as a message.
pub(crate) fn action(Action { verb, execution, subject: about }: &Action) -> v1::Action {
    let verb = match verb {
        Verb::Approve => action::Verb::Approve,
        Verb::Deny => action::Verb::Deny,
        Verb::AnswerForm => action::Verb::AnswerForm,
        Verb::SendSignal => action::Verb::SendSignal,
        Verb::Resolve => action::Verb::Resolve,
        Verb::Resume => action::Verb::Resume,
        Verb::RaiseBudget => action::Verb::RaiseBudget,
        Verb::Retry => action::Verb::Retry,
        Verb::Explain => action::Verb::Explain,
        Verb::StartService => action::Verb::StartService,
        Verb::RestartService => action::Verb::RestartService,
        Verb::SetClock => action::Verb::SetClock,
        Verb::FreeSpace => action::Verb::FreeSpace,
        Verb::Remount => action::Verb::Remount,
    };
    v1::Action { verb: verb.into(), execution: execution.clone(), subject: about.as_ref().map(subject) }
}

/// The changes that the calls of a step have made, as a message.
pub(crate) fn step_change(change: &StepChange<'_>) -> v1::StepChange {
    v1::StepChange {
        step_id: change.step.as_str().to_owned(),
        authorization: Some(authorization(change.authorization)),
    }
}

/// A step that was skipped.
pub(crate) fn skipped_step(skipped: &SkippedStep) -> v1::SkippedStep {
    v1::SkippedStep {
        step_id: skipped.step.as_str().to_owned(),
        skip_reason: skip_reason(skipped.reason).into(),
        skipped_because: skipped.because.as_ref().map(|step| step.as_str().to_owned()).unwrap_or_default(),
        follows_failure: skipped.follows_failure,
        skipped_group: skipped.group.clone().unwrap_or_default(),
    }
}
