//! Violations in documents, by the author's names and with their places.

use super::{REQUEST, assert_refused, one_step, read, violations};
use crate::{Format, Plan, PlanPart};

#[test]
fn order_is_stable_and_given_by_all_or_none() {
    let text = |orders: [&str; 3]| {
        let steps: Vec<String> =
            ["a", "b", "c"].iter().zip(orders).map(|(id, order)| format!("{{id: {id}, tool: t{order}}}")).collect();
        format!("id: p\nsteps: [{}]", steps.join(", "))
    };
    let ids = |plan: Plan| plan.steps().iter().map(|step| step.id().to_owned()).collect::<String>();
    assert_eq!(ids(read(&text(["", "", ""]))), "abc");
    assert_eq!(ids(read(&text([", order: 1", ", order: 0", ", order: 1"]))), "bac");
    assert_refused(&text([", order: 1", "", ", order: 0"]), &[("steps[1].order: is missing", (2, 37))]);
    // S4-05: order ≥ 0.
    assert_refused(
        &text([", order: 1", ", order: -1", ", order: 0.5"]),
        &[
            ("steps[1].order: must be a whole number from 0", (2, 61)),
            ("steps[2].order: must be a whole number from 0", (2, 90)),
        ],
    );
}

// The names are those that the author used, and the positions those of the document, not of the order.
#[test]
fn violations_speak_the_author_s_language() {
    let text = REQUEST
        .replace(
            "\"dependencies\": [\"step-1\"]},\n      {\"id\": \"step-3\"",
            "\"dependencies\": [\"step-9\"]},\n      {\"id\": \"step-2\"",
        )
        .replace("\"skillId\": \"generate_content\"", "\"skillId\": \"\"")
        .replace("\"maxAttempts\": 3", "\"maxAttempts\": 300")
        .replace("4000]", "0]")
        .replace("120000", "0");
    assert_refused(
        &text,
        &[
            ("plan.steps[0].dependencies[0]: there is no step `step-9`; did you mean `step-1`?", (7, 82)),
            ("plan.steps[1].id: `step-2` is already the id of steps[0]", (8, 14)),
            ("plan.steps[2].skillId: is required", (10, 47)),
            ("plan.steps[2].retry.maxAttempts: must be 1 to 100, not 300", (11, 33)),
            ("plan.steps[2].retry.backoffMs[2]: must be longer than 0", (11, 64)),
            ("config.timeout: must be longer than 0", (16, 25)),
        ],
    );
}

#[test]
fn both_spellings_at_once_are_refused() {
    assert_refused(
        &one_step(
            "skillId: noop\n    arguments: {}\n    params: {}\n    depends_on: []\n    dependencies: []\n    retry: {max_attempts: 1, maxAttempts: 1, backoff: [1s], backoffMs: [1]}",
        ),
        &[
            ("steps[0].skillId: duplicates `tool`: give only one", (5, 14)),
            ("steps[0].params: duplicates `arguments`", (7, 13)),
            ("steps[0].dependencies: duplicates `depends_on`", (9, 19)),
            ("steps[0].retry.maxAttempts: duplicates `max_attempts`", (10, 43)),
            ("steps[0].retry.backoffMs: duplicates `backoff`", (10, 72)),
        ],
    );
    assert_refused(
        "id: p\nsteps: [{step_id: a, stepId: a, action: t, skillId: t, inputs: {}, args: {}}]",
        &[
            ("steps[0].step_id: duplicates `stepId`", (2, 19)),
            ("steps[0].action: duplicates `skillId`", (2, 41)),
            ("steps[0].inputs: duplicates `args`", (2, 64)),
        ],
    );
    assert_refused(
        "plan: {id: p, timeout: 1s, parallelism: 2, stop_on_error: true, steps: [{id: a, tool: t}]}\n\
         config: {timeout: 1000, parallel: true, stopOnError: true}",
        &[
            ("config.timeout: duplicates the plan's `timeout`", (2, 19)),
            ("config.parallel: duplicates the plan's `parallelism`", (2, 35)),
            ("config.stopOnError: duplicates the plan's `stop_on_error`", (2, 54)),
        ],
    );
}

#[test]
fn unknown_fields_are_named_with_the_nearest() {
    assert_refused(
        "id: p\nparalelism: 2\nsteps:\n  - id: a\n    tool: t\n    dependson: []\n    retry: {max_atempts: 1, max_attempts: 2}\n    zzz: 1\n",
        &[
            ("paralelism: there is no field `paralelism` here; did you mean `parallelism`?", (2, 1)),
            ("steps[0].dependson: there is no field `dependson` here; did you mean `depends_on`?", (6, 5)),
            ("steps[0].retry.max_atempts: there is no field `max_atempts` here; did you mean `max_attempts`?", (7, 13)),
            (
                "steps[0].zzz: there is no field `zzz` here, only id, title, description, agent, wait, plan, calls, effects, tool, arguments, verbatim, for_each",
                (8, 5),
            ),
        ],
    );
    // A letter of another alphabet looks like the one that was meant, and some characters cannot be seen at all.
    assert_refused(
        "id: p\nsteps: [{id: a, t\u{43e}ol: t, ti\u{200b}tle: x, tool: t}]",
        &[
            (
                "steps[0][\"tоol\"]: there is no field `tоol` here; did you mean `tool`? (not ASCII: `о` is U+043E)",
                (2, 17),
            ),
            (
                "steps[0][\"ti<U+200B>tle\"]: there is no field `ti<U+200B>tle` here; did you mean `title`? (not ASCII: U+200B, \
                 which cannot be seen)",
                (2, 26),
            ),
        ],
    );
    // What would change the meaning if it were passed over is not passed over.
    for (field, said) in [
        ("condition: {x: 1}", "condition: must be text"),
        ("condition: ' '", "condition: is empty"),
        ("condition: ${b.result}", "condition: there is no step `b`"),
        ("condition: ${a.result}", "condition: `a` is the step itself"),
        ("condition: ${a}", "condition: `${a}` is not a reference"),
        ("condition: \"'${a.result}' == 'x'\"", "condition: `${a.result}` stands in quotes"),
        ("run_when: sometimes", "run_when: is `sometimes`, and must be success, failure, always or none_failed"),
        ("run_when: 3", "run_when: must be success, failure, always or none_failed"),
        ("run_when: always", "run_when: says after which ends of other steps this one runs, and it depends on none"),
    ] {
        let wrong = Plan::parse(Format::Yaml, &one_step(field)).unwrap_err();
        assert_eq!(wrong.violations.len(), 1, "{field}: {wrong}");
        assert!(wrong.violations[0].to_string().contains(said), "{field}: {wrong}");
        assert_eq!(wrong.violations[0].line, 5, "{field}: {wrong}");
    }
    assert_refused(
        &REQUEST.replace("\"dryRun\": false", "\"dryRun\": \"yes\""),
        &[("config.dryRun: must be true or false", (16, 82))],
    );
    assert_refused(
        &REQUEST.replace("\"context\"", "\"contxt\""),
        &[("contxt: there is no field `contxt` here; did you mean `context`?", (15, 3))],
    );
}

#[test]
fn values_of_the_wrong_type_are_refused_one_by_one() {
    assert_refused(
        "id: 7\ndescription: [x]\nparallelism: many\nstop_on_error: yes\ntimeout: 30\nsteps:\n\
         \x20 - id: 18\n    title: true\n    tool: {}\n    arguments: [1]\n    depends_on: b\n    timeout: soon\n    attempt_timeout: [1s]\n\
         \x20   retry: {max_attempts: -1, backoff: {initial: 1, factor: x, max: 1}}\n  - 17\n  - id: b\n    tool: t\n    depends_on: [18]\n    retry: 3\n",
        &[
            ("id: must be text: put it in quotes, \"7\"", (1, 5)),
            ("description: must be text", (2, 14)),
            ("parallelism: must be a whole number", (3, 14)),
            ("stop_on_error: must be true or false", (4, 16)),
            ("timeout: `30` has no unit: write 30s for seconds", (5, 10)),
            ("steps[0].id: must be text: put it in quotes, \"18\"", (7, 9)),
            ("steps[0].title: must be text: put it in quotes, \"true\"", (8, 12)),
            ("steps[0].tool: must be text", (9, 11)),
            ("steps[0].arguments: must be an object", (10, 16)),
            ("steps[0].depends_on: must be a list of ids of steps", (11, 17)),
            ("steps[0].timeout: `soon` is not a duration: write for example 500ms", (12, 14)),
            ("steps[0].attempt_timeout: must be a duration", (13, 22)),
            ("steps[0].retry.max_attempts: must be a whole number", (14, 27)),
            ("steps[0].retry.backoff.initial: `1` has no unit: write 1s", (14, 50)),
            ("steps[0].retry.backoff.factor: must be a number", (14, 61)),
            ("steps[0].retry.backoff.max: `1` has no unit: write 1s", (14, 69)),
            ("steps[1]: must be an object with `id` and `tool`", (15, 5)),
            ("steps[2].depends_on[0]: must be text: put it in quotes, \"18\"", (18, 18)),
            ("steps[2].retry: must be an object such as {max_attempts: 3", (19, 12)),
        ],
    );
    assert_refused(&one_step("retry: {backoff: [1s]}"), &[("steps[0].retry.max_attempts: is required", (5, 12))]);
    assert_refused("id: p\nparallelism: 0\nsteps: [{id: a, tool: t}]", &[("parallelism: must be at least 1", (2, 14))]);
    assert_refused("id: p\nsteps: {a: {tool: t}}", &[("steps: must be a list of steps", (2, 8))]);
}

// S2-FR-002, S4-05
#[test]
fn what_is_missing_is_said_where_it_should_stand() {
    assert_refused("id: p\n", &[("steps: the plan must be valid and have at least one step", (1, 1))]);
    assert_refused("id: p\nsteps: []\n", &[("steps: the plan must be valid and have at least one step", (2, 8))]);
    assert_refused("steps:\n  - id: a\n", &[("id: is required", (1, 1)), ("steps[0].tool: is required", (2, 5))]);
    assert_refused(
        "{\"plan\": {}}",
        &[("plan.id: is required", (1, 10)), ("plan.steps: the plan must be valid", (1, 10))],
    );
    for text in ["", "\n\n", "- 1", "text", "null", "# only a comment"] {
        let found = violations(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert_eq!(found[0].message, "the plan must be an object with `id` and `steps`");
    }
}

// S4-07
#[test]
fn cycles_and_templates_have_their_place_in_the_text() {
    assert_refused(
        "id: p\nsteps:\n  - id: ä\n    tool: t\n  - id: a\n    tool: t\n    depends_on:\n      - b\n  - id: b\n    tool: t\n    arguments:\n      x: [1, 'é ${a.result}', '${a.x}']\n",
        &[
            ("steps[0].id: `ä` is not an id", (3, 9)),
            ("steps[1].depends_on[0]: cyclic dependencies: a → b → a", (8, 9)),
            ("steps[2].arguments.x[2]: `${a.x}` must continue with `result`", (12, 31)),
        ],
    );
    assert_refused(
        "id: p\nsteps:\n  - id: a\n    tool: t\n    depends_on:\n      - b\n  - id: b\n    tool: t\n    arguments:\n      x: [1, 'é ${a.result}']\n",
        &[("steps[0].depends_on[0]: cyclic dependencies: a → b → a", (6, 9))],
    );
}

/// A cycle hides no problem of a call, nor does an argument that cannot be read; all come in the order of the text.
#[test]
fn what_is_wrong_with_calls_is_found_beside_everything_else() {
    let text = "id: p
steps:
  - id: a
    tool: lost
    depends_on: [b]
  - id: b
    depends_on: [a]
    arguments: {x: '${'}
    tool: missing
  - id: c
    depends_on: [nowhere]
    tool: taken
";
    let mut calls = Vec::new();
    let checked = Plan::parse_with(Format::Auto, text, |planned| {
        let PlanPart::Call(call) = planned else { panic!("no step waits") };
        calls.push((call.step.step, call.tool.to_owned(), call.arguments.is_some()));
        let problem = |pointer: &str| call.problem(pointer, "no".into());
        if call.tool == "taken" { Vec::new() } else { vec![problem("/tool")] }
    });
    assert_eq!(calls, [(0, "lost".into(), true), (1, "missing".into(), false), (2, "taken".into(), true)]);
    let found: Vec<_> = checked.unwrap_err().violations.into_iter().map(|it| (it.field, it.line)).collect();
    let expected = [
        ("steps[0].tool", 4),
        ("steps[0].depends_on[0]", 5),
        ("steps[1].arguments.x", 8),
        ("steps[1].tool", 9),
        ("steps[2].depends_on[0]", 11),
    ];
    assert_eq!(found, expected.map(|(field, line)| (field.to_owned(), line)));
}

#[test]
fn verbatim_names_arguments_of_the_step() {
    assert_refused(
        &one_step("arguments: {content: '${'}\n    verbatim: [contents, 3, content]"),
        &[
            ("steps[0].verbatim[0]: the step has no argument `contents`; did you mean `content`?", (6, 16)),
            ("steps[0].verbatim[1]: must be text: put it in quotes, \"3\"", (6, 26)),
        ],
    );
    assert_refused(
        &one_step("verbatim: content"),
        &[("steps[0].verbatim: must be a list of names of arguments", (5, 15))],
    );
}

#[test]
fn places_in_json_are_found_past_every_kind_of_value() {
    assert_refused(
        "{\"metadata\": [\"a\\\"}\\\\\", {}, [], {\"k\\\\\": -1.5e+3}, true, null],\r\n\t\"id\" : \"ü\\u00fc\",\n\"description\": \"]\",\"steps\": [ {\"id\":\"a\",\"tool\":\"t\"},7 ]}",
        &[("id: `üü` is not an id", (2, 9)), ("steps[1]: must be an object", (3, 53))],
    );
}

/// Problems that the executor finds with tools stand where the author wrote them, under the author's names, and in the author's order.
#[test]
fn problems_in_steps_are_located() {
    let text = "{\n  \"plan\": {\"id\": \"p\", \"steps\": [\n    {\"id\": \"b\", \"order\": 2, \"skillId\": \"x\"},\n    {\"id\": \"a\", \"order\": 1, \"skillId\": \"noup\", \"params\": {\"n\": [1, 2]}}\n  ]}\n}";
    super::read(text);
    let problem = |pointer: &str| crate::StepProblem { step: 0, pointer: pointer.into(), message: "m".into() };
    let located =
        crate::StepProblem::locate(crate::Format::Json, text, vec![problem("/tool"), problem("/arguments/n/1")]);
    let places: Vec<_> = located.iter().map(|found| (found.field.as_str(), found.line, found.column)).collect();
    assert_eq!(places, [("plan.steps[1].skillId", 4, 40), ("plan.steps[1].params.n[1]", 4, 68)]);
}

#[test]
fn what_a_step_waits_for_is_read_where_it_stands() {
    assert_refused(
        "id: p\nsteps:\n  - id: a\n    wait: {until: tomorrow}\n  - id: b\n    tool: t\n    wait: {signal: go}\n  - id: c\n    wait: 10m\n  - id: d\n    wait: {for: -3s}\n",
        &[
            (
                "steps[0].wait.until: `tomorrow` is not a point in time: write the date, the time and the offset from UTC, such as \
                 2026-12-01T09:00:00Z or 2026-12-01T10:00:00+01:00",
                (4, 19),
            ),
            ("steps[1].tool: is for steps that call a tool, and this one waits: remove it, or make two steps", (6, 11)),
            (
                "steps[2].wait: must be an object: {for: 10m}, {until: 2026-12-01T09:00:00Z}, {signal: NAME} or {form: {schema: …}}",
                (9, 11),
            ),
            ("steps[3].wait.for: `-3s` is not a duration: write for example 500ms, 10s, 5m or 1h30m", (11, 17)),
        ],
    );
}

#[test]
fn a_form_is_read_where_it_stands() {
    assert_refused(
        "id: p\nsteps:\n  - id: a\n    wait:\n      form: {title: [x], schema: {}, fields: []}\n  - id: b\n    wait:\n      form: {title: T}\n  - id: c\n    wait: {form: text}\n",
        &[
            ("steps[0].wait.form.title: must be text", (5, 21)),
            ("steps[0].wait.form.fields: there is no field `fields` here, only title, description, schema", (5, 38)),
            ("steps[1].wait.form.schema: is required: a JSON Schema of the answer, an object such as", (8, 13)),
            ("steps[2].wait.form: must be an object with `title`, `description` and `schema`", (10, 18)),
        ],
    );
}

/// A step that carries out a plan: read and checked like any other, with the fields as their author wrote them, however deep.
#[test]
fn a_plan_within_a_plan_is_located_where_its_author_wrote_it() {
    let text = "\
id: outer
steps:
  - id: child
    plan:
      id: inner
      inputs: {name: {}}
      steps:
        - {id: b, order: 2, tool: t, depends_on: [nowhere]}
        - id: a
          order: 1
          plan: {id: third, steps: [{id: x, tool: taken}]}
    inputs: {nam: 1}
";
    let checked = Plan::parse_with(Format::Auto, text, |planned| match planned {
        PlanPart::Call(call) if call.tool == "taken" => vec![call.problem("/tool", "no".into())],
        _ => Vec::new(),
    });
    let found: Vec<_> = checked.unwrap_err().violations.into_iter().map(|it| (it.field, it.line)).collect();
    let expected = [
        ("steps[0].plan.steps[0].depends_on[0]", 8),
        ("steps[0].plan.steps[1].plan.steps[0].tool", 11),
        ("steps[0].inputs.nam", 12),
        ("steps[0].inputs", 12),
    ];
    let mut found: Vec<_> = found.iter().map(|(field, line)| (field.as_str(), *line)).collect();
    found.sort_by_key(|(field, line)| (*line, std::cmp::Reverse(field.len())));
    assert_eq!(found, expected);
}
