//! Why an execution has not ended, or how it came to its end: from its state, and from what holds it up that is in no event.
//!
//! Everything here is a fact of the record: nothing is hidden, shortened or put into words yet, and nothing depends on who asks or where.

mod skips;

use belay_execution::{
    Authorization, Event, Execution, ExecutionEvent, ExecutionState, FailedAttempt, Failure, Operation, OperationKey,
    PolicyDecision, StepId, StepKey, StepState, StepView, Timestamp, Waiting,
};

pub use self::skips::SkippedStep;

/// The most executions of steps that are named to explain an execution that waits for them.
const MAX_CHILDREN: usize = 4;
/// Of how many causes of each execution the next actions are.
const CAUSES_ACTED_ON: usize = 4;

/// A service that executions need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// What carries out plans.
    Executor,
    /// What makes calls of tools.
    ToolRunner,
    /// What asks people.
    ApprovalGate,
}

/// What holds an execution up that is in no event: only who drives it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Since when.
    pub since: Timestamp,
    /// What it is.
    pub kind: ObstacleKind,
}

/// What an obstacle is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObstacleKind {
    /// The service does not answer.
    ServiceAway(Service),
    /// The tool runner gives this answer, from which nothing follows.
    RunnerAnswer(String),
    /// The clocks of the tool runner and the approval gate differ by more than a day.
    ClockDifference,
    /// The disk of the workspace is full.
    WorkspaceFull,
    /// The file system of the workspace is read-only.
    WorkspaceReadOnly,
    /// The tool runner could not test or start its sandbox.
    SandboxUnavailable,
    /// The service is at its limit: the tool runner of calls, the approval gate of open approvals, the executor of steps in memory.
    Limit(Service),
    /// A call, by its name, has the workspace to itself.
    ExclusiveCall(String),
    /// A fault of the executor has stopped the execution several times in a row.
    Fault,
}

/// A principal asked to cancel the execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// When.
    pub time: Timestamp,
    /// Who; empty when no principal is known.
    pub principal: String,
    /// The reason that was given; may be empty.
    pub reason: String,
}

impl CancelRequest {
    /// The request that is in force after an event, given the one before it.
    pub fn after(before: Option<Self>, event: &Event) -> Option<Self> {
        use belay_execution::Body;
        match &event.body {
            Body::Execution(ExecutionEvent::CancelRequested { reason, .. }) => {
                let principal = event.actor.as_ref().map(|actor| actor.principal.clone()).unwrap_or_default();
                Some(Self { time: event.time, principal, reason: reason.clone() })
            }
            // It goes on from there.
            Body::Execution(ExecutionEvent::Retried(_)) => None,
            Body::Execution(_)
            | Body::Step { .. }
            | Body::ToolCall { .. }
            | Body::Approval { .. }
            | Body::Wait { .. }
            | Body::Child { .. } => before,
        }
    }
}

/// What is known of an execution beside its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances<'a> {
    /// What holds the whole execution up.
    pub obstacles: &'a [Obstacle],
    /// What holds steps up; of several of one step, the last.
    pub step_obstacles: &'a [(StepKey, Obstacle)],
    /// Who asked to cancel it, if somebody did.
    pub cancel_request: Option<&'a CancelRequest>,
    /// Whether a process carries it on.
    pub is_driven: bool,
}

/// Why an execution is in its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Its state.
    pub state: ExecutionState,
    /// What it waits for or how it came to its end, the most important first: what a person has to end, what ends by itself, its own calls, and what has
    /// failed before; of one that has ended, what failed first.
    pub causes: Vec<Cause<'a>>,
    /// The steps whose calls have changed the workspace, in the order of the steps.
    pub changes: Vec<StepChange<'a>>,
    /// The steps that were skipped, in order.
    pub skipped: Vec<SkippedStep>,
    /// The executions of steps that explain it, by name: of the step that failed first, or of those that it waits for.
    pub children: Vec<String>,
    /// What has it go on as a whole; `None` where only its causes can be acted on, or nothing.
    pub goes_on_by: Option<Action>,
}

impl Explanation<'_> {
    /// What can be done about it.
    pub fn outlook(&self) -> Outlook {
        let waits = self.causes.iter().filter(|cause| !self.state.is_terminal() && is_wait(cause.kind));
        let asked = waits.take(CAUSES_ACTED_ON).flat_map(|cause| cause.actions.iter().cloned());
        Outlook { goes_on_by: self.goes_on_by.clone(), asked: asked.collect() }
    }
}

/// What can be done about one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// What has it go on as a whole.
    pub goes_on_by: Option<Action>,
    /// What ends its most important waits, the best first.
    pub asked: Vec<Action>,
}

/// One reason for which an execution has not ended, or ended as it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause<'a> {
    /// What it is.
    pub kind: CauseKind,
    /// The wait or the obstacle that it is; `None` for what is neither.
    pub source: Option<Source<'a>>,
    /// The step that it is about; `None` for the whole execution.
    pub step: Option<StepKey>,
    /// What it waits for, or what failed in its place.
    pub subject: Option<Subject>,
    /// Since when it is so; of a step that has ended, when it ended.
    pub since: Option<Timestamp>,
    /// When it ends by itself, or fails for lack of what it waits for.
    pub until: Option<Timestamp>,
    /// What went wrong: of a step that failed, or before the attempt that it waits for.
    pub failure: Option<&'a Failure>,
    /// The attempts that failed, in order.
    pub failed_attempts: &'a [FailedAttempt],
    /// The decision of the policy that requires the approval.
    pub decision: Option<&'a PolicyDecision>,
    /// Who paused or cancelled the execution; empty when no principal did.
    pub principal: &'a str,
    /// The reason that was given, or the answer of a service.
    pub reason: String,
    /// What can be done about it, the best first.
    pub actions: Vec<Action>,
}

/// Where a cause was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// In the state of the execution.
    Wait(Waiting),
    /// Beside it.
    Obstacle(&'a Obstacle),
}

/// What a cause is.
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
    /// What a call did is not known.
    Outcome,
    /// It waits for a signal.
    Signal,
    /// The disk of the workspace is full.
    WorkspaceFull,
    /// The file system of the workspace is read-only.
    WorkspaceReadOnly,
    /// A service is at its limit.
    Limit,
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

/// What something is about.
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

/// What can be done, by a person or a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What to do.
    pub verb: Verb,
    /// The execution in which, by name.
    pub execution: String,
    /// To what; `None` for the execution itself.
    pub subject: Option<Subject>,
}

/// What can be done about something.
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

/// What the calls of a step have changed in the workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct StepChange<'a> {
    /// The step.
    pub step: StepId,
    /// What authorized it, and how many paths it changed.
    pub authorization: &'a Authorization,
}

/// Explains an execution. `name` is `namespaces/*/executions/*`.
pub fn explain<'a>(name: &str, execution: &'a Execution, beside: Circumstances<'a>) -> Explanation<'a> {
    let reader = Reader { name, execution, beside };
    let state = execution.state();
    let mut failed: Vec<StepView<'_>> = execution.steps().filter(|step| step.state() == StepState::Failed).collect();
    failed.sort_by_key(|step| step.ended_at());
    let mut causes = Vec::new();
    if state.is_terminal() {
        causes.extend(failed.iter().map(|step| reader.failure(*step)));
        causes.extend(reader.stop());
        let stopped = execution.steps().filter(|step| step.state() == StepState::Cancelled);
        causes.extend(stopped.map(|step| Cause {
            step: Some(step.key),
            since: step.ended_at(),
            ..Cause::of(CauseKind::StepCancellation)
        }));
    } else {
        causes.extend(reader.waits());
        causes.extend(reader.stop());
        causes.extend(failed.iter().map(|step| reader.failure(*step)));
        causes.sort_by_key(|cause| rank(cause.kind));
    }
    let children = match state.is_terminal() {
        true => {
            failed.first().and_then(|step| step.child(execution)).map(|id| reader.sibling(&id)).into_iter().collect()
        }
        false => causes.iter().filter_map(awaited_child).take(MAX_CHILDREN).collect(),
    };
    let changes = execution.steps().filter_map(|step| {
        let authorization = step.authorization().filter(|given| given.changes.iter().any(|count| *count > 0))?;
        Some(StepChange { step: step.id().clone(), authorization })
    });
    Explanation {
        state,
        causes,
        changes: changes.collect(),
        skipped: skips::skipped(execution),
        children,
        goes_on_by: reader.goes_on_by(!failed.is_empty()),
    }
}

/// What can be done about an execution, the best first, and each once: what has it go on as a whole, then what ends the most important waits, its own and
/// those of the executions that explain it. What such an execution is waited for is said by its own waits.
pub fn next_actions(own: &Outlook, children: &[Outlook]) -> Vec<Action> {
    let mut found: Vec<Action> = own.goes_on_by.iter().cloned().collect();
    for action in [own].into_iter().chain(children).flat_map(|outlook| &outlook.asked) {
        let is_answered = action.verb == Verb::Explain && !children.is_empty();
        if !is_answered && !found.contains(action) {
            found.push(action.clone());
        }
    }
    found
}

/// Whether the cause is something that is waited for.
pub fn is_wait(kind: CauseKind) -> bool {
    rank(kind) < rank(CauseKind::StepFailure)
}

/// First what a person has to end, then what ends by itself, then what runs.
fn rank(kind: CauseKind) -> u8 {
    match kind {
        CauseKind::Pause | CauseKind::Budget | CauseKind::Fault | CauseKind::NoDriver => 0,
        CauseKind::ServiceAway | CauseKind::ClockDifference | CauseKind::SandboxUnavailable => 1,
        CauseKind::Approval | CauseKind::Form | CauseKind::Outcome => 2,
        CauseKind::Signal | CauseKind::WorkspaceFull | CauseKind::WorkspaceReadOnly | CauseKind::Limit => 3,
        CauseKind::Backoff | CauseKind::Time | CauseKind::Child | CauseKind::ExclusiveCall => 4,
        CauseKind::Call => 5,
        CauseKind::Cancellation | CauseKind::TimeLimit | CauseKind::StepFailure | CauseKind::StepCancellation => 6,
    }
}

fn awaited_child(cause: &Cause<'_>) -> Option<String> {
    match &cause.subject {
        Some(Subject::Execution(name)) if cause.kind == CauseKind::Child => Some(name.clone()),
        _ => None,
    }
}

impl Cause<'_> {
    /// A cause of which nothing is known but what it is.
    fn of(kind: CauseKind) -> Self {
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

/// One execution that is explained.
struct Reader<'a, 'n> {
    name: &'n str,
    execution: &'a Execution,
    beside: Circumstances<'a>,
}

impl<'a> Reader<'a, '_> {
    /// The name of another execution in the same namespace.
    fn sibling(&self, id: &str) -> String {
        let parent = self.name.rsplit_once('/').map_or("", |(parent, _)| parent);
        format!("{parent}/{id}")
    }

    fn action(&self, verb: Verb, subject: Option<Subject>) -> Action {
        Action { verb, execution: self.name.to_owned(), subject }
    }

    fn failure(&self, step: StepView<'a>) -> Cause<'a> {
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
    fn stop(&self) -> Option<Cause<'a>> {
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

    /// What it waits for: its steps in order, then what no step says.
    fn waits(&self) -> Vec<Cause<'a>> {
        let steps = self.beside.step_obstacles;
        let held_up = |step: StepKey| steps.iter().rev().find(|(held_up, _)| *held_up == step).map(|(_, found)| found);
        let mut causes = Vec::new();
        for step in self.execution.steps() {
            match held_up(step.key) {
                Some(obstacle) => causes.push(self.obstacle(Some(step), obstacle)),
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
        let is_said = |obstacle: &Obstacle| steps.iter().any(|(_, said)| said.kind == obstacle.kind);
        let obstacles = self.beside.obstacles.iter().filter(|obstacle| !is_said(obstacle));
        causes.extend(obstacles.map(|obstacle| self.obstacle(None, obstacle)));
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
            Waiting::Timer { .. } | Waiting::Resume { .. } | Waiting::Call { .. } => None,
        };
        key.map(|key| self.execution.step(key))
    }

    /// The step that waits for this time.
    fn timer_step(&self, waiting: Waiting) -> Option<StepKey> {
        let mut operations = self.execution.operations();
        operations.find(|operation| operation.waiting() == Some(waiting)).map(|operation| operation.key.step)
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
            Waiting::Resume { since, until } => match self.execution.exhausted_budget() {
                Some(exhausted) => Cause {
                    reason: exhausted.in_words(),
                    actions: vec![self.raise_budget(), self.action(Verb::Resume, None)],
                    ..of(CauseKind::Budget, since, until)
                },
                None => Cause {
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

    fn obstacle(&self, step: Option<StepView<'a>>, obstacle: &'a Obstacle) -> Cause<'a> {
        let service = |service: Service| Some(Subject::Service(service));
        let (kind, subject, verb) = match &obstacle.kind {
            ObstacleKind::ServiceAway(away) => (CauseKind::ServiceAway, service(*away), Some(Verb::StartService)),
            ObstacleKind::RunnerAnswer(_) => (CauseKind::ServiceAway, service(Service::ToolRunner), None),
            ObstacleKind::ClockDifference => {
                (CauseKind::ClockDifference, service(Service::ToolRunner), Some(Verb::SetClock))
            }
            ObstacleKind::WorkspaceFull => (CauseKind::WorkspaceFull, None, Some(Verb::FreeSpace)),
            ObstacleKind::WorkspaceReadOnly => (CauseKind::WorkspaceReadOnly, None, Some(Verb::Remount)),
            ObstacleKind::SandboxUnavailable => (CauseKind::SandboxUnavailable, service(Service::ToolRunner), None),
            ObstacleKind::Limit(limited) => (CauseKind::Limit, service(*limited), None),
            ObstacleKind::ExclusiveCall(call) => (CauseKind::ExclusiveCall, Some(Subject::Call(call.clone())), None),
            ObstacleKind::Fault => (CauseKind::Fault, service(Service::Executor), Some(Verb::RestartService)),
        };
        let reason = match &obstacle.kind {
            ObstacleKind::RunnerAnswer(answer) => answer.clone(),
            ObstacleKind::ServiceAway(_)
            | ObstacleKind::ClockDifference
            | ObstacleKind::WorkspaceFull
            | ObstacleKind::WorkspaceReadOnly
            | ObstacleKind::SandboxUnavailable
            | ObstacleKind::Limit(_)
            | ObstacleKind::ExclusiveCall(_)
            | ObstacleKind::Fault => String::new(),
        };
        let actions = verb.map(|verb| self.action(verb, subject.clone())).into_iter().collect();
        let (step, source) = (step.map(|step| step.key), Some(Source::Obstacle(obstacle)));
        Cause { source, step, subject, since: Some(obstacle.since), reason, actions, ..Cause::of(kind) }
    }

    /// A budget of the plan, or of one of its steps, is raised by another plan.
    fn raise_budget(&self) -> Action {
        self.action(Verb::RaiseBudget, None)
    }

    /// What has it go on as a whole.
    fn goes_on_by(&self, has_failed: bool) -> Option<Action> {
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

#[cfg(test)]
mod tests;
