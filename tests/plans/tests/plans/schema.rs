//! The JSON Schema of plans says what the reader accepts: S4-01, S4-02, S4-04, S4-05.

use std::{collections::BTreeSet, fs};

use belay_json_schema::Schema;
use belay_plan::{Format, Plan, limits, schema};
use belay_plan_tests::{bad, good, value};
use serde_json::{Value, json};

const FILE: &str = "docs/plan.schema.json";

fn compiled() -> Schema {
    Schema::new(&schema().to_string()).unwrap()
}

#[test]
fn the_file_is_what_the_code_makes() {
    let path = good::root().join(FILE);
    let made = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    if std::env::var_os("BELAY_UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == made, "{FILE} is outdated: BELAY_UPDATE=1 cargo test -p belay-plan-tests schema");
}

#[test]
fn every_example_is_valid() {
    let compiled = compiled();
    for example in good::examples() {
        let value = value(example.format, &example.text).unwrap();
        let violations = compiled.violations(&value);
        assert!(violations.is_empty(), "{}: {violations:#?}", example.name);
    }
}

/// Plans whose shape is wrong are wrong by the schema too, and plans with other problems are not.
#[test]
fn bad_plans_are_invalid_when_their_shape_is_wrong() {
    let compiled = compiled();
    for (group, plan) in bad::plans() {
        if plan.expect.iter().any(|expected| expected.contains(" invalid YAML") || expected.contains(" invalid JSON")) {
            assert!(!plan.shape, "{group}: {} cannot be read, so it has no shape", plan.name);
            continue;
        }
        let Some(value) = value(*plan.formats().last().unwrap(), &plan.text()) else {
            assert!(!plan.shape, "{group}: {} exceeds what can be read, so it has no shape", plan.name);
            continue;
        };
        let violations = compiled.violations(&value);
        assert_eq!(!violations.is_empty(), plan.shape, "{group}: {}: {violations:#?}", plan.name);
    }
}

/// The objects of a plan: the place of their schema, and a plan in which `FIELD` stands inside of them.
const OBJECTS: [(&str, &str); 11] = [
    ("/$defs/group", r#"{"id": "p", "steps": [{"id": "g", "steps": [{"id": "a", "tool": "t"}], FIELD}]}"#),
    ("/$defs/plan", r#"{"id": "p", "steps": [{"id": "a", "tool": "t"}], FIELD}"#),
    ("/$defs/request", r#"{"plan": {"id": "p", "steps": [{"id": "a", "tool": "t"}]}, FIELD}"#),
    (
        "/$defs/request/properties/config",
        r#"{"plan": {"id": "p", "steps": [{"id": "a", "tool": "t"}]}, "config": {FIELD}}"#,
    ),
    ("/$defs/step", r#"{"id": "p", "steps": [{"id": "a", "tool": "t", FIELD}]}"#),
    ("/$defs/step", r#"{"id": "p", "steps": [{"id": "a", "wait": {"for": "1s"}, FIELD}]}"#),
    ("/$defs/call", r#"{"id": "p", "steps": [{"id": "a", "tool": "t", "fallback": [{"tool": "u", FIELD}]}]}"#),
    ("/$defs/retry", r#"{"id": "p", "steps": [{"id": "a", "tool": "t", "retry": {"max_attempts": 2, FIELD}}]}"#),
    (
        "/$defs/retry/properties/backoff",
        r#"{"id": "p", "steps": [{"id": "a", "tool": "t", "retry": {"max_attempts": 2, "backoff": {FIELD}}}]}"#,
    ),
    ("/$defs/wait", r#"{"id": "p", "steps": [{"id": "a", "wait": {"for": "1s", FIELD}}]}"#),
    ("/$defs/form", r#"{"id": "p", "steps": [{"id": "a", "wait": {"form": {"schema": {}, FIELD}}}]}"#),
];

/// The message about a plan with this field, if the field is not known.
fn unknown(plan: &str, field: &str) -> Option<String> {
    let text = plan.replace("FIELD", &format!("\"{field}\": null"));
    let violations = Plan::parse(Format::Json, &text).err()?.violations;
    violations.into_iter().map(|violation| violation.message).find(|message| message.starts_with("there is no field"))
}

/// Both directions: a name that the reader takes is a property, and a property is a name that the reader takes.
#[test]
fn the_fields_are_those_of_the_reader() {
    let schema = schema();
    let properties = |place: &str| -> BTreeSet<String> {
        let fields = schema.pointer(place).and_then(|object| object["properties"].as_object());
        fields.unwrap_or_else(|| panic!("{place} is no object")).keys().cloned().collect()
    };
    let mut names: BTreeSet<String> = OBJECTS.iter().flat_map(|(place, _)| properties(place)).collect();
    for (_, plan) in OBJECTS {
        let message = unknown(plan, "qqqqqqqqqqqq").expect("no field is called that");
        let (_, listed) = message.split_once("only ").expect("the message lists the fields");
        names.extend(listed.split(", ").map(str::to_owned));
    }
    for (place, plan) in OBJECTS {
        let taken: BTreeSet<String> = names
            .iter()
            // A field that stands there already cannot be written a second time.
            .filter(|name| !plan.contains(&format!("{{\"{name}\"")) && !plan.contains(&format!(", \"{name}\"")))
            .filter(|name| unknown(plan, name).is_none())
            .cloned()
            .collect();
        let described: BTreeSet<String> = properties(place)
            .into_iter()
            .filter(|name| !plan.contains(&format!("{{\"{name}\"")) && !plan.contains(&format!(", \"{name}\"")))
            .collect();
        assert_eq!(taken, described, "{place}");
    }
}

/// A plan of one step with these members.
fn one_step(members: Value) -> Value {
    let mut step = json!({"id": "a"});
    step.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({"id": "p", "steps": [step]})
}

/// At each limit the reader and the schema accept, and beyond it both refuse.
#[test]
fn the_limits_are_those_of_the_reader() {
    let compiled = compiled();
    let x = |length: usize| "x".repeat(length);
    let call = |members: Value| {
        let mut members = members;
        members["tool"] = members.get("tool").cloned().unwrap_or("t".into());
        one_step(members)
    };
    let retry = |retry: Value| one_step(json!({"tool": "t", "retry": retry}));
    let form = |title: usize, description: usize| {
        one_step(json!({"wait": {"form": {"schema": {}, "title": x(title), "description": x(description)}}}))
    };
    let request = |config: Value| json!({"plan": one_step(json!({"tool": "t"})), "config": config});
    let steps = |count: usize| -> Value {
        let steps: Vec<Value> = (0..count).map(|n| json!({"id": format!("s{n}"), "tool": "t"})).collect();
        json!({"id": "p", "steps": steps})
    };
    let most_millis = limits::MAX_DURATION.as_millis() as u64;
    let attempts = limits::MAX_ATTEMPTS as usize;
    let condition = |bytes: usize| call(json!({"condition": format!("true{}", " ".repeat(bytes - 4))}));
    let inputs = |count: usize, chars: usize| {
        let name = |number: usize| format!("{number:0chars$}");
        let inputs: serde_json::Map<_, _> = (0..count).map(|number| (name(number), json!({}))).collect();
        json!({"id": "p", "inputs": inputs, "steps": steps(1)["steps"]})
    };
    let outputs = |count: usize, chars: usize| {
        let name = |number: usize| format!("{number:0chars$}");
        let outputs: serde_json::Map<_, _> = (0..count).map(|number| (name(number), json!("${s0.result}"))).collect();
        json!({"id": "p", "outputs": outputs, "steps": steps(1)["steps"]})
    };
    let list = |entries: usize| call(json!({"for_each": vec![1; entries]}));
    let fallback = |calls: usize| call(json!({"fallback": vec![json!({"tool": "u"}); calls]}));
    let calls = |count: usize| {
        let mut plan = steps(1);
        plan["steps"][0] = json!({"id": "a", "calls": vec![json!({"tool": "u"}); count]});
        plan
    };
    let resources = |count: usize, chars: usize| {
        let names: Vec<String> =
            (0..count).map(|number| format!("{:x<chars$}", char::from(b'A' + number as u8))).collect();
        call(json!({"resources": names}))
    };
    let checks = |count: usize| call(json!({"preconditions": vec![json!({"file": "x"}); count]}));
    for (name, at, beyond) in [
        ("checks", checks(limits::MAX_CHECKS), checks(limits::MAX_CHECKS + 1)),
        ("steps", steps(limits::MAX_STEPS), steps(limits::MAX_STEPS + 1)),
        ("no steps", steps(1), steps(0)),
        (
            "id",
            json!({"id": x(limits::MAX_ID_CHARS), "steps": steps(1)["steps"]}),
            json!({"id": x(limits::MAX_ID_CHARS + 1), "steps": steps(1)["steps"]}),
        ),
        (
            "step id",
            call(json!({"id": x(limits::MAX_STEP_ID_CHARS)})),
            call(json!({"id": x(limits::MAX_STEP_ID_CHARS + 1)})),
        ),
        (
            "tool",
            call(json!({"tool": x(limits::MAX_TOOL_CHARS)})),
            call(json!({"tool": x(limits::MAX_TOOL_CHARS + 1)})),
        ),
        (
            "signal",
            one_step(json!({"wait": {"signal": x(limits::MAX_SIGNAL_CHARS)}})),
            one_step(json!({"wait": {"signal": x(limits::MAX_SIGNAL_CHARS + 1)}})),
        ),
        ("form title", form(limits::MAX_FORM_TITLE_CHARS, 1), form(limits::MAX_FORM_TITLE_CHARS + 1, 1)),
        (
            "form description",
            form(1, limits::MAX_FORM_DESCRIPTION_CHARS),
            form(1, limits::MAX_FORM_DESCRIPTION_CHARS + 1),
        ),
        ("condition", condition(limits::MAX_CONDITION_BYTES), condition(limits::MAX_CONDITION_BYTES + 1)),
        (
            "parallelism",
            json!({"id": "p", "parallelism": limits::MAX_PARALLELISM, "steps": steps(1)["steps"]}),
            json!({"id": "p", "parallelism": limits::MAX_PARALLELISM + 1, "steps": steps(1)["steps"]}),
        ),
        ("inputs", inputs(limits::MAX_INPUTS, 1), inputs(limits::MAX_INPUTS + 1, 1)),
        ("the name of an input", inputs(1, limits::MAX_INPUT_CHARS), inputs(1, limits::MAX_INPUT_CHARS + 1)),
        ("outputs", outputs(limits::MAX_OUTPUTS, 1), outputs(limits::MAX_OUTPUTS + 1, 1)),
        ("the name of an output", outputs(1, limits::MAX_OUTPUT_CHARS), outputs(1, limits::MAX_OUTPUT_CHARS + 1)),
        ("attempts", retry(json!({"max_attempts": attempts})), retry(json!({"max_attempts": attempts + 1}))),
        ("no attempts", retry(json!({"maxAttempts": 1})), retry(json!({"maxAttempts": 0}))),
        (
            "delays",
            retry(json!({"max_attempts": 2, "backoff": vec!["1s"; attempts]})),
            retry(json!({"max_attempts": 2, "backoff": vec!["1s"; attempts + 1]})),
        ),
        (
            "backoffMs",
            retry(json!({"backoffMs": vec![1; attempts]})),
            retry(json!({"backoffMs": vec![1; attempts + 1]})),
        ),
        ("a delay", retry(json!({"backoffMs": [most_millis]})), retry(json!({"backoffMs": [most_millis + 1]}))),
        (
            "factor",
            retry(json!({"max_attempts": 2, "backoff": {"factor": 1}})),
            retry(json!({"max_attempts": 2, "backoff": {"factor": 0.99}})),
        ),
        ("config.timeout", request(json!({"timeout": most_millis})), request(json!({"timeout": most_millis + 1}))),
        ("zero", call(json!({"timeout": "1ms"})), call(json!({"timeout": "0h0.0s"}))),
        ("for_each", list(limits::MAX_ITEMS), list(limits::MAX_ITEMS + 1)),
        ("fallback", fallback(limits::MAX_FALLBACKS), fallback(limits::MAX_FALLBACKS + 1)),
        ("calls", calls(limits::MAX_CALLS), calls(limits::MAX_CALLS + 1)),
        ("no calls", calls(1), calls(0)),
        ("resources", resources(limits::MAX_RESOURCES, 1), resources(limits::MAX_RESOURCES + 1, 1)),
        (
            "network",
            call(json!({"network": "n".repeat(limits::MAX_NETWORK_CHARS)})),
            call(json!({"network": "n".repeat(limits::MAX_NETWORK_CHARS + 1)})),
        ),
        ("a resource", resources(1, limits::MAX_RESOURCE_CHARS), resources(1, limits::MAX_RESOURCE_CHARS + 1)),
        (
            "description",
            call(json!({"description": "é".repeat(limits::MAX_DESCRIPTION_CHARS)})),
            call(json!({"description": "é".repeat(limits::MAX_DESCRIPTION_CHARS + 1)})),
        ),
        ("order", call(json!({"order": u32::MAX})), call(json!({"order": u64::from(u32::MAX) + 1}))),
    ] {
        for (value, expected) in [(at, true), (beyond, false)] {
            let read = Plan::parse(Format::Json, &value.to_string());
            assert_eq!(read.is_ok(), expected, "{name}: {:?}", read.err());
            let violations = compiled.violations(&value);
            assert_eq!(violations.is_empty(), expected, "{name}: {violations:?}");
        }
    }
}

/// Every limit stands in the schema: as a rule, or where a schema has no rule for it, in a description.
#[test]
fn every_limit_stands_in_the_schema() {
    let limits = [
        ("MAX_STEPS", limits::MAX_STEPS as u64),
        ("MAX_FALLBACK_MODELS", limits::MAX_FALLBACK_MODELS as u64),
        ("MAX_PLAN_BYTES", limits::MAX_PLAN_BYTES as u64),
        ("MAX_INPUTS", limits::MAX_INPUTS as u64),
        ("MAX_INPUT_CHARS", limits::MAX_INPUT_CHARS as u64),
        ("MAX_INPUT_BYTES", limits::MAX_INPUT_BYTES as u64),
        ("MAX_OUTPUTS", limits::MAX_OUTPUTS as u64),
        ("MAX_OUTPUT_CHARS", limits::MAX_OUTPUT_CHARS as u64),
        ("MAX_ARGUMENT_BYTES", limits::MAX_ARGUMENT_BYTES as u64),
        ("MAX_RESOLVED_BYTES", limits::MAX_RESOLVED_BYTES as u64),
        ("MAX_DEPTH", limits::MAX_DEPTH as u64),
        ("MAX_ID_CHARS", limits::MAX_ID_CHARS as u64),
        ("MAX_STEP_ID_CHARS", limits::MAX_STEP_ID_CHARS as u64),
        ("MAX_SIGNAL_CHARS", limits::MAX_SIGNAL_CHARS as u64),
        ("MAX_FORM_TITLE_CHARS", limits::MAX_FORM_TITLE_CHARS as u64),
        ("MAX_FORM_DESCRIPTION_CHARS", limits::MAX_FORM_DESCRIPTION_CHARS as u64),
        ("MAX_SCHEMA_BYTES", limits::MAX_SCHEMA_BYTES as u64),
        ("MAX_ITEMS", limits::MAX_ITEMS as u64),
        ("MAX_ITEM_BYTES", limits::MAX_ITEM_BYTES as u64),
        ("MAX_LIST_BYTES", limits::MAX_LIST_BYTES as u64),
        ("MAX_FALLBACKS", limits::MAX_FALLBACKS as u64),
        ("MAX_CALLS", limits::MAX_CALLS as u64),
        ("MAX_TASK_BYTES", limits::MAX_TASK_BYTES as u64),
        ("MAX_TURNS", u64::from(limits::MAX_TURNS)),
        ("MAX_OFFERED_TOOLS", limits::MAX_OFFERED_TOOLS as u64),
        ("MAX_FILES", limits::MAX_FILES as u64),
        ("MAX_FOUND_FILES", limits::MAX_FOUND_FILES as u64),
        ("MAX_ROUNDS", u64::from(limits::MAX_ROUNDS)),
        ("MAX_DESCRIPTION_CHARS", limits::MAX_DESCRIPTION_CHARS as u64),
        ("MAX_ALLOWED_COMMANDS", limits::MAX_ALLOWED_COMMANDS as u64),
        ("MAX_PROGRAM_BYTES", limits::MAX_PROGRAM_BYTES as u64),
        ("MAX_CHECKS", limits::MAX_CHECKS as u64),
        ("MAX_NESTED_PLANS", limits::MAX_NESTED_PLANS as u64),
        ("MAX_ESCALATIONS", u64::from(limits::MAX_ESCALATIONS)),
        ("MAX_BUDGET", limits::MAX_BUDGET),
        ("MAX_EXECUTION_LIMITS", limits::MAX_EXECUTION_LIMITS as u64),
        ("MAX_LIMIT_KEY_CHARS", limits::MAX_LIMIT_KEY_CHARS as u64),
        ("MAX_AT_ONCE", u64::from(limits::MAX_AT_ONCE)),
        ("MAX_RATE_WINDOW", limits::MAX_RATE_WINDOW.as_secs() / 3600),
        ("MAX_PLAN_RESOURCES", limits::MAX_PLAN_RESOURCES as u64),
        ("MAX_NESTED_GROUPS", limits::MAX_NESTED_GROUPS as u64),
        ("MAX_GROUP_DEPENDENCIES", limits::MAX_GROUP_DEPENDENCIES as u64),
        ("MAX_RESOURCES", limits::MAX_RESOURCES as u64),
        ("MAX_RESOURCE_CHARS", limits::MAX_RESOURCE_CHARS as u64),
        ("MAX_NETWORK_CHARS", limits::MAX_NETWORK_CHARS as u64),
        ("MAX_LABELS", limits::MAX_LABELS as u64),
        ("MAX_LABEL_KEY_BYTES", limits::MAX_LABEL_KEY_BYTES as u64),
        ("MAX_LABEL_BYTES", limits::MAX_LABEL_BYTES as u64),
        ("MAX_CONDITION_BYTES", limits::MAX_CONDITION_BYTES as u64),
        ("MAX_TOOL_CHARS", limits::MAX_TOOL_CHARS as u64),
        ("MAX_PARALLELISM", u64::from(limits::MAX_PARALLELISM)),
        ("MAX_IMPLIED_PARALLELISM", u64::from(limits::MAX_IMPLIED_PARALLELISM)),
        ("MAX_ATTEMPTS", u64::from(limits::MAX_ATTEMPTS)),
        ("MAX_DURATION", limits::MAX_DURATION.as_secs() / 3600),
    ];
    let text = schema().to_string();
    let numbers: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_digit()).collect();
    for (name, limit) in limits {
        assert!(numbers.contains(limit.to_string().as_str()), "{name}, {limit}, does not stand in the schema");
    }
    let source = fs::read_to_string(good::root().join("services/executor/plan/src/limits.rs")).unwrap();
    let declared = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(':'));
    for (name, _) in declared {
        // How many violations an error lists is no limit of plans.
        assert!(name == "MAX_VIOLATIONS" || limits.iter().any(|(known, _)| *known == name), "add {name} to this test");
    }
}
