//! Workflows of Argo Workflows, in YAML.
//!
//! The tasks of the entry template are the steps of the plan. A container or a script is a command, and a template with tasks of its own a step that
//! carries out a plan. What later tasks read of a command's output goes through the file that `BELAY_OUTPUT` names.

mod conditions;
mod converter;
mod leaf;
mod limits;
mod lists;
mod parameters;
mod templates;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use converter::Converter;
use leaf::{Captures, seconds};
use values::Values;

use crate::{
    conversion::Conversion,
    fields::{Field, Fields, Homeless, Refusal, read_yaml},
    left_out::Report,
    limit,
    plan::{Plan, RunWhen, Step, identifier},
    text::Text,
};

const KUBERNETES: &str = "a plan has nothing of Kubernetes";

const SPEC_KEYS: [Homeless; 23] = [
    ("serviceAccountName", KUBERNETES, "policies say what calls may do"),
    ("volumes", KUBERNETES, "put files into the workspace"),
    ("volumeClaimTemplates", KUBERNETES, "put files into the workspace"),
    ("volumeClaimGC", KUBERNETES, ""),
    ("podGC", KUBERNETES, ""),
    ("ttlStrategy", "the operator says how long executions are kept", "`retention` in the settings"),
    ("imagePullSecrets", KUBERNETES, ""),
    ("nodeSelector", KUBERNETES, ""),
    ("affinity", KUBERNETES, ""),
    ("tolerations", KUBERNETES, ""),
    ("podSpecPatch", KUBERNETES, ""),
    ("podMetadata", KUBERNETES, ""),
    ("securityContext", "the sandbox has no privileges", ""),
    ("podDisruptionBudget", KUBERNETES, ""),
    ("podPriorityClassName", KUBERNETES, ""),
    ("executor", "commands run in Belay's sandbox", ""),
    ("artifactRepositoryRef", "artifacts are results and files of the workspace", ""),
    ("artifactGC", "artifacts are results and files of the workspace", ""),
    ("archiveLogs", "what commands print is kept with their results", "`belay logs`"),
    ("hooks", "an execution has no hooks", "write a step with `run_when`, or a webhook"),
    ("metrics", "the services export metrics of their own", ""),
    ("templateDefaults", "steps have no defaults but `retry_defaults`", "write it at each step"),
    ("workflowMetadata", "executions have labels alone", "`labels` of the plan"),
];

/// Converts a workflow.
///
/// # Errors
/// When it is no YAML, or no workflow: with the line and what to do.
pub fn convert(text: &str, name: &str) -> Result<Conversion, Refusal> {
    let mut report = Report::default();
    // Only the first document that is a workflow is converted.
    let documents: Vec<String> = documents(text);
    let is_workflow = |document: &&String| {
        document.lines().any(|line| line.trim_start().starts_with("kind:") && line.contains("Workflow"))
    };
    let chosen = documents.iter().position(|document| is_workflow(&document)).unwrap_or(0);
    let document = read_yaml(&documents[chosen])?;
    let whole = Field::document(&document);
    for (index, _) in documents.iter().enumerate().filter(|(index, other)| *index != chosen && !other.trim().is_empty())
    {
        report.add(
            &whole,
            "another document",
            format!("document {} of the file is not converted", index + 1),
            "put it into a file of its own",
        );
    }
    let mut fields = whole.fields()?;
    fields.take("apiVersion");
    let kind = fields.need("kind")?;
    let kind_name = kind.needed_text()?;
    let mut plan = Plan { id: identifier(name, 64), ..Plan::default() };
    if let Some(metadata) = fields.take("metadata") {
        read_metadata(&metadata, &mut plan, &mut report)?;
    }
    let known = ["Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"];
    if !known.contains(&kind_name.as_str()) {
        return Err(kind.refused(format!("`{kind_name}` is no workflow: it has to be one of {}", known.join(", "))));
    }
    let spec = fields.need("spec")?;
    match kind_name.as_str() {
        "CronWorkflow" => {
            let mut cron = spec.fields()?;
            schedule(&mut cron, &plan.id.to_lowercase(), &mut report);
            read_spec(&cron.need("workflowSpec")?, &mut plan, &mut report)?;
            cron.leave_rest(
                &mut report,
                &[
                    ("workflowMetadata", "executions have labels alone", "`--label` of `belay schedules create`"),
                    ("suspend", "a schedule is paused by a command", "`belay schedules pause`"),
                    (
                        "startingDeadlineSeconds",
                        "a schedule makes up for late times",
                        "`--catch-up` of `belay schedules create`",
                    ),
                    (
                        "successfulJobsHistoryLimit",
                        "the operator says how long executions are kept",
                        "`retention` in the settings",
                    ),
                    (
                        "failedJobsHistoryLimit",
                        "the operator says how long executions are kept",
                        "`retention` in the settings",
                    ),
                    ("when", "a schedule asks nothing", "let the first step decide, with a `condition` on the others"),
                ],
            );
        }
        _ => read_spec(&spec, &mut plan, &mut report)?,
    }
    fields.leave_rest(&mut report, &[("status", "it is what became of an execution", "")]);
    limit::leave_out_impossible(&mut plan, &mut report);
    Ok(Conversion { plan, left_out: report.finish() })
}

/// The documents of a file, with the lines of each where they were.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        if line.trim_end() == "---" {
            documents.push("\n".repeat(number + 1));
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents
}

fn read_metadata(metadata: &Field<'_>, plan: &mut Plan, report: &mut Report) -> Result<(), Refusal> {
    let mut fields = metadata.fields()?;
    if let Some(name) = fields.take("name").or_else(|| fields.take("generateName")).and_then(|name| name.text()) {
        plan.id = identifier(&name, 64);
    }
    for (key, value) in fields.take("annotations").map(|all| all.members()).unwrap_or_default() {
        match key.as_str() {
            "workflows.argoproj.io/description" => {
                plan.description = value.text().unwrap_or_default().trim().to_owned()
            }
            _ => report.add(&value, "annotation", "a plan has no annotations", ""),
        }
    }
    fields.leave_rest(
        report,
        &[
            ("labels", "those of a plan have other limits", "write `labels` in the plan"),
            ("namespace", "a start names it", "`belay run --namespace`"),
        ],
    );
    Ok(())
}

fn schedule(cron: &mut Fields<'_>, name: &str, report: &mut Report) {
    let zone = cron
        .take("timezone")
        .and_then(|zone| zone.text())
        .map(|zone| format!(" --time-zone {zone}"))
        .unwrap_or_default();
    let policy = cron.take("concurrencyPolicy").and_then(|policy| policy.text());
    let overlap = match policy.as_deref() {
        Some("Forbid") => "skip",
        Some("Replace") => "cancel-older",
        _ => "allow",
    };
    for field in [cron.take("schedule"), cron.take("schedules")].into_iter().flatten() {
        for line in field.items() {
            let command = format!(
                "belay schedules create {name} plan.yaml --cron '{}'{zone} --overlap {overlap}",
                line.text().unwrap_or_default()
            );
            report.add(&line, "schedule", "a plan does not say when it is started", format!("type `{command}`"));
        }
    }
}

fn read_spec<'n>(spec: &Field<'n>, plan: &mut Plan, report: &mut Report) -> Result<(), Refusal> {
    let mut fields = spec.fields()?;
    let list = fields.take("templates").map(|list| list.items()).unwrap_or_default();
    let mut templates: BTreeMap<String, Field<'n>> = BTreeMap::new();
    for template in &list {
        templates.insert(template.fields()?.need("name")?.needed_text()?, template.clone());
    }
    let mut workflow = BTreeSet::new();
    if let Some(arguments) = fields.take("arguments") {
        inputs(&arguments, &spec.node.to_json().to_string(), plan, &mut workflow, report)?;
    }
    plan.timeout = fields.take("activeDeadlineSeconds").and_then(|limit| seconds(&limit.text()?));
    let parallelism = fields.take("parallelism");
    let exit = fields.take("onExit");
    if let Some(other) = fields.take("workflowTemplateRef") {
        return Err(other.refused("names a template that is another document: convert that one"));
    }
    let entry = match (fields.take("entrypoint"), list.as_slice()) {
        (Some(entry), _) => {
            let name = entry.needed_text()?;
            templates
                .get(&name)
                .cloned()
                .ok_or_else(|| entry.refused(format!("there is no template `{name}`: correct the name")))?
        }
        (None, [one]) => one.clone(),
        (None, _) => return Err(spec.refused("has no `entrypoint`: name the template to begin with")),
    };
    let mut values = Values { workflow: workflow.clone(), ..Values::default() };
    limits::synchronization(&mut fields, plan, &mut values, report)?;
    let mut entry_fields = entry.fields()?;
    let entry_name = entry_fields.take("name").and_then(|name| name.text()).unwrap_or_default();
    let given: BTreeMap<String, Text> =
        workflow.iter().map(|name| (name.clone(), Text::reference(format!("inputs.{name}")))).collect();
    let mut converter = Converter {
        templates: &templates,
        report,
        is_entry: true,
        called: BTreeSet::from([entry_name.clone()]),
        stack: Vec::new(),
        calls: 0,
        inputs: BTreeMap::new(),
        width: 1,
    };
    // It is converted as the plan of a step, whose parts are those of the whole one.
    let (step, _) = converter.call("main", &entry, &given, &Captures::default(), &mut values)?;
    converter.is_entry = false;
    take_over(step, plan);
    if let Some(exit) = &exit {
        let name = exit.needed_text()?;
        let template = templates
            .get(&name)
            .cloned()
            .ok_or_else(|| exit.refused(format!("there is no template `{name}`: correct the name")))?;
        converter.called.insert(name);
        let id = if plan.steps.iter().any(|step| step.id == "on-exit") { "on-exit-2" } else { "on-exit" };
        let (mut step, _) = converter.call(id, &template, &BTreeMap::new(), &Captures::default(), &mut values)?;
        plan.steps.iter().for_each(|before| step.add_dependency(&before.id));
        step.run_when = Some(RunWhen::Always);
        plan.steps.push(step);
    }
    plan.inputs.append(&mut converter.inputs);
    let called = converter.called;
    for template in list.iter().filter(|template| {
        !template
            .fields()
            .ok()
            .and_then(|mut fields| fields.take("name"))
            .and_then(|name| name.text())
            .is_some_and(|name| called.contains(&name))
    }) {
        report.add(
            template,
            "template that is not called",
            "nothing of the plan comes from it",
            "convert it with its name as `entrypoint`",
        );
    }
    if let Some(parallelism) = parallelism {
        let number = parallelism.text().and_then(|text| text.parse().ok());
        plan.set_parallelism(number.unwrap_or(plan.parallelism));
    }
    fields.leave_rest(report, &SPEC_KEYS);
    Ok(())
}

/// Takes the plan of a step over into the whole one; a step without a plan is its only step.
fn take_over(mut step: Step, plan: &mut Plan) {
    let Some(inner) = step.plan.take() else {
        plan.steps.push(step);
        return;
    };
    let inner = *inner;
    plan.outputs = inner.outputs;
    plan.parallelism = inner.parallelism;
    plan.timeout = plan.timeout.take().or(step.timeout);
    plan.limits.extend(inner.limits);
    plan.steps = inner.steps;
}

/// The arguments of the workflow, as inputs.
fn inputs(
    arguments: &Field<'_>,
    source: &str,
    plan: &mut Plan,
    workflow: &mut BTreeSet<String>,
    report: &mut Report,
) -> Result<(), Refusal> {
    let mut fields = arguments.fields()?;
    for parameter in fields.take("parameters").map(|all| all.items()).unwrap_or_default() {
        let mut parameter_fields = parameter.fields()?;
        let name = parameter_fields.need("name")?.needed_text()?;
        let mut input = json!({});
        let value = parameter_fields.take("value").or_else(|| parameter_fields.take("default"));
        if let Some(text) = value.and_then(|value| value.text()) {
            // One that a loop goes through is a list.
            let is_list =
                source.replace(' ', "").contains(&format!("\"withParam\":\"{{{{workflow.parameters.{name}}}}}\""))
                    || source.replace(' ', "").contains(&format!("\"withParam\":\"{{{{inputs.parameters.{name}}}}}\""));
            let list = serde_json::from_str::<Vec<Value>>(&text).ok().filter(|_| is_list);
            input["default"] = list.map_or(json!(text), |list| json!(list));
        }
        if let Some(values) = parameter_fields.take("enum") {
            input["schema"] = json!({"enum": values.items().iter().filter_map(Field::text).collect::<Vec<_>>()});
        }
        if let Some(description) = parameter_fields.take("description").and_then(|text| text.text()) {
            input["description"] = json!(description);
        }
        parameter_fields
            .leave_rest(report, &[("valueFrom", "the value comes from Kubernetes", "give it at the start: `--input`")]);
        let name = identifier(&name, 64);
        plan.inputs.insert(name.clone(), input);
        workflow.insert(name);
    }
    fields.leave_rest(
        report,
        &[("artifacts", "all steps work in one workspace", "put the files there before the start")],
    );
    Ok(())
}
