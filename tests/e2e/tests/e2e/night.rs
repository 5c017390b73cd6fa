//! An operator at night: finds out why an execution failed, mends its plan, and has it continue; and the same for many that failed alike.

use std::fs;

use belay_e2e::Home;

/// A plan of so many steps, each after the one before; the seventh runs `seventh`.
fn plan(seventh: &str) -> String {
    let mut text = "id: night\nsteps:\n".to_owned();
    for number in 1..=12 {
        let command = if number == 7 { seventh.to_owned() } else { format!("echo step {number} >> log.txt") };
        text += &format!("- {{id: s{number}, tool: run_terminal, arguments: {{command: [sh, -c, '{command}']}}");
        text += &if number > 1 { format!(", depends_on: [s{}]}}\n", number - 1) } else { "}\n".to_owned() };
    }
    text
}

/// S2-X-22: a failed execution is explained in a few lines, continues with a repaired plan, and repeats none of the six steps that had completed.
#[test]
fn a_failed_execution_is_mended_and_goes_on() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("plan.yaml", plan("echo looking; echo no such thing >&2; exit 3"));
    let failed = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "night", "--approve", "auto"]);
    assert_eq!(failed.code, 30, "{failed:?}");
    assert!(failed.talk.contains("belay executions retry night"), "{}", failed.talk);

    let why = home.run(["why", "night"]);
    for expected in
        ["s7 failed: `sh` exited with code 3", "no such thing", "5 steps because of it", "belay executions retry night"]
    {
        assert!(format!("{}{}", why.out, why.talk).contains(expected), "{expected}: {why:?}");
    }
    let wrong = home.file("wrong.yaml", plan("true").replace("echo step 3", "echo another step"));
    let refused = home.run(["executions", "retry", "night", "--plan", &wrong]);
    assert!(
        refused.code == 2 && refused.talk.contains("step `s3` has started or ended, and cannot change"),
        "{refused:?}"
    );

    home.file("mended.yaml", plan("echo step 7 >> log.txt"));
    let ended = home.run(["executions", "retry", "night", "--plan", "mended.yaml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let log = fs::read_to_string(home.path("w/log.txt")).unwrap();
    let expected: String = (1..=12).map(|number| format!("step {number}\n")).collect();
    assert_eq!(log, expected, "each step took effect once");
    let (_, execution) = home.json(&["executions", "get", "night"]);
    assert_eq!((&execution["state"], &execution["planRevision"]), (&"STATE_COMPLETED".into(), &1.into()));
    let timeline = home.run(["executions", "timeline", "night"]);
    assert!(
        timeline.out.lines().any(|line| line.starts_with("s7 ") && line.contains("2 attempts")),
        "{}",
        timeline.out
    );
}

/// Many that failed alike are retried, and deleted, by a filter; those that completed are left alone.
#[test]
fn executions_that_failed_alike_are_retried_by_a_filter() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let policy = home.file("policy.yaml", "terminal_commands: auto\n");
    let server = home.serve_with(&["--policy", &policy]);
    let text = "id: p\nsteps: [{id: a, tool: run_terminal, arguments: {command: [test, -f, there]}}]\n";
    home.file("plan.yaml", text);
    for number in 0..8 {
        let failed = home.run(["run", "plan.yaml", "--workspace", "w", "--id", &format!("e{number}")]);
        assert_eq!(failed.code, 30, "{failed:?}");
    }
    home.file("good.yaml", "id: p\nsteps: [{id: a, tool: noop}]\n");
    assert_eq!(home.run(["run", "good.yaml", "--id", "good"]).code, 0);
    home.file("w/there", "");
    let alike = ["--filter", "failure_reason = COMMAND_FAILED"];
    let asked = home.run(["executions", "retry", alike[0], alike[1]]);
    assert!(asked.code == 2 && asked.talk.contains("--yes"), "nobody was asked: {asked:?}");
    let retried = home.run(["executions", "retry", alike[0], alike[1], "--yes"]);
    assert!(retried.code == 0 && retried.out.contains("8 executions retried"), "{retried:?}");
    for number in 0..8 {
        let watched = home.run(["executions", "watch", &format!("e{number}")]);
        assert_eq!(watched.code, 0, "{watched:?}");
    }
    let none = home.run(["executions", "retry", alike[0], alike[1], "--yes"]);
    assert!(none.code == 0 && none.talk.contains("no execution that matches can be retried"), "{none:?}");
    let unclear = home.run(["executions", "cancel"]);
    assert!(unclear.code == 2 && unclear.talk.contains("nothing says which executions to cancel"), "{unclear:?}");
    let deleted = home.run(["executions", "delete", "--state", "completed", "--yes"]);
    assert!(deleted.code == 0 && deleted.out.contains("9 executions deleted"), "{deleted:?}");
    drop(server);
}

/// S2-X-22: what is still to run is changed step by step: a step is skipped, one gets its output by hand, a wait for an attempt is cut short, and the plan changes.
#[test]
fn what_is_still_to_run_is_changed_by_hand() {
    let home = Home::new();
    let server = home.serve();
    let text = "id: p
steps:
- {id: go, wait: {signal: go}}
- {id: lint, tool: noop, depends_on: [go]}
- {id: fetch, tool: noop, depends_on: [lint]}
- {id: use, tool: noop, depends_on: [fetch], arguments: {output: '${fetch.result.rows}'}}
- {id: flaky, tool: noop, arguments: {fail: not yet, fail_attempts: 1}, retry: {max_attempts: 2, backoff: [1h]}}
";
    home.file("plan.yaml", text);
    let started = home.run(["run", "plan.yaml", "--id", "p", "--detach"]);
    assert!(started.code == 0 && started.out.contains("belay executions watch p"), "{started:?}");
    let done = |arguments: &[&str]| {
        let ended = home.run(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended
    };
    done(&["executions", "skip", "p", "lint", "--reason", "not today"]);
    done(&["executions", "set-output", "p", "fetch", r#"{"rows": 12}"#]);
    home.file("more.yaml", format!("{text}- {{id: after, tool: noop, depends_on: [use]}}\n"));
    done(&["executions", "edit-plan", "p", "more.yaml", "--revision", "0"]);
    let stale = home.run(["executions", "edit-plan", "p", "plan.yaml", "--revision", "0"]);
    assert!(stale.code == 2 && stale.talk.contains("PLAN_REVISION_MISMATCH"), "{stale:?}");
    let refused = home.run(["executions", "set-output", "p", "after", "{rows"]);
    assert!(refused.code == 2 && refused.talk.contains("output.json: is not JSON"), "{refused:?}");
    // The first attempt fails at once, and the next one is an hour away.
    let mut watched = home.start(["executions", "watch", "p"]);
    watched.wait_for("retrying (1/1) in 1h");
    done(&["executions", "retry-step", "p", "flaky", "--now"]);
    done(&["executions", "signal", "p", "go"]);
    let ended = watched.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "p"]);
    let of = |id: &str| execution["steps"].as_array().unwrap().iter().find(|step| step["stepId"] == id).unwrap();
    assert_eq!(
        (&of("lint")["state"], &of("lint")["skipReason"]),
        (&"STATE_SKIPPED".into(), &"SKIP_REASON_REQUESTED".into())
    );
    assert_eq!(of("use")["output"], 12);
    assert_eq!((&of("after")["state"], &of("flaky")["attempt"]), (&"STATE_COMPLETED".into(), &2.into()));
    drop(server);
}

/// S1-38: a person does not wait for the next attempt of a call that has failed: the step continues with its next `fallback`.
#[test]
fn a_person_sends_a_step_to_its_fallback() {
    let home = Home::new();
    let server = home.serve();
    home.file(
        "plan.yaml",
        "id: p
steps:
- id: draft
  tool: noop
  arguments: {fail: not yet, fail_attempts: 9}
  retry: {max_attempts: 3, backoff: [1h]}
  fallback: [{tool: noop, arguments: {output: other}}]
- {id: alone, tool: noop, depends_on: [draft], arguments: {fail: not yet, fail_attempts: 1}, retry: {max_attempts: 2, backoff: [1h]}}
",
    );
    let started = home.run(["run", "plan.yaml", "--id", "p", "--detach"]);
    assert_eq!(started.code, 0, "{started:?}");
    let mut watched = home.start(["executions", "watch", "p"]);
    watched.wait_for("draft");
    watched.wait_for("in 1h");
    let forced = home.run(["executions", "retry-step", "p", "draft", "--fallback", "--reason", "the model is down"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    watched.wait_for("alone");
    watched.wait_for("in 1h");
    let refused = home.run(["executions", "retry-step", "p", "alone", "--fallback"]);
    assert!(
        refused.code == 2 && refused.talk.contains("`alone` has no other call left in its `fallback`"),
        "{refused:?}"
    );
    let now = home.run(["executions", "retry-step", "p", "alone", "--now"]);
    assert_eq!(now.code, 0, "{now:?}");
    assert_eq!(watched.end().code, 0);
    let events = home.run(["executions", "events", "p"]).out;
    assert!(events.contains("noop takes the place of noop") && events.contains("the model is down"), "{events}");
    drop(server);
}
