//! Executions that wait, fail, and are stopped, and what explains each.

use std::{collections::BTreeMap, time::Duration};

use belay_execution::{
    Actor, ApprovalMode, ApprovalRequirement, Body, ChildEnd, Control, Created, DecideContext, EffectSummary,
    ErrorClass, Event, Execution, ExecutionEvent, ExecutionState, Failure, Json, OperationEnd, OperationEvent,
    OperationId, PolicyDecision, Receipt, RecoveryClass, Risk, SkipReason, StepKey, SubjectKind, Timestamp,
    ToolCallEnd, ToolFacts, Verdict, Workspace,
};
use belay_plan::{Format, LimitBound, LimitClaim, Plan, WhenFull};

use super::{
    Action, Blocker, BlockerKind, CancelRequest, Cause, CauseKind, Circumstances, Explanation, FullLimit, Service,
    Subject, Verb, explain, is_wait, next_actions,
};

const NAME: &str = "namespaces/n/executions/e";

/// An execution that is driven as far as nothing has to end, and the events so far.
struct Story {
    execution: Execution,
    second: i64,
    events: Vec<Event>,
}

impl Story {
    fn of(plan: &str) -> Self {
        Self::under("", plan)
    }

    /// The story of an execution that carries out the plan of a step.
    fn under(parent_step: &str, plan: &str) -> Self {
        let facts = |tool: &str, recovery| ToolFacts {
            used_as: tool.into(),
            tool: tool.into(),
            recovery,
            default_timeout: Duration::from_secs(1),
            secret_arguments: Vec::new(),
            secret_result: Vec::new(),
            ..ToolFacts::default()
        };
        let created = Created {
            uid: "u".into(),
            plan: Plan::parse(Format::Yaml, plan).unwrap(),
            inputs: Json::from_text("{}"),
            start_at: None,
            parent_step: parent_step.into(),
            forked_from: String::new(),
            allotment: None,
            spent: belay_execution::Amounts::default(),
            approval_mode: ApprovalMode::Wait,
            workspace: Workspace::MadeFolder("e".into()),
            labels: BTreeMap::new(),
            tools: vec![facts("t", RecoveryClass::Transactional), facts("m", RecoveryClass::Manual)],
            deadline: Some(at(1_000)),
            trace: (String::new(), String::new()),
            shard: 0,
            limits: Vec::new(),
        };
        let body = ExecutionEvent::Created(Box::new(created)).into();
        let first = Event { sequence: 1, time: at(0), actor: Some(Actor::new("person:ann")), body };
        let mut story = Self { execution: Execution::create(first).unwrap(), second: 0, events: Vec::new() };
        story.advance();
        story
    }

    fn advance(&mut self) {
        self.second += 1;
        let events = self.execution.advance(DecideContext { now: at(self.second), ledger_id: "l" });
        self.events.extend(events);
    }

    fn record(&mut self, body: Body) {
        self.second += 1;
        let event = self.execution.record(at(self.second), None, body).unwrap();
        self.events.push(event);
        self.advance();
    }

    fn control(&mut self, control: Control) {
        self.second += 1;
        let events = self.execution.control(at(self.second), Actor::new("person:ann"), control).unwrap();
        self.events.extend(events);
        self.advance();
    }

    /// The operation in flight of a step.
    fn operation(&self, step: &str) -> OperationId {
        let key = self.execution.step_key(step).unwrap();
        let operation = self.execution.step(key).operations().next().expect("it has an operation").key;
        self.execution.operation_id(operation)
    }

    fn ends(&mut self, step: &str, end: ToolCallEnd) {
        let call = self.operation(step);
        self.record(Body::Operation { id: call, event: OperationEvent::Ended(OperationEnd::ToolCall(end)) });
    }

    fn fails(&mut self, step: &str, class: ErrorClass) {
        let end =
            ToolCallEnd::Failed { failure: Failure::new(class, "R", "No."), receipt: Box::new(Receipt::default()) };
        self.ends(step, end);
    }

    fn completes(&mut self, step: &str, created: u32) {
        let effect = (created > 0).then(|| EffectSummary { created, ..EffectSummary::default() });
        let receipt = Receipt { effect, ..Receipt::default() };
        self.ends(step, ToolCallEnd::Completed { result: Json::from_text("1").into(), receipt: Box::new(receipt) });
    }

    fn explain(&self) -> Explanation<'_> {
        explain(NAME, &self.execution, Circumstances { is_driven: true, ..Circumstances::default() })
    }

    /// Each cause with its step, and what can be done about it.
    fn causes(&self, explanation: &Explanation<'_>) -> Vec<(CauseKind, String, Vec<Verb>)> {
        let id = |key| self.execution.step(key).id().to_string();
        let of = |cause: &Cause<'_>| {
            let verbs = cause.actions.iter().map(|action| action.verb).collect();
            (cause.kind, cause.step.map(id).unwrap_or_default(), verbs)
        };
        explanation.causes.iter().map(of).collect()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn next(explanation: &Explanation<'_>) -> Vec<Action> {
    next_actions(&explanation.outlook(), &[])
}

fn verbs(actions: &[Action]) -> Vec<(Verb, &str)> {
    actions.iter().map(|action| (action.verb, action.execution.as_str())).collect()
}

#[test]
fn a_failed_one_names_what_failed_first_what_was_tried_what_changed_and_what_was_skipped() {
    let mut story = Story::of(
        "id: p\nparallelism: 4\nsteps:\n- {id: write, tool: t}\n- {id: late, tool: t}\n- {id: build, tool: t, depends_on: [write], retry: {max_attempts: 2, \
         backoff: [1s]}}\n- {id: test, tool: t, depends_on: [build]}\n- {id: ship, tool: t, depends_on: [test]}\n- {id: never, tool: t, depends_on: [write], run_when: failure}\n- {id: unless, tool: t, depends_on: [test], run_when: none_failed}\n- {id: instead, tool: t, depends_on: [{step: build, on: \
         [skipped]}]}\n- {id: joined, tool: t, depends_on: [{step: build, on: [success, skipped]}]}\n",
    );
    story.completes("write", 2);
    story.fails("build", ErrorClass::Transient);
    let waits = story.explain();
    assert_eq!(story.causes(&waits)[0], (CauseKind::Backoff, "build".to_owned(), vec![]));
    let backoff = &waits.causes[0];
    assert_eq!((backoff.failed_attempts.len(), backoff.failure.unwrap().reason.as_str()), (1, "R"));
    assert!(backoff.until > backoff.since);
    story.second += 10;
    story.advance();
    story.fails("build", ErrorClass::Transient);
    story.fails("late", ErrorClass::InvalidArguments);

    let failed = story.explain();
    let failures =
        vec![(CauseKind::StepFailure, "build".to_owned(), vec![]), (CauseKind::StepFailure, "late".to_owned(), vec![])];
    assert_eq!((failed.state, story.causes(&failed)), (ExecutionState::Partial, failures));
    assert_eq!(failed.causes[0].failed_attempts.iter().map(|failed| failed.attempt).collect::<Vec<_>>(), [1, 2]);
    let changes: Vec<_> = failed.changes.iter().map(|change| (&*change.step, change.authorization.changes)).collect();
    assert_eq!(changes, [("write", [2, 0, 0])]);
    let skipped: Vec<_> = failed
        .skipped
        .iter()
        .map(|step| (&*step.step, step.reason, step.because.as_deref(), step.follows_failure))
        .collect();
    assert_eq!(
        skipped,
        [
            ("test", SkipReason::DependencyFailed, Some("build"), true),
            ("ship", SkipReason::DependencySkipped, Some("test"), true),
            ("never", SkipReason::ConditionFalse, Some("write"), false),
            ("unless", SkipReason::DependencySkipped, Some("test"), true),
            // It would have been skipped without the failure, too.
            ("instead", SkipReason::ConditionFalse, Some("build"), false),
            ("joined", SkipReason::DependencyFailed, Some("build"), true),
        ]
    );
    assert_eq!(verbs(&next(&failed)), [(Verb::Retry, NAME)]);
}

#[test]
fn what_a_person_can_end_comes_before_what_ends_alone() {
    let mut story = Story::of(
        "id: p\nparallelism: 9\nsteps:\n- {id: runs, tool: t}\n- {id: go, wait: {signal: go}, timeout: 1h}\n- {id: asks, wait: {form: {title: Why?, schema: {type: object, properties: {v: {type: string}}}}}}\n- {id: \
         gone, tool: t}\n- {id: lost, tool: m}\n- {id: sleeps, wait: {for: 1h}}\n",
    );
    let call = story.operation("gone");
    let requirement = ApprovalRequirement {
        kind: SubjectKind::Call,
        subject_digest: "sha256:0".into(),
        decision: PolicyDecision {
            verdict: Verdict::Prompt,
            rule: "asks".into(),
            reason: "It deletes.".into(),
            policy_revision: 1,
        },
        effect: EffectSummary::default(),
        allowing_rules: Vec::new(),
        risk: Risk::High,
    };
    story.record(Body::Operation { id: call.clone(), event: OperationEvent::Held(Box::new(requirement)) });
    let requested = |approval: &str| OperationEvent::Asked {
        approval: format!("namespaces/n/approvals/{approval}"),
        subject_digest: "sha256:0".into(),
    };
    story.record(Body::Operation { id: call, event: requested("a1") });
    let form = story.operation("asks");
    let unasked = story.explain();
    let asks = unasked.causes.iter().find(|cause| cause.kind == CauseKind::Form).unwrap();
    assert_eq!((&asks.subject, asks.actions.len()), (&None, 0), "the gate does not ask yet");
    let subject_digest = match &story.execution.operation(story.execution.operation_key(&form).unwrap()).unwrap().wait()
    {
        Some(wait) => wait.form().unwrap().subject_digest.clone(),
        None => unreachable!(),
    };
    let event = OperationEvent::Asked { approval: "namespaces/n/approvals/f1".into(), subject_digest };
    story.record(Body::Operation { id: form, event });
    let unknown = Failure::new(ErrorClass::OutcomeUnknown, "U", "It is not known.");
    story.ends("lost", ToolCallEnd::OutcomeUnknown { failure: unknown, grant_nonce: String::new(), network: None });

    let waits = story.explain();
    let of = |kind, step: &str, verbs: &[Verb]| (kind, step.to_owned(), verbs.to_vec());
    assert_eq!(
        story.causes(&waits),
        [
            of(CauseKind::Form, "asks", &[Verb::AnswerForm]),
            of(CauseKind::Approval, "gone", &[Verb::Approve, Verb::Deny]),
            of(CauseKind::Outcome, "lost", &[Verb::Resolve]),
            of(CauseKind::Signal, "go", &[Verb::SendSignal]),
            of(CauseKind::Time, "sleeps", &[]),
            of(CauseKind::Call, "runs", &[]),
        ],
        "each wait is there once"
    );
    assert_eq!(waits.causes[1].subject, Some(Subject::Approval("namespaces/n/approvals/a1".into())));
    assert_eq!(waits.causes[1].decision.unwrap().rule, "asks");
    assert_eq!(waits.causes[3].subject, Some(Subject::Signal("go".into())));
    assert!(waits.causes[3].until.is_some(), "it fails then");
    assert_eq!(
        next(&waits).iter().map(|action| action.verb).collect::<Vec<_>>()[..3],
        [Verb::AnswerForm, Verb::Approve, Verb::Deny]
    );

    // Paused, and without a process that carries it on.
    story.control(Control::Pause { reason: String::new(), discard_calls: false, resume_at: Some(at(900)) });
    let alone = explain(NAME, &story.execution, Circumstances::default());
    assert_eq!(
        story.causes(&alone)[..2],
        [of(CauseKind::Pause, "", &[Verb::Resume]), of(CauseKind::NoDriver, "", &[Verb::Resume])]
    );
    assert_eq!((alone.causes[0].principal, alone.causes[0].until), ("person:ann", Some(at(900))));
    assert_eq!(verbs(&next(&alone))[0], (Verb::Resume, NAME));
}

#[test]
fn what_holds_it_up_that_is_in_no_event_takes_the_place_of_what_the_step_says() {
    let story = Story::of("id: p\nparallelism: 2\nsteps:\n- {id: a, tool: t}\n- {id: b, tool: t}\n");
    let blocker = |kind| Blocker { since: at(7), kind };
    let [a, _] = [0, 1].map(StepKey::new);
    let away = blocker(BlockerKind::ServiceAway(Service::ToolRunner));
    let limit = blocker(BlockerKind::Limit(Service::ToolRunner));
    let beside = Circumstances {
        blockers: &[limit.clone(), away],
        step_blockers: &[(a, limit)],
        is_driven: true,
        ..Circumstances::default()
    };
    let explained = explain(NAME, &story.execution, beside);
    let of = |kind, step: &str, verbs: &[Verb]| (kind, step.to_owned(), verbs.to_vec());
    assert_eq!(
        story.causes(&explained),
        [
            of(CauseKind::ServiceAway, "", &[Verb::StartService]),
            of(CauseKind::Limit, "a", &[]),
            of(CauseKind::Call, "b", &[])
        ]
    );
    assert_eq!(explained.causes[0].subject, Some(Subject::Service(Service::ToolRunner)));
    let answer = blocker(BlockerKind::RunnerAnswer("POLICY_MISSING".into()));
    let kinds = [
        (BlockerKind::ClockDifference, CauseKind::ClockDifference),
        (BlockerKind::WorkspaceFull, CauseKind::WorkspaceFull),
        (BlockerKind::WorkspaceReadOnly, CauseKind::WorkspaceReadOnly),
        (BlockerKind::SandboxUnavailable, CauseKind::SandboxUnavailable),
        (BlockerKind::ExclusiveCall("c".into()), CauseKind::ExclusiveCall),
        (BlockerKind::Fault, CauseKind::Fault),
        (answer.kind, CauseKind::ServiceAway),
    ];
    for (kind, expected) in kinds {
        let found = [blocker(kind)];
        let explained = explain(
            NAME,
            &story.execution,
            Circumstances { blockers: &found, is_driven: true, ..Circumstances::default() },
        );
        assert_eq!(explained.causes.iter().filter(|cause| cause.kind == expected).count(), 1, "{expected:?}");
    }
}

#[test]
fn what_was_stopped_says_by_whom_and_goes_on_with_a_retry() {
    let mut story = Story::of("id: p\nsteps:\n- {id: a, tool: t}\n- {id: b, tool: t, depends_on: [a]}\n");
    story.control(Control::Cancel { reason: "wrong plan".into(), kill: false });
    let request = |story: &Story| story.events.iter().fold(None, CancelRequest::after);
    let cancelled = request(&story).expect("it was asked for");
    assert_eq!((cancelled.principal.as_str(), cancelled.reason.as_str()), ("person:ann", "wrong plan"));
    let by = |story: &Story, cancel_request| {
        let beside = Circumstances { cancel_request, is_driven: true, ..Circumstances::default() };
        let explained = explain(NAME, &story.execution, beside);
        let stop = explained.causes.iter().find(|cause| !is_wait(cause.kind)).unwrap();
        (explained.state, stop.kind, stop.principal.to_owned(), verbs(&next(&explained)).len())
    };
    let cancelling = (ExecutionState::Cancelling, CauseKind::Cancellation, "person:ann".to_owned(), 0);
    assert_eq!(by(&story, Some(&cancelled)), cancelling);
    assert_eq!(by(&story, None).1, CauseKind::TimeLimit, "nobody asked for it");
    story.ends("a", ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() });
    let ended = (ExecutionState::Cancelled, CauseKind::Cancellation, "person:ann".to_owned(), 1);
    assert_eq!(by(&story, Some(&cancelled)), ended);
    let explained = story.explain();
    assert_eq!(story.causes(&explained)[1], (CauseKind::StepCancellation, "a".to_owned(), vec![]));
    assert!(explained.skipped.iter().all(|step| step.follows_failure), "{:?}", explained.skipped);

    story.control(Control::Retry { request: Default::default(), plan: None });
    assert_eq!(request(&story), None, "it goes on");
}

const NESTED: &str = "id: p\nsteps:\n- id: build\n  plan: {id: inner, steps: [{id: c, tool: t}]}\n";

#[test]
fn the_execution_of_a_step_explains_it_and_is_retried_from_outside() {
    let mut outer = Story::of(NESTED);
    let waits = outer.explain();
    let child = waits.children[0].clone();
    assert!(child.starts_with("namespaces/n/executions/build-"), "{child}");
    assert_eq!(verbs(&next(&waits)), [(Verb::Explain, NAME)]);
    let mut inner = Story::under(&format!("{NAME}/steps/build"), "id: inner\nsteps: [{id: c, tool: t}]\n");
    let running = inner.explain();
    assert_eq!(next_actions(&waits.outlook(), &[running.outlook()]), [], "what it waits for is said by its own");
    inner.fails("c", ErrorClass::InvalidArguments);
    assert_eq!(verbs(&next(&inner.explain())), [(Verb::Retry, NAME)], "it is started again by the outer one");

    let id = outer.operation("build");
    let failure = Failure::new(ErrorClass::Transient, "CHILD_FAILED", "It failed.");
    outer.record(Body::Operation {
        id,
        event: OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Failed { failure }, spent: None }),
    });
    let failed = outer.explain();
    assert_eq!((failed.state, &failed.children), (ExecutionState::Failed, &vec![child.clone()]));
    assert_eq!(failed.causes[0].subject, Some(Subject::Execution(child)));
}

#[test]
fn one_that_completed_has_nothing_to_explain() {
    let mut story = Story::of("id: p\nsteps: [{id: a, tool: t}, {id: w, wait: {signal: s}}]\n");
    story.completes("a", 0);
    let wait = story.operation("w");
    let event = OperationEvent::Ended(OperationEnd::Wait(belay_execution::WaitEnd::TimedOut));
    assert!(story.execution.record(at(99), None, Body::Operation { id: wait, event }).is_err(), "it has no limit");
    story.control(Control::Signal { signal: "s".into(), payload: Json::from_text("1") });
    let explained = story.explain();
    assert_eq!((explained.state, explained.causes.len(), explained.changes.len()), (ExecutionState::Completed, 0, 0));
    assert_eq!(next(&explained), []);
}

#[test]
fn an_execution_that_waits_for_its_limits_says_who_is_before_it() {
    let story = Story::of("{id: p, steps: [{id: a, tool: t}]}");
    let claim = LimitClaim { key: "deploy".into(), bound: LimitBound::AtOnce(1), when_full: WhenFull::Wait };
    let created = Created { limits: vec![claim], ..story.execution.created().clone() };
    let body = ExecutionEvent::Created(Box::new(created)).into();
    let mut execution = Execution::create(Event { sequence: 1, time: at(0), actor: None, body }).unwrap();
    execution.record(at(3), None, ExecutionEvent::LimitsRequested).unwrap();
    let holder = "namespaces/n/executions/first".to_owned();
    let full = |holders: &[String], held, ahead, frees_at| FullLimit {
        key: "deploy".into(),
        holders: holders.to_vec(),
        held,
        ahead,
        frees_at,
    };
    let limits = [full(std::slice::from_ref(&holder), 3, 2, None)];
    let beside = Circumstances { full_limits: &limits, is_driven: true, ..Circumstances::default() };
    let explained = explain(NAME, &execution, beside);
    let [cause] = &explained.causes[..] else { panic!("{explained:?}") };
    assert_eq!((cause.kind, cause.since, cause.until), (CauseKind::ExecutionLimit, Some(at(3)), None));
    assert_eq!(cause.reason, "the limit `deploy` is held by first and 2 more; 2 executions wait before this one");
    assert_eq!(cause.subject, Some(Subject::Execution(holder.clone())));
    assert_eq!(cause.actions[0].verb, Verb::Explain);
    let words = |holders: &[String], held, ahead, frees_at| full(holders, held, ahead, frees_at).in_words();
    assert_eq!(words(&[holder], 1, 0, None), "the limit `deploy` is held by first");
    assert_eq!(words(&[], 0, 1, None), "the limit `deploy` is full; 1 execution waits before this one");
    assert_eq!(
        words(&[], 0, 0, Some(at(9))),
        "as many executions as may have started in the window of the limit `deploy`"
    );
}

/// What a model was told of a call that failed explains nothing: it has gone on otherwise.
#[test]
fn the_failures_that_a_model_has_heard_of_explain_nothing() {
    let mut story = Story::of("id: p\nsteps: [{id: a, agent: {model: m, task: go, tools: [t]}}]\n");
    let mut answers = |step: &str, tool: &str| {
        let call = serde_json::json!({"id": "t0001c001", "tool": tool, "arguments": {"result": 1}});
        let result = Json::canonical(&serde_json::json!({"calls": [call]})).into();
        story.ends(step, ToolCallEnd::Completed { result, receipt: Box::new(Receipt::default()) });
        match tool {
            "t" => story.fails("a~1", ErrorClass::InvalidArguments),
            _ => story.completes("a~3", 0),
        }
        let explained = story.explain();
        (explained.state, explained.causes.iter().filter(|cause| cause.kind == CauseKind::StepFailure).count())
    };
    assert_eq!(answers("a~0", "t"), (ExecutionState::Running, 0));
    assert_eq!(answers("a~2", "complete_step"), (ExecutionState::Completed, 0));
}
