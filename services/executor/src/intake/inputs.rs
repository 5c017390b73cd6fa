//! The inputs that an execution is started with: what the request gives, and the defaults of the plan.

use std::collections::BTreeMap;

use belay_json_schema::Schema;
use belay_plan::{
    Input, Plan, PlanStep, StepKind, Violation,
    limits::{MAX_INPUT_BYTES, MAX_VIOLATIONS},
    nearest,
};
use serde_json::{Map, Value};

/// The problems of the declarations of a plan's inputs: invalid schemas, and defaults that do not fit their schema.
pub(crate) fn problems(plan: &Plan) -> Vec<Violation> {
    let mut problems = Vec::new();
    add_problems(plan, "", &mut problems);
    problems.truncate(MAX_VIOLATIONS);
    problems
}

/// Adds the problems of a plan and of the plans that are steps of it; `within` is where the plan stands: `steps[2].plan.`.
fn add_problems(plan: &Plan, within: &str, problems: &mut Vec<Violation>) {
    for (name, Input { schema, default, .. }) in plan.inputs() {
        let Some(schema) = schema else { continue };
        match Schema::new(&schema.to_string()) {
            Err(error) => problems.push(violation(format!("{within}inputs.{name}.schema"), error.to_string())),
            Ok(schema) => problems.extend(
                default
                    .iter()
                    .flat_map(|default| misfits(&schema, default))
                    .map(|(pointer, message)| violation(format!("{within}inputs.{name}.default{pointer}"), message)),
            ),
        }
    }
    for (index, step) in plan.steps().iter().enumerate() {
        if let StepKind::Plan(PlanStep { plan, .. }) = step.kind() {
            add_problems(plan, &format!("{within}steps[{index}].plan."), problems);
        }
    }
}

/// The values of all inputs of a plan.
///
/// # Errors
/// Each value that is missing, is not declared, or does not fit its schema.
pub(crate) fn values(plan: &Plan, given: Map<String, Value>) -> Result<Map<String, Value>, Vec<Violation>> {
    let mut problems = Vec::new();
    let mut values = Map::new();
    for name in given.keys().filter(|name| !plan.inputs().contains_key(*name)) {
        let near = nearest(name, plan.inputs().keys().map(String::as_str));
        let message = match near {
            Some(near) => format!("the plan declares no such input; did you mean `{near}`?"),
            None if plan.inputs().is_empty() => "the plan declares no inputs: leave it out".to_owned(),
            None => format!("the plan declares no such input, only {}", names(plan.inputs())),
        };
        problems.push(violation(format!("inputs.{name}"), message));
    }
    let mut given = given;
    for (name, Input { schema, default, .. }) in plan.inputs() {
        let Some(value) = given.remove(name).or_else(|| default.clone()) else {
            let message =
                format!("is required: give it with `--input {name}=VALUE`, or give it a `default` in the plan");
            problems.push(violation(format!("inputs.{name}"), message));
            continue;
        };
        let Some(schema) = schema.as_ref().and_then(|schema| Schema::new(&schema.to_string()).ok()) else {
            values.insert(name.clone(), value);
            continue;
        };
        let value = as_wanted(&schema, value);
        let misfits = misfits(&schema, &value);
        problems.extend(
            misfits.into_iter().map(|(pointer, message)| violation(format!("inputs.{name}{pointer}"), message)),
        );
        values.insert(name.clone(), value);
    }
    let size = Value::from(values.clone()).to_string().len();
    if size > MAX_INPUT_BYTES {
        let message = format!(
            "have {size} bytes and the limit is {MAX_INPUT_BYTES}: put them in a file, and let a step read that"
        );
        problems.push(violation("inputs".to_owned(), message));
    }
    problems.truncate(MAX_VIOLATIONS);
    if problems.is_empty() { Ok(values) } else { Err(problems) }
}

/// The value as its schema wants it: a text that does not fit, and is JSON that does, is that JSON: what is typed on a command line is text.
fn as_wanted(schema: &Schema, value: Value) -> Value {
    let Value::String(text) = &value else { return value };
    if schema.violations(&value).is_empty() {
        return value;
    }
    match belay_json::read(text) {
        Ok(read) if schema.violations(&read).is_empty() => read,
        Ok(_) | Err(_) => value,
    }
}

fn misfits(schema: &Schema, value: &Value) -> Vec<(String, String)> {
    let misfits = schema.violations(value).into_iter();
    misfits.map(|misfit| (misfit.pointer.replace('/', "."), misfit.message)).collect()
}

fn names(inputs: &BTreeMap<String, Input>) -> String {
    inputs.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn violation(field: String, message: String) -> Violation {
    Violation { field, message, line: 0, column: 0 }
}

#[cfg(test)]
mod tests {
    use belay_plan::Format;
    use serde_json::json;

    use super::*;

    fn plan(inputs: &str) -> Plan {
        Plan::parse(Format::Yaml, &format!("{{id: p, inputs: {inputs}, steps: [{{id: a, tool: noop}}]}}")).unwrap()
    }

    fn told(violations: Vec<Violation>) -> Vec<String> {
        violations.into_iter().map(|violation| format!("{}: {}", violation.field, violation.message)).collect()
    }

    /// S4-02, S3-01: what is given comes before what is declared, and a text becomes what its schema wants.
    #[test]
    fn inputs_are_given_or_have_their_defaults() {
        let plan = plan(
            "{n: {schema: {type: integer}, default: 3}, name: {schema: {type: string}}, any: null, list: {default: [1]}}",
        );
        let given = json!({"n": "12", "name": "12", "any": "12"}).as_object().unwrap().clone();
        let values = values(&plan, given).unwrap();
        assert_eq!(Value::from(values), json!({"n": 12, "name": "12", "any": "12", "list": [1]}));
    }

    #[test]
    fn inputs_that_are_missing_unknown_or_of_another_kind_are_refused_together() {
        let plan = plan("{count: {schema: {type: integer}}, name: {}}");
        let given = json!({"count": "many", "cuont": 1}).as_object().unwrap().clone();
        let problems = told(values(&plan, given).unwrap_err());
        assert_eq!(problems[0], "inputs.cuont: the plan declares no such input; did you mean `count`?");
        assert!(problems[1].starts_with("inputs.count: ") && problems[1].contains("integer"), "{problems:?}");
        assert!(problems[2].starts_with("inputs.name: is required: give it with `--input name=VALUE`"), "{problems:?}");
        let none = self::plan("{}");
        let given = json!({"a": 1}).as_object().unwrap().clone();
        assert_eq!(told(values(&none, given).unwrap_err()), ["inputs.a: the plan declares no inputs: leave it out"]);
        let large = self::plan("{text: {}}");
        let given = json!({"text": "x".repeat(MAX_INPUT_BYTES)}).as_object().unwrap().clone();
        assert!(told(values(&large, given).unwrap_err())[0].contains("bytes and the limit is 262144"));
    }

    #[test]
    fn a_declaration_that_fits_no_value_is_refused_with_the_plan() {
        let plan = plan("{a: {schema: {type: nothing}}, b: {schema: {type: integer}, default: x}}");
        let problems = told(problems(&plan));
        assert!(problems[0].starts_with("inputs.a.schema: "), "{problems:?}");
        assert!(problems[1].starts_with("inputs.b.default: "), "{problems:?}");
    }
}
