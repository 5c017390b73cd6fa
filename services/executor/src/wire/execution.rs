//! Executions as resources.

use belay_execution::{
    ApprovalMode, Authorization, Execution, ExecutionState, FailedAttempt, Failure, Payload, SkipReason, StepKey,
    StepRole, StepState, StepView, Waiting, Workspace,
};
use belay_journal::{ExecutionRow, StepCounts, Waits};
use belay_proto::v1::{self, execution::State, step};

use super::{
    budget::{allotment_message, amounts_message},
    cached_result, failure, failure_without_output, inline, kinds,
    limit::{claim_message, limit_state},
    payload, plan_message, time,
};
use crate::names::ExecutionName;

pub(crate) fn state(state: ExecutionState) -> State {
    match state {
        ExecutionState::Pending => State::Pending,
        ExecutionState::Running => State::Running,
        ExecutionState::AwaitingApproval => State::AwaitingApproval,
        ExecutionState::Paused => State::Paused,
        ExecutionState::Cancelling => State::Cancelling,
        ExecutionState::Completed => State::Completed,
        ExecutionState::Partial => State::Partial,
        ExecutionState::Failed => State::Failed,
        ExecutionState::Cancelled => State::Cancelled,
        ExecutionState::TimedOut => State::TimedOut,
    }
}

pub(crate) fn state_number(execution: &Execution) -> i32 {
    state(execution.state()).into()
}

pub(crate) fn state_from(number: State) -> Option<ExecutionState> {
    Some(match number {
        State::Unspecified => return None,
        State::Pending => ExecutionState::Pending,
        State::Running => ExecutionState::Running,
        State::AwaitingApproval => ExecutionState::AwaitingApproval,
        State::Paused => ExecutionState::Paused,
        State::Cancelling => ExecutionState::Cancelling,
        State::Completed => ExecutionState::Completed,
        State::Partial => ExecutionState::Partial,
        State::Failed => ExecutionState::Failed,
        State::Cancelled => ExecutionState::Cancelled,
        State::TimedOut => ExecutionState::TimedOut,
    })
}

pub(super) fn step_state(state: StepState) -> step::State {
    match state {
        StepState::Pending => step::State::Pending,
        StepState::Ready => step::State::Ready,
        StepState::Running => step::State::Running,
        StepState::AwaitingApproval => step::State::AwaitingApproval,
        StepState::Waiting => step::State::Waiting,
        StepState::BackingOff => step::State::BackingOff,
        StepState::OutcomeUnknown => step::State::OutcomeUnknown,
        StepState::Completed => step::State::Completed,
        StepState::Failed => step::State::Failed,
        StepState::Skipped => step::State::Skipped,
        StepState::Cancelled => step::State::Cancelled,
    }
}

pub(crate) fn skip_reason(reason: SkipReason) -> v1::SkipReason {
    match reason {
        SkipReason::DependencyFailed => v1::SkipReason::DependencyFailed,
        SkipReason::DependencySkipped => v1::SkipReason::DependencySkipped,
        SkipReason::StopOnError => v1::SkipReason::StopOnError,
        SkipReason::ConditionFalse => v1::SkipReason::ConditionFalse,
        SkipReason::Cancelled => v1::SkipReason::Cancelled,
        SkipReason::TimedOut => v1::SkipReason::TimedOut,
        SkipReason::ApprovalSkipped => v1::SkipReason::ApprovalSkipped,
        SkipReason::NonInteractive => v1::SkipReason::NonInteractive,
        SkipReason::Requested => v1::SkipReason::Requested,
        SkipReason::PlanUpdated => v1::SkipReason::PlanUpdated,
        SkipReason::NotListed => v1::SkipReason::NotListed,
    }
}

/// Unset means WAIT.
pub(crate) fn approval_mode(mode: v1::ApprovalMode) -> ApprovalMode {
    match mode {
        v1::ApprovalMode::Unspecified | v1::ApprovalMode::Wait => ApprovalMode::Wait,
        v1::ApprovalMode::Fail => ApprovalMode::Fail,
        v1::ApprovalMode::Skip => ApprovalMode::Skip,
        v1::ApprovalMode::Auto => ApprovalMode::Auto,
    }
}

pub(crate) fn approval_mode_to(mode: ApprovalMode) -> v1::ApprovalMode {
    match mode {
        ApprovalMode::Wait => v1::ApprovalMode::Wait,
        ApprovalMode::Fail => v1::ApprovalMode::Fail,
        ApprovalMode::Skip => v1::ApprovalMode::Skip,
        ApprovalMode::Auto => v1::ApprovalMode::Auto,
    }
}

pub(crate) fn totals(totals: belay_execution::Totals) -> v1::StepTotals {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    v1::StepTotals {
        total: count(totals.total),
        completed: count(totals.completed),
        failed: count(totals.failed),
        skipped: count(totals.skipped),
        cancelled: count(totals.cancelled),
    }
}

/// The same for the journal.
pub(crate) fn step_counts(totals: belay_execution::Totals) -> StepCounts {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    StepCounts {
        total: count(totals.total),
        completed: count(totals.completed),
        failed: count(totals.failed),
        skipped: count(totals.skipped),
        cancelled: count(totals.cancelled),
    }
}

/// The kinds of waits of an execution, for lists. An approval that was requested counts also while the execution is paused.
pub(crate) fn waits_for(execution: &Execution) -> Waits {
    let waiting = execution.waiting().into_iter().map(|waiting| waiting_kind(&waiting));
    let undecided = execution
        .operations()
        .any(|operation| operation.pending_approval.as_ref().is_some_and(|pending| pending.decided.is_none()));
    let approval = undecided.then_some(v1::waiting_reason::Kind::Approval);
    // Also while the execution is paused: its forms stay in the inbox.
    let asks = execution.operations().any(|operation| operation.wait().is_some_and(|wait| wait.form().is_some()));
    let form = asks.then_some(v1::waiting_reason::Kind::Form);
    waiting.chain(approval).chain(form).fold(Waits::default(), |waits, kind| waits.with(kind.into()))
}

fn waiting_kind(waiting: &Waiting) -> v1::waiting_reason::Kind {
    match waiting {
        Waiting::Time { .. } => v1::waiting_reason::Kind::Time,
        Waiting::Timer { .. } => v1::waiting_reason::Kind::Timer,
        Waiting::Signal { .. } => v1::waiting_reason::Kind::Signal,
        Waiting::Form { .. } => v1::waiting_reason::Kind::Form,
        Waiting::Limits { .. } | Waiting::NamespaceBudget { .. } => v1::waiting_reason::Kind::Limit,
        Waiting::Resume { .. } => v1::waiting_reason::Kind::Resume,
        Waiting::Outcome { .. } => v1::waiting_reason::Kind::Outcome,
        Waiting::Call { .. } => v1::waiting_reason::Kind::Call,
        Waiting::Child { .. } => v1::waiting_reason::Kind::Child,
        Waiting::Approval { .. } => v1::waiting_reason::Kind::Approval,
    }
}

/// The fields that a row has.
pub(crate) fn basic(row: &ExecutionRow) -> v1::Execution {
    let ExecutionRow { execution, summary, .. } = row;
    // While an execution runs, its steps change without the row being written.
    let is_current = summary.ended || summary.parked;
    let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let StepCounts { total, completed, failed, skipped, cancelled } = summary.steps;
    let totals = v1::StepTotals {
        total: count(total),
        completed: count(completed),
        failed: count(failed),
        skipped: count(skipped),
        cancelled: count(cancelled),
    };
    let waiting = |kind| v1::WaitingReason { kind, ..v1::WaitingReason::default() };
    let failure = |reason: &String| v1::Failure { reason: reason.clone(), ..v1::Failure::default() };
    v1::Execution {
        totals: is_current.then_some(totals),
        end_time: summary.ended_at.map(belay_proto::timestamp),
        waiting: summary.waits_for.kinds().map(waiting).collect(),
        failure: summary.failure_reason.as_ref().map(failure),
        name: ExecutionName { namespace: execution.namespace.clone(), id: execution.id.clone() }.to_string(),
        state: summary.state,
        plan_id: execution.plan_id.clone(),
        principal: execution.principal.clone(),
        labels: execution.labels.clone(),
        create_time: Some(belay_proto::timestamp(execution.created_at)),
        parent_step: execution.parent_step().unwrap_or_default(),
        ..v1::Execution::default()
    }
}

/// A workspace as messages have it: a directory's path, or the id of a folder; the other one is empty.
pub(super) fn workspace_fields(workspace: &Workspace) -> (String, String) {
    match workspace {
        Workspace::Directory(path) => (path.clone(), String::new()),
        Workspace::MadeFolder(id) => (String::new(), id.clone()),
    }
}

/// The FULL view: all fields, with the steps in BASIC view.
pub(crate) fn full(name: &ExecutionName, execution: &Execution) -> v1::Execution {
    let steps = execution.steps().map(|view| step(name, execution, view, StepDetails::Brief)).collect();
    let inputs = (!execution.plan().inputs().is_empty()).then(|| v1::Payload::of_json(execution.inputs().to_string()));
    let outputs = execution.outputs();
    v1::Execution {
        plan: Some(plan_message(execution.plan())),
        steps,
        inputs,
        outputs: outputs.and_then(Result::ok).map(payload),
        outputs_failure: outputs.and_then(Result::err).map(failure),
        ..brief(name, execution)
    }
}

/// The BASIC view: everything but the plan and the steps.
pub(crate) fn brief(name: &ExecutionName, execution: &Execution) -> v1::Execution {
    let created = execution.created();
    let waiting = execution.waiting().into_iter().map(|waiting| waiting_reason(name, execution, waiting)).collect();
    let (workspace, made_folder) = workspace_fields(&created.workspace);
    v1::Execution {
        name: name.to_string(),
        uid: created.uid.clone(),
        state: state(execution.state()).into(),
        plan_id: execution.plan().id().to_owned(),
        totals: Some(totals(execution.totals())),
        last_sequence: i64::try_from(execution.last_sequence()).unwrap_or(i64::MAX),
        etag: etag(execution),
        principal: execution.principal().to_owned(),
        parent_step: created.parent_step.clone(),
        forked_from: created.forked_from.clone(),
        labels: created.labels.clone(),
        workspace,
        made_folder,
        approval_mode: approval_mode_to(created.approval_mode).into(),
        create_time: Some(time(execution.created_at())),
        start_time: execution.started_at().map(time),
        end_time: execution.ended_at().map(time),
        approval_wait: Some(execution.waited()).filter(|waited| !waited.is_zero()).map(Into::into),
        deadline_time: execution.deadline().map(time),
        plan_revision: i32::try_from(execution.plan_revision()).unwrap_or(i32::MAX),
        failure: execution.first_failure().map(failure),
        waiting,
        trace: Some(v1::TraceContext { traceparent: created.trace.0.clone(), tracestate: created.trace.1.clone() }),
        spent: Some(amounts_message(execution.spent())),
        allotment: created.allotment.map(allotment_message),
        limits: created.limits.iter().map(claim_message).collect(),
        limit_state: limit_state(execution.limit_state()).into(),
        ..v1::Execution::default()
    }
}

/// The state's name in the contract, without its prefix.
pub(crate) fn state_name(execution: &Execution) -> &'static str {
    state_word(execution.state())
}

/// The state's name in the contract, such as `COMPLETED`.
pub(crate) fn state_word(of: ExecutionState) -> &'static str {
    state(of).as_str_name().trim_start_matches("STATE_")
}

/// The name of a step's state in the contract, without its prefix.
pub(crate) fn step_state_name(state: StepState) -> &'static str {
    step_state(state).as_str_name().trim_start_matches("STATE_")
}

/// The state of a step, with what became of what it did.
fn shown_state(view: StepView<'_>) -> step::State {
    match view.compensation() {
        None => step_state(view.state()),
        Some(StepState::Completed) => step::State::Compensated,
        // What could not be undone is there.
        Some(undoes) if undoes.is_terminal() => step_state(view.state()),
        Some(_) => step::State::Compensating,
    }
}

pub(crate) fn etag(execution: &Execution) -> String {
    format!("{}-{}", execution.created().uid, execution.last_sequence())
}

/// How much of a step a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepDetails {
    /// The BASIC view.
    Brief,
    /// The FULL view, with the output and what failed attempts printed last.
    Full,
}

/// A step of an execution.
pub(crate) fn step(name: &ExecutionName, execution: &Execution, view: StepView<'_>, details: StepDetails) -> v1::Step {
    let id = |key: StepKey| execution.step(key).id().as_str().to_owned();
    let is_full = details == StepDetails::Full;
    let failure = |failed: &Failure| if is_full { failure(failed) } else { failure_without_output(failed) };
    let output_bytes = view.output().map_or(0, Payload::size);
    v1::Step {
        name: format!("{name}/steps/{}", view.id()),
        step_id: view.id().as_str().to_owned(),
        title: view.title().to_owned(),
        state: shown_state(view).into(),
        attempt: i32::try_from(view.attempt()).unwrap_or(i32::MAX),
        max_attempts: i32::try_from(view.max_attempts()).unwrap_or(i32::MAX),
        start_time: view.started_at().map(time),
        end_time: view.ended_at().map(time),
        output: view.output().filter(|_| is_full).map(payload),
        output_bytes: i64::try_from(output_bytes).unwrap_or(i64::MAX),
        failure: view.failure().map(failure),
        skip_reason: view.skipped().map_or(v1::SkipReason::Unspecified, |(reason, _)| skip_reason(reason)).into(),
        skipped_because: view.skipped().and_then(|(_, because)| because).map(id).unwrap_or_default(),
        skipped_group: view.skipped_group().unwrap_or_default().to_owned(),
        waiting: view.waiting().map(|waiting| waiting_reason(name, execution, waiting)),
        approvals: view.approvals().map(str::to_owned).collect(),
        failed_attempts: view.failed_attempts().iter().map(|failed| failed_attempt(failed, details)).collect(),
        authorization: view.authorization().map(authorization),
        approval_wait: Some(view.waited()).filter(|waited| !waited.is_zero()).map(Into::into),
        compensates: match view.role() {
            StepRole::Compensates { step } => id(step),
            StepRole::Planned | StepRole::Item { .. } => String::new(),
        },
        cached_result: view.cached_from().map(cached_result),
        item: item(execution, view, is_full),
        item_count: view.is_listed().then(|| i32::try_from(view.items().len()).unwrap_or(i32::MAX)),
        spent: Some(view.spent()).filter(|spent| spent.tokens > 0).map(amounts_message),
        detail: Some(kinds::detail(name, execution, view)),
    }
}

/// An attempt that failed.
pub(super) fn failed_attempt(failed: &FailedAttempt, details: StepDetails) -> v1::StepAttempt {
    let failure = match details {
        StepDetails::Full => failure(&failed.failure),
        StepDetails::Brief => failure_without_output(&failed.failure),
    };
    v1::StepAttempt {
        attempt: i32::try_from(failed.attempt).unwrap_or(i32::MAX),
        failure: Some(failure),
        end_time: Some(time(failed.ended_at)),
    }
}

/// The entry of a list for which a step runs.
fn item(execution: &Execution, view: StepView<'_>, is_full: bool) -> Option<v1::StepItem> {
    let StepRole::Item { of, index } = view.role() else { return None };
    Some(v1::StepItem {
        step_id: execution.step(of).id().as_str().to_owned(),
        index: i32::try_from(index).unwrap_or(i32::MAX),
        value: view.item().filter(|_| is_full).map(inline),
    })
}

pub(super) fn authorization(authorization: &Authorization) -> v1::Authorization {
    let [created, modified, deleted] = authorization.changes.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
    let approver = authorization.approver.clone().unwrap_or_default();
    v1::Authorization { rule: authorization.rule.clone(), approver, created, modified, deleted }
}

/// The reason for a wait, as readers see it; its secrets are still to be hidden.
pub(crate) fn waiting_reason(name: &ExecutionName, execution: &Execution, waiting: Waiting) -> v1::WaitingReason {
    use v1::waiting_reason::Kind;
    let (kind, since, until, who, next_command) = match waiting {
        Waiting::Time { since, until } => (Kind::Time, since, Some(until), "the clock".to_owned(), String::new()),
        Waiting::Timer { since, until } => (Kind::Timer, since, Some(until), "the clock".to_owned(), String::new()),
        Waiting::Limits { since } => {
            let keys: Vec<String> = execution.created().limits.iter().map(|limit| format!("`{}`", limit.key)).collect();
            let what = if keys.len() == 1 { "limit" } else { "limits" };
            let who = format!("the executions before it in the {what} {}", keys.join(", "));
            (Kind::Limit, since, None, who, format!("belay why {}", name.id))
        }
        Waiting::NamespaceBudget { since, until } => {
            let reason = execution.exhausted_namespace_budget().unwrap_or_default();
            (Kind::Limit, since, Some(until), format!("the clock: {reason}"), String::new())
        }
        Waiting::Resume { since, until } => {
            let who = if until.is_some() { "the clock, or a person" } else { "a person" };
            (Kind::Resume, since, until, who.to_owned(), format!("belay executions resume {}", name.id))
        }
        Waiting::Outcome { since, step } => (
            Kind::Outcome,
            since,
            None,
            "a person to find out what the call did".to_owned(),
            format!("belay executions resolve {} {}", name.id, execution.step(step).id()),
        ),
        Waiting::Call { since } => (Kind::Call, since, None, "the tool".to_owned(), String::new()),
        Waiting::Child { since, child } => {
            let child = execution.operation(child).and_then(|operation| operation.child());
            let child = child.map(|child| child.execution.as_str()).unwrap_or_default();
            (Kind::Child, since, None, format!("the execution `{child}`"), format!("belay why {child}"))
        }
        Waiting::Signal { since, until, wait } => {
            let condition = execution.operation(wait).and_then(|operation| operation.wait());
            let signal = condition.and_then(|condition| condition.signal()).unwrap_or_default();
            let next = format!("belay executions signal {} {signal}", name.id);
            (Kind::Signal, since, until, format!("the signal `{signal}`"), next)
        }
        Waiting::Form { since, until, wait } => {
            let wait = execution.operation(wait);
            let form = wait.and_then(|wait| wait.wait()?.form());
            let who =
                form.map_or_else(|| "a person".to_owned(), |form| format!("a person's answer to `{}`", form.title));
            let id = wait.and_then(|wait| wait.requested_answer()?.rsplit('/').next());
            (Kind::Form, since, until, who, id.map(|id| format!("belay approvals answer {id}")).unwrap_or_default())
        }
        Waiting::Approval { since, operation } => {
            let pending = execution.operation(operation).and_then(|operation| operation.pending_approval.as_ref());
            let who = pending.map_or_else(
                || "a person".to_owned(),
                |pending| {
                    format!(
                        "a person (rule {}: {})",
                        pending.requirement.decision.rule, pending.requirement.decision.reason
                    )
                },
            );
            let id = pending.and_then(|pending| pending.approval.as_deref()?.rsplit('/').next());
            (Kind::Approval, since, None, who, id.map(|id| format!("belay approvals show {id}")).unwrap_or_default())
        }
    };
    let paused_by = execution.paused_by().filter(|_| kind == Kind::Resume);
    let principal = paused_by.unwrap_or_default().to_owned();
    v1::WaitingReason {
        kind: kind.into(),
        begin_time: Some(time(since)),
        until_time: until.map(time),
        who,
        next_command,
        principal,
    }
}
