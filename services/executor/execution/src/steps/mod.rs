//! The kinds of steps, one file each:
//!
//! - `next` decides which operation a started step requests next,
//! - `started` (`requested` for calls), `reported` and `ended` apply the events of the one family [`OperationEvent`] to an operation of the kind,
//! - `action` says what the driver has to do for an operation in flight,
//! - `words…` and `activity…` say what an event of one means to people: a sentence, and what the step does from then on,
//! - `output` and `files` say what the end of one has produced.

pub(crate) mod agent;
pub(crate) mod cache;
pub(crate) mod checks;
pub(crate) mod child;
pub(crate) mod condition;
mod entries;
pub(crate) mod for_each;
mod layers;
pub(crate) mod next;
pub(crate) mod outputs;
pub(crate) mod question;
mod repeat;
mod request;
pub(crate) mod tool;
pub(crate) mod wait;

use belay_network::{LOOPBACK, NONE};
use belay_plan::{AuditLevel, COMMIT_TOOL, REBASE_TOOL, StepKind};
use serde_json::json;

use self::next::Next;
use crate::{
    Actor, Blobs, Body, CommittedFile, DecideContext, Execution, Operation, OperationEnd, OperationEvent, OperationId,
    OperationKey, OperationKind, RecordedDecision, RecoveryClass, RequiredAction, StepKey, StepOutput, Timestamp,
    ToolFacts, Violation, Work,
    state::StepRecord,
    words::{self, Activity, Severity, Words},
};

/// Returns what a started step does next.
pub(crate) fn next(execution: &Execution, step: StepKey, context: DecideContext<'_>, blobs: &dyn Blobs) -> Next {
    if execution.steps[step].has_entries() {
        return for_each::next(execution, step, blobs);
    }
    requested(execution, step, context, blobs).map_or(Next::Data, Next::Event)
}

/// The event with which a started step requests its next operation, or fails; `None` while it needs a blob that is not at hand.
fn requested(execution: &Execution, step: StepKey, context: DecideContext<'_>, blobs: &dyn Blobs) -> Option<Body> {
    let record = &execution.steps[step];
    // A step that undoes what another has done is one call, whatever that one did.
    if let Some(call) = record.current_call() {
        return checks::next(execution, step, call, context, blobs);
    }
    match record.spec.kind() {
        StepKind::Tool(_) | StepKind::Calls(_) | StepKind::Agent(_) => None,
        StepKind::Wait(wait) => wait::next(execution, step, wait, context, blobs),
        StepKind::Plan(plan) => child::next(execution, step, plan, context, blobs),
    }
}

/// Applies an event about an operation.
pub(crate) fn apply(
    execution: &mut Execution,
    id: &OperationId,
    event: &OperationEvent,
    actor: Option<&Actor>,
    time: Timestamp,
) -> Result<(), Violation> {
    match event {
        OperationEvent::Requested(work) => match work {
            Work::ToolCall(request) => tool::requested(execution, id, request, time),
            Work::Wait(condition) if condition.question().is_some() => {
                question::started(execution, id, condition, time)
            }
            Work::Wait(condition) => wait::started(execution, id, condition, time),
            Work::Child(child) => child::started(execution, id, child, time),
        },
        OperationEvent::Held(requirement) => {
            tool::call_in_flight(execution, id)?;
            execution.held(id, requirement, time)
        }
        OperationEvent::Asked { approval, subject_digest } => execution.asked(id, approval, subject_digest),
        OperationEvent::Decided { approval, decision, reason } => {
            let principal = actor.map(|actor| actor.principal.clone()).unwrap_or_default();
            let decided = RecordedDecision { decision: *decision, principal, reason: reason.clone() };
            execution.decided(id, approval, decided, time)
        }
        OperationEvent::Dispatched => tool::dispatched(execution, id),
        OperationEvent::Reported(report) => child::reported(execution, id, *report),
        OperationEvent::Ended(end) => match end {
            OperationEnd::ToolCall(end) => tool::ended(execution, id, end, time),
            OperationEnd::Wait(end) if is_question(execution, id) => question::ended(execution, id, end, actor, time),
            OperationEnd::Wait(end) => wait::ended(execution, id, end, actor, time),
            OperationEnd::Child { end, spent } => child::ended(execution, id, end, *spent, time),
        },
    }
}

fn is_question(execution: &Execution, id: &OperationId) -> bool {
    let condition = execution.in_flight(id).ok().and_then(Operation::wait);
    condition.is_some_and(|condition| condition.question().is_some())
}

impl Execution {
    /// The facts about the tools of the plan that is carried out now.
    pub fn tools(&self) -> &[ToolFacts] {
        self.revised.as_ref().map_or(&self.created.tools, |revised| &revised.tools)
    }

    /// The network profile that the step of a call in flight names, or its plan where the call's tool takes one; `None` for the default of the call's tool, for
    /// checks, and for any other operation.
    pub fn network(&self, operation: OperationKey) -> Option<&str> {
        let request = self.operation(operation)?.tool_call()?;
        if request.check.is_some() || [COMMIT_TOOL, REBASE_TOOL].contains(&&*request.tool) {
            return None;
        }
        // A model calls tools of many kinds.
        let of_agent = self.steps[operation.step].is_of_agent();
        let takes = || self.tools().iter().any(|facts| facts.tool == request.tool && facts.takes_network);
        let own = self.steps[operation.step].spec.network().filter(|_| !of_agent || takes());
        own.or_else(|| self.plan().network().filter(|_| takes()))
    }

    /// How to recover a call in flight when its outcome is not known; `None` for any other operation. A call whose command has a network never runs again
    /// automatically: what it did there cannot be discarded.
    pub fn recovery(&self, operation: OperationKey) -> Option<RecoveryClass> {
        let request = self.operation(operation)?.tool_call()?;
        // A tool may have a network by default, which `none` takes away: what is known of the tool counts then.
        if self.network(operation).is_some_and(|name| ![NONE, LOOPBACK].contains(&name)) {
            return Some(RecoveryClass::Manual);
        }
        let record = &self.steps[operation.step];
        let call = match request.check {
            Some(place) => record.spec.check(place)?.call(),
            None => record.current_call(),
        };
        self.tool(&call?.tool).map(|facts| facts.recovery)
    }
}

/// Returns the driver's action for an operation in flight; `None` when there is nothing to do.
pub(crate) fn action(execution: &Execution, operation: &Operation) -> Option<RequiredAction> {
    match &operation.kind {
        OperationKind::ToolCall(_) => tool::action(execution, operation),
        OperationKind::Wait(wait) => wait::action(execution, wait),
        OperationKind::Child { created, pause, .. } => child::action(execution, *created, *pause),
    }
}

impl OperationEvent {
    /// The event in words. `has_actor`: a person is the event's actor.
    pub fn words(&self, id: &OperationId, has_actor: bool) -> Words {
        match self {
            Self::Requested(Work::ToolCall(request)) => tool::words_requested(id, request),
            Self::Requested(Work::Wait(condition)) => wait::words_started(id, condition),
            Self::Requested(Work::Child(child)) => child::words_started(id, child),
            Self::Held(requirement) => tool::words_held(id, requirement),
            Self::Asked { approval, subject_digest } => {
                let details =
                    json!({"operation": words::operation(id), "approval": approval, "subjectDigest": subject_digest});
                let message = format!("Step `{}` waits for approval", id.step);
                Words::new(AuditLevel::Standard, Severity::Info, message, details)
            }
            Self::Decided { approval, decision, reason } => tool::words_decided(id, approval, *decision, reason),
            Self::Dispatched => {
                let message = format!("The approved call of step `{}` is sent", id.step);
                let details = json!({"operation": words::operation(id)});
                Words::new(AuditLevel::Verbose, Severity::Info, message, details)
            }
            Self::Reported(report) => child::words_reported(id, *report),
            Self::Ended(OperationEnd::ToolCall(end)) => tool::words_ended(id, end),
            Self::Ended(OperationEnd::Wait(end)) => wait::words_ended(id, end, has_actor),
            Self::Ended(OperationEnd::Child { end, .. }) => child::words_ended(id, end),
        }
    }

    /// The activity of the operation's step from this event on; `None` when it stays what it was.
    pub fn activity(&self) -> Option<Activity> {
        match self {
            Self::Requested(Work::Wait(condition)) => Some(wait::activity(condition)),
            Self::Requested(Work::ToolCall(_) | Work::Child(_)) | Self::Dispatched | Self::Decided { .. } => {
                Some(Activity::Runs)
            }
            Self::Held(_) => Some(Activity::AwaitsPerson),
            Self::Asked { .. } => None,
            Self::Reported(report) => child::activity_reported(*report),
            Self::Ended(OperationEnd::ToolCall(end)) => tool::activity_after(end),
            Self::Ended(OperationEnd::Wait(end)) => wait::activity_after(end),
            Self::Ended(OperationEnd::Child { .. }) => Some(Activity::Runs),
        }
    }
}

impl Work {
    /// Whether its end gives its step an output: not a check of the step, nor a question of its call.
    pub fn gives_output(&self) -> bool {
        match self {
            Self::ToolCall(request) => request.check.is_none(),
            Self::Wait(condition) => condition.question().is_none(),
            Self::Child(_) => true,
        }
    }
}

impl OperationEnd {
    /// The output that it gives its step, if it is the end of work that [gives one](Work::gives_output).
    pub fn output(&self) -> Option<StepOutput> {
        match self {
            Self::ToolCall(end) => tool::output(end),
            Self::Wait(end) => wait::output(end),
            Self::Child { end, .. } => child::output(end),
        }
    }

    /// Whether it is the end of a tool's call.
    pub fn is_of_call(&self) -> bool {
        matches!(self, Self::ToolCall(_))
    }

    /// The files that it has committed.
    pub fn files(&self) -> &[CommittedFile] {
        match self {
            Self::ToolCall(end) => tool::files(end),
            Self::Wait(_) | Self::Child { .. } => &[],
        }
    }
}

/// Whether the next operation of a step is a call or an execution of its plan.
pub(crate) fn makes_calls(record: &StepRecord) -> bool {
    let is_left = !record.has_done() || record.has_calls_left();
    !record.has_entries() && (record.current_call().is_some() && is_left || carries_out_plan(record))
}

/// Whether a step carries out a plan, as an execution of its own.
pub(crate) fn carries_out_plan(record: &StepRecord) -> bool {
    matches!(record.spec.kind(), StepKind::Plan(_)) && record.compensates().is_none()
}

#[cfg(test)]
mod tests {
    use crate::{
        Body, DecideContext, Json, OperationEnd, OperationEvent, OperationKey, Receipt, RecoveryClass, Timestamp,
        ToolCallEnd, test_support::started,
    };

    // The runner keeps the row of a call until it is acknowledged, which follows from how that call is recovered, not from another of its step.
    #[test]
    fn the_call_of_a_check_is_recovered_by_its_own_tool() {
        let now = Timestamp::from_micros(5);
        let plan = "id: p\nsteps: [{id: a, tool: t, preconditions: [{command: [check]}]}]";
        let mut execution = started(plan, now);
        let in_flight = |execution: &crate::Execution| -> OperationKey {
            execution.operations().next().expect("a call is in flight").key
        };
        let check = in_flight(&execution);
        assert_eq!(execution.recovery(check), Some(RecoveryClass::ReadOnly));

        let end =
            ToolCallEnd::Completed { result: Json::from_text("{}").into(), receipt: Box::new(Receipt::default()) };
        let body = Body::Operation {
            id: execution.operation_id(check),
            event: OperationEvent::Ended(OperationEnd::ToolCall(end)),
        };
        execution.record(now, None, body).unwrap();
        execution.advance(DecideContext { now, ledger_id: "l" });
        let own = in_flight(&execution);
        assert_eq!(execution.recovery(own), Some(RecoveryClass::Transactional));
        assert_eq!([check, own].map(|key| key.number), [1, 2]);
        assert_eq!(execution.calls_for_purpose(own), 1, "a call of a check is no try of the step's own");
    }

    // What a command did on a network cannot be discarded, so that its call never runs again automatically. A check has none of its step's.
    #[test]
    fn a_call_with_a_network_is_recovered_by_a_person() {
        let now = Timestamp::from_micros(5);
        let first = |network: &str, more: &str| {
            let execution = started(&format!("id: p\nsteps: [{{id: a, tool: t, network: {network}{more}}}]"), now);
            let key = execution.operations().next().expect("a call is in flight").key;
            (execution.network(key).map(str::to_owned), execution.recovery(key))
        };
        assert_eq!(first("registries", ""), (Some("registries".to_owned()), Some(RecoveryClass::Manual)));
        // The runner is told, whose tool may have another by default.
        for closed in ["none", "loopback"] {
            assert_eq!(first(closed, ""), (Some(closed.to_owned()), Some(RecoveryClass::Transactional)));
        }
        // That of the plan is for the tools that take one, and a step's own comes first; a check has neither.
        let of_plan = |step: &str| {
            let execution = started(&format!("id: p\nnetwork: registries\nsteps: [{{id: a, {step}}}]"), now);
            let key = execution.operations().next().expect("a call is in flight").key;
            (execution.network(key).map(str::to_owned), execution.recovery(key))
        };
        let command = "tool: run_terminal, arguments: {command: [x]}";
        assert_eq!(of_plan(command), (Some("registries".to_owned()), Some(RecoveryClass::Manual)));
        assert_eq!(of_plan("tool: t"), (None, Some(RecoveryClass::Transactional)));
        let closed = of_plan(&format!("network: none, {command}"));
        assert_eq!(closed, (Some("none".to_owned()), Some(RecoveryClass::ReadOnly)));
        let checked = of_plan(&format!("preconditions: [{{command: [check]}}], {command}"));
        assert_eq!(checked, (None, Some(RecoveryClass::ReadOnly)));
        let check = first("registries", ", preconditions: [{command: [check]}]");
        assert_eq!(check, (None, Some(RecoveryClass::ReadOnly)));
    }

    /// The network is part of what a call was asked to do: the plan's stays as long as a call that has it is in flight.
    #[test]
    fn the_network_of_a_plan_stays_while_a_call_has_it() {
        let now = Timestamp::from_micros(5);
        let plan = |network: &str| {
            format!(
                "id: p\nnetwork: {network}\nparallelism: 2\nsteps: [{{id: a, tool: run_terminal, network: ci, arguments: {{command: [x]}}}}, {{id: b, tool: t, depends_on: []}}]"
            )
        };
        let update = |execution: &mut crate::Execution, text: &str| {
            let plan = Box::new(belay_plan::Plan::parse(belay_plan::Format::Yaml, text).unwrap());
            let (tools, reason) = (execution.tools().to_vec(), String::new());
            let change = crate::Control::UpdatePlan { plan: crate::NewPlan { plan, tools }, revision: None, reason };
            execution.control(now, crate::Actor::new("ann"), change).map(drop).map_err(|refused| refused.to_string())
        };
        let mut execution = started(&plan("registries"), now);
        let refused = update(&mut execution.clone(), &plan("git-https")).unwrap_err();
        assert!(refused.contains("the plan's `network` cannot change while step `b` makes a call"), "{refused}");
        update(&mut execution, &plan("registries").replace("parallelism: 2", "parallelism: 1")).unwrap();
        let call = execution.operations().find(|call| call.key.step.position() == 1).unwrap().key;
        let end = ToolCallEnd::Completed { result: Json::from_text("1").into(), receipt: Box::new(Receipt::default()) };
        let event = OperationEvent::Ended(OperationEnd::ToolCall(end));
        let body = Body::Operation { id: execution.operation_id(call), event };
        execution.record(now, None, body).unwrap();
        update(&mut execution, &plan("git-https")).unwrap();
        assert_eq!(execution.plan().network(), Some("git-https"));
    }

    // All kinds have one family of events, so that only this refuses one that does not fit: the wire cannot say it, a test can.
    #[test]
    fn an_event_that_does_not_fit_its_operation_is_refused() {
        let now = Timestamp::from_micros(5);
        let plan = "id: p\nsteps: [{id: w, wait: {signal: go}}]";
        let execution = started(plan, now);
        let wait = execution.operations().next().expect("it waits").key;
        let end =
            ToolCallEnd::Completed { result: Json::from_text("{}").into(), receipt: Box::new(Receipt::default()) };
        for event in [
            OperationEvent::Dispatched,
            OperationEvent::Reported(crate::OperationReport::ChildCreated),
            OperationEvent::Ended(OperationEnd::ToolCall(end)),
            OperationEvent::Ended(OperationEnd::Child { end: crate::ChildEnd::Cancelled, spent: None }),
            OperationEvent::Asked { approval: "a".into(), subject_digest: "sha256:x".into() },
            OperationEvent::Decided {
                approval: "a".into(),
                decision: crate::Decision::Approved,
                reason: String::new(),
            },
        ] {
            let mut other = execution.clone();
            let body = Body::Operation { id: execution.operation_id(wait), event };
            assert!(other.record(now, None, body.clone()).is_err(), "{body:?}");
            assert_eq!(other, execution, "{body:?}");
        }
    }
}
