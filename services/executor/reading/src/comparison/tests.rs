use super::*;

fn run(step: &str, state: &str, seconds: u64) -> StepRun {
    let facts = Map::from_iter([("state".to_owned(), state.into()), ("attempt".to_owned(), 1.into())]);
    StepRun { step: step.into(), facts, took: Duration::from_secs(seconds) }
}

fn before() -> Side {
    Side {
        plan: json!({"id": "p", "inputs": [{"name": "n", "defaultValue": 1}], "steps": [
            {"id": "a", "tool": {"arguments": {"command": ["x"]}}}, {"id": "b"}, {"id": "c"}, {"id": "old"},
        ]}),
        inputs: json!({"n": 1, "same": [2]}),
        execution: json!({"state": "STATE_COMPLETED"}),
        steps: vec![run("a", "STATE_COMPLETED", 2), run("b", "STATE_COMPLETED", 1), run("old", "STATE_COMPLETED", 1)],
    }
}

fn after() -> Side {
    let mut failed = run("a", "STATE_FAILED", 9);
    failed.facts.insert("failure".to_owned(), "COMMAND_FAILED".into());
    Side {
        plan: json!({"id": "p", "inputs": [{"name": "n", "defaultValue": 2}, {"name": "m"}], "steps": [
            {"id": "new"}, {"id": "a", "tool": {"arguments": {"command": ["x", "y"], "cwd": "z"}}}, {"id": "c"}, {"id": "b"},
        ]}),
        inputs: json!({"n": 3, "same": [2]}),
        execution: json!({"state": "STATE_FAILED", "failure": "COMMAND_FAILED"}),
        steps: vec![run("new", "STATE_COMPLETED", 1), failed, run("b", "STATE_COMPLETED", 1)],
    }
}

/// `path: before → after`, each `-` where there is none.
fn lines(changes: &[Change]) -> Vec<String> {
    let side = |value: &Option<ComparedValue>| match value {
        None => "-".to_owned(),
        Some(ComparedValue { json: Some(json), bytes }) => {
            assert_eq!(json.len(), *bytes);
            json.clone()
        }
        Some(ComparedValue { json: None, bytes }) => format!("{bytes} bytes"),
    };
    changes
        .iter()
        .map(|change| format!("{}: {} → {}", change.path.join("/"), side(&change.before), side(&change.after)))
        .collect()
}

#[test]
fn every_difference_is_named_and_nothing_else() {
    let found = compare(before(), after());
    assert_eq!(lines(&found.plan), ["inputs/n/defaultValue: 1 → 2", "inputs/m/name: - → \"m\""]);
    assert_eq!((found.added, found.removed), (vec!["new".to_owned()], vec!["old".to_owned()]));
    assert_eq!(found.planned.len(), 1);
    assert_eq!(found.planned[0].step, "a");
    let of_a = [r#"tool/arguments/command: ["x"] → ["x","y"]"#, r#"tool/arguments/cwd: - → "z""#];
    assert_eq!(lines(&found.planned[0].changes), of_a);
    assert_eq!(lines(&found.inputs), ["n: 1 → 3"]);
    let of_execution = [r#"state: "STATE_COMPLETED" → "STATE_FAILED""#, r#"failure: - → "COMMAND_FAILED""#];
    assert_eq!(lines(&found.execution), of_execution);
    assert_eq!(found.steps.len(), 1);
    let of_run = [
        r#"duration: "2.000s" → "9.000s""#,
        r#"state: "STATE_COMPLETED" → "STATE_FAILED""#,
        r#"failure: - → "COMMAND_FAILED""#,
    ];
    assert_eq!(lines(&found.steps[0].changes), of_run);
    assert_eq!(found.equal_steps, 1);
}

#[test]
fn an_execution_does_not_differ_from_itself() {
    assert_eq!(compare(before(), before()), Comparison { equal_steps: 3, ..Comparison::default() });
}

#[test]
fn a_small_change_of_a_duration_is_none() {
    let side = |seconds| Side { steps: vec![run("a", "STATE_COMPLETED", seconds)], ..Side::default() };
    let differ = |first, second| compare(side(first), side(second)).steps.len();
    assert_eq!((differ(10, 19), differ(10, 20), differ(20, 10), differ(1, 1), differ(0, 1)), (0, 1, 1, 0, 1));
}

#[test]
fn what_is_compared_part_by_part_is_of_one_kind() {
    let of = |before: Value, after: Value| {
        let side = |inputs| Side { inputs, ..Side::default() };
        lines(&compare(side(json!({"v": before})), side(json!({"v": after}))).inputs)
    };
    let (a, b) = (json!({"id": "a", "n": 1}), json!({"id": "b", "n": 2}));
    assert_eq!(of(json!([a, b]), json!([a, {"id": "b", "n": 3}])), ["v/b/n: 2 → 3"]);
    // Their order, and nothing else.
    assert_eq!(of(json!([a, b]), json!([b, a])).len(), 1);
    // An id that two entries have tells neither.
    assert_eq!(of(json!([a, a]), json!([a, b])).len(), 1);
    assert_eq!(of(json!({"a": 1}), json!([a])).len(), 1);
    assert_eq!(of(json!([1, 2]), json!([1, 3])), ["v: [1,2] → [1,3]"]);
    assert_eq!(of(json!({}), json!(null)), ["v: {} → null"]);
    assert_eq!(of(json!({"a.b": 1}), json!({"a": {"b": 1}})), ["v/a.b: 1 → -", "v/a/b: - → 1"]);
    // A field without fields of its own is one all the same.
    assert_eq!(of(json!({}), json!({"x": {}})), ["v/x: - → {}"]);
    // Numbers that a program would take for one are not one.
    assert_eq!(of(json!(1), json!(1.0)), ["v: 1 → 1.0"]);
}

#[test]
fn a_large_value_is_told_by_its_size() {
    let side = |text: &str| Side { inputs: json!({ "v": text }), ..Side::default() };
    let found = compare(side(&"x".repeat(5_000)), side("short"));
    assert_eq!(lines(&found.inputs), [r#"v: 5002 bytes → "short""#]);
}

#[test]
fn the_digest_of_an_output_is_that_of_its_value() {
    assert_eq!(output_digest(r#"{"b":1, "a":2}"#), output_digest(r#"{"a":2,"b":1}"#));
    assert_ne!(output_digest("1"), output_digest("2"));
    assert!(output_digest("no json").starts_with("sha256:"));
}
