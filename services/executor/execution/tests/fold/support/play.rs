//! A driver on a virtual clock: it stores, then acts, crashes where the test says, and checks every event.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use belay_execution::{
    Action, Actor, ApprovalMode, Body, Control, Created, DecideContext, Decision, Event, Execution, ExecutionEvent,
    ExecutionState, LimitRoom, LimitState, NewPlan, OperationEnd, OperationEvent, OperationKey, OperationKind,
    RecoveryClass, RequiredAction, StepState, StepView, Timestamp, ToolFacts, WaitEnd, Waiting, Work, digest,
};
use belay_plan::{
    Budget, Check, Effects, OnExhausted, Outcome, Plan, RunWhen, StepDraft, StepKind, StepKindDraft, ToolStep, WhenFull,
};

use super::{
    Audit,
    children::Children,
    conditions::Conditions,
    runner::{Runner, Script},
    transitions::{States, Transitions},
};

/// When every play begins.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// More turns than any play needs: beyond it, something goes round in a circle.
const MAX_TURNS: usize = 100_000;

/// A place to die in: after the first so many of a turn's events were stored, and before anything was done about them.
pub(crate) type Crash = usize;

/// The first event's content for a plan that is accepted at `START`.
pub(crate) fn created(plan: Plan) -> Created {
    let facts = |tool: &ToolStep| ToolFacts {
        used_as: tool.tool.clone(),
        tool: tool.tool.clone(),
        recovery: match tool.tool.as_str() {
            "look" => RecoveryClass::ReadOnly,
            _ => RecoveryClass::Transactional,
        },
        default_timeout: Duration::from_secs(120),
        ..ToolFacts::default()
    };
    let calls = plan.steps().iter().flat_map(|step| {
        step.named_calls()
            .chain(step.agent().and_then(|agent| agent.commit()))
            .chain(step.agent().and_then(|agent| agent.rebase()))
            .chain(step.several().and_then(|several| several.commit()))
            .chain(step.compensate())
            .chain(step.preconditions().iter().chain(step.postconditions()).filter_map(Check::call))
    });
    let tools: BTreeMap<String, ToolFacts> = calls.map(|call| (call.tool.clone(), facts(call))).collect();
    Created {
        uid: "uid".to_owned(),
        inputs: belay_execution::Json::from_text("{}"),
        start_at: None,
        parent_step: String::new(),
        forked_from: String::new(),
        allotment: None,
        spent: belay_execution::Amounts::default(),
        approval_mode: ApprovalMode::Wait,
        workspace: belay_execution::Workspace::Directory("/workspace".to_owned()),
        labels: BTreeMap::new(),
        tools: tools.into_values().collect(),
        deadline: plan.timeout().map(|limit| START.saturating_add(limit)),
        trace: (String::new(), String::new()),
        shard: 0,
        plan,
        limits: Vec::new(),
    }
}

/// A plan with a change, by its words: `drop s1`, `divide s1` of its one effect, `rename s1`, `free s1` of what it depends on, `join s1`, which then runs after any end of that, `succeed s1`, which runs after success alone, `recall s1`, which changes its first call and keeps two, `add s9` after all others.
pub(crate) fn edited(plan: &Plan, words: &str) -> Plan {
    let mut draft = plan.to_draft();
    let (what, id) = words.split_once(' ').unwrap();
    let place = draft.steps.iter().position(|step| step.id == id);
    match (what, place) {
        ("drop", Some(place)) => {
            draft.steps.remove(place);
            draft.steps.iter_mut().for_each(|step| step.depends_on.retain(|on| on.step != id));
            draft.outputs.retain(|_, value| !value.to_string().contains(&format!("${{{id}.")));
        }
        ("rename", Some(place)) => draft.steps[place].title = "another".to_owned(),
        ("recall", Some(place)) => {
            if let StepKindDraft::Calls { calls, .. } = &mut draft.steps[place].kind {
                calls[0].arguments = serde_json::json!({"changed": true});
                calls.truncate(2);
            }
        }
        ("raise", _) => {
            let budgets = draft.steps.iter_mut().map(|step| &mut step.budget).chain([&mut draft.budget]);
            for budget in budgets.flatten() {
                (budget.tokens, budget.cost_micros) =
                    (budget.tokens.map(|n| n + 9_000), budget.cost_micros.map(|n| n + 9_000));
                (budget.calls, budget.output_bytes) =
                    (budget.calls.map(|calls| calls + 3), budget.output_bytes.map(|n| n + 30));
            }
        }
        ("cap", _) => {
            draft.parallelism += 2;
            draft.budget = Some(Budget { calls: Some(5), ..Budget::default() });
            let calls = |step: &&mut StepDraft| !matches!(step.kind, StepKindDraft::Wait { .. });
            for step in draft.steps.iter_mut().filter(calls) {
                step.budget = Some(Budget { calls: Some(2), on_exhausted: OnExhausted::Fail, ..Budget::default() });
            }
        }
        ("divide", Some(place)) => {
            if let StepKindDraft::Agent { effects, .. } = &mut draft.steps[place].kind {
                *effects = Effects::PerCall;
            }
        }
        ("join", Some(place)) => {
            draft.steps[place].run_when = RunWhen::Success;
            let all = [Outcome::Success, Outcome::Failure, Outcome::Skipped];
            draft.steps[place].depends_on.iter_mut().for_each(|on| on.on = Some(all.into()));
        }
        ("succeed", Some(place)) => {
            draft.steps[place].run_when = RunWhen::Success;
            draft.steps[place].depends_on.iter_mut().for_each(|on| on.on = None);
        }
        ("free", Some(place)) => draft.steps[place].depends_on.clear(),
        ("add", None) => {
            let mut added = draft.steps[0].clone();
            added.kind = StepKindDraft::Tool { tool: "work".to_owned(), arguments: serde_json::json!({}) };
            (added.condition, added.run_when) = (String::new(), RunWhen::Success);
            (added.for_each, added.fallback, added.resources) = (None, Vec::new(), Vec::new());
            added.compensate = None;
            added.depends_on = draft.steps.iter().map(|step| step.id.clone().into()).collect();
            added.id = id.to_owned();
            draft.steps.push(added);
        }
        _ => {}
    }
    // One that is no plan is not asked for.
    Plan::new(draft).unwrap_or_else(|_| plan.clone())
}

/// A list of events as it would be without the crashes.
///
/// Sequence numbers in bodies (of signals that waits took) shift with the recoveries, so they are counted without them.
pub(crate) fn without_recoveries(events: &[Event]) -> Vec<(Timestamp, Option<Actor>, Body)> {
    let recovered = |event: &&Event| matches!(event.body, Body::Execution(ExecutionEvent::Recovered { .. }));
    let before = |sequence: u64| {
        let recoveries = events.iter().filter(recovered).filter(|event| event.sequence < sequence).count();
        sequence - recoveries as u64
    };
    let real = events.iter().filter(|event| !recovered(event)).map(|event| {
        let mut body = event.body.clone();
        if let Body::Operation {
            event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Signalled { sequence })),
            ..
        } = &mut body
        {
            *sequence = before(*sequence);
        }
        (event.time, event.actor.clone(), body)
    });
    real.collect()
}

/// Something that happens outside, and on whose behalf.
pub(crate) type Happening = (Option<Actor>, Body);

pub(crate) struct Play {
    /// Everything that is stored.
    pub(crate) events: Vec<Event>,
    /// The present as the driver has it.
    pub(crate) execution: Execution,
    pub(crate) now: Timestamp,
    pub(crate) runner: Runner,
    /// The requests of people, by time.
    pub(crate) acts: VecDeque<(Timestamp, Happening)>,
    /// The requests that were refused.
    pub(crate) refused: Vec<String>,
    /// By turn, where it dies.
    pub(crate) crashes: VecDeque<Option<Crash>>,
    /// Whether everything that happens at one moment is recorded in one turn.
    pub(crate) batches: bool,
    /// Whether each event is checked against a replay of all before it, and every step looked at; both are quadratic.
    pub(crate) thorough: bool,
    pub(crate) transitions: Transitions,
    /// The forms that the gate was given.
    asked: BTreeSet<OperationKey>,
    children: Children,
    /// When other executions hold its limits: from and until when.
    pub(crate) full: Vec<(Timestamp, Timestamp)>,
    /// When steps of other executions are in the way of entries of lists.
    pub(crate) crowded: Option<(Timestamp, Timestamp)>,
    /// How many events each turn came to.
    pub(crate) turns: Vec<usize>,
    /// The present as the store has it, built up event by event.
    stored: Execution,
    audit: Audit,
}

impl Play {
    pub(crate) fn new(created: Created, script: Script) -> Self {
        let first = Event {
            sequence: 1,
            time: START,
            actor: Some(Actor::new("planner")),
            body: ExecutionEvent::Created(Box::new(created)).into(),
        };
        let execution = Execution::create(first.clone()).unwrap();
        Self {
            stored: execution.clone(),
            audit: Audit::new(
                execution.plan().clone(),
                execution.created().approval_mode,
                !execution.created().limits.is_empty(),
            ),
            execution,
            events: vec![first],
            now: START,
            runner: Runner::new(script),
            acts: VecDeque::new(),
            refused: Vec::new(),
            crashes: VecDeque::new(),
            batches: false,
            thorough: true,
            transitions: Transitions::default(),
            asked: BTreeSet::new(),
            children: Children::default(),
            full: Vec::new(),
            crowded: None,
            turns: Vec::new(),
        }
    }

    /// Runs until the execution has ended, or nothing more will happen.
    pub(crate) fn run(&mut self) {
        if self.turns.is_empty() {
            // What is asked for before anything has started belongs to the first turn.
            let due = self.due();
            self.turn(due);
        }
        while let Some(moment) = self.next_moment() {
            assert!(self.turns.len() < MAX_TURNS, "this goes round in a circle");
            self.now = self.now.max(moment);
            let due = self.due();
            self.turn(due);
        }
    }

    /// The present as it was right after the first event of a kind.
    pub(crate) fn just_after(&self, is: impl Fn(&Body) -> bool) -> Execution {
        let place = self.events.iter().position(|event| is(&event.body)).expect("there is such an event");
        Execution::replay(self.events[..=place].iter().cloned()).unwrap()
    }

    pub(crate) fn state(&self) -> ExecutionState {
        self.execution.state()
    }

    /// The arguments of the first call of a step, as its event shows them.
    pub(crate) fn arguments(&self, id: &str) -> String {
        let request = self.events.iter().find_map(|event| match &event.body {
            Body::Operation { id: call, event: OperationEvent::Requested(Work::ToolCall(request)) }
                if &*call.step == id =>
            {
                Some(request)
            }
            _ => None,
        });
        let request = request.expect("the step made a call");
        // S4-19: what the event shows is what was digested.
        let arguments = request.arguments.inline().expect("they are inline").as_str();
        assert_eq!(request.arguments_digest, digest(arguments.as_bytes()));
        arguments.to_owned()
    }

    /// A principal sends a request now.
    pub(crate) fn act(&mut self, act: Happening) {
        self.acts.push_front((self.now, act));
        self.run();
    }

    fn next_moment(&self) -> Option<Timestamp> {
        let acts = self.acts.front().map(|(at, _)| *at);
        let happenings = self.happenings();
        let turn = self.full_until().filter(|_| matches!(self.execution.limit_state(), LimitState::Waiting(_)));
        let room = self.crowded_until();
        acts.into_iter()
            .chain(happenings.map(|(at, _)| at))
            .chain(self.execution.wake_at())
            .chain(turn)
            .chain(room)
            .min()
    }

    /// Until when steps of other executions are in the way; `None` when none are.
    fn crowded_until(&self) -> Option<Timestamp> {
        self.crowded.filter(|(from, until)| *from <= self.now && self.now < *until).map(|(_, until)| until)
    }

    /// Until when others hold the limits; `None` when none does.
    fn full_until(&self) -> Option<Timestamp> {
        self.full.iter().filter(|(from, until)| *from <= self.now && self.now < *until).map(|(_, until)| *until).max()
    }

    fn limit_room(&self) -> LimitRoom {
        let refuses = self.execution.created().limits.iter().position(|limit| limit.when_full == WhenFull::Refuse);
        self.full_until().map_or(LimitRoom::Free, |_| LimitRoom::Full { refused: refuses })
    }

    /// The next event about each call and each child in flight.
    fn happenings(&self) -> impl Iterator<Item = (Timestamp, Happening)> {
        let actions: BTreeSet<Action> = self.execution.actions().into_iter().collect();
        let stopped =
            move |operation| actions.iter().any(|action| action.operation == operation && action.required.stops());
        let calls = self.execution.operations().filter_map(move |operation| {
            let id = self.execution.operation_id(operation.key);
            self.runner.next(&id, operation.pending_approval.as_ref(), stopped(operation.key))
        });
        calls.chain(self.children.happenings(&self.execution))
    }

    /// Takes the updates that have happened by now and are not recorded: requests of people first.
    fn due(&mut self) -> Vec<Happening> {
        let mut due = Vec::new();
        let most = if self.batches { usize::MAX } else { 1 };
        while due.len() < most && self.acts.front().is_some_and(|(at, _)| *at <= self.now) {
            due.extend(self.acts.pop_front().map(|(_, kind)| kind));
        }
        let happened = self.happenings().filter(|(at, _)| *at <= self.now).map(|(_, kind)| kind);
        let happened: Vec<Happening> = happened.take(most - due.len()).collect();
        due.extend(happened);
        due
    }

    /// Runs a turn: record what happened, decide, store, act. When it dies on the way, its successor replays the stored events and receives
    /// the others again.
    fn turn(&mut self, mut outside: Vec<Happening>) {
        loop {
            let mut fresh = Vec::new();
            let mut recorded = Vec::new();
            let mut refused = Vec::new();
            for (place, (actor, body)) in outside.iter().enumerate() {
                let before = self.thorough.then(|| self.execution.clone());
                let happened = match body {
                    // Which steps run again is up to the execution.
                    Body::Execution(ExecutionEvent::Retried(retried)) => {
                        let actor = actor.clone().expect("a person asks for that");
                        let asked = Control::Retry { request: retried.request.clone(), plan: None };
                        self.execution.control(self.now, actor, asked).map_err(|refused| refused.to_string())
                    }
                    Body::Execution(ExecutionEvent::PlanUpdated(updated)) => {
                        let actor = actor.clone().expect("a person asks for that");
                        let plan = edited(self.execution.plan(), &updated.reason);
                        let tools = self.execution.created().tools.clone();
                        let plan = NewPlan { plan: Box::new(plan), tools };
                        let asked = Control::UpdatePlan { plan, revision: None, reason: updated.reason.clone() };
                        self.execution.control(self.now, actor, asked).map_err(|refused| refused.to_string())
                    }
                    _ => {
                        let recorded = self.execution.record(self.now, actor.clone(), body.clone());
                        recorded.map(|event| vec![event]).map_err(|illegal| illegal.violation.to_string())
                    }
                };
                match happened {
                    Ok(events) => {
                        recorded.extend(events.iter().map(|_| place));
                        fresh.extend(events);
                    }
                    Err(why) => {
                        assert!(
                            before.is_none_or(|before| before == self.execution),
                            "a refused request changed something"
                        );
                        refused.push((place, why));
                    }
                }
            }
            let conditions = Conditions { limit_room: self.limit_room(), is_crowded: self.crowded_until().is_some() };
            fresh
                .extend(self.execution.advance_with(DecideContext { now: self.now, ledger_id: "ledger" }, &conditions));
            self.turns.push(fresh.len());
            let Some(mut kept) = self.crashes.pop_front().flatten() else {
                self.refused.extend(refused.into_iter().map(|(_, why)| why));
                self.store(fresh);
                if self.thorough {
                    assert_eq!(self.execution, self.stored, "the present is not what was stored");
                }
                return self.perform();
            };
            // The events of one request are stored together.
            while kept > 0 && recorded.get(kept).is_some_and(|place| recorded[kept - 1] == *place) {
                kept -= 1;
            }
            fresh.truncate(kept);
            self.store(fresh);
            self.execution = Execution::replay(self.events.iter().cloned()).unwrap();
            assert_eq!(self.execution, self.stored);
            self.check_snapshot();
            let lost = recorded.get(kept).copied().unwrap_or(outside.len());
            outside.drain(..lost);
            self.refused.extend(refused.into_iter().filter(|(place, _)| *place < lost).map(|(_, why)| why));
            if !self.state().is_terminal() {
                let in_doubt = self.execution.in_doubt().into_iter().map(|key| self.execution.operation_id(key));
                let recovered = ExecutionEvent::Recovered { in_doubt: in_doubt.collect() };
                outside.insert(0, (None, recovered.into()));
            }
        }
    }

    fn check_snapshot(&self) {
        let Some(snapshot) = self.stored.snapshot() else {
            assert!(self.stored.plan_revision() > 0);
            return;
        };
        let restored = Execution::restore(self.events[0].clone(), &snapshot).unwrap();
        assert_eq!(restored, self.stored, "a snapshot is not what was folded");
    }

    fn store(&mut self, events: Vec<Event>) {
        for event in events {
            let before = self.thorough.then(|| States::of(&self.stored));
            self.stored.apply(&event).unwrap();
            self.audit.see(&event);
            self.audit.check_state(self.stored.state());
            self.events.push(event.clone());
            if let Some(before) = before {
                self.transitions.note(&before, &event.body, &self.stored);
                assert!(
                    self.stored.are_budgets_consistent(),
                    "recounted budgets are not those kept: {:?}",
                    self.stored
                );
                assert!(self.stored.is_index_consistent(), "rebuilt indexes are not those kept: {:?}", self.stored);
                let replayed = Execution::replay(self.events.iter().cloned()).unwrap();
                assert_eq!(replayed, self.stored, "replaying is not the same as going on");
                assert_eq!(replayed.actions(), self.stored.actions());
                self.check_snapshot();
            }
        }
        // S4-09; REQUIREMENTS section 4, number 8.
        assert_eq!(self.stored.totals(), self.audit.totals());
    }

    fn perform(&mut self) {
        let actions = self.execution.actions();
        let running = actions.iter().filter(|action| action.required == RequiredAction::Dispatch).count();
        assert!(running <= self.execution.plan().parallelism(), "more calls run at once than the plan allows");
        assert_eq!(actions, self.execution.actions(), "asking twice gave two answers");
        let waits_for_limits = matches!(self.execution.limit_state(), LimitState::Waiting(_));
        if self.state() == ExecutionState::Running && !waits_for_limits {
            let waits_for_slot = |step: &StepView<'_>| {
                let needs_none = matches!(step.spec().kind(), StepKind::Wait(_)) || step.has_entries();
                let is_due = !matches!(step.waiting(), Some(Waiting::Time { until, .. }) if until > self.now);
                needs_none && step.state() == StepState::Ready && is_due
            };
            assert!(!self.execution.steps().any(|step| waits_for_slot(&step)), "a wait needs no slot");
        }
        for Action { operation, required } in actions {
            let call = &self.execution.operation_id(operation);
            let operation = self.execution.operation(operation).expect("only operations in flight need something");
            let request = match &operation.kind {
                OperationKind::ToolCall(request) => request,
                OperationKind::Child { .. } => {
                    self.children.perform(call, operation, required, self.now);
                    continue;
                }
                OperationKind::Wait(wait) => {
                    assert_eq!(required, RequiredAction::RequestApproval);
                    let form = wait.condition.form().expect("only a form is asked");
                    let (approval, subject_digest) = (format!("form {call}"), form.subject_digest.clone());
                    let event = OperationEvent::Asked { approval, subject_digest };
                    if self.asked.insert(operation.key) {
                        self.acts.push_front((self.now, (None, Body::Operation { id: call.clone(), event })));
                    }
                    continue;
                }
            };
            let pending = operation.pending_approval.as_ref();
            match required {
                RequiredAction::Dispatch => {
                    let granted = pending.is_some_and(|pending| pending.decision() == Some(Decision::Approved));
                    self.runner.send(call, request, granted, self.now);
                }
                RequiredAction::Pause => panic!("a call is not paused"),
                RequiredAction::Cancel | RequiredAction::Kill => self.runner.stop(call, self.now),
                RequiredAction::RequestApproval => self.runner.ask(call, self.now),
                RequiredAction::Commit => self.runner.commit(call, self.now),
                RequiredAction::Discard => {
                    let failure = pending.and_then(|pending| pending.denial(self.execution.created().approval_mode));
                    self.runner.discard(call, failure.expect("only what was turned down is given up"), self.now);
                }
            }
        }
        let wake_at = self.execution.wake_at();
        assert!(wake_at.is_none_or(|at| at > self.now), "what was due at {wake_at:?} was not done");
        self.check_owned();
    }

    /// REQUIREMENTS section 4, number 6: whatever has not ended waits for a call, a moment, an approval or a person.
    fn check_owned(&self) {
        if self.state().is_terminal() {
            assert!(self.execution.actions().is_empty());
            return;
        }
        let has_owner = !self.execution.is_parked() || !self.execution.waiting().is_empty();
        let owned = has_owner || self.crowded_until().is_some();
        assert!(owned, "nobody will ever go on with {:?}", self.execution);
    }
}
