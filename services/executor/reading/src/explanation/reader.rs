//! Reads causes from an execution: what failed, what stops it, what it waits for, and which action resumes it.

use belay_execution::{Execution, ExecutionState, Operation, OperationKey, StepKey, StepState, StepView, Waiting};

use super::{
    cause::{Action, Cause, CauseKind, Source, Subject, Verb},
    circumstances::{Blocker, BlockerKind, Circumstances, FullLimit, Service},
};

/// An execution that is explained.
pub(super) struct Reader<'a, 'n> {
    pub(super) name: &'n str,
    pub(super) execution: &'a Execution,
    pub(super) beside: Circumstances<'a>,
}

impl<'a> Reader<'a, '_> {
    /// The name of another execution in the same namespace.
    pub(super) fn sibling(&self, id: &str) -> String {
        let parent = self.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        format!("{parent}/{id}")
    }

    fn action(&self, verb: Verb, subject: Option<Subject>) -> Action {
        Action { verb, execution: self.name.to_owned(), subject }
    }

    pub(super) fn failure(&self, step: StepView<'a>) -> Cause<'a> {
        Cause {
            step: Some(step.key),
            subject: step.child(self.execution).map(|id| Subject::Execution(self.sibling(&id))),
            since: step.ended_at(),
            failure: step.failure(),
            failed_attempts: step.failed_attempts(),
            ..Cause::of(CauseKind::StepFailure)
        }
    }

    /// Why it is being stopped or was, other than by what failed.
    pub(super) fn stop(&self) -> Option<Cause<'a>> {
        let cancelled = self.beside.cancel_request.map(|request| Cause {
            since: Some(request.time),
            principal: &request.principal,
            reason: request.reason.clone(),
            ..Cause::of(CauseKind::Cancellation)
        });
        let late = || Cause { until: self.execution.deadline(), ..Cause::of(CauseKind::TimeLimit) };
        match self.execution.state() {
            ExecutionState::Cancelled => Some(cancelled.unwrap_or_else(|| Cause::of(CauseKind::Cancellation))),
            ExecutionState::Cancelling => Some(cancelled.unwrap_or_else(late)),
            ExecutionState::TimedOut => Some(late()),
            ExecutionState::Pending
            | ExecutionState::Running
            | ExecutionState::AwaitingApproval
            | ExecutionState::Paused
            | ExecutionState::Completed
            | ExecutionState::Partial
            | ExecutionState::Failed => None,
        }
    }

    /// Causes that the execution waits for: those of its steps in order, then those that no step has.
    pub(super) fn waits(&self) -> Vec<Cause<'a>> {
        let steps = self.beside.step_blockers;
        let held_up = |step: StepKey| steps.iter().rev().find(|(held_up, _)| *held_up == step).map(|(_, found)| found);
        let mut causes = Vec::new();
        for step in self.execution.steps() {
            match held_up(step.key) {
                Some(blocker) => causes.push(self.blocker(Some(step), blocker)),
                None => causes.extend(step.waiting().map(|waiting| self.wait(Some(step), waiting))),
            }
        }
        for waiting in self.execution.waiting() {
            let cause = self.wait(self.step_of(waiting), waiting);
            let is_known = |known: &Cause<'_>| (known.kind, known.step) == (cause.kind, cause.step);
            // Of many steps that wait alike, one stands for all: each has said its own.
            let is_of_steps = matches!(waiting, Waiting::Timer { .. } | Waiting::Child { .. } | Waiting::Call { .. });
            if !is_of_steps && !causes.iter().any(is_known) {
                causes.push(cause);
            }
        }
        let is_said = |blocker: &Blocker| steps.iter().any(|(_, said)| said.kind == blocker.kind);
        let blockers = self.beside.blockers.iter().filter(|blocker| !is_said(blocker));
        causes.extend(blockers.map(|blocker| self.blocker(None, blocker)));
        if !self.beside.is_driven {
            let actions = vec![self.action(Verb::Resume, None)];
            causes.push(Cause { actions, ..Cause::of(CauseKind::NoDriver) });
        }
        causes
    }

    /// The step that a wait of the execution is about.
    fn step_of(&self, waiting: Waiting) -> Option<StepView<'a>> {
        let key = match waiting {
            Waiting::Outcome { step, .. } => Some(step),
            Waiting::Signal { wait: operation, .. }
            | Waiting::Form { wait: operation, .. }
            | Waiting::Child { child: operation, .. }
            | Waiting::Approval { operation, .. } => Some(operation.step),
            // One with a wait in its plan has a step for it; what is left is the time at which the execution begins.
            Waiting::Time { .. } => self.timer_step(waiting),
            Waiting::Timer { .. }
            | Waiting::Limits { .. }
            | Waiting::NamespaceBudget { .. }
            | Waiting::Resume { .. }
            | Waiting::Call { .. } => None,
        };
        key.map(|key| self.execution.step(key))
    }

    /// The step that waits for this time, or whose next round begins then.
    fn timer_step(&self, waiting: Waiting) -> Option<StepKey> {
        let mut operations = self.execution.operations();
        let wait = operations.find(|operation| operation.waiting() == Some(waiting));
        let round = || self.execution.steps().find(|step| step.waiting() == Some(waiting)).map(|step| step.key);
        wait.map(|operation| operation.key.step).or_else(round)
    }

    fn operation(&self, key: OperationKey) -> Option<&'a Operation> {
        self.execution.operation(key)
    }

    fn wait(&self, step: Option<StepView<'a>>, waiting: Waiting) -> Cause<'a> {
        let mut cause = self.wait_alone(waiting);
        if let Some(step) = step {
            cause.step = Some(step.key);
            cause.failed_attempts = step.failed_attempts();
            cause.failure = step.failure();
        }
        cause
    }

    fn wait_alone(&self, waiting: Waiting) -> Cause<'a> {
        let source = Some(Source::Wait(waiting));
        let of = |kind, since, until| Cause { source, since: Some(since), until, ..Cause::of(kind) };
        match waiting {
            Waiting::Time { since, until } => of(CauseKind::Time, since, Some(until)),
            Waiting::Timer { since, until } => of(CauseKind::Backoff, since, Some(until)),
            Waiting::Call { since } => of(CauseKind::Call, since, None),
            Waiting::Limits { since } => {
                let full = self.beside.full_limits;
                let holder = full.iter().flat_map(|limit| &limit.holders).next().cloned().map(Subject::Execution);
                let explain = holder.clone().map(|holder| self.action(Verb::Explain, Some(holder)));
                let reasons: Vec<String> = full.iter().map(FullLimit::in_words).collect();
                Cause {
                    subject: holder,
                    reason: reasons.join("; "),
                    actions: explain.into_iter().collect(),
                    ..of(CauseKind::ExecutionLimit, since, full.iter().filter_map(|limit| limit.frees_at).max())
                }
            }
            Waiting::NamespaceBudget { since, until } => Cause {
                reason: self.execution.exhausted_namespace_budget().unwrap_or_default().to_owned(),
                ..of(CauseKind::Budget, since, Some(until))
            },
            Waiting::Resume { since, until } => match self.execution.exhausted_budget() {
                Some(exhausted) => Cause {
                    reason: exhausted.in_words(),
                    actions: vec![self.raise_budget(), self.action(Verb::Resume, None)],
                    ..of(CauseKind::Budget, since, until)
                },
                None => Cause {
                    reason: self.execution.paused_for_verification().unwrap_or_default().to_owned(),
                    principal: self.execution.paused_by().unwrap_or_default(),
                    actions: vec![self.action(Verb::Resume, None)],
                    ..of(CauseKind::Pause, since, until)
                },
            },
            Waiting::Outcome { since, step } => {
                let step = Subject::Step(self.execution.step(step).id().clone());
                let actions = vec![self.action(Verb::Resolve, Some(step.clone()))];
                Cause { subject: Some(step), actions, ..of(CauseKind::Outcome, since, None) }
            }
            Waiting::Child { since, child } => {
                let child = self.operation(child).and_then(Operation::child);
                let child = child.map(|child| Subject::Execution(self.sibling(&child.execution)));
                let explain = child.clone().map(|child| self.action(Verb::Explain, Some(child)));
                Cause { subject: child, actions: explain.into_iter().collect(), ..of(CauseKind::Child, since, None) }
            }
            Waiting::Signal { since, until, wait } => {
                let signal = self.operation(wait).and_then(|wait| wait.wait()?.signal());
                let signal = signal.map(|signal| Subject::Signal(signal.to_owned()));
                let send = signal.clone().map(|signal| self.action(Verb::SendSignal, Some(signal)));
                Cause { subject: signal, actions: send.into_iter().collect(), ..of(CauseKind::Signal, since, until) }
            }
            Waiting::Form { since, until, wait } => {
                let wait = self.operation(wait);
                let form = wait.and_then(Operation::requested_answer).map(|name| Subject::Form(name.to_owned()));
                let answer = form.clone().map(|form| self.action(Verb::AnswerForm, Some(form)));
                let actions = answer.into_iter().collect();
                Cause { subject: form, actions, ..of(CauseKind::Form, since, until) }
            }
            Waiting::Approval { since, operation } => {
                let pending = self.operation(operation).and_then(|operation| operation.pending_approval.as_ref());
                let approval = pending.and_then(|pending| pending.approval.clone()).map(Subject::Approval);
                let decide = |verb| approval.clone().map(|approval| self.action(verb, Some(approval)));
                let actions = [Verb::Approve, Verb::Deny].into_iter().filter_map(decide).collect();
                let decision = pending.map(|pending| &pending.requirement.decision);
                Cause { subject: approval, decision, actions, ..of(CauseKind::Approval, since, None) }
            }
        }
    }

    fn blocker(&self, step: Option<StepView<'a>>, blocker: &'a Blocker) -> Cause<'a> {
        let service = |service: Service| Some(Subject::Service(service));
        let (kind, subject, verb) = match &blocker.kind {
            BlockerKind::ServiceAway(away) => (CauseKind::ServiceAway, service(*away), Some(Verb::StartService)),
            BlockerKind::RunnerAnswer(_) => (CauseKind::ServiceAway, service(Service::ToolRunner), None),
            BlockerKind::ClockDifference => {
                (CauseKind::ClockDifference, service(Service::ToolRunner), Some(Verb::SetClock))
            }
            BlockerKind::WorkspaceFull => (CauseKind::WorkspaceFull, None, Some(Verb::FreeSpace)),
            BlockerKind::WorkspaceReadOnly => (CauseKind::WorkspaceReadOnly, None, Some(Verb::Remount)),
            BlockerKind::SandboxUnavailable => (CauseKind::SandboxUnavailable, service(Service::ToolRunner), None),
            BlockerKind::Limit(limited) => (CauseKind::Limit, service(*limited), None),
            BlockerKind::NamespaceBudget(_) => (CauseKind::Limit, None, None),
            BlockerKind::ExclusiveCall(call) => (CauseKind::ExclusiveCall, Some(Subject::Call(call.clone())), None),
            BlockerKind::Fault => (CauseKind::Fault, service(Service::Executor), Some(Verb::RestartService)),
        };
        let reason = match &blocker.kind {
            BlockerKind::RunnerAnswer(answer) => answer.clone(),
            BlockerKind::NamespaceBudget(reason) => reason.clone(),
            BlockerKind::ServiceAway(_)
            | BlockerKind::ClockDifference
            | BlockerKind::WorkspaceFull
            | BlockerKind::WorkspaceReadOnly
            | BlockerKind::SandboxUnavailable
            | BlockerKind::Limit(_)
            | BlockerKind::ExclusiveCall(_)
            | BlockerKind::Fault => String::new(),
        };
        let actions = verb.map(|verb| self.action(verb, subject.clone())).into_iter().collect();
        let (step, source) = (step.map(|step| step.key), Some(Source::Blocker(blocker)));
        Cause { source, step, subject, since: Some(blocker.since), reason, actions, ..Cause::of(kind) }
    }

    /// A budget of the plan, or of one of its steps, is raised by another plan.
    fn raise_budget(&self) -> Action {
        self.action(Verb::RaiseBudget, None)
    }

    /// The action that resumes the execution as a whole.
    pub(super) fn resumed_by(&self, has_failed: bool) -> Option<Action> {
        let resume = || self.action(Verb::Resume, None);
        // What carried out the plan of a step is started again by the execution of that step.
        let parent = self.execution.created().parent_step.split_once("/steps/").map(|(parent, _)| parent);
        let again = || Action { execution: parent.unwrap_or(self.name).to_owned(), ..self.action(Verb::Retry, None) };
        match self.execution.state() {
            ExecutionState::Failed | ExecutionState::Partial => has_failed.then(again),
            // What was stopped goes on from there, with a time limit that begins again.
            ExecutionState::Cancelled | ExecutionState::TimedOut => Some(again()),
            ExecutionState::Completed => None,
            // It is paused because of what failed: resuming it would only let it end. One that is being undone cannot run again.
            ExecutionState::Paused if has_failed && self.execution.steps().all(has_ended) => {
                Some(self.action(Verb::Retry, None))
            }
            ExecutionState::Paused if self.execution.exhausted_budget().is_some() => Some(self.raise_budget()),
            ExecutionState::Paused if self.execution.exhausted_namespace_budget().is_some() => None,
            ExecutionState::Paused => Some(resume()),
            ExecutionState::Pending
            | ExecutionState::Running
            | ExecutionState::AwaitingApproval
            | ExecutionState::Cancelling => (!self.beside.is_driven).then(resume),
        }
    }
}

/// Whether the step has ended, and what it did stays.
fn has_ended(step: StepView<'_>) -> bool {
    step.state().is_terminal()
        && step.compensation().is_none_or(|undoes| undoes.is_terminal() && undoes != StepState::Completed)
}
