//! Golden logs: the events of an eventful execution as each version of the format wrote them, and the state that they came to. Every build replays all of
//! them ([ADR 7](../../../../../docs/adr/0007-decisions-follow-the-new-code.md)).
//!
//! `BELAY_UPDATE=1 cargo test -p belay-executor golden` writes those of a new version. Those of older versions never change.

use std::{env, fs, path::PathBuf, time::Duration};

use belay_execution::{
    Actor, ApprovalMode, ApprovalRequirement, Body, Control, Created, DecideContext, Decision, EffectSummary,
    ErrorClass, Event, Execution, ExecutionEvent, Failure, Form, Json, OperationEnd, OperationEvent, OperationId,
    PolicyDecision, Receipt, RecoveryClass, SNAPSHOT_VERSION, SubjectKind, Timestamp, ToolCallEnd, ToolFacts, Verdict,
    WaitEnd, digest,
};
use belay_plan::{Format, LimitBound, LimitClaim, Plan, StartRate, WhenFull};
use belay_proto::v1;
use belay_reasons as reasons;
use prost::Message as _;

use crate::names::ExecutionName;
use crate::wire::{OLDEST_VERSION, VERSION, decode::decode_bytes, encode, execution, facts_beside, to_events};

/// Steps that complete, fail, are retried, skipped, held, denied and unknown, that wait, and that run after another end.
const PLAN: &str = "
id: golden
parallelism: 8
timeout: 9h
network: registries
budget: {calls: 12, output_bytes: 1000000}
outputs: {good: '${good.result}', never: '${never.result}', denied: '${denied.state}'}
steps:
  - {id: good, tool: noop, arguments: {output: 9007199254740993}}
  - {id: flaky, tool: noop, retry: {max_attempts: 2, backoff: [1s]}, group_timeouts: {g: 9h}, fail_fast_groups: [g]}
  - {id: held, tool: noop}
  - {id: denied, tool: noop}
  - {id: never, tool: noop, depends_on: [denied]}
  - {id: unknown, tool: noop}
  - {id: soon, wait: {for: 2s}}
  - {id: asked, wait: {form: {title: 'Of ${good.result}?', description: d, schema: {type: integer}}}, timeout: 8h}
  - {id: declined, wait: {form: {title: Else?, schema: {}}}}
  - {id: signal.dotted, wait: {signal: go}}
  - {id: last, tool: noop, arguments: {output: '${[\"signal.dotted\"].result}'}, depends_on: [soon]}
  - {id: stopped, tool: noop, depends_on: [last]}
  - {id: whole, effects: per_step, calls: [{tool: noop}]}
  - {id: again, tool: noop, repeat: {until: '${again.result} == null', max: 2, delay: 1s}, depends_on: [denied]}
  - {id: unless, tool: noop, run_when: none_failed, depends_on: [denied]}
  - {id: otherwise, tool: noop, depends_on: [{step: denied, on: [failure, skipped]}], arguments: {output: '${whole.results}'}}
";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/wire/golden")
}

struct Story {
    execution: Execution,
    events: Vec<Event>,
    now: Timestamp,
}

impl Story {
    fn begin() -> Self {
        let facts = ToolFacts {
            takes_network: true,
            description: String::new(),
            parameters: String::new(),
            used_as: "noop".into(),
            tool: "noop".into(),
            recovery: RecoveryClass::Transactional,
            default_timeout: Duration::from_secs(120),
            secret_arguments: Vec::new(),
            secret_result: Vec::new(),
        };
        let now = Timestamp::from_micros(1_796_115_600_000_000);
        let plan = Plan::parse(Format::Yaml, PLAN).unwrap();
        let created = Created {
            uid: "8x4k2m9q1p7r3s5t6v8w".into(),
            deadline: plan.timeout().map(|limit| now.saturating_add(limit)),
            plan,
            inputs: belay_execution::Json::from_text("{}"),
            start_at: None,
            parent_step: String::new(),
            forked_from: String::new(),
            allotment: None,
            spent: belay_execution::Amounts::default(),
            approval_mode: ApprovalMode::Wait,
            workspace: belay_execution::Workspace::Directory("/w".into()),
            labels: [("team".to_owned(), "a".to_owned())].into(),
            tools: vec![
                ToolFacts {
                    used_as: belay_plan::COMMIT_TOOL.into(),
                    tool: belay_plan::COMMIT_TOOL.into(),
                    ..facts.clone()
                },
                facts,
            ],
            trace: ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(), String::new()),
            shard: 7,
            limits: vec![
                LimitClaim {
                    key: "deploy-prod".into(),
                    bound: LimitBound::AtOnce(2),
                    when_full: WhenFull::CancelOlder,
                },
                LimitClaim {
                    key: "hourly".into(),
                    bound: LimitBound::Rate(StartRate { starts: 3, window: Duration::from_secs(3600) }),
                    when_full: WhenFull::Refuse,
                },
            ],
        };
        let actor = Some(Actor { principal: "person:ann".into(), request_id: "start".into() });
        let body = ExecutionEvent::Created(Box::new(created)).into();
        let first = Event { sequence: 1, time: now, actor, body };
        Self { execution: Execution::create(first.clone()).unwrap(), events: vec![first], now }
    }

    fn advance(&mut self, seconds: u64) {
        self.now = self.now.saturating_add(Duration::from_secs(seconds));
        self.events.extend(self.execution.advance(DecideContext { now: self.now, ledger_id: "ledger" }));
    }

    fn record(&mut self, actor: Option<Actor>, body: impl Into<Body>) {
        self.events.push(self.execution.record(self.now, actor, body).unwrap());
        self.advance(0);
    }

    fn control(&mut self, request_id: &str, control: Control) {
        let actor = Actor { principal: "person:ann".into(), request_id: request_id.into() };
        self.events.extend(self.execution.control(self.now, actor, control).unwrap());
        self.advance(0);
    }

    fn call(&mut self, call: &OperationId, event: OperationEvent) {
        self.record(None, Body::Operation { id: call.clone(), event });
    }

    /// The first call of a step asks.
    fn ask(&mut self, step: &str, title: &str) {
        self.ask_with(step, title, false);
    }

    /// The same; an answer may hold for the execution.
    fn ask_for_execution(&mut self, step: &str, title: &str) {
        self.ask_with(step, title, true);
    }

    fn ask_with(&mut self, step: &str, title: &str, may_hold: bool) {
        let call = OperationId { step: step.into(), attempt: 1, number: 1 };
        let key = self.execution.operation_key(&call).unwrap();
        let form = Form::new(title.into(), "d".into(), &serde_json::json!({"type": "boolean"}));
        let number = self.execution.operations().filter(|operation| operation.key.step == key.step).count();
        let body = self.execution.ask(key, &format!("q-{number}-{}", title.len()), form, None, may_hold).unwrap();
        self.record(None, body);
    }

    /// The gate asks the form of a step, and a person answers.
    fn answer(&mut self, step: &str, end: WaitEnd) {
        self.answer_as(step, 1, end);
    }

    /// The same for an operation of its first attempt.
    fn answer_as(&mut self, step: &str, number: u32, end: WaitEnd) {
        let wait = OperationId { step: step.into(), attempt: 1, number };
        let key = self.execution.operation_key(&wait).unwrap();
        let form = self.execution.operation(key).unwrap().wait().unwrap().form().unwrap();
        let (approval, subject_digest) = (format!("namespaces/n/approvals/{step}"), form.subject_digest.clone());
        let event = OperationEvent::Asked { approval, subject_digest };
        self.record(None, Body::Operation { id: wait.clone(), event });
        self.record(
            Some(Actor::new("person:bob")),
            Body::Operation { id: wait, event: OperationEvent::Ended(OperationEnd::Wait(end)) },
        );
    }

    fn end(&mut self, step: &str, attempt: u32, end: ToolCallEnd) {
        self.call(
            &OperationId { step: step.into(), attempt, number: 1 },
            OperationEvent::Ended(OperationEnd::ToolCall(end)),
        );
    }
}

fn completed(result: &str) -> ToolCallEnd {
    let output_bytes = result.len() as u64;
    let duration = Duration::from_millis(1500);
    let receipt = Receipt { ledger_id: "ledger".into(), duration, output_bytes, ..Receipt::default() };
    ToolCallEnd::Completed { result: Json::from_text(result).into(), receipt: Box::new(receipt) }
}

fn failure(class: ErrorClass, reason: &str) -> Failure {
    Failure::new(class, reason, "words for people")
}

fn story() -> Vec<Event> {
    let mut story = Story::begin();
    story.advance(0);
    story.ask("good", "Now?");
    story.ask("good", "Or later?");
    let given = WaitEnd::Answered { answer: Json::from_text("true") };
    story.answer_as("good", 2, given);
    story.ask_for_execution("good", "This host?");
    story.answer_as("good", 4, WaitEnd::Answered { answer: Json::from_text(r#"{"for":"execution"}"#) });
    story.ask_for_execution("flaky", "This host?");
    story.advance(0);
    let last = &story.events.last().unwrap().body;
    assert!(matches!(
        last,
        Body::Operation { event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Held { .. })), .. }
    ));
    story.end("good", 1, completed("9007199254740993"));
    let (transient, receipt) = (failure(ErrorClass::Transient, reasons::TOOL_FAILED), Receipt::default());
    story.end("flaky", 1, ToolCallEnd::Failed { failure: transient, receipt: Box::new(receipt) });
    let denied = failure(ErrorClass::PolicyDenied, reasons::POLICY_DENIED);
    story.end("denied", 1, ToolCallEnd::Denied { failure: denied, receipt: Box::new(Receipt::default()) });
    let unknown = failure(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN);
    story.end(
        "unknown",
        1,
        ToolCallEnd::OutcomeUnknown { failure: unknown, grant_nonce: String::new(), network: None },
    );
    let layer = "id.digest".to_owned();
    let receipt = Receipt { ledger_id: "ledger".into(), output_bytes: 4, layer, ..Receipt::default() };
    story.end(
        "whole~0",
        1,
        ToolCallEnd::Completed { result: Json::from_text("null").into(), receipt: Box::new(receipt) },
    );
    story.end("whole~1", 1, completed("null"));
    story.end("otherwise", 1, completed("null"));
    let held = OperationId { step: "held".into(), attempt: 1, number: 1 };
    let decision =
        PolicyDecision { verdict: Verdict::Prompt, rule: "ask".into(), reason: "why".into(), policy_revision: 4 };
    let (subject_digest, effect) = ("sha256:00".to_owned(), EffectSummary::default());
    let requirement = ApprovalRequirement {
        kind: SubjectKind::Call,
        subject_digest: subject_digest.clone(),
        decision,
        effect,
        allowing_rules: vec!["{id: a, on: effect, decide: auto}".to_owned()],
        risk: belay_execution::Risk::Medium,
    };
    story.call(&held, OperationEvent::Held(Box::new(requirement)));
    let approval = || "namespaces/n/approvals/a".to_owned();
    let requested = OperationEvent::Asked { approval: approval(), subject_digest };
    story.record(None, Body::Operation { id: held.clone(), event: requested });
    let answer = WaitEnd::Answered { answer: Json::from_text("7") };
    story.answer("asked", answer);
    story.answer("declined", WaitEnd::Declined { decision: Decision::Skipped, reason: "no".into() });
    story.control("pause", Control::Pause { reason: "lunch".into(), discard_calls: false, resume_at: None });
    story.control("signal", Control::Signal { signal: "go".into(), payload: Json::from_text(r#"{"n":7}"#) });
    story.advance(3);
    story.control("resume", Control::Resume);
    let decided = OperationEvent::Decided { approval: approval(), decision: Decision::Approved, reason: "fine".into() };
    story.record(Some(Actor::new("person:bob")), Body::Operation { id: held.clone(), event: decided });
    story.record(None, ExecutionEvent::Recovered { in_doubt: vec![held] });
    story.end("held", 1, completed("null"));
    story.end("flaky", 2, completed("1"));
    story.end("last", 1, completed(r#"{"n":7}"#));
    story.control("cancel", Control::Cancel { reason: "enough".into(), kill: false });
    story.end("stopped", 1, ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() });
    assert!(story.execution.state().is_terminal(), "{:?}", story.execution.waiting());
    story.events
}

/// The facts that are stored beside the first event.
fn facts_of(events: &[Event]) -> Vec<u8> {
    facts_beside(&events[..1]).expect("the first event has some")
}

/// The state that encoded events come to, as JSON.
fn replayed(bytes: &[u8], facts: &[u8]) -> String {
    let events: Vec<Event> =
        to_events(decode_bytes(bytes).unwrap(), |_| Some(facts)).collect::<Result<_, _>>().unwrap();
    let execution = Execution::replay(events).unwrap();
    assert!(execution.is_index_consistent());
    let name = ExecutionName { namespace: "n".into(), id: "golden".into() };
    let details = execution::StepDetails::Full;
    let steps = execution.steps().map(|step| execution::step(&name, &execution, step, details)).collect();
    let state = v1::Execution { steps, ..execution::full(&name, &execution) };
    format!("{:#}\n", serde_json::to_value(state).unwrap())
}

// B-24: a log of every version is replayed by every build, to the state that it came to.
#[test]
fn a_golden_log_of_every_version_is_replayed() {
    let (log, state) = (folder().join(format!("{VERSION}.binpb")), folder().join(format!("{VERSION}.json")));
    if env::var_os("BELAY_UPDATE").is_some() && !log.exists() {
        let mut bytes = Vec::new();
        story().iter().for_each(|event| encode(event).encode_length_delimited(&mut bytes).unwrap());
        fs::create_dir_all(folder()).unwrap();
        let facts = facts_of(&story());
        fs::write(&log, &bytes).unwrap();
        fs::write(folder().join(format!("{VERSION}.facts.binpb")), &facts).unwrap();
        fs::write(&state, replayed(&bytes, &facts)).unwrap();
    }
    let mut versions = 0;
    for version in OLDEST_VERSION..=VERSION {
        let read = |ending: &str| fs::read(folder().join(format!("{version}.{ending}")));
        let (log, facts, state) = (read("binpb").unwrap(), read("facts.binpb").unwrap(), read("json").unwrap());
        assert_eq!(replayed(&log, &facts), String::from_utf8(state).unwrap(), "version {version}");
        versions += 1;
    }
    assert!(versions > 0);
}

// B-24: whoever changes the state, or how it is encoded, gives snapshots another version, so that no snapshot is read as something else.
#[test]
fn snapshots_of_this_version_have_these_bytes() {
    let events = story();
    let mut execution = Execution::create(events[0].clone()).unwrap();
    let mut digests = String::new();
    for event in &events[1..] {
        execution.apply(event).unwrap();
        let snapshot = execution.snapshot().unwrap();
        assert_eq!(Execution::restore(events[0].clone(), &snapshot).unwrap(), execution);
        digests += &format!("{} {}\n", event.sequence, digest(&snapshot));
    }
    let golden = folder().join(format!("snapshots-{SNAPSHOT_VERSION}.txt"));
    if env::var_os("BELAY_UPDATE").is_some() && !golden.exists() {
        fs::write(&golden, &digests).unwrap();
    }
    let written = fs::read_to_string(&golden).unwrap_or_default();
    assert!(
        written == digests,
        "snapshots have other bytes: raise SNAPSHOT_VERSION in execution/src/state/snapshot.rs, and write the golden file of the new version"
    );
}

/// This version writes what its golden log has: whoever changes the format or what follows from an event writes a new version.
#[test]
fn the_golden_log_of_this_version_is_what_it_writes() {
    let read = |ending: &str| fs::read(folder().join(format!("{VERSION}.{ending}"))).unwrap();
    let (log, facts) = (read("binpb"), read("facts.binpb"));
    let written: Vec<Event> =
        to_events(decode_bytes(&log).unwrap(), |_| Some(&facts[..])).collect::<Result<_, _>>().unwrap();
    let mut bytes = Vec::new();
    written.iter().for_each(|event| encode(event).encode_length_delimited(&mut bytes).unwrap());
    assert_eq!(bytes, log, "decoded and encoded again, the bytes are the same");
    assert_eq!(facts_of(&written), facts);
    assert_eq!(written.len(), story().len());
}
