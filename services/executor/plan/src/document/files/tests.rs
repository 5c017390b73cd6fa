use super::*;
use crate::Plan;

fn read(text: &str) -> PlanText {
    PlanText::parse(Format::Auto, text).unwrap()
}

fn composed(source: usize, text: &str, parts: &[(&str, &Arc<ComposedDocument>)]) -> Arc<ComposedDocument> {
    let parts = parts.iter().map(|(field, plan)| ((*field).to_owned(), Arc::clone(plan))).collect();
    Arc::new(read(text).with(source, &parts).unwrap())
}

const OUTER: &str = "id: outer\nsteps:\n  - {id: a, tool: t}\n  - id: b\n    plan: |\n      inner.yaml\n";

/// The violations of the composed plan, by text, field, line and column.
fn wrong(plan: &ComposedDocument) -> Vec<(usize, String, u32, u32)> {
    let violations = Plan::parse(Format::Json, plan.json()).unwrap_err().violations;
    let located = violations.into_iter().map(|violation| plan.locate(violation));
    located.map(|(source, found)| (source, found.field, found.line, found.column)).collect()
}

#[test]
fn the_names_of_files_are_found_with_their_places() {
    let text = "plan:\n  id: p\n  steps:\n    - {id: a, plan: a.yaml}\n    - {id: b, tool: t, arguments: {plan: no.yaml}}\n    - id: c\n      \
                plan: {id: q, steps: [{id: d, plan: \"d.yaml\"}]}\nconfig: {parallel: true}\n";
    let named: Vec<_> = read(text).named();
    let places: Vec<_> =
        named.iter().map(|named| (&*named.field, &*named.name, named.depth, named.line, named.column)).collect();
    assert_eq!(
        places,
        [("plan.steps[0].plan", "a.yaml", 1, 4, 21), ("plan.steps[2].plan.steps[0].plan", "d.yaml", 2, 7, 43)]
    );
}

/// S2-FR-018: a task may stand in a file, also that of a step of a group or of a plan within.
#[test]
fn the_task_of_a_model_may_stand_in_a_file() {
    let text = "id: p\nsteps:\n  - {id: a, agent: {model: m, task: {file: prompts/a.md}}}\n  - {id: g, steps: [{id: b, agent: {model: m, task: \
                {file: b.md}}}]}\n  - {id: c, agent: {model: m, task: {file: c.md, more: 1}}}\n  - {id: d, agent: {model: m, task: file}}\n";
    let named = read(text).named();
    let places: Vec<_> = named.iter().map(|named| (named.content, &*named.field, &*named.name, named.line)).collect();
    let task = FileContent::Task;
    let expected =
        [(task, "steps[0].agent.task", "prompts/a.md", 3), (task, "steps[1].steps[0].agent.task", "b.md", 4)];
    assert_eq!(places, expected);

    let text = "id: p\nsteps:\n  - {id: a, agent: {model: m, task: {file: a.md}}, tol: t}\n";
    let task = Arc::new(ComposedDocument::of_task(1, "\u{feff}Say \"hello\" to\n${inputs.whom}: ü\n"));
    let whole = composed(0, text, &[("steps[0].agent.task", &task)]);
    let json: serde_json::Value = serde_json::from_str(whole.json()).unwrap();
    assert_eq!(json["steps"][0]["agent"]["task"], "Say \"hello\" to\n${inputs.whom}: ü\n");
    let task = (0, "steps[0].agent.task".to_owned(), 3, 37);
    let follows = (0, "steps[0].tol".to_owned(), 3, 52);
    assert_eq!(wrong(&whole), [task, follows], "there is no such input, and what follows has its place");
    let task = Arc::new(ComposedDocument::of_task(1, " \n"));
    let whole = composed(
        0,
        "id: p\nsteps:\n  - {id: a, agent: {model: m, task: {file: a.md}}}\n",
        &[("steps[0].agent.task", &task)],
    );
    assert_eq!(
        wrong(&whole),
        [(0, "steps[0].agent.task".to_owned(), 3, 37)],
        "what is wrong with it is said of its name"
    );
}

#[test]
fn what_is_wrong_is_located_in_the_file_where_it_stands() {
    let inner = composed(1, "# é\nid: inner\nsteps:\n  - {id: c, tol: t}\n", &[]);
    let outer = composed(0, OUTER, &[("steps[1].plan", &inner)]);
    assert_eq!(wrong(&outer), [(1, "steps[0].tool".to_owned(), 4, 5), (1, "steps[0].tol".to_owned(), 4, 13)]);
    let outermost = composed(
        2,
        "steps:\n- {id: x, plan: outer.yaml}\n- {id: y, depends_on: [z], tool: t}\n",
        &[("steps[0].plan", &outer)],
    );
    let places = wrong(&outermost);
    assert!(places.contains(&(1, "steps[0].tol".to_owned(), 4, 13)), "{places:?}");
    assert!(places.contains(&(2, "steps[1].depends_on[0]".to_owned(), 3, 24)), "{places:?}");
}

#[test]
fn a_step_of_a_group_names_a_file() {
    let inner = composed(1, "id: inner\nsteps: [{id: c, tool: t, timeout: 5}]\n", &[]);
    let text = "id: outer\nsteps:\n  - {id: g, steps: [{id: a, tool: t}, {id: b, plan: inner.yaml}]}\n";
    assert_eq!(read(text).named()[0].field, "steps[0].steps[1].plan");
    let outer = composed(0, text, &[("steps[0].steps[1].plan", &inner)]);
    assert_eq!(wrong(&outer), [(1, "steps[0].timeout".to_owned(), 2, 35)]);
}

#[test]
fn one_file_in_several_places_is_located_there_once_each() {
    let inner = composed(1, "id: inner\nsteps: [{id: c, tool: t, timeout: 5}]\n", &[]);
    let outer = "id: outer\nsteps:\n  - {id: a, plan: &i inner.yaml}\n  - {id: b, plan: *i}\n";
    let outer = composed(0, outer, &[("steps[0].plan", &inner), ("steps[1].plan", &inner)]);
    let expected = (1, "steps[0].timeout".to_owned(), 2, 35);
    assert_eq!(wrong(&outer), [expected.clone(), expected]);
}

#[test]
fn the_plan_is_the_one_that_is_written_out() {
    let inner = "id: inner\nsteps:\n  - id: c\n    tool: t\n    arguments: {f: 1e3, big: 18446744073709551615, hex: 0x1F, odd: +1_000.5, text: \"a\\u007f\\\"\\né\u{2028}\", n: null}\n";
    let whole = OUTER.replace("|\n      inner.yaml\n", &format!("\n      {}", inner.replace('\n', "\n      ")));
    let outer = composed(0, OUTER, &[("steps[1].plan", &composed(1, inner, &[]))]);
    assert_eq!(Plan::parse(Format::Json, outer.json()).unwrap(), Plan::parse(Format::Yaml, &whole).unwrap());
}

#[test]
fn a_number_that_would_lose_digits_is_refused_where_it_stands() {
    let inner = composed(1, "id: inner\nsteps:\n- id: c\n  tool: t\n  arguments: {n: 12345678901234567890123}\n", &[]);
    let outer = composed(0, OUTER, &[("steps[1].plan", &inner)]);
    assert_eq!(wrong(&outer), [(1, "steps[0].arguments.n".to_owned(), 5, 18)]);
    let refused = read("id: i\nsteps: [{id: c, tool: t, arguments: {n: 012345678901234567890123}}]\n");
    let refused = refused.with(0, &HashMap::new()).unwrap_err();
    assert_eq!((refused.field.as_str(), refused.line), ("steps[0].arguments.n", 2));
}

#[test]
fn plans_that_would_be_too_long_are_not_written() {
    let long = format!("id: i\nsteps: [{{id: c, tool: t, title: {}}}]\n", "x".repeat(1 << 20));
    let inner = composed(1, &long, &[]);
    let steps: String = (0..4).map(|n| format!("  - {{id: s{n}, plan: i.yaml}}\n")).collect();
    let parts = (0..4).map(|n| (format!("steps[{n}].plan"), Arc::clone(&inner))).collect();
    let refused = read(&format!("id: p\nsteps:\n{steps}")).with(0, &parts).unwrap_err();
    assert_eq!((refused.field.as_str(), refused.line), ("steps[3].plan", 6));
    assert!(refused.message.starts_with("with the files of its steps in place"), "{}", refused.message);
}

#[test]
fn what_cannot_be_the_plan_of_a_step_says_why() {
    for (text, message) in [
        ("", "the file is empty"),
        ("- {id: a, tool: t}\n", "the file must have a plan"),
        ("plan: {id: p, steps: []}\nconfig: {}\n", "has settings around its plan"),
    ] {
        let unfit = PlanText::parse(Format::Yaml, text).unwrap().unfit().unwrap();
        assert!(unfit.message.starts_with(message), "{}", unfit.message);
    }
    assert_eq!(read(OUTER).unfit(), None);
    assert_eq!(PlanText::parse(Format::Yaml, "id: p\nsteps: [}\n").unwrap_err().line, 2);
    for (name, message) in [
        ("", "it is empty"),
        ("${inputs.x}", "templates are not filled in"),
        ("a\nb", "in one line"),
        ("https://x.y/z", "a URL"),
        ("a\u{202e}.yaml", "U+202E"),
        (&"x".repeat(5_000), "in one line"),
    ] {
        assert!(refused_name(name, FileContent::Plan).is_some_and(|refused| refused.contains(message)), "{name}");
    }
    assert_eq!(refused_name("parts/build.yaml", FileContent::Plan), None);
}
