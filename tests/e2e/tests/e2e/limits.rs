//! Limits over executions: turns, refusals and cancellations, whatever happens to the server.

use belay_e2e::Home;
use rustix::process::Signal;
use serde_json::Value;

/// A plan whose executions hold the limit until they are sent the signal.
fn plan(home: &Home, name: &str, limit: &str) -> String {
    home.file(
        name,
        format!("{{id: deploy, limits: [{{key: deploy, {limit}}}], steps: [{{id: a, wait: {{signal: go}}}}]}}"),
    )
}

fn until_in_state(home: &Home, id: &str, state: &str) -> Value {
    home.json_until(&["executions", "get", id], |execution| execution["state"] == state)
}

fn start(home: &Home, plan: &str, id: &str) {
    let started = home.run(["run", plan, "--detach", "--id", id]);
    assert_eq!(started.code, 0, "{started:?}");
}

/// Sends the signal that ends an execution, and waits for its end.
fn finish(home: &Home, id: &str) {
    let sent = home.run(["executions", "signal", id, "go"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    until_in_state(home, id, "STATE_COMPLETED");
}

/// Turns come in order, one after the other, through a kill of the server at each.
#[test]
fn turns_come_in_order_whatever_is_killed() {
    let home = Home::new();
    let plan = plan(&home, "deploy.yaml", "at_once: 1");
    let mut server = home.serve();
    let ids = ["one", "two", "three", "four"];
    ids.iter().for_each(|id| start(&home, &plan, id));
    for (place, id) in ids.iter().enumerate() {
        let held = until_in_state(&home, id, "STATE_RUNNING");
        assert_eq!((&held["limitState"], &held["limits"][0]["key"]), (&"LIMIT_STATE_HELD".into(), &"deploy".into()));
        server.kill();
        server = home.serve();
        for later in &ids[place + 1..] {
            let waits = until_in_state(&home, later, "STATE_PENDING");
            assert_eq!(waits["limitState"], "LIMIT_STATE_WAITING");
        }
        if let Some(next) = ids.get(place + 1) {
            let why = home.run(["why", next]);
            assert!(why.out.contains(&format!("the limit `deploy` is held by {id}")), "{why:?}");
            assert!(why.out.contains(&format!("next: belay why {id}")), "{why:?}");
            let listed = home.run(["executions", "list"]);
            assert!(listed.out.contains("pending (limit)"), "{listed:?}");
            let (_, waiting) = home.json(&["executions", "list", "--filter", "waits_for = LIMIT"]);
            assert_eq!(waiting["executions"].as_array().map(Vec::len), Some(ids.len() - place - 1), "{waiting}");
        }
        finish(&home, id);
    }
    server.signal(Signal::TERM);
    server.end();
}

/// A start that does not wait is refused, and nothing of it is stored; the same request again is told what it has started. The newest takes the place of the others.
#[test]
fn a_full_limit_refuses_or_has_the_older_cancelled() {
    let home = Home::new();
    let (refuses, newest) = (
        plan(&home, "refuses.yaml", "at_once: 1, when_full: refuse"),
        plan(&home, "newest.yaml", "at_once: 1, when_full: cancel_older"),
    );
    let server = home.serve();
    let first = home.run(["run", &refuses, "--detach", "--id", "first", "--request-id", "r1"]);
    assert_eq!(first.code, 0, "{first:?}");
    let second = home.run(["run", &refuses, "--detach", "--id", "second", "--request-id", "r2"]);
    assert_eq!(second.code, 2, "{second:?}");
    assert!(second.talk.contains("LIMIT_FULL") && second.talk.contains("The limit `deploy` is full"), "{second:?}");
    assert_eq!(home.json(&["executions", "get", "second"]).0, 2, "nothing is stored");
    let again = home.run(["run", &refuses, "--detach", "--id", "first", "--request-id", "r1"]);
    assert_eq!(again.code, 0, "a repeated request is told what it has started: {again:?}");

    start(&home, &newest, "newer");
    until_in_state(&home, "newer", "STATE_RUNNING");
    let cancelled = until_in_state(&home, "first", "STATE_CANCELLED");
    assert_eq!(cancelled["limitState"], Value::Null, "{cancelled}");
    let why = home.run(["why", "first"]);
    assert!(why.out.contains("`newer` has the limit `deploy` now"), "{why:?}");
    finish(&home, "newer");
    start(&home, &refuses, "second");
    finish(&home, "second");
    server.signal(Signal::TERM);
    server.end();
}

/// A plan of a step has limits of its own. One that the execution above it holds is refused: it would wait for its own parent.
#[test]
fn a_plan_of_a_step_does_not_wait_for_its_parent() {
    let home = Home::new();
    let text = |key: &str| {
        format!(
            "{{id: p, limits: [{{key: deploy, at_once: 1}}], steps: [{{id: s, plan: {{id: c, inputs: {{k: {{default: deploy}}}}, limits: [{{key: '{key}', at_once: 5}}], steps: [{{id: a, tool: noop}}]}}}}]}}"
        )
    };
    let [literal, resolved, other] = ["deploy", "${inputs.k}", "other-${inputs.k}"].map(text);
    let refused = home.run(["run", &home.file("literal.yaml", &literal)]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.talk.contains("the plan around it holds the limit `deploy` until it ends"), "{refused:?}");
    let failed = home.run(["run", &home.file("resolved.yaml", &resolved)]);
    assert_eq!(failed.code, 30, "{failed:?}");
    assert!(format!("{}{}", failed.out, failed.talk).contains("holds the limit `deploy` until it ends"), "{failed:?}");
    let other = home.file("other.yaml", &other);
    assert_eq!(home.run(["run", &other]).code, 0);
}
