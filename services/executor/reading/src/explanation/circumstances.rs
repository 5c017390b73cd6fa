//! Facts about an execution beside its state: blockers that are in no event, and requests to cancel it.

use belay_execution::{Event, ExecutionEvent, StepKey, Timestamp};

/// Facts about an execution beside its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances<'a> {
    /// Blockers of the whole execution.
    pub blockers: &'a [Blocker],
    /// Blockers of steps; of several of one step, the last counts.
    pub step_blockers: &'a [(StepKey, Blocker)],
    /// The request to cancel it, if somebody made one.
    pub cancel_request: Option<&'a CancelRequest>,
    /// The limits over executions in which it waits for its turn.
    pub full_limits: &'a [FullLimit],
    /// Whether a process carries it on.
    pub is_driven: bool,
}

/// A limit over executions in which an execution waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullLimit {
    /// The key.
    pub key: String,
    /// Executions that hold it, by name: the first of them.
    pub holders: Vec<String>,
    /// How many hold it.
    pub held: usize,
    /// How many executions wait before this one.
    pub ahead: usize,
    /// When a limit with a rate has room again; `None` when an execution has to end first.
    pub frees_at: Option<Timestamp>,
}

impl FullLimit {
    /// Why it is full, in words.
    pub fn in_words(&self) -> String {
        let Self { key, holders, held, ahead, frees_at } = self;
        let named: Vec<&str> = holders.iter().map(|name| name.rsplit('/').next().unwrap_or(name)).collect();
        let others = held.saturating_sub(named.len());
        let mut words = match (named.is_empty(), others) {
            (true, _) => format!("the limit `{key}` is full"),
            (false, 0) => format!("the limit `{key}` is held by {}", named.join(", ")),
            (false, _) => format!("the limit `{key}` is held by {} and {others} more", named.join(", ")),
        };
        if frees_at.is_some() {
            words = format!("as many executions as may have started in the window of the limit `{key}`");
        }
        match ahead {
            0 => {}
            1 => words.push_str("; 1 execution waits before this one"),
            more => words.push_str(&format!("; {more} executions wait before this one")),
        }
        words
    }
}

/// A service that executions need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The service that carries out plans.
    Executor,
    /// The service that makes calls of tools.
    ToolRunner,
    /// The service that asks people.
    ApprovalGate,
}

/// A blocker of an execution that is in no event: only the driver of the execution knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Since when.
    pub since: Timestamp,
    /// The kind of blocker.
    pub kind: BlockerKind,
}

/// The kind of a blocker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockerKind {
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
    /// Calls in flight hold what the budget of the namespace has left, in these words.
    NamespaceBudget(String),
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
    /// The principal; empty when none is known.
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
            Body::Execution(_) | Body::Step { .. } | Body::Operation { .. } => before,
        }
    }
}
