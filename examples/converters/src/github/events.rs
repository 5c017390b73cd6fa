//! Events that start a workflow: `on`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::context::Context;
use crate::{
    fields::{Field, Refusal},
    left_out::Report,
    plan::Plan,
};

/// The inputs that a workflow declares, as inputs of the plan; and the outputs that it declares, which are converted last.
pub(super) fn convert<'n>(
    on: &Field<'n>,
    plan: &mut Plan,
    types: &mut BTreeMap<String, &'static str>,
    report: &mut Report,
) -> Result<Vec<(String, Field<'n>)>, Refusal> {
    let mut outputs = Vec::new();
    let events = if on.is_mapping() {
        on.members()
    } else {
        on.items().into_iter().filter_map(|item| Some((item.text()?, item))).collect()
    };
    for (event, field) in events {
        match event.as_str() {
            "schedule" => schedule(&field, plan, report),
            "workflow_dispatch" | "workflow_call" => {
                let mut fields = if field.is_mapping() { field.fields()? } else { continue };
                if let Some(inputs) = fields.take("inputs") {
                    for (name, input) in inputs.members() {
                        declare(&name, &input, plan, types, report)?;
                    }
                }
                outputs.extend(fields.take("outputs").map(|outputs| outputs.members()).unwrap_or_default());
                fields.leave_rest(
                    report,
                    &[(
                        "secrets",
                        "a plan has no secrets of its own",
                        "the operator sets variables for commands: `commands.env`",
                    )],
                );
            }
            _ => report.add(
                &field,
                format!("on {event}"),
                "no event starts a plan",
                "start it from where the event arrives: `belay run`, or StartExecution",
            ),
        }
    }
    Ok(outputs)
}

fn schedule(field: &Field<'_>, plan: &Plan, report: &mut Report) {
    for entry in field.items() {
        let Ok(mut fields) = entry.fields() else { continue };
        let zone = fields
            .take("timezone")
            .and_then(|zone| zone.text())
            .map(|zone| format!(" --time-zone {zone}"))
            .unwrap_or_default();
        if let Some(cron) = fields.take("cron") {
            let line = cron.text().unwrap_or_default();
            let command = format!("belay schedules create {} plan.yaml --cron '{line}'{zone}", plan.id.to_lowercase());
            report.add(&cron, "on schedule", "a plan does not say when it is started", format!("type `{command}`"));
        }
        fields.leave_rest(report, &[]);
    }
}

fn declare(
    name: &str,
    input: &Field<'_>,
    plan: &mut Plan,
    types: &mut BTreeMap<String, &'static str>,
    report: &mut Report,
) -> Result<(), Refusal> {
    let mut fields = input.fields()?;
    let kind = fields.take("type").and_then(|kind| kind.text()).unwrap_or_else(|| "string".to_owned());
    let required = fields.take("required").and_then(|required| required.boolean()).unwrap_or(false);
    let default = fields.take("default").map(|default| default.node.to_json());
    let options = fields.take("options").map(|options| options.node.to_json());
    let (schema, nothing, kind) = match kind.as_str() {
        "boolean" => (json!({"type": "boolean"}), json!(false), "boolean"),
        "number" => (json!({"type": "number"}), json!(0), "number"),
        "choice" => {
            let first = options.as_ref().and_then(|options| options.get(0)).cloned().unwrap_or(json!(""));
            (json!({"enum": options.unwrap_or(json!([""]))}), first, "string")
        }
        _ => (json!({"type": "string"}), json!(""), "string"),
    };
    let mut declared = Map::new();
    if let Some(description) = fields.take("description").and_then(|description| description.text()) {
        declared.insert("description".to_owned(), json!(description));
    }
    // A text default of a boolean is read as GitHub does.
    let default = match (default, kind) {
        (Some(Value::String(text)), "boolean") => Some(json!(text == "true")),
        (Some(Value::String(text)), "number") => Some(json!(text.parse::<f64>().unwrap_or(0.0))),
        (Some(value @ (Value::Number(_) | Value::Bool(_))), "string") => Some(json!(value.to_string())),
        (Some(Value::Null) | None, _) if !required => Some(nothing),
        (default, _) => default,
    };
    if let Some(default) = default {
        declared.insert("default".to_owned(), default);
    }
    declared.insert("schema".to_owned(), schema);
    types.insert(name.to_owned(), kind);
    plan.inputs.insert(name.to_owned(), Value::Object(declared));
    fields.leave_rest(report, &[("deprecationMessage", "a plan's inputs have none", "")]);
    Ok(())
}

/// Converts the outputs of a called workflow, whose values name outputs of jobs.
pub(super) fn outputs(
    outputs: Vec<(String, Field<'_>)>,
    plan: &mut Plan,
    context: &mut Context,
    report: &mut Report,
) -> Result<(), Refusal> {
    for (name, field) in outputs {
        let mut fields = field.fields()?;
        if let Some(value) = fields.take("value") {
            // There they are `jobs.NAME.outputs.…`, elsewhere `needs.NAME.outputs.…`.
            let text = value.needed_text()?.replace("jobs.", "needs.");
            let template = context.text(&text, &value, report).template();
            plan.outputs.insert(name, json!(template));
        }
        fields.leave_rest(report, &[("description", "outputs of a plan have none", "")]);
    }
    Ok(())
}
