use belay_plan::Plan;
use belay_proto::v1::{self, step_spec::Kind};

use super::{
    read::{checked_plan_from, stored_plan_from},
    write::{plan_message, stored_plan_message},
};

#[test]
fn a_plan_comes_back_as_it_was() {
    let text = "
        id: p
        parallelism: 3
        timeout: 5m
        audit_level: verbose
        resources: {db: 3}
        budget: {calls: 10, output_bytes: 1000000, on_exhausted: fail}
        limits: [{key: deploy, at_once: 2, when_full: cancel_older}, {key: hourly, rate: {starts: 3, window: 1h}, when_full: refuse}]
        outputs: {n: '${a.result.n}', all: ['${l.results}', '$${x}', 9007199254740993]}
        escalation: {retries: 2, backoff: [10s, 1m], then: pause}
        on_error: {TRANSIENT: use_cache}
        steps:
          - {id: a, tool: noop, arguments: {output: {n: 9007199254740993}}, retry: {max_attempts: 3, backoff: [1s, 2s]}}
          - {id: b, tool: noop, depends_on: [a], budget: {calls: 2}, timeout: 30s, attempt_timeout: 1s, exclusive: true, network: registries, retry: {max_attempts: 2}}
          - {id: c, title: C, tool: noop, arguments: {output: '${a.result.n}'}}
          - {id: d, tool: noop, arguments: {output: 'echo ${HOME'}, verbatim: [output]}
          - {id: e, wait: {for: 90.5s}}
          - {id: f, wait: {until: 2026-12-01T09:00:00Z}, depends_on: [e]}
          - {id: again, tool: noop, repeat: {until: '${again.result.n} > 2', max: 7, delay: 1.5s}}
          - {id: once_more, tool: noop, repeat: {until: '${once_more.result}', max: 1000}}
          - {id: late, tool: noop, group_timeouts: {g: 90s, outer: 1.5s}}
          - {id: in_fast, tool: noop, fail_fast_groups: [inner, outer]}
          - {id: fast, tool: noop, for_each: [1, 2], fail_fast: true}
          - {id: g.h, wait: {signal: go}, timeout: 1h}
          - {id: i, wait: {form: {title: '${a.result}?', schema: {type: object}}}, timeout: 1h}
          - {id: j, tool: noop, condition: '${a.result.n} > 1 && ${b.result} != null', run_when: always}
          - {id: k, tool: noop, run_when: failure, depends_on: [a]}
          - {id: q, tool: noop, run_when: none_failed, depends_on: [a]}
          - {id: r, tool: noop, depends_on: [{step: j, on: [failure, skipped]}, a, {step: b, on: [success]}]}
          - {id: l, tool: noop, for_each: '${a.result.list}', arguments: {n: '${item.value.n}'}, resources: [db, cache]}
          - {id: m, wait: {signal: go}, for_each: [1, '${a.result}'], timeout: 1h}
          - {id: n, tool: noop, fallback: [{tool: echo, arguments: {a: '${a.result}', v: '${x}'}, verbatim: [v]}]}
          - {id: o, tool: noop, compensate: {tool: echo, arguments: {a: '${o.result}'}}}
          - {id: p, tool: noop, on_error: {TIMEOUT: use_cache, RATE_LIMIT: queue_for_later, FATAL: compensate}}
    ";
    let plan = Plan::parse(belay_plan::Format::Yaml, text).unwrap();
    assert_eq!(checked_plan_from(plan_message(&plan), |_| Vec::new()).unwrap(), plan);
    assert_eq!(stored_plan_from(stored_plan_message(&plan)).unwrap(), plan);
}

/// B-24: a stored plan names what its author left to a default, and is not held to the limits of the version that reads it.
#[test]
fn a_stored_plan_is_resolved_and_trusted() {
    let text = "{id: p, steps: [{id: a, tool: noop}, {id: b, wait: {for: 1s}}]}";
    let stored = stored_plan_message(&Plan::parse(belay_plan::Format::Yaml, text).unwrap());
    let written = v1::RetryPolicy { max_attempts: 1, ..v1::RetryPolicy::default() };
    assert_eq!([&stored.steps[0].retry, &stored.steps[1].retry], [&Some(written), &None]);
    let mut beyond = stored;
    beyond.parallelism = 100_000;
    beyond.steps[0].id = "a".repeat(1000);
    assert!(checked_plan_from(beyond.clone(), |_| Vec::new()).is_err(), "a new plan is refused");
    let plan = stored_plan_from(beyond.clone()).unwrap();
    assert_eq!(stored_plan_message(&plan), beyond);
}

#[test]
fn invalid_fields_of_a_message_are_named() {
    let step = v1::StepSpec {
        id: "a".into(),
        timeout: Some(pbjson_types::Duration { seconds: -1, nanos: 0 }),
        ..v1::StepSpec::default()
    };
    let tool = v1::step_spec::Kind::Tool(v1::ToolStep {
        tool: "noop".into(),
        arguments: Some(v1::Payload::of_json("{")),
        ..v1::ToolStep::default()
    });
    let message = v1::Plan {
        id: "p".into(),
        parallelism: -1,
        outputs: Some(v1::Payload::of_json("[1]")),
        steps: vec![step.clone(), v1::StepSpec { kind: Some(tool), depends_on: vec!["nowhere".into()], ..step }],
        ..v1::Plan::default()
    };
    let fields: Vec<String> = checked_plan_from(message, |_| Vec::new())
        .unwrap_err()
        .violations
        .into_iter()
        .map(|violation| violation.field)
        .collect();
    let unread =
        ["steps[0].kind", "steps[0].timeout", "steps[1].tool.arguments", "steps[1].timeout", "parallelism", "outputs"];
    assert_eq!(fields[..6], unread);
    assert_eq!(fields[6..], ["steps[1].id", "steps[1].depends_on[0]"], "and everything else, at once");
}

#[test]
fn invalid_outcomes_of_a_message_are_named() {
    let named = |step: &str, outcomes: &[i32]| v1::DependencyOutcomes { step: step.into(), outcomes: outcomes.into() };
    let tool = || Some(Kind::Tool(v1::ToolStep { tool: "noop".into(), ..v1::ToolStep::default() }));
    let step = |id: &str| v1::StepSpec { id: id.into(), kind: tool(), ..v1::StepSpec::default() };
    let refused = |outcomes: Vec<v1::DependencyOutcomes>| -> Vec<String> {
        let last = v1::StepSpec { depends_on: vec!["a".into(), "b".into()], outcomes, ..step("c") };
        let message = v1::Plan { id: "p".into(), steps: vec![step("a"), step("b"), last], ..v1::Plan::default() };
        let checked = checked_plan_from(message, |_| Vec::new());
        let wrong = checked.err().map(|invalid| invalid.violations).unwrap_or_default();
        wrong.into_iter().map(|violation| format!("{}: {}", violation.field, violation.message)).collect()
    };
    let [success, failure] = [v1::Outcome::Success, v1::Outcome::Failure].map(i32::from);
    assert_eq!(refused(vec![named("a", &[success, failure]), named("b", &[success])]), Vec::<String>::new());
    assert_eq!(
        refused(vec![named("x", &[success])]),
        ["steps[2].outcomes[0].step: `x` is not in `depends_on`: add it there"]
    );
    assert_eq!(
        refused(vec![named("a", &[0, 17])]),
        [0, 17].map(|given| format!(
            "steps[2].outcomes[0].outcomes[{}]: is {given}, which is not an outcome of this version: use OUTCOME_SUCCESS, OUTCOME_FAILURE or \
             OUTCOME_SKIPPED",
            given / 17
        ))
    );
    assert_eq!(
        refused(vec![named("a", &[success]), named("a", &[failure])]),
        ["steps[2].outcomes[1].step: names a step again: give all its outcomes at once"]
    );
    let empty = refused(vec![named("b", &[])]);
    assert!(empty[0].starts_with("steps[2].depends_on[1].on: is empty, and the step would never run"), "{empty:?}");
}
