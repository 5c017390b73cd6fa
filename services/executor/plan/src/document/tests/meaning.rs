//! Meaning of documents that are valid.

use std::{fmt::Write, time::Duration};

use serde_json::json;

use super::{REQUEST, arguments, one_step, read};
use crate::{Backoff, Format, Outcome, Plan, RetryPolicy, RunWhen, StepKind};

#[test]
fn the_author_s_form() {
    let plan = read(
        r#"
        # what an author writes
        id: demo
        description: |
          Fetches.
          Uses.
        parallelism: 4
        stop_on_error: true
        timeout: 5m
        steps:
          - id: fetch
            title: Fetch
            tool: noop
            arguments: {output: {n: 3}}
            depends_on: [other]
            timeout: 30s
            attempt_timeout: 10s
            retry: {max_attempts: 3, backoff: [1s, 500ms]}
          - id: other
            tool: noop
          - id: use
            tool: noop
            arguments:
              first: ${fetch.result.n}
              text: "n is ${fetch.output.n}"
            retry: {max_attempts: 5}
        "#,
    );
    assert_eq!((plan.id(), plan.description()), ("demo", "Fetches.\nUses.\n"));
    assert_eq!((plan.parallelism(), plan.stop_on_error()), (4, true));
    assert_eq!(plan.timeout(), Some(Duration::from_secs(300)));
    let [fetch, other, used] = plan.steps() else { panic!("three steps") };
    assert_eq!((fetch.id(), fetch.title(), fetch.dependencies()), ("fetch", "Fetch", &[1][..]));
    assert_eq!(fetch.timeout(), Some(Duration::from_secs(30)));
    assert_eq!(fetch.attempt_timeout(), Some(Duration::from_secs(10)));
    let delays = Backoff::List(vec![Duration::from_secs(1), Duration::from_millis(500)]);
    assert_eq!(fetch.retry(), &RetryPolicy { max_attempts: 3, backoff: delays, ..RetryPolicy::default() });
    assert_eq!(arguments(fetch), &json!({"output": {"n": 3}}));
    assert_eq!((other.title(), arguments(other)), ("other", &json!({})));
    assert_eq!(used.dependencies(), [0]);
    assert_eq!(used.retry(), &RetryPolicy { max_attempts: 5, backoff: Backoff::DEFAULT, ..RetryPolicy::default() });
}

#[test]
fn backoff_has_defaults() {
    let second = Duration::from_secs(1);
    for (written, initial, factor, max) in [
        ("{}", second, 2.0, 30 * second),
        ("{initial: 2s, factor: 3, max: 10s}", 2 * second, 3.0, 10 * second),
        ("{factor: 1.5}", second, 1.5, 30 * second),
        ("{initial: 2m}", 120 * second, 2.0, 120 * second),
    ] {
        let plan = read(&one_step(&format!("retry: {{max_attempts: 2, backoff: {written}}}")));
        assert_eq!(plan.steps()[0].retry().backoff, Backoff::Exponential { initial, factor, max }, "{written}");
    }
}

// S4-01, S4-02, S4-04, S4-21: the JSON form is taken as it stands, and `order` orders the steps.
#[test]
fn the_json_form_of_other_planners() {
    let plan = read(REQUEST);
    let ids: Vec<_> = plan.steps().iter().map(|step| step.id()).collect();
    assert_eq!(ids, ["step-1", "step-2", "step-3"]);
    assert_eq!(plan.steps()[1].dependencies(), [0]);
    assert_eq!(plan.timeout(), Some(Duration::from_secs(120)));
    assert_eq!((plan.stop_on_error(), plan.parallelism()), (true, 3));
    assert_eq!(plan.audit_level(), Some(crate::AuditLevel::Standard));
    let delays = [1000, 2000, 4000].map(Duration::from_millis).to_vec();
    assert_eq!(
        plan.steps()[0].retry(),
        &RetryPolicy { max_attempts: 3, backoff: Backoff::List(delays), ..RetryPolicy::default() }
    );

    assert_eq!(read(&REQUEST.replace("\"parallel\": true", "\"parallel\": false")).parallelism(), 1);
    // S4-21: without backoffMs every delay is one second.
    let plan = read(r#"{"id": "p", "steps": [{"id": "a", "skillId": "t", "retry": {"maxAttempts": 2}}]}"#);
    assert_eq!(plan.steps()[0].retry().delay(0), Duration::from_secs(1));
    assert_eq!(plan.steps()[0].retry().delay(1), Duration::from_secs(1));
    let plan = read(r#"{"id": "p", "steps": [{"id": "a", "skillId": "t", "retry": {"backoffMs": [5]}}]}"#);
    assert_eq!(plan.steps()[0].retry().max_attempts, 1);
}

#[test]
fn parallel_without_a_number_is_capped() {
    let steps: Vec<_> = (0..100).map(|n| json!({"id": format!("s{n}"), "skillId": "t", "params": {}})).collect();
    let request = json!({"plan": {"id": "p", "steps": steps}, "config": {"parallel": true}}).to_string();
    assert_eq!(read(&request).parallelism(), 64);
}

#[test]
fn words_that_look_like_truth_values_are_text() {
    let plan = read(&one_step("arguments: {a: yes, b: no, c: on, d: true, e: null, f: ~, g: 'true', h: 1_0}"));
    let values = arguments(&plan.steps()[0]);
    assert_eq!((&values["a"], &values["b"], &values["c"]), (&json!("yes"), &json!("no"), &json!("on")));
    assert_eq!(
        (&values["d"], &values["e"], &values["f"], &values["g"]),
        (&json!(true), &json!(null), &json!(null), &json!("true"))
    );
}

/// An argument that is taken verbatim names no step and loses no `$`, at any depth; the others are templates as ever.
#[test]
fn a_verbatim_argument_is_no_template() {
    let text = "arguments: {script: {lines: ['echo ${HOME}', '$${x}', '${', '${b.result}']}, other: '$${x}'}\n    verbatim: [script]";
    let plan = read(&one_step(text));
    let StepKind::Tool(tool) = plan.steps()[0].kind() else { panic!("a tool step") };
    let resolved = tool.arguments.resolve(&|_, _| None).unwrap();
    let lines = ["echo ${HOME}", "$${x}", "${", "${b.result}"];
    assert_eq!(resolved, json!({"script": {"lines": lines}, "other": "${x}"}));
    assert!(plan.steps()[0].dependencies().is_empty());
    assert_eq!(Plan::new(plan.to_draft()).unwrap(), plan, "it stays so through a draft");
    let draft = serde_json::to_value(plan.to_draft()).unwrap();
    assert_eq!(draft["steps"][0]["verbatim"], json!(["script"]));
}

#[test]
fn anchors_aliases_and_merges_work() {
    let mut text =
        "id: p\nsteps:\n  - id: s0\n    <<: &common\n      tool: t\n      retry: &r {max_attempts: 3}\n".to_owned();
    for n in 1..300 {
        writeln!(text, "  - {{id: s{n}, <<: *common, retry: *r}}").unwrap();
    }
    let plan = read(&text);
    assert_eq!(plan.steps().len(), 300);
    assert!(plan.steps().iter().all(|step| step.retry().max_attempts == 3));
}

#[test]
fn the_format_can_be_named_and_is_else_told_from_the_text() {
    let yaml = "id: p\nsteps: [{id: a, tool: t}]";
    let json = r#" {"id": "p", "steps": [{"id": "a", "tool": "t"}]}"#;
    let flow = "{id: p, steps: [{id: a, tool: t}]}";
    let accepts = |format, text: &str| Plan::parse(format, text).is_ok();
    assert!(accepts(Format::Auto, yaml) && accepts(Format::Yaml, yaml) && !accepts(Format::Json, yaml));
    assert!(accepts(Format::Auto, json) && accepts(Format::Yaml, json) && accepts(Format::Json, json));
    assert!(!accepts(Format::Auto, flow) && accepts(Format::Yaml, flow));
    assert!(accepts(Format::Auto, &format!("\u{feff}{yaml}")) && accepts(Format::Auto, &format!("\u{feff}{json}")));
}

/// A dependency is an id, or an id with outcomes; both come back as they were written.
#[test]
fn a_dependency_may_name_its_outcomes() {
    let text = r#"
        id: p
        steps:
          - {id: a, tool: t}
          - {id: b, tool: t, for_each: [1]}
          - {id: c, tool: t, depends_on: [a, {step: b, on: [skipped, success, success]}]}
          - {id: d, tool: t, run_when: none_failed, depends_on: [{step: a}], arguments: {x: "${b.results[0].state}"}}
    "#;
    let plan = Plan::parse(Format::Yaml, text).unwrap();
    let [_, _, c, d] = plan.steps() else { panic!("{plan:?}") };
    assert_eq!(c.dependencies(), [0, 1]);
    let named: Vec<Outcome> = c.outcomes_of("b").unwrap().iter().copied().collect();
    assert_eq!((c.outcomes_of("a"), named), (None, vec![Outcome::Success, Outcome::Skipped]));
    assert_eq!((d.run_when(), d.dependencies(), d.outcomes_of("a")), (RunWhen::NoneFailed, &[0, 1][..], None));
    assert_eq!(Plan::new(plan.to_draft()).unwrap(), plan);
    let written = serde_json::to_value(plan.to_draft()).unwrap();
    assert_eq!(written["steps"][2]["depends_on"], json!(["a", {"step": "b", "on": ["success", "skipped"]}]));
    assert_eq!(Plan::parse(Format::Json, &written.to_string()).unwrap(), plan);
    let circle =
        "{id: p, steps: [{id: a, tool: t, depends_on: [{step: b, on: [failure]}]}, {id: b, tool: t, depends_on: [a]}]}";
    let wrong = Plan::parse(Format::Yaml, circle).unwrap_err();
    assert!(wrong.to_string().contains("steps[0].depends_on[0]: cyclic dependencies: a → b → a"), "{wrong}");
}

/// S4-02: a condition makes the steps that it names dependencies, and comes back as it was written.
#[test]
fn a_condition_and_its_dependencies() {
    let text = r#"
        id: p
        steps:
          - {id: a, tool: t}
          - {id: b, tool: t, condition: "${a.result.ok} && size(${c.output}) > 0"}
          - {id: c, tool: t, condition: false}
          - {id: d, tool: t, run_when: failure, depends_on: [a]}
          - {id: e, tool: t, run_when: always, arguments: {x: "${a.state}", y: "${a.failure.message}"}}
    "#;
    let plan = Plan::parse(Format::Yaml, text).unwrap();
    let [a, b, c, d, e] = plan.steps() else { panic!("{plan:?}") };
    assert_eq!((a.run_when(), a.condition()), (RunWhen::Success, None));
    assert_eq!(b.dependencies(), [0, 2]);
    assert_eq!(b.condition().unwrap().expression(), "__value0 && size(__value1) > 0");
    assert_eq!(c.condition().unwrap().source(), "false");
    assert_eq!((d.run_when(), e.run_when(), e.dependencies()), (RunWhen::Failure, RunWhen::Always, &[0][..]));
    assert_eq!(Plan::new(plan.to_draft()).unwrap(), plan);
    let circle = "{id: p, steps: [{id: a, tool: t, condition: '${b.result}'}, {id: b, tool: t, depends_on: [a]}]}";
    let wrong = Plan::parse(Format::Yaml, circle).unwrap_err();
    assert!(wrong.to_string().contains("steps[0].condition: cyclic dependencies: a → b → a"), "{wrong}");
}

/// S3-10: the names of fields and the operations of other planners, and what has no meaning of its own stays as it is.
#[test]
fn the_fields_and_operations_of_other_planners() {
    let plan = read(
        r#"
        id: p
        steps:
          - {step_id: a, description: Reads., action: READ_FILE, args: {path: x}}
          - {stepId: b, tool: FILESYSTEM, inputs: {operation: read, path: x}}
          - {id: c, tool: FILESYSTEM, parameters: {operation: append, path: x}}
          - {id: d, tool: FILESYSTEM, arguments: {path: x}}
          - {id: e, tool: other, arguments: {operation: read}}
        "#,
    );
    let calls = plan.steps().iter().map(|step| {
        let StepKind::Tool(call) = step.kind() else { panic!("a call") };
        (step.id(), call.tool.as_str(), call.arguments.source().clone())
    });
    let calls: Vec<_> = calls.collect();
    let expected = [
        ("a", "READ_FILE", json!({"path": "x"})),
        ("b", "FILESYSTEM.read", json!({"path": "x"})),
        ("c", "FILESYSTEM.append", json!({"path": "x"})),
        ("d", "FILESYSTEM", json!({"path": "x"})),
        ("e", "other", json!({"operation": "read"})),
    ];
    assert_eq!(calls, expected);
}
