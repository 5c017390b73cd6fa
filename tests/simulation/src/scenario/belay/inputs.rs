//! The inputs of plans: their declarations, what executions are started with, and what that comes to.

use belay_proto::v1::{self, step_spec};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

/// A number of at least 0, with a default.
const COUNT: &str = "count";
/// A text that is required.
const WORD: &str = "word";
/// An object, with a default.
const FACTS: &str = "facts";

/// The default of `count`.
const DEFAULT_COUNT: u32 = 3;

/// The inputs with which an execution is started.
#[derive(Debug, Clone, Default)]
pub(super) struct Inputs {
    /// The inputs that the request gives.
    pub(super) given: Option<Value>,
    /// Inputs that are refused.
    pub(super) wrong: Option<Value>,
    /// The values of all inputs; `None` for a plan without any.
    pub(super) values: Option<Value>,
}

/// Declares the inputs of a plan, and has some steps use them. Returns what to start an execution with.
pub(super) fn add(random: &mut StdRng, plan: &mut v1::Plan) -> Inputs {
    let word = "w".repeat(random.random_range(1..=8));
    let (mut given, mut values) = (json!({WORD: word}), json!({WORD: word, COUNT: DEFAULT_COUNT}));
    values[FACTS] = default_facts();
    plan.inputs = vec![
        input(COUNT, Some(json!({"type": "integer", "minimum": 0})), Some(json!(DEFAULT_COUNT))),
        input(WORD, Some(json!({"type": "string", "maxLength": 8})), None),
        input(FACTS, None, Some(default_facts())),
    ];
    if random.random_bool(0.6) {
        let count = random.random_range(0..100);
        values[COUNT] = count.into();
        // A text that its schema does not want is read as JSON.
        given[COUNT] = if random.random_bool(0.3) { count.to_string().into() } else { count.into() };
    }
    if random.random_bool(0.3) {
        given[FACTS] = json!({"topic": "given", "more": [1, "two"]});
        values[FACTS] = given[FACTS].clone();
    }
    let mut wrong = given.clone();
    match random.random_range(0..4) {
        0 => wrong[COUNT] = (-1).into(),
        1 => wrong[WORD] = "w".repeat(9).into(),
        2 => wrong["other"] = 0.into(),
        _ => wrong = json!({COUNT: 1}),
    }
    for step in &mut plan.steps {
        use_inputs(random, step, &[COUNT, WORD, FACTS]);
        if random.random_bool(0.15) && step.condition.is_empty() {
            step.condition = EVEN.to_owned();
        }
    }
    Inputs { given: Some(given), wrong: random.random_bool(0.3).then_some(wrong), values: Some(values) }
}

/// A condition that an input decides.
pub(super) const EVEN: &str = "${inputs.count} % 2 == 0";

/// Whether a condition holds that an input decides; `None` for another.
pub(super) fn holds(condition: &str, inputs: &Value) -> Option<bool> {
    (condition == EVEN).then(|| inputs[COUNT].as_u64().is_some_and(|count| count % 2 == 0))
}

fn default_facts() -> Value {
    json!({"topic": "default", "deep": {"er": true}})
}

fn input(name: &str, schema: Option<Value>, default: Option<Value>) -> v1::PlanInput {
    let payload = |value: Value| v1::Payload::of_json(value.to_string());
    let (schema, default_value) = (schema.map(payload), default.map(payload));
    v1::PlanInput { name: name.to_owned(), description: String::new(), schema, default_value }
}

/// Has a step of the plan use one of these inputs.
fn use_inputs(random: &mut StdRng, step: &mut v1::StepSpec, names: &[&str]) {
    let Some(step_spec::Kind::Tool(tool)) = &mut step.kind else { return };
    if random.random_bool(0.6) {
        return;
    }
    let arguments = tool.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
    let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    if step.for_each.is_some() {
        return;
    }
    let path = match names[random.random_range(0..names.len())] {
        FACTS => "facts.topic",
        name => name,
    };
    let before = if random.random_bool(0.3) { "with " } else { "" };
    arguments["value"] = format!("{before}${{inputs.{path}}}").into();
    tool.arguments = Some(v1::Payload::of_json(arguments.to_string()));
}

/// Declares inputs of the plan of a step. Returns the values that the step hands over, of which one may be that of a step before it.
pub(super) fn add_to_child(random: &mut StdRng, step: &v1::StepSpec, own: &mut v1::Plan) -> Option<v1::Payload> {
    if random.random_bool(0.4) {
        return None;
    }
    own.inputs = vec![input(COUNT, Some(json!({"type": "integer"})), None), input(WORD, None, Some(json!("a word")))];
    for step in &mut own.steps {
        use_inputs(random, step, &[COUNT, WORD]);
    }
    let before = step.depends_on.first().filter(|_| random.random_bool(0.5));
    let count = before.map_or_else(|| json!(random.random_range(0..100)), |on| format!("${{{on}.result.run}}").into());
    Some(v1::Payload::of_json(json!({COUNT: count}).to_string()))
}

/// The values of all inputs of a plan that is started with `given`.
pub(super) fn values(plan: &v1::Plan, given: &Value) -> Value {
    let mut values = if given.is_null() { json!({}) } else { given.clone() };
    for input in &plan.inputs {
        let default = input.default_value.as_ref().and_then(v1::Payload::as_json);
        let default = default.and_then(|default| serde_json::from_str(default).ok());
        if values.get(&input.name).is_none()
            && let Some(default) = default
        {
            values[&input.name] = default;
        }
    }
    values
}

/// The value of a template: `inputs.NAME` and a path below it; `None` for another template.
pub(super) fn resolve(template: &str, inputs: &Value) -> Option<Value> {
    let mut value = inputs.get(template.split('.').nth(1)?)?;
    for name in template.split('.').skip(2) {
        value = value.get(name)?;
    }
    template.starts_with("inputs.").then(|| value.clone())
}
