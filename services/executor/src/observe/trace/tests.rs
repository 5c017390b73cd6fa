use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_execution::{
    Actor, ApprovalMode, Created, DecideContext, ErrorClass, ExecutionState, Json, OperationEnd, OperationEvent,
    Receipt, RecoveryClass, ToolFacts,
};
use belay_plan::{Format, Plan};

use super::*;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Each way in which a step can end, and each in which an attempt can.
const PLAN: &str = "
id: ends
parallelism: 8
steps:
  - {id: good, tool: noop}
  - {id: flaky, tool: noop, retry: {max_attempts: 2, backoff: [1s]}}
  - {id: denied, tool: noop}
  - {id: never, tool: noop, depends_on: [denied]}
  - {id: unknown, tool: noop}
  - {id: waits, tool: noop, retry: {max_attempts: 2, backoff: [1h]}}
  - {id: stopped, tool: noop}
";

type Sent = Arc<Mutex<Vec<SpanRecord>>>;

fn telemetry() -> (Telemetry, Sent) {
    let sent = Sent::default();
    let into = Arc::clone(&sent);
    (Telemetry::to(move |span| into.lock().unwrap().push(span), |bytes| bytes.fill(7)), sent)
}

fn name() -> ExecutionName {
    ExecutionName { namespace: "n".into(), id: "e".into() }
}

fn first(trace: (String, String)) -> Event {
    let plan = Plan::parse(Format::Yaml, PLAN).unwrap();
    let facts = ToolFacts {
        used_as: "noop".into(),
        tool: "noop".into(),
        recovery: RecoveryClass::Transactional,
        default_timeout: Duration::from_secs(120),
        secret_arguments: Vec::new(),
        secret_result: Vec::new(),
        ..ToolFacts::default()
    };
    let created = Created {
        uid: "8x4k2m9q1p7r3s5t6v8w".into(),
        plan,
        inputs: belay_execution::Json::from_text("{}"),
        start_at: None,
        parent_step: String::new(),
        forked_from: String::new(),
        allotment: None,
        spent: belay_execution::Amounts::default(),
        approval_mode: ApprovalMode::Wait,
        workspace: belay_execution::Workspace::MadeFolder("e".into()),
        labels: BTreeMap::new(),
        tools: vec![facts],
        deadline: None,
        trace,
        shard: 0,
        limits: Vec::new(),
    };
    let body = ExecutionEvent::Created(Box::new(created)).into();
    Event { sequence: 1, time: Timestamp::from_micros(1_000_000), actor: Some(Actor::new("unix:1")), body }
}

/// How a call of this step ends; `None` for the one that runs until it is stopped.
fn answer(call: &OperationId) -> Option<ToolCallEnd> {
    let failure = |class, reason: &str| Failure::new(class, reason, "words for people");
    let receipt = Receipt::default;
    Some(match (&*call.step, call.attempt) {
        ("denied", _) => ToolCallEnd::Denied {
            failure: failure(ErrorClass::PolicyDenied, "POLICY_DENIED"),
            receipt: Box::new(receipt()),
        },
        ("unknown", _) => {
            let failure = failure(ErrorClass::OutcomeUnknown, "OUTCOME_UNKNOWN");
            ToolCallEnd::OutcomeUnknown { failure, grant_nonce: String::new(), network: None }
        }
        ("flaky" | "waits", 1) => {
            ToolCallEnd::Failed { failure: failure(ErrorClass::Transient, "TOOL_FAILED"), receipt: Box::new(receipt()) }
        }
        ("stopped", _) => return None,
        _ => ToolCallEnd::Completed { result: Json::from_text("1").into(), receipt: Box::new(receipt()) },
    })
}

/// The events of a whole execution, in batches that were committed together.
fn story(trace: (String, String)) -> Vec<Vec<Event>> {
    let first = first(trace);
    let mut execution = Execution::create(first.clone()).unwrap();
    let mut now = first.time;
    let mut batches = vec![vec![first]];
    let decide = |execution: &mut Execution, now, batch: &mut Vec<Event>| {
        batch.extend(execution.advance(DecideContext { now, ledger_id: "ledger" }));
    };
    decide(&mut execution, now, &mut batches[0]);
    loop {
        now = now.saturating_add(Duration::from_secs(1));
        let mut batch = Vec::new();
        decide(&mut execution, now, &mut batch);
        let calls = || execution.operations().map(|operation| execution.operation_id(operation.key));
        let body = |call, end| Body::Operation { id: call, event: OperationEvent::Ended(OperationEnd::ToolCall(end)) };
        let next = match (calls().find_map(|call| Some((answer(&call)?, call))), calls().next()) {
            (Some((end, call)), _) => body(call, end),
            // `flaky` may be tried again now.
            (None, _) if execution.totals().completed < 2 => {
                batches.push(batch);
                continue;
            }
            (None, Some(call)) if execution.state() == ExecutionState::Cancelling => {
                body(call, ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() })
            }
            (None, Some(_)) => ExecutionEvent::CancelRequested { reason: "enough".into(), kill: false }.into(),
            (None, None) => return batches,
        };
        batch.push(execution.record(now, None, next).unwrap());
        decide(&mut execution, now, &mut batch);
        batches.push(batch);
    }
}

/// The spans that are sent when the process dies after `dies_after` batches and another one continues.
fn sent(batches: &[Vec<Event>], dies_after: usize) -> Vec<SpanRecord> {
    let (telemetry, sent) = telemetry();
    let after = |count: usize| Execution::replay(batches[..count].concat()).unwrap();
    let mut trace = Trace::of(&telemetry, &name(), &after(1));
    for (number, batch) in batches.iter().enumerate() {
        if number == dies_after {
            trace = Trace::of(&telemetry, &name(), &after(number));
        }
        trace.record(&after(number + 1), batch, &Redactor::new());
    }
    let mut spans = std::mem::take(&mut *sent.lock().unwrap());
    spans.sort_by_key(|span| span.context.span_id());
    spans
}

fn label(span: &SpanRecord) -> String {
    let value = |key: &str| {
        let attribute = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
        attribute.map(|attribute| format!(" {}", attribute.value)).unwrap_or_default()
    };
    let (state, error, class) = (value("belay.state"), value("error.type"), value("belay.error.class"));
    format!("{}{}{state}{error}{class}", span.name, value("belay.attempt"))
}

/// B-11: each started attempt and each call is one span, however it ended; the execution is their parent.
#[test]
fn every_attempt_and_every_call_is_a_span() {
    let batches = story((CALLER.into(), "rojo=1".into()));
    let spans = sent(&batches, usize::MAX);
    let mut labels: Vec<String> = spans.iter().map(label).collect();
    labels.sort();
    assert_eq!(
        labels,
        [
            "execute_tool noop CANCELLED",
            "execute_tool noop COMPLETED",
            "execute_tool noop COMPLETED",
            "execute_tool noop DENIED POLICY_DENIED POLICY_DENIED",
            "execute_tool noop FAILED TOOL_FAILED TRANSIENT",
            "execute_tool noop FAILED TOOL_FAILED TRANSIENT",
            "execute_tool noop OUTCOME_UNKNOWN OUTCOME_UNKNOWN OUTCOME_UNKNOWN",
            "invoke_workflow ends CANCELLED POLICY_DENIED POLICY_DENIED",
            "step denied 1 FAILED POLICY_DENIED POLICY_DENIED",
            "step flaky 1 FAILED TOOL_FAILED TRANSIENT",
            "step flaky 2 COMPLETED",
            "step good 1 COMPLETED",
            "step stopped 1 CANCELLED",
            "step unknown 1 OUTCOME_UNKNOWN OUTCOME_UNKNOWN OUTCOME_UNKNOWN",
            "step waits 1 FAILED TOOL_FAILED TRANSIENT",
        ]
    );
    let ids: BTreeSet<String> = spans.iter().map(|span| span.context.span_id()).collect();
    assert_eq!(ids.len(), spans.len());
    let caller = TraceContext::parse(CALLER, "").unwrap();
    for span in &spans {
        assert_eq!((span.context.trace_id(), span.context.tracestate()), (caller.trace_id(), "rojo=1"));
        let parent = span.parent.as_ref().unwrap().span_id();
        assert!(ids.contains(&parent) || parent == caller.span_id(), "{span:?}");
        assert!(span.start_micros <= span.end_micros);
        assert!(!format!("{span:?}").contains("words for people"), "messages stay here: {span:?}");
    }
    let whole = spans.iter().find(|span| span.name.starts_with("invoke_workflow")).unwrap();
    let end = batches.last().unwrap().last().unwrap().time;
    assert_eq!((whole.start_micros, whole.end_micros), (1_000_000, end.as_micros()));
}

/// B-11: if a process dies between two transitions, it and its successor together send the same spans as one process.
#[test]
fn a_restart_changes_no_span_and_sends_none_twice() {
    let batches = story((CALLER.into(), String::new()));
    let whole = sent(&batches, usize::MAX);
    for dies_after in 1..batches.len() {
        assert_eq!(sent(&batches, dies_after), whole, "it died after {dies_after}");
    }
}

#[test]
fn an_execution_without_a_caller_begins_its_own_trace() {
    let (telemetry, _) = telemetry();
    let stored = initial_trace(&telemetry, &MetadataMap::new(), "8x4k2m9q1p7r3s5t6v8w");
    let spans = sent(&story(stored.clone()), 3);
    let roots: Vec<&SpanRecord> = spans.iter().filter(|span| span.parent.is_none()).collect();
    let [root] = roots[..] else { panic!("one span begins it: {roots:?}") };
    assert_eq!((root.context.traceparent(), root.kind.clone()), (stored.0, SpanKind::Internal));
}

#[test]
fn without_telemetry_the_caller_s_span_is_passed_on() {
    let off = Telemetry::off(|bytes| bytes.fill(7));
    let mut metadata = MetadataMap::new();
    metadata.insert("traceparent", CALLER.parse().unwrap());
    let stored = initial_trace(&off, &metadata, "8x4k2m9q1p7r3s5t6v8w");
    assert_eq!(stored.0, CALLER);
    let execution = Execution::create(first(stored)).unwrap();
    let trace = Trace::of(&off, &name(), &execution);
    let call = OperationId { step: "good".into(), attempt: 1, number: 1 };
    assert_eq!(trace.call(&call).traceparent(), CALLER);
    metadata.insert("traceparent", "00-not-a-trace".parse().unwrap());
    let own = initial_trace(&off, &metadata, "8x4k2m9q1p7r3s5t6v8w").0;
    assert!(TraceContext::parse(&own, "").is_ok_and(|own| !own.is_sampled()), "{own}");
}
