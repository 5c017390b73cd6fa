//! What people get wrong: each is refused before anything happens, by the name of the field or the file, with exit code 2.

use belay_e2e::{Home, belay::Ended};
use serde_json::Value;

/// The refusal of one plan: its screen, after checking that `run` and `plan validate` say the same.
fn refusal(home: &Home, name: &str, plan: impl AsRef<[u8]>) -> String {
    home.file(name, plan);
    let Ended { code, out, talk } = home.run(["run", name]);
    assert_eq!((code, out.as_str()), (2, ""), "{talk}");
    let validated = home.run(["plan", "validate", name]);
    assert_eq!((validated.code, validated.talk.as_str()), (2, talk.as_str()));
    talk
}

fn nothing_was_started(home: &Home) {
    let (_, list) = home.json(&["executions", "list"]);
    assert_eq!(list, serde_json::json!({}), "a refusal leaves nothing behind");
}

/// S2-FR-002, S4-05, S4-06, S4-07, S4-08, S4-18: every fault is told by its field, with line and column where the author wrote it.
#[test]
fn a_faulty_plan_is_refused_by_field_and_line() {
    let home = Home::new();
    let _server = home.serve();
    let table = [
        ("id: [", "plan.yaml:1:5: this YAML cannot be read: unclosed bracket '['"),
        ("just words", "the plan must be an object with `id` and `steps`"),
        ("id: p\nsteps: {}", "plan.yaml:2:8: steps: must be a list of steps"),
        ("id: p\nsteps: []", "steps: the plan must be valid and have at least one step: add one"),
        ("id: 7\nsteps: [{id: a, tool: noop}]", "plan.yaml:1:5: id: must be text: put it in quotes, \"7\""),
        ("id: p\nstepps: []", "plan.yaml:2:1: stepps: there is no field `stepps` here; did you mean `steps`?"),
        (
            "{id: p, steps: [{id: a, tool: noop, depend_on: []}]}",
            "steps[0].depend_on: there is no field `depend_on` here; did you mean `depends_on`?",
        ),
        (
            "{id: p, steps: [{id: a, tool: noop}, {id: a, tool: noop}]}",
            "steps[1].id: `a` is already the id of steps[0]: ids must be unique",
        ),
        ("{id: p, steps: [{id: a, tool: noop, depends_on: [b]}]}", "steps[0].depends_on[0]: there is no step `b`"),
        (
            "{id: p, steps: [{id: a, tool: noop, arguments: {output: '${b.result}'}}]}",
            "steps[0].arguments.output: there is no step `b`",
        ),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {output: '${a.result}'}}]}", "`a` is the step itself"),
        (
            "{id: p, steps: [{id: a, tool: noop, depends_on: [b]}, {id: b, tool: noop, depends_on: [a]}]}",
            "steps[0].depends_on[0]: cyclic dependencies: a → b → a",
        ),
        (
            "{id: p, steps: [{id: a, tool: noop, timeout: 5}]}",
            "steps[0].timeout: `5` has no unit: write 5s for seconds",
        ),
        (
            "{id: p, steps: [{id: a, tool: noop, retry: {max_attempts: 0}}]}",
            "steps[0].retry.max_attempts: must be 1 to 100, not 0",
        ),
        ("{id: p, parallelism: 0, steps: [{id: a, tool: noop}]}", "parallelism: must be at least 1"),
        ("{id: p, steps: [{id: a, tool: nop}]}", "steps[0].tool: Tool 'nop' not found; did you mean `noop`?"),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {sleep_ms: soon}}]}", "steps[0].arguments.sleep_ms"),
    ];
    for (plan, words) in table {
        let screen = refusal(&home, "plan.yaml", plan);
        assert!(screen.contains(words), "{plan}:\n{screen}");
        assert!(
            screen.ends_with("next: belay plan validate plan.yaml\ncode: PLAN_REFUSED (docs/errors/PLAN_REFUSED.md)\n"),
            "{screen}"
        );
    }
    let screen = refusal(&home, "plan.json", r#"{"id": "p", "steps": [,]}"#);
    assert!(screen.contains("plan.json:1:23: this is not JSON"), "{screen}");
    nothing_was_started(&home);
}

/// S2-NFR-008, B-09: 10,000 steps are a plan, and one more is told how many there may be.
#[test]
fn ten_thousand_steps_are_a_plan_and_one_more_is_not() {
    let home = Home::new();
    let plan = |steps: usize| -> String {
        (0..steps)
            .fold("id: long\nsteps:\n".to_owned(), |plan, step| plan + &format!("  - {{id: s{step}, tool: noop}}\n"))
    };
    let good = home.run(["plan", "validate", &home.file("good.yaml", plan(10_000))]);
    assert_eq!(good.code, 0, "{}", good.talk);
    assert!(good.out.ends_with(": good, 10000 steps\n"), "{}", good.out);
    let screen = refusal(&home, "long.yaml", plan(10_001));
    assert!(screen.contains("steps: has 10001 steps, and a plan may have 10000: split it"), "{screen}");
    nothing_was_started(&home);
}

/// B-09: what is too big is refused once, by name.
#[test]
fn what_is_too_big_is_refused_by_name() {
    let home = Home::new();
    let plan =
        |size: usize| format!("{{id: p, steps: [{{id: a, tool: noop, arguments: {{output: {}}}}}]}}", "x".repeat(size));
    let screen = refusal(&home, "big.yaml", plan(5_000_000));
    assert!(screen.starts_with("error: the plan big.yaml is longer than 4 MiB\n"), "{screen}");
    let screen = refusal(&home, "medium.yaml", plan(40_000));
    assert!(screen.contains("steps[0].arguments: holds 40013 bytes as JSON, and may hold 32768"), "{screen}");
    nothing_was_started(&home);
}

#[test]
fn a_plan_that_cannot_be_read_is_named() {
    let home = Home::new();
    for (argument, why) in [("nowhere.yaml", "No such file or directory"), (".", "Is a directory")] {
        let ended = home.run(["run", argument]);
        assert_eq!(ended.code, 2);
        assert!(ended.talk.starts_with(&format!("error: the plan {argument} cannot be read: {why}")), "{}", ended.talk);
        assert!(ended.talk.contains("code: PLAN_UNREADABLE "), "{}", ended.talk);
    }
    let screen = refusal(&home, "latin1.yaml", b"id: p\n# \xe9\n");
    assert!(screen.contains("line 2 is not UTF-8"), "{screen}");
    assert!(!home.state().exists(), "nothing was begun for a plan that is not there");
}

#[test]
fn a_workspace_is_a_folder_that_is_there() {
    let home = Home::new();
    let plan = home.file("plan.yaml", "{id: p, steps: [{id: a, tool: noop}]}");
    for (folder, why) in
        [("nowhere", "No such file or directory"), ("plan.yaml", "it is a file, and a workspace is a folder")]
    {
        let ended = home.run(["run", &plan, "--workspace", folder]);
        assert_eq!(ended.code, 2);
        assert!(ended.talk.starts_with(&format!("error: the workspace {folder}: {why}")), "{}", ended.talk);
        assert!(ended.talk.contains("code: WORKSPACE_INVALID "), "{}", ended.talk);
    }
    nothing_was_started(&home);
    let (code, execution) = home.json(&["run", &plan, "--workspace", "."]);
    let folder = home.path(".").canonicalize().unwrap();
    assert_eq!((code, execution["workspace"].as_str()), (0, folder.to_str()));
}

#[test]
fn names_and_flags_are_checked() {
    let home = Home::new();
    let plan = home.file("plan.yaml", "{id: p, steps: [{id: a, tool: noop}]}");
    let table: [(&[&str], &str, &str); 9] = [
        (&["run", &plan, "--id", "No Such Id"], "execution_id", "INVALID_ARGUMENT"),
        (&["run", &plan, "--label", "nonsense"], "write it as key=value", "INVALID_USAGE"),
        (&["run", &plan, "--wait-timeout", "soon"], "write it like 90s, 15m, 1h30m or 2d", "INVALID_USAGE"),
        (&["run"], "PLAN", "INVALID_USAGE"),
        (&["excutions", "list"], "'executions'", "INVALID_USAGE"),
        (&["executions", "get", "no/id"], "`no/id` is no execution", "INVALID_USAGE"),
        (&["executions", "get", "nobody"], "`nobody`", "EXECUTION_NOT_FOUND"),
        (&["executions", "get", "@last"], "there is no execution in namespace default yet", "EXECUTION_NOT_FOUND"),
        (&["tools", "describe", "nop"], "did you mean `noop`?", "TOOL_NOT_FOUND"),
    ];
    for (arguments, words, code) in table {
        let ended = home.run(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{arguments:?}: {}", ended.talk);
        assert!(ended.talk.contains(words), "{arguments:?}: {}", ended.talk);
        assert!(
            ended.talk.ends_with(&format!("code: {code} (docs/errors/{code}.md)\n")),
            "{arguments:?}: {}",
            ended.talk
        );
        let mut as_json = arguments.to_vec();
        as_json.extend(["-o", "json"]);
        let refusal: Value = serde_json::from_str(&home.run(&as_json).out).unwrap();
        assert_eq!(refusal["code"], code);
    }
}
