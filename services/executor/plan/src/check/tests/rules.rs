//! Each rule with what it accepts and what it refuses.

use std::time::Duration;

use serde_json::json;

use super::{assert_refused, draft, step, step_with, violations};
use crate::{
    Backoff, CheckDraft, Dependency, FormDraft, InvalidPlan, Plan, PlanDraft, PlanPart, RetryPolicy, StepDraft,
    StepKind, StepKindDraft, WaitDraft, WaitFor, WaitStep,
    limits::{MAX_ARGUMENT_BYTES, MAX_DURATION, MAX_PLAN_BYTES, MAX_STEPS, MAX_VIOLATIONS},
};

#[test]
fn a_plan_knows_its_steps() {
    let mut first = step("a", &[]);
    first.title = "First".to_owned();
    let last = step_with("c", &["b", "a", "b"], json!({"x": "${d.result}"}));
    let plan = Plan::new(draft(vec![first, step("b", &["a"]), last, step("d", &[])])).unwrap();
    assert_eq!(plan.parallelism(), 1);
    assert_eq!(plan.step_index("c"), Some(2));
    assert_eq!(plan.step_index("e"), None);
    let titles: Vec<_> = plan.steps().iter().map(|step| step.title()).collect();
    assert_eq!(titles, ["First", "b", "c", "d"]);
    // S4-17: what a template names is a dependency too.
    assert_eq!(plan.steps()[2].dependencies(), [0, 1, 3]);
    assert_eq!(plan.steps()[2].depends_on(), ["b", "a", "b"].map(Dependency::from));
    assert_eq!(plan.dependents(0), [1, 2]);
    assert_eq!(plan.dependents(2), [0_usize; 0]);
    // S4-21: one attempt unless said otherwise.
    assert_eq!(plan.steps()[0].retry(), &RetryPolicy::default());
    let StepKind::Tool(tool) = plan.steps()[2].kind() else { panic!("a tool step") };
    assert_eq!((tool.tool.as_str(), tool.arguments.source()), ("noop", &json!({"x": "${d.result}"})));
}

// S2-FR-002, S4-05: a plan has an id and at least one step, and each step an id and a tool.
#[test]
fn an_empty_plan_is_refused() {
    let found = violations(PlanDraft::default());
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("id: is required"));
    assert!(found[1].starts_with("steps: the plan must be valid and have at least one step"));
    assert!(Plan::new(PlanDraft::default()).unwrap_err().to_string().contains("plan must be valid"));

    let mut nameless = step("", &[]);
    nameless.kind = StepKindDraft::Tool { tool: String::new(), arguments: json!({}) };
    let found = violations(draft(vec![nameless]));
    assert!(found[0].starts_with("steps[0].id: is required"), "{found:?}");
    assert!(found[1].starts_with("steps[0].tool: is required"), "{found:?}");
}

#[test]
fn ids_have_a_shape() {
    let (longest, too_long) = ("x".repeat(128), "x".repeat(129));
    for id in ["a", "A-1_b", "0", "build.x86_64", longest.as_str()] {
        assert!(Plan::new(draft(vec![step(id, &[])])).is_ok(), "{id}");
    }
    // `~` stands in the ids of steps that an execution adds itself.
    for id in ["-a", "_a", ".a", "a b", "a/b", "ä", "a\0", "\0", "a\n", "${a}", too_long.as_str(), "a~1"] {
        assert_refused(draft(vec![step(id, &[])]), "steps[0].id: `");
    }
    let (longest, too_long) = ("x".repeat(64), "x".repeat(65));
    for id in ["a.b-c_1", longest.as_str()] {
        assert!(Plan::new(PlanDraft { id: id.to_owned(), ..draft(vec![step("a", &[])]) }).is_ok(), "{id}");
    }
    for id in [".a", "a b", "a\0", too_long.as_str()] {
        assert_refused(PlanDraft { id: id.to_owned(), ..draft(vec![step("a", &[])]) }, "id: `");
    }
    // No control character reaches a terminal.
    assert!(!violations(draft(vec![step("a\u{1b}[2J", &[])]))[0].contains('\u{1b}'));
}

#[test]
fn ids_are_unique_and_both_places_are_named() {
    assert_refused(
        draft(vec![step("a", &[]), step("b", &[]), step("a", &[])]),
        "steps[2].id: `a` is already the id of steps[0]",
    );
}

#[test]
fn tools_have_names() {
    for tool in ["a b", "a\0", " ", &"x".repeat(129)] {
        let mut wrong = step("a", &[]);
        wrong.kind = StepKindDraft::Tool { tool: tool.to_owned(), arguments: json!({}) };
        assert_refused(draft(vec![wrong]), "steps[0].tool: `");
    }
}

#[test]
fn unknown_dependencies_are_named_with_the_nearest() {
    assert_refused(
        draft(vec![step("fetch", &[]), step("use", &["fetsh"])]),
        "steps[1].depends_on[0]: there is no step `fetsh`; did you mean `fetch`?",
    );
    assert_refused(draft(vec![step("a", &["xyz"])]), "steps[0].depends_on[0]: there is no step `xyz` (");
    assert_refused(
        draft(vec![step("fetch", &[]), step_with("use", &[], json!({"a": ["x ${fetsh.result} y"]}))]),
        "steps[1].arguments.a[0]: there is no step `fetsh`; did you mean `fetch`?",
    );
    // S2-X-16, X10: an unknown root is refused before anything runs.
    assert_refused(
        draft(vec![step_with("a", &[], json!({"odd key": "${API_KEY}"}))]),
        "steps[0].arguments[\"odd key\"]: `${API_KEY}` is not a reference to a step's result",
    );
}

#[test]
fn a_step_cannot_wait_for_itself() {
    assert_refused(draft(vec![step("a", &["a"])]), "steps[0].depends_on[0]: `a` is the step itself");
    assert_refused(
        draft(vec![step_with("a", &[], json!({"x": "${a.result}"}))]),
        "steps[0].arguments.x: `a` is the step itself",
    );
}

// S4-07, S2-FR-002: a cycle is named step by step, once, where it begins.
#[test]
fn cycles_are_named() {
    assert_refused(
        draft(vec![
            step("x", &["b"]),
            step("a", &["x", "b"]),
            step("b", &["c"]),
            step("c", &["d", "a"]),
            step("d", &[]),
        ]),
        "steps[0].depends_on[0]: cyclic dependencies: x → b → c → a → x (",
    );
    assert_refused(
        draft(vec![step_with("a", &[], json!({"p": ["${b.result}"]})), step("b", &["a"]), step("after", &["a", "b"])]),
        "steps[0].arguments.p[0]: cyclic dependencies: a → b → a (",
    );
    // One for a group of steps that wait for each other, and it begins with its earliest step.
    assert_refused(
        draft(vec![step("a", &["d"]), step("b", &[]), step("c", &["d"]), step("d", &["c", "e"]), step("e", &["a"])]),
        "steps[2].depends_on[0]: cyclic dependencies: c → d → c (",
    );
    let two = draft(vec![
        step("a", &["b"]),
        step("b", &["a", "d"]),
        step("c", &["d"]),
        step("d", &["c"]),
        step("e", &["a", "c"]),
    ]);
    let found = violations(two);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("steps[0].depends_on[0]: cyclic dependencies: a → b → a ("), "{found:?}");
    assert!(found[1].starts_with("steps[2].depends_on[0]: cyclic dependencies: c → d → c ("), "{found:?}");
}

#[test]
fn arguments_are_an_object_of_moderate_size() {
    for arguments in [json!(null), json!([]), json!("${b.result}"), json!(1)] {
        assert_refused(draft(vec![step_with("a", &[], arguments)]), "steps[0].arguments: must be an object");
    }
    // {"x":"…"} is 8 bytes around the text.
    let sized = |bytes: usize| draft(vec![step_with("a", &[], json!({"x": "y".repeat(bytes - 8)}))]);
    assert!(Plan::new(sized(MAX_ARGUMENT_BYTES)).is_ok());
    assert_refused(sized(MAX_ARGUMENT_BYTES + 1), "steps[0].arguments: has 32769 bytes as JSON and the limit is 32768");
}

#[test]
fn the_whole_plan_has_a_limit() {
    let chunk = json!({"x": "y".repeat(MAX_ARGUMENT_BYTES - 8)});
    let steps = |count: usize| (0..count).map(|n| step_with(&format!("s{n}"), &[], chunk.clone())).collect();
    assert!(Plan::new(draft(steps(127))).is_ok());
    assert_refused(draft(steps(128)), "the plan has 4195222 bytes and the limit is 4194304");
    assert_refused(
        PlanDraft { description: "d".repeat(MAX_PLAN_BYTES), ..draft(vec![step("a", &[])]) },
        "the plan has 4194315 bytes and the limit is 4194304",
    );
}

#[test]
fn a_plan_has_at_most_ten_thousand_steps() {
    let steps = |count: usize| (0..count).map(|n| step(&format!("s{n}"), &[])).collect();
    assert_eq!(Plan::new(draft(steps(MAX_STEPS))).unwrap().steps().len(), MAX_STEPS);
    assert_refused(draft(steps(MAX_STEPS + 1)), "steps: has 10001 steps and the limit is 10000");
}

#[test]
fn durations_are_positive_and_at_most_a_year() {
    let over = MAX_DURATION + Duration::from_nanos(1);
    for (duration, expected) in [(Duration::ZERO, "must be longer than 0"), (over, "must be at most 365 days")] {
        assert_refused(
            PlanDraft { timeout: Some(duration), ..draft(vec![step("a", &[])]) },
            &format!("timeout: {expected}"),
        );
        let with = |change: fn(&mut StepDraft, Duration)| {
            let mut step = step("a", &[]);
            change(&mut step, duration);
            draft(vec![step])
        };
        assert_refused(with(|step, d| step.timeout = Some(d)), &format!("steps[0].timeout: {expected}"));
        assert_refused(
            with(|step, d| step.attempt_timeout = Some(d)),
            &format!("steps[0].attempt_timeout: {expected}"),
        );
        assert_refused(
            with(|step, d| {
                step.retry = Some(RetryPolicy {
                    max_attempts: 2,
                    backoff: Backoff::List(vec![Duration::from_secs(1), d]),
                    ..RetryPolicy::default()
                })
            }),
            &format!("steps[0].retry.backoff[1]: {expected}"),
        );
    }
    assert!(Plan::new(PlanDraft { timeout: Some(MAX_DURATION), ..draft(vec![step("a", &[])]) }).is_ok());
}

#[test]
fn retries_and_parallelism_are_bounded() {
    let with = |max_attempts: u32, backoff: Backoff| {
        let mut step = step("a", &[]);
        step.retry = Some(RetryPolicy { max_attempts, backoff, ..RetryPolicy::default() });
        draft(vec![step])
    };
    for attempts in [1, 100] {
        assert!(Plan::new(with(attempts, Backoff::DEFAULT)).is_ok());
    }
    for attempts in [0, 101] {
        assert_refused(with(attempts, Backoff::DEFAULT), "steps[0].retry.max_attempts: must be 1 to 100");
    }
    assert_refused(with(2, Backoff::List(vec![Duration::from_secs(1); 101])), "steps[0].retry.backoff: has 101 delays");
    let exponential = |factor: f64, max: u64| Backoff::Exponential {
        initial: Duration::from_secs(2),
        factor,
        max: Duration::from_secs(max),
    };
    for factor in [0.99, -1.0, f64::NAN, f64::INFINITY] {
        assert_refused(with(2, exponential(factor, 3)), "steps[0].retry.backoff.factor: must be a number from 1");
    }
    assert_refused(with(2, exponential(1.0, 1)), "steps[0].retry.backoff.max: must not be shorter than `initial`");
    for (parallelism, expected) in [(0, 1), (1, 1), (256, 256)] {
        let plan = Plan::new(PlanDraft { parallelism, ..draft(vec![step("a", &[])]) }).unwrap();
        assert_eq!(plan.parallelism(), expected);
    }
    assert_refused(
        PlanDraft { parallelism: 257, ..draft(vec![step("a", &[])]) },
        "parallelism: must be 1 to 256, not 257",
    );
}

#[test]
fn every_violation_is_reported_up_to_a_limit() {
    let steps = (0..150).map(|n| step(&format!("s{n}"), &["nowhere"])).collect();
    let InvalidPlan { violations } = Plan::new(draft(steps)).unwrap_err();
    assert_eq!(violations.len(), MAX_VIOLATIONS + 1);
    assert_eq!(violations[MAX_VIOLATIONS - 1].field, "steps[99].depends_on[0]");
    assert_eq!(violations[MAX_VIOLATIONS].to_string(), "50 more problems are not listed");
}

#[test]
fn a_step_with_dots_in_its_id_is_named_in_quotes() {
    let with = |id: &str, reference: &str| {
        let mut after = step("after", &[]);
        after.kind = StepKindDraft::Tool { tool: "noop".into(), arguments: json!({ "x": reference }) };
        draft(vec![step(id, &[]), step("a", &[]), after])
    };
    let plan = Plan::new(with("a.b", "${[\"a.b\"].result.c} ${[\"a\"].output}")).unwrap();
    assert_eq!(plan.steps()[2].dependencies(), [0, 1]);
    // Not the step `a.b`, whose name needs quotes.
    assert_refused(with("a.b", "${a.b.result}"), "steps[2].arguments.x: `${a.b.result}` must continue with `result`");
    assert!(Plan::new(with("b", "${a.result.b}")).is_ok());
    assert_refused(
        with("a.result", "${a.result.b}"),
        "steps[2].arguments.x: `${a.result.b}` could mean the step `a` or the step `a.result`: write `${[\"a\"].result}`",
    );
    assert!(Plan::new(with("a.result", "${[\"a\"].result.b}")).is_ok());
    assert_refused(with("b", "${[0].result}"), "steps[2].arguments.x: `${[0].result}` names no step");
}

fn wait(wait: WaitDraft) -> StepDraft {
    StepDraft { kind: StepKindDraft::Wait { wait }, ..step("w", &[]) }
}

#[test]
fn a_step_waits_for_one_thing() {
    let (second, none) = (Some(Duration::from_secs(1)), WaitDraft::default());
    let signal = || WaitDraft { signal: "go".into(), ..WaitDraft::default() };
    let timed = || WaitDraft { duration: second, ..WaitDraft::default() };
    let until = || WaitDraft { until: Some(5), ..WaitDraft::default() };
    for (given, expected) in [
        (timed(), WaitFor::Duration(Duration::from_secs(1))),
        (until(), WaitFor::Time(5)),
        (signal(), WaitFor::Signal("go".into())),
    ] {
        let plan = Plan::new(draft(vec![wait(given)])).unwrap();
        assert_eq!(plan.steps()[0].kind(), &StepKind::Wait(WaitStep { wait_for: expected }));
        assert_eq!(Plan::new(plan.to_draft()).unwrap(), plan);
    }
    for given in [none, WaitDraft { signal: "go".into(), ..timed() }, WaitDraft { until: Some(5), ..timed() }] {
        assert_refused(draft(vec![wait(given)]), "steps[0].wait: must say one thing: {for: 10m}");
    }
    let zero = WaitDraft { duration: Some(Duration::ZERO), ..WaitDraft::default() };
    assert_refused(draft(vec![wait(zero)]), "steps[0].wait.for: must be longer than 0");
    let odd = WaitDraft { signal: "a b".into(), ..WaitDraft::default() };
    assert_refused(draft(vec![wait(odd)]), "steps[0].wait.signal: `a b` is not a signal's name");
}

#[test]
fn a_wait_has_no_fields_of_a_call() {
    let signal = || wait(WaitDraft { signal: "go".into(), ..WaitDraft::default() });
    assert!(Plan::new(draft(vec![StepDraft { timeout: Some(Duration::from_secs(1)), ..signal() }])).is_ok());
    let retry = Some(RetryPolicy { max_attempts: 2, backoff: Backoff::List(Vec::new()), ..RetryPolicy::default() });
    for (step, refused) in [
        (StepDraft { exclusive: true, ..signal() }, "exclusive: is for steps that call a tool"),
        (StepDraft { network: Some("ci".into()), ..signal() }, "network: is for steps that call a tool"),
        (StepDraft { retry, ..signal() }, "retry: is for steps that call a tool"),
        (StepDraft { verbatim: vec!["a".into()], ..signal() }, "verbatim: is for steps that call a tool"),
        (StepDraft { attempt_timeout: Some(Duration::from_secs(1)), ..signal() }, "attempt_timeout: is for steps"),
    ] {
        assert_refused(draft(vec![step]), &format!("steps[0].{refused}"));
    }
    let timed = wait(WaitDraft { duration: Some(Duration::from_secs(1)), ..WaitDraft::default() });
    let limited = StepDraft { timeout: Some(Duration::from_secs(1)), ..timed };
    assert_refused(draft(vec![limited]), "steps[0].timeout: is for waits that may end early");
}

fn form(form: FormDraft) -> StepDraft {
    wait(WaitDraft { form: Some(form), ..WaitDraft::default() })
}

#[test]
fn a_form_has_texts_with_templates_and_a_schema() {
    let schema = json!({"type": "object", "properties": {"version": {"type": "string", "default": "${x"}}});
    let written = FormDraft {
        title: "Release ${a.result.name}?".into(),
        description: "It has ${a.result.count} changes.".into(),
        schema: schema.clone(),
    };
    let mut seen = Vec::new();
    let drafted = draft(vec![step("a", &[]), StepDraft { timeout: Some(Duration::from_secs(60)), ..form(written) }]);
    let plan = Plan::new_with(drafted, |planned| {
        if let PlanPart::Form { step, schema } = planned {
            seen.push((step.step, schema.clone()));
        }
        Vec::new()
    })
    .unwrap();
    assert_eq!(seen, [(1, schema)]);
    assert_eq!(plan.steps()[1].dependencies(), [0], "a template names a dependency");
    assert_eq!(Plan::new(plan.to_draft()).unwrap(), plan);
}

#[test]
fn a_form_is_within_its_limits() {
    let good = || FormDraft { schema: json!({}), ..FormDraft::default() };
    let deep = (0..40).fold(json!({}), |inner, _| json!({ "not": inner }));
    for (wrong, refused) in [
        (FormDraft { schema: json!(true), ..good() }, "schema: must be a JSON Schema, an object"),
        (FormDraft { schema: json!({"title": "x".repeat(40_000)}), ..good() }, "schema: has 40012 bytes as JSON"),
        (FormDraft { schema: deep, ..good() }, "schema: is nested more than 32 levels deep"),
        (FormDraft { title: "x".repeat(201), ..good() }, "title: has 201 characters and the limit is 200"),
        (FormDraft { title: "a\nb".into(), ..good() }, "title: must be one line"),
        (FormDraft { title: "${".into(), ..good() }, "title: "),
        (FormDraft { description: "x".repeat(8_001), ..good() }, "description: has 8001 characters"),
        (FormDraft { description: "${nowhere.result}".into(), ..good() }, "description: there is no step `nowhere`"),
    ] {
        assert_refused(draft(vec![form(wrong)]), &format!("steps[0].wait.form.{refused}"));
    }
    let both = WaitDraft { form: Some(good()), signal: "go".into(), ..WaitDraft::default() };
    assert_refused(draft(vec![wait(both)]), "steps[0].wait: must say one thing");
    let itself = FormDraft { title: "${w.result}".into(), ..good() };
    assert_refused(draft(vec![form(itself)]), "steps[0].wait.form.title: `w` is the step itself");
}

#[test]
fn what_else_is_wrong_with_a_schema_stands_at_its_field() {
    let schema = FormDraft { schema: json!({"type": 7}), ..FormDraft::default() };
    let refused = Plan::new_with(draft(vec![form(schema)]), |planned| match planned {
        PlanPart::Form { step, .. } => {
            vec![step.problem("/wait/form/schema/type", "no".into())]
        }
        PlanPart::Call(_) | PlanPart::Condition { .. } | PlanPart::Model { .. } | PlanPart::Output { .. } => Vec::new(),
    });
    assert_eq!(refused.unwrap_err().violations[0].field, "steps[0].wait.form.schema.type");
}

/// B-24: rules and limits are for authors: a later version may tighten them, and still carries out what was accepted before.
#[test]
fn a_stored_plan_is_held_to_no_rule() {
    let beyond = PlanDraft {
        id: "an id".into(),
        parallelism: 100_000,
        timeout: Some(Duration::MAX),
        steps: vec![
            StepDraft {
                id: "a".repeat(1000),
                attempt_timeout: Some(Duration::ZERO),
                verbatim: vec!["nothing".into()],
                retry: Some(RetryPolicy {
                    max_attempts: 100_000,
                    backoff: Backoff::List(Vec::new()),
                    ..RetryPolicy::default()
                }),
                kind: StepKindDraft::Tool { tool: "a b".into(), arguments: json!({"text": "x".repeat(100_000)}) },
                ..step("a", &[])
            },
            StepDraft { exclusive: true, ..wait(WaitDraft { signal: "a b".into(), ..WaitDraft::default() }) },
            StepDraft {
                id: "f".into(),
                ..form(FormDraft { title: "a\nb".repeat(500), schema: json!(true), ..FormDraft::default() })
            },
        ],
        ..PlanDraft::default()
    };
    assert!(violations(beyond.clone()).len() >= 10, "{:#?}", violations(beyond));
    let plan = Plan::stored(beyond.clone()).unwrap();
    assert_eq!(plan.to_draft(), beyond);
    assert_eq!(plan.parallelism(), 100_000);
    let many = draft((0..10_001).map(|number| step(&format!("s{number}"), &[])).collect());
    assert_eq!(Plan::stored(many).unwrap().steps().len(), 10_001);
}

#[test]
fn a_stored_plan_of_which_no_plan_can_be_made_is_refused() {
    let arguments =
        |arguments| StepDraft { kind: StepKindDraft::Tool { tool: "noop".into(), arguments }, ..step("a", &[]) };
    for (steps, refused) in [
        (vec![], "steps: "),
        (vec![step("a", &[]), step("a", &[])], "steps[1].id: `a` is already the id"),
        (vec![step("a", &["b"])], "steps[0].depends_on[0]: there is no step `b`"),
        (vec![step("a", &["b"]), step("b", &["a"])], "steps[0].depends_on[0]: "),
        (vec![arguments(json!(7))], "steps[0].arguments: must be an object"),
        (vec![arguments(json!({"a": "${"}))], "steps[0].arguments.a: "),
        (vec![wait(WaitDraft::default())], "steps[0].wait: must say one thing"),
    ] {
        let found = Plan::stored(draft(steps)).unwrap_err().to_string();
        assert!(found.contains(refused), "{found}");
    }
}

#[test]
fn a_plan_stands_in_five_others_at_most() {
    let inner = |plan: PlanDraft| {
        let kind = StepKindDraft::Plan { plan: Box::new(plan), inputs: json!({}) };
        draft(vec![StepDraft { kind, ..step("child", &[]) }])
    };
    let five = (0..5).fold(draft(vec![step("a", &[])]), |plan, _| inner(plan));
    let plan = Plan::new(five.clone()).unwrap();
    assert_eq!(Plan::new(plan.to_draft()).unwrap(), plan);
    let six = inner(five);
    let field = format!("steps[0]{}.plan", ".plan.steps[0]".repeat(5));
    assert_refused(six.clone(), &format!("{field}: stands in 5 other plans, which is the limit"));
    assert!(Plan::stored(six).is_ok(), "what was accepted is carried out");
}

#[test]
fn a_step_with_a_plan_has_nothing_that_is_for_calls() {
    let kind = StepKindDraft::Plan { plan: Box::new(draft(vec![step("a", &[])])), inputs: json!({}) };
    let good = StepDraft { kind, ..step("child", &[]) };
    let wrong = StepDraft {
        exclusive: true,
        network: Some("ci".into()),
        verbatim: vec!["x".into()],
        output_schema: Some(json!({})),
        preconditions: vec![CheckDraft { condition: "true".into(), ..CheckDraft::default() }],
        ..good.clone()
    };
    assert!(Plan::new(draft(vec![good])).is_ok());
    let refused = Plan::new(draft(vec![wrong])).unwrap_err().violations;
    let fields: Vec<&str> = refused.iter().map(|violation| violation.field.as_str()).collect();
    let expected =
        ["preconditions", "output_schema", "verbatim", "exclusive", "network"].map(|field| format!("steps[0].{field}"));
    assert_eq!(fields, expected);
    assert!(refused.iter().all(|violation| violation.message.contains("this one carries out a plan")));
}
