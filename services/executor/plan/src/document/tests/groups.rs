//! Meaning of documents with groups of steps.

use crate::{Format, Plan, RunWhen};

/// Each step with what it depends on, when it runs and if, and how often it is tried.
fn picture(plan: &str) -> Vec<String> {
    let plan = Plan::parse(Format::Yaml, plan).unwrap();
    let steps = plan.steps().iter().map(|step| {
        let on: Vec<&str> = step.dependencies().iter().map(|&on| plan.steps()[on].id()).collect();
        let mut line = format!("{} after [{}]", step.id(), on.join(", "));
        match step.run_when() {
            RunWhen::Success => {}
            RunWhen::Failure => line.push_str(" failure"),
            RunWhen::Always => line.push_str(" always"),
            RunWhen::NoneFailed => line.push_str(" none_failed"),
        }
        if let Some(condition) = step.condition() {
            line.push_str(&format!(" if {}", condition.source()));
        }
        if step.retry().max_attempts > 1 {
            line.push_str(&format!(" x{}", step.retry().max_attempts));
        }
        line
    });
    steps.collect()
}

/// Outcomes in the `depends_on` of a group apply to the steps that it begins with. Outcomes that another step names of a group apply to each of its
/// steps, except those that run after another outcome.
#[test]
fn outcomes_go_down_into_groups_and_out_of_them() {
    let plan = r#"
id: p
steps:
  - {id: a, tool: noop}
  - id: g
    depends_on: [{step: a, on: [success, skipped]}]
    condition: 1 < 2
    steps:
      - {id: first, tool: noop}
      - {id: own, tool: noop, depends_on: [{step: a, on: [failure]}]}
      - {id: then, tool: noop, depends_on: [first]}
      - {id: anyway, tool: noop, depends_on: [{step: first, on: [success, skipped]}]}
      - {id: also, tool: noop, run_when: none_failed, depends_on: [first]}
  - {id: last, tool: noop, depends_on: [{step: g, on: [success, failure]}]}
"#;
    let drafts = Plan::parse(Format::Yaml, plan).unwrap().to_draft().steps;
    let named = |place: usize| serde_json::to_value(&drafts[place].depends_on).unwrap();
    let conditions: Vec<bool> = drafts.iter().map(|step| !step.condition.is_empty()).collect();
    assert_eq!(named(1), serde_json::json!([{"step": "a", "on": ["success", "skipped"]}]));
    assert_eq!(named(2), serde_json::json!([{"step": "a", "on": ["failure"]}]), "its own comes first");
    assert_eq!(named(3), serde_json::json!(["first"]));
    let each =
        ["first", "then", "anyway", "also"].map(|id| serde_json::json!({"step": id, "on": ["success", "failure"]}));
    assert_eq!(named(6), serde_json::json!(each), "`own` is skipped when all goes well");
    assert_eq!(conditions, [false, true, true, false, true, true, false], "what may follow a skipped step has it too");
}

/// The time limit and the `fail_fast` of a group go to all steps in it, however deep; those that say nothing have those of the groups around them.
#[test]
fn time_limits_and_fail_fast_go_down_to_every_step() {
    let plan = "
id: p
steps:
  - id: outer
    fail_fast: true
    timeout: 1h
    steps:
      - {id: a, tool: noop}
      - id: middle
        steps:
          - id: inner
            fail_fast: true
            timeout: 5m
            steps: [{id: b, tool: noop}, {id: c, tool: noop, depends_on: [b]}]
          - {id: d, tool: noop}
  - {id: e, tool: noop, depends_on: [outer]}
";
    let plan = Plan::parse(Format::Yaml, plan).unwrap();
    let groups: Vec<_> = plan.steps().iter().map(|step| step.fail_fast_groups()).collect();
    assert_eq!(groups, [&["outer"][..], &["inner", "outer"], &["inner", "outer"], &["outer"], &[]]);
    let limits: Vec<String> = plan.steps().iter().map(|step| format!("{:?}", step.group_timeouts())).collect();
    assert_eq!(limits[0], r#"{"outer": 3600s}"#);
    assert_eq!(limits[1], r#"{"inner": 300s, "outer": 3600s}"#);
    assert_eq!(
        (limits[1..3].iter().all(|limit| *limit == limits[1]), &limits[3], &*limits[4]),
        (true, &limits[0], "{}")
    );
}

#[test]
fn the_steps_that_a_group_begins_with_have_what_it_says() {
    let plan = r#"
id: p
steps:
  - {id: build, tool: noop}
  - id: checks
    depends_on: [build]
    condition: ${build.result.ok}
    retry: {max_attempts: 2}
    steps:
      - {id: lint, tool: noop}
      - {id: unit, tool: noop, condition: "1 < 2", retry: {max_attempts: 3}}
      - {id: listed, tool: noop, depends_on: [unit]}
      - {id: named, tool: noop, arguments: {x: "${lint.result}", y: "${gone.result}"}, verbatim: [y]}
      - {id: asked, tool: noop, condition: "${lint.result.n} > 1"}
      - {id: tidy, tool: noop, run_when: always, depends_on: [listed]}
      - {id: hold, wait: {for: 1s}}
  - {id: publish, tool: noop, depends_on: [checks]}
"#;
    assert_eq!(
        picture(plan),
        [
            "build after []",
            "lint after [build] if ${build.result.ok} x2",
            "unit after [build] if (${build.result.ok}) && (1 < 2) x3",
            "listed after [unit] x2",
            "named after [lint] x2",
            "asked after [lint] if ${lint.result.n} > 1 x2",
            "tidy after [build, listed] always if ${build.result.ok} x2",
            "hold after [build] if ${build.result.ok}",
            "publish after [lint, unit, listed, named, asked, tidy, hold]",
        ]
    );
}

/// A step may name itself in what is checked after its call and in what undoes it: it depends on no other step because of that.
#[test]
fn a_group_begins_with_a_step_that_names_itself() {
    let plan = r#"
id: p
steps:
  - {id: build, tool: noop}
  - id: rented
    depends_on: [build]
    condition: ${build.result.ok}
    steps:
      - {id: machine, tool: noop, compensate: {tool: noop, arguments: {output: "${machine.result.id}"}}}
      - {id: disk, tool: noop, postconditions: [{condition: "${disk.result.ok}"}, {command: [test, "${disk.result.id}"]}]}
      - {id: both, tool: noop, compensate: {tool: noop, arguments: {output: "${disk.result.id}"}}}
"#;
    assert_eq!(
        picture(plan),
        [
            "build after []",
            "machine after [build] if ${build.result.ok}",
            "disk after [build] if ${build.result.ok}",
            "both after [disk]",
        ]
    );
}

#[test]
fn a_group_that_runs_after_a_failure_does_so_as_a_whole() {
    let plan = r#"
id: p
steps:
  - {id: deploy, tool: noop}
  - id: recovery
    depends_on: [deploy]
    run_when: failure
    steps:
      - {id: revert, tool: noop}
      - {id: tell, tool: noop, depends_on: [revert]}
      - {id: own, tool: noop, run_when: always}
  - {id: note, tool: noop, depends_on: [recovery], run_when: always}
"#;
    assert_eq!(
        picture(plan),
        [
            "deploy after []",
            "revert after [deploy] failure",
            "tell after [revert]",
            "own after [deploy] always",
            "note after [revert, tell, own] always",
        ]
    );
}

/// Steps that wait for a group do not wait for the handlers of a failure in it, which are skipped when all goes well.
#[test]
fn a_group_has_completed_without_its_handlers() {
    let plan = r#"
id: p
steps:
  - id: outer
    steps:
      - id: inner
        steps:
          - {id: a, tool: noop}
          - {id: alarm, tool: noop, run_when: failure, depends_on: [a]}
      - {id: b, tool: noop, depends_on: [inner]}
  - {id: c, tool: noop, depends_on: [outer, inner]}
"#;
    assert_eq!(picture(plan), ["a after []", "alarm after [a] failure", "b after [a]", "c after [a, b]"]);
}

#[test]
fn groups_and_their_steps_have_an_order_of_their_own() {
    let plan = r#"
id: p
steps:
  - {id: last, order: 2, tool: noop}
  - {id: g, order: 1, steps: [{id: second, order: 5, tool: noop}, {id: first, order: 3, tool: noop}]}
"#;
    assert_eq!(picture(plan), ["first after []", "second after []", "last after []"]);
}

/// A thousand steps that wait for a group of a thousand would be a million dependencies.
#[test]
fn what_groups_stand_for_is_bounded() {
    let steps = |prefix: &str, more: &str| {
        let steps = (0..1000).map(|n| format!(r#"{{"id": "{prefix}{n}", "tool": "t"{more}}}"#));
        steps.collect::<Vec<_>>().join(",")
    };
    let waiting = steps("b", r#", "depends_on": ["g"]"#);
    let plan = format!(r#"{{"id": "p", "steps": [{{"id": "g", "steps": [{}]}}, {waiting}]}}"#, steps("a", ""));
    let refused = Plan::parse(Format::Json, &plan).unwrap_err().violations;
    assert_eq!(refused[0].field, "steps[101].depends_on[0]");
    assert!(refused[0].message.starts_with("the plan's groups stand for more than 100000 dependencies"), "{refused:?}");
    // What a group depends on is handed to each of its steps, which is bounded as well.
    let handed = format!(
        r#"{{"id": "p", "steps": [{{"id": "g", "steps": [{}]}}, {{"id": "h", "depends_on": ["g"], "steps": [{}]}}]}}"#,
        steps("a", ""),
        steps("b", "")
    );
    let refused = Plan::parse(Format::Json, &handed).unwrap_err().violations;
    assert_eq!(refused[0].field, "steps[1].depends_on");
    assert!(refused[0].message.contains("100000 dependencies"), "{refused:?}");
}

/// S2-FR-066: each kind of step has a retry policy of its own, unless a step or its group has one.
#[test]
fn steps_are_tried_as_the_plan_says_for_their_kind() {
    let plan = r#"
id: p
retry_defaults: {noop: {max_attempts: 4}, plan: {max_attempts: 2}, sh: {profile: executor}}
steps:
  - {id: a, tool: noop}
  - {id: b, tool: noop, retry: {max_attempts: 1}}
  - {id: g, retry: {max_attempts: 3}, steps: [{id: c, tool: noop}, {id: d, tool: sh}]}
  - {id: e, plan: {id: q, steps: [{id: x, tool: noop}]}}
  - {id: f, wait: {for: 1s}}
  - {id: h, tool: sh}
"#;
    let tried: Vec<_> = picture(plan).iter().map(|line| line.replace(" after []", "")).collect();
    assert_eq!(tried, ["a x4", "b", "c x3", "d x3", "e x2", "f", "h x4"]);
}

/// Neither what a plan says for kinds of steps nor what a group says costs its length for each step: these two would take minutes.
#[test]
fn a_long_plan_is_refused_without_comparing_all_with_all() {
    let steps = |more: &str| {
        let steps = (0..9000).map(|n| format!(r#"{{"id": "s{n}", "tool": "t"{more}}}"#));
        steps.collect::<Vec<_>>().join(",")
    };
    let kinds = (0..60_000).map(|n| format!(r#""t{n}": {{"max_attempts": 2}}"#)).collect::<Vec<_>>().join(",");
    let plan = format!(r#"{{"id": "p", "retry_defaults": {{{kinds}}}, "steps": [{}]}}"#, steps(""));
    let refused = Plan::parse(Format::Json, &plan).unwrap_err().violations;
    assert!(refused[0].message.starts_with("no step of the plan calls `t0`"), "{}", refused[0]);
    let on = vec![r#""a""#; 200_000].join(",");
    let within = steps(r#", "depends_on": ["a"]"#);
    let plan = format!(
        r#"{{"id": "p", "steps": [{{"id": "a", "tool": "t"}}, {{"id": "g", "depends_on": [{on}], "steps": [{within}]}}]}}"#
    );
    assert_eq!(Plan::parse(Format::Json, &plan).unwrap().steps().len(), 9001);
}

/// S3-01: a working memory is an input, so that templates read it and a start can give another.
#[test]
fn a_working_memory_is_an_input() {
    for name in ["memory", "working_memory"] {
        let plan = format!(
            r#"{{"id": "p", "{name}": {{"topic": "CEL"}}, "steps": [{{"id": "a", "tool": "t", "arguments": {{"q": "${{inputs.memory.topic}}"}}}}]}}"#
        );
        let plan = Plan::parse(Format::Json, &plan).unwrap();
        let memory = &plan.inputs()["memory"];
        assert_eq!(memory.default, Some(serde_json::json!({"topic": "CEL"})));
        assert_eq!(memory.schema, Some(serde_json::json!({"type": "object"})));
    }
}
