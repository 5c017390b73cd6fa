//! Plans that escalate: what has failed runs again, and then a person is waited for.

use belay_e2e::Home;

/// S2-X-20, S2-FR-061: each level is an event that people read, the delay before a retry outlasts the executor, and a person resumes what the plan has
/// paused.
#[test]
fn an_escalation_ends_with_a_person() {
    let home = Home::new();
    home.file(
        "plan.yaml",
        r#"
id: chain
escalation: {retries: 2, backoff: [1500ms, 10ms], then: pause}
steps:
  - {id: build, tool: noop}
  - {id: test, tool: noop, depends_on: [build], retry: {max_attempts: 2, backoff: [10ms]}, arguments: {fail: boom, fail_attempts: 6, output: done}}
  - {id: ship, tool: noop, depends_on: [test]}
"#,
    );
    let watch = || home.start(["executions", "watch", "chain"]);
    let server = home.serve();
    let detached = home.run(["run", "plan.yaml", "--id", "chain", "--detach"]);
    assert_eq!(detached.code, 0, "{detached:?}");
    let mut watching = watch();
    watching.wait_for("retry 1 of 2");
    server.kill();
    drop(watching);
    let server = home.serve();
    let mut watching = watch();
    watching.wait_for("paused: steps have failed, also when they ran again, 2 times");
    let said = home.run(["executions", "events", "chain"]).out;
    for level in ["retrying (1/1)", "escalated: 2 steps run again at", "retry 1 of 2", "retry 2 of 2"] {
        assert!(said.contains(level), "{level}: {said}");
    }
    let why = home.run(["why", "chain"]);
    assert!(why.out.contains("is paused") && why.out.contains("executions retry chain"), "{why:?}");
    let retried = home.run(["executions", "retry", "chain"]);
    assert_eq!(retried.code, 0, "the seventh attempt does not fail: {retried:?}");
    assert_eq!(watching.end().code, 0);
    server.signal(rustix::process::Signal::TERM);
    server.end();
}

/// S2-X-23: a time limit ends the program, what it had printed is kept, and the step escalates.
#[test]
fn a_time_limit_keeps_what_was_printed_and_escalates() {
    let home = Home::new();
    home.file(
        "plan.yaml",
        r#"
id: slow
escalation: {retries: 1, backoff: [10ms]}
steps:
  - {id: test, tool: run_terminal, arguments: {command: [sh, -c, "echo halfway; exec sleep 60"]}, attempt_timeout: 500ms}
"#,
    );
    let ended = home.run(["run", "plan.yaml", "--id", "slow", "--approve", "auto"]);
    assert_eq!(ended.code, 34, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "slow"]);
    let step = &execution["steps"][0];
    assert_eq!(step["attempt"], 2, "{execution:#}");
    for attempt in step["failedAttempts"].as_array().unwrap() {
        assert!(attempt.to_string().contains("halfway"), "{attempt:#}");
    }
    let events = home.run(["executions", "events", "slow"]).out;
    assert!(events.contains("escalated: 1 step runs again") && events.contains("retry 1 of 1"), "{events}");
}
