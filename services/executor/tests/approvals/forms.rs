//! Forms: asked at the gate, answered once, and withdrawn when nobody needs the answer.

use belay_proto::v1::{
    self, approval::State, execution::State as Whole, start_execution_request::Source, waiting_reason::Kind,
};
use serde_json::{Value, json};

use crate::support::{Executor, World, kinds};

/// A form, and a call that takes its answer.
const PLAN: &str = "
id: asks
steps:
  - id: ask
    wait: {form: {title: Which version?, description: Say it., schema: {type: object, required: [version]}}}
  - {id: use, tool: work, arguments: {is: '${ask.result.version}'}}
";

pub(crate) async fn start(executor: &Executor, text: &str, mode: v1::ApprovalMode) -> String {
    let document = v1::PlanDocument { text: text.into(), ..Default::default() };
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        approval_mode: mode.into(),
        source: Some(Source::Document(document)),
        ..Default::default()
    };
    executor.client.clone().start_execution(request).await.unwrap().into_inner().name
}

fn waits(execution: &v1::Execution) -> bool {
    execution.waiting.iter().any(|waiting| waiting.kind() == Kind::Form && !waiting.next_command.is_empty())
}

/// The result of the step that asks.
async fn output(executor: &Executor, name: &str) -> Value {
    let step = executor.step(name, "ask").await.unwrap();
    match step.output.as_ref().and_then(|output| output.content.as_ref()) {
        Some(v1::payload::Content::Json(text)) => serde_json::from_str(text).unwrap(),
        _ => Value::Null,
    }
}

#[tokio::test]
async fn a_step_waits_for_a_person_s_answer() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = start(&executor, PLAN, v1::ApprovalMode::Wait).await;
    let asked = world.gate.pending_approval("ask").await;
    let shown = executor.until(&name, "the wait", waits).await;
    assert_eq!(shown.state(), Whole::Running);
    let waiting = &shown.waiting[0];
    let id = asked.name.rsplit('/').next().unwrap();
    assert_eq!(
        (waiting.who.as_str(), waiting.next_command.as_str()),
        ("a person's answer to `Which version?`", &*format!("belay approvals answer {id}"))
    );
    assert_eq!(shown.steps[0].state(), v1::step::State::Waiting);
    assert_eq!(shown.steps[0].approvals, [asked.name.as_str()]);
    let subject: Value = serde_json::from_str(&world.gate.seen().forms[&asked.name]).unwrap();
    let schema = json!({"type": "object", "required": ["version"]});
    assert_eq!(subject, json!({"title": "Which version?", "description": "Say it.", "schema": schema}));

    // Also while it is paused, lists say that it waits for a form: what nobody waits for is withdrawn.
    executor.pause(&name).await;
    let list = v1::ListExecutionsRequest {
        parent: "namespaces/-".into(),
        filter: "waits_for = FORM AND state = PAUSED".into(),
        ..Default::default()
    };
    let listed = executor.client.clone().list_executions(list).await.unwrap().into_inner().executions;
    assert_eq!(listed.iter().map(|execution| execution.name.as_str()).collect::<Vec<_>>(), [name.as_str()]);
    executor.resume(&name).await;

    world.gate.answer(&asked.name, r#"{"version":"1.2"}"#);
    let ended = executor.end(&name).await;
    assert_eq!((ended.state(), output(&executor, &name).await), (Whole::Completed, json!({"version": "1.2"})));
    let kinds = kinds(&executor.events(&name).await);
    let about: Vec<&str> =
        kinds.iter().map(String::as_str).filter(|kind| kind.starts_with("wait") || kind.starts_with("appr")).collect();
    assert_eq!(about, ["waitStarted", "approvalRequested", "waitEnded"]);
    let seen = world.gate.until("the acknowledgement", |seen| seen.delivered.contains(&asked.name)).await;
    assert!(seen.answers.is_empty(), "the gate need not keep it");
}

// B-01: killed before the gate confirmed the form, while it waits, and after it was answered.
#[tokio::test]
async fn an_executor_that_is_killed_asks_once_and_loses_no_answer() {
    let mut world = World::new().await;
    world.stop_gate();
    let executor = world.executor().await;
    let name = start(&executor, PLAN, v1::ApprovalMode::Wait).await;
    let away = |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.who.contains("gate"));
    executor.until(&name, "the unavailable gate", away).await;
    executor.kill().await;
    world.start_gate().await;
    let executor = world.executor().await;
    let asked = world.gate.pending_approval("ask").await;
    executor.until(&name, "the wait", waits).await;
    executor.kill().await;
    world.gate.answer(&asked.name, r#"{"version":"1.2"}"#);
    let executor = world.executor().await;
    let events = executor.events(&name).await;
    assert_eq!(world.gate.seen().approvals.len(), 1);
    assert_eq!(kinds(&events).iter().filter(|kind| *kind == "waitEnded").count(), 1);
    assert_eq!(output(&executor, &name).await, json!({"version": "1.2"}));
}

// The executor asks for the form again because the gate lists it no longer, and hears of the answer before the gate has that request. Once the answer
// was acknowledged, the request would say that the answer is lost: a person would be asked again, and a second answer accepted.
#[tokio::test]
async fn an_answer_that_overtakes_a_request_for_its_form_is_not_asked_for_again() {
    let world = World::new().await;
    let executor = world.executor().await;
    for _ in 0..2 {
        let name = start(&executor, PLAN, v1::ApprovalMode::Wait).await;
        executor.until(&name, "the wait", waits).await;
    }
    executor.kill().await;
    let asked: Vec<v1::Approval> = world.gate.seen().approvals.into_values().collect();
    let [first, second] = &asked[..] else { panic!("{asked:?}") };
    for form in [first, second] {
        world.gate.answer(&form.name, r#"{"version":"1.2"}"#);
    }
    world.gate.set(|seen| (seen.holds_decisions, seen.holds_forms_of) = (true, Some(first.execution.clone())));
    let executor = world.executor().await;
    world.gate.until("the request for the form", |seen| seen.held == 1).await;
    world.gate.set(|seen| seen.holds_decisions = false);
    // The first answer was delivered before the second one.
    executor.assert_completes(&second.execution).await;
    world.gate.set(|seen| seen.holds_forms_of = None);
    let seen = world.gate.until("the reply", |seen| seen.released == 1).await;
    assert_eq!(seen.approvals[&first.name].state(), State::Answered, "no person is asked again");
    executor.assert_completes(&first.execution).await;
    assert_eq!(output(&executor, &first.execution).await, json!({"version": "1.2"}));
    world.gate.until("the acknowledgement", |seen| seen.delivered.contains(&first.name)).await;
}

// A gate that lost its store is asked again, under the same name.
#[tokio::test]
async fn a_gate_that_lost_its_store_is_asked_again() {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = start(&executor, PLAN, v1::ApprovalMode::Wait).await;
    let asked = world.gate.pending_approval("ask").await;
    executor.until(&name, "the wait", waits).await;
    world.stop_gate();
    world.gate.lose_store();
    world.start_gate().await;
    let again = world.gate.pending_approval("ask").await;
    assert_eq!(again.name, asked.name);
    world.gate.answer(&again.name, r#"{"version":"2"}"#);
    executor.assert_completes(&name).await;
}

#[tokio::test]
async fn a_form_that_nobody_needs_is_withdrawn() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = start(&executor, PLAN, v1::ApprovalMode::Wait).await;
    let asked = world.gate.pending_approval("ask").await;
    executor.until(&name, "the wait", waits).await;
    let cancel = v1::CancelExecutionRequest { name: name.clone(), ..Default::default() };
    executor.client.clone().cancel_execution(cancel).await.unwrap();
    assert_eq!(executor.end(&name).await.state(), Whole::Cancelled);
    world.gate.until("the withdrawal", |seen| seen.cancelled.contains(&asked.name)).await;

    let limited = PLAN.replace("- id: ask\n", "- id: ask\n    timeout: 100ms\n");
    let name = start(&executor, &limited, v1::ApprovalMode::Wait).await;
    let ended = executor.end(&name).await;
    assert_eq!(ended.steps[0].failure.as_ref().unwrap().reason, "STEP_TIMEOUT");
    let open = |seen: &crate::support::GateState| seen.approvals.values().any(|asked| asked.state() == State::Pending);
    world.gate.until("the withdrawal", |seen| !open(seen)).await;
}

#[tokio::test]
async fn a_form_that_the_gate_refuses_fails_its_step() {
    let world = World::new().await;
    world.gate.set(|seen| seen.refuses_forms = Some("The form is too long."));
    let executor = world.executor().await;
    let name = start(&executor, PLAN, v1::ApprovalMode::Wait).await;
    let ended = executor.end(&name).await;
    let failure = ended.steps[0].failure.as_ref().unwrap();
    assert_eq!((ended.state(), failure.reason.as_str()), (Whole::Failed, "FORM_REFUSED"));
    assert_eq!(failure.message, "The approval gate refuses to ask the form `Which version?`: The form is too long.");
}

#[tokio::test]
async fn a_form_is_denied_or_skipped_with_a_reason() {
    let world = World::new().await;
    let executor = world.executor().await;
    for (state, whole) in [(State::Denied, Whole::Failed), (State::Skipped, Whole::Partial)] {
        let name = start(&executor, PLAN, v1::ApprovalMode::Wait).await;
        let asked = world.gate.pending_approval("ask").await;
        world.gate.decide(&asked.name, state, "not today");
        let ended = executor.end(&name).await;
        assert_eq!(ended.state(), whole, "{:?}", ended.steps[0]);
        if state == State::Denied {
            assert_eq!(ended.steps[0].failure.as_ref().unwrap().message, "ann denied the form: not today");
        }
        world.gate.until("the acknowledgement", |seen| seen.delivered.contains(&asked.name)).await;
    }
}

// Where no person is asked, the step fails or is skipped at once, and the gate hears nothing of it.
#[tokio::test]
async fn an_execution_that_asks_no_person_does_not_wait() {
    let world = World::new().await;
    let executor = world.executor().await;
    for (mode, whole) in [
        (v1::ApprovalMode::Fail, Whole::Failed),
        (v1::ApprovalMode::Auto, Whole::Failed),
        (v1::ApprovalMode::Skip, Whole::Partial),
    ] {
        let name = start(&executor, PLAN, mode).await;
        let ended = executor.end(&name).await;
        assert_eq!(ended.state(), whole, "{mode:?}");
        if mode != v1::ApprovalMode::Skip {
            let failure = ended.steps[0].failure.as_ref().unwrap();
            assert_eq!(failure.reason, "NON_INTERACTIVE");
            assert!(
                failure.message.starts_with("A person has to answer the form `Which version?`"),
                "{}",
                failure.message
            );
        }
    }
    assert_eq!(world.gate.seen().created, 0);
}

// S2-FR-077a: the answer is shown without its secrets; the next step gets it as it was given.
#[tokio::test]
async fn the_secrets_of_an_answer_are_hidden() {
    let world = World::new().await;
    let executor = world.executor().await;
    let plan = "
id: asks
steps:
  - {id: ask, wait: {form: {title: Key?, schema: {properties: {password: {type: string}}}}}}
  - {id: use, tool: work, arguments: {is: '${ask.result.password}'}}
";
    let name = start(&executor, plan, v1::ApprovalMode::Wait).await;
    let asked = world.gate.pending_approval("ask").await;
    let subject: Value = serde_json::from_str(&world.gate.seen().forms[&asked.name]).unwrap();
    assert_eq!(subject["schema"]["properties"]["password"]["type"], "string");
    world.gate.answer(&asked.name, r#"{"password":"correct-horse-battery"}"#);
    let ended = executor.end(&name).await;
    assert_eq!(output(&executor, &name).await, json!({"password": "[REDACTED]"}));
    let shown = format!("{:?}{:?}", ended, executor.events(&name).await);
    assert!(!shown.contains("correct-horse"), "{shown}");
    assert!(shown.contains(r#"\"type\":\"string\""#), "a property's name hides nothing of the schema: {shown}");
    let given = world.runner.seen();
    assert!(format!("{given:?}").contains("correct-horse-battery"), "the tool gets the original");
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused_where_it_stands() {
    let world = World::new().await;
    let executor = world.executor().await;
    let text = "id: p\nsteps:\n  - id: ask\n    wait:\n      form:\n        title: T\n        schema:\n          properties: {n: {type: number7}}\n";
    let document = v1::PlanDocument { text: text.into(), ..Default::default() };
    let request = v1::ValidatePlanRequest {
        parent: "namespaces/default".into(),
        source: Some(v1::validate_plan_request::Source::Document(document)),
    };
    let found = executor.client.clone().validate_plan(request).await.unwrap().into_inner().violations;
    let [violation] = &found[..] else { panic!("{found:?}") };
    assert_eq!(violation.field, "steps[0].wait.form.schema.properties.n.type");
    assert_eq!((violation.line, violation.column), (8, 34));
    assert!(violation.message.starts_with("not a JSON Schema"), "{}", violation.message);
}
