//! A job: a group of steps, or with a matrix a step whose plan runs for each combination.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    concurrency,
    context::{Context, Job},
    step::{self, Defaults, minutes},
};
use crate::{
    fields::{Field, Fields, Homeless, Refusal},
    left_out::Report,
    plan::{After, Ids, Plan, Step, identifier},
    scope::Scope,
};

/// The most combinations that a matrix of a plan has.
const MAX_COMBINATIONS: usize = 10_000;

const JOB_KEYS: [Homeless; 6] = [
    ("permissions", "a plan has no token of GitHub", "policies say what calls may do"),
    ("environment", "a plan has no environments", "a policy asks a person before what matters: see policies"),
    (
        "container",
        "commands run in Belay's sandbox, not in an image",
        "the operator shows toolchains to commands: `commands.read_only`",
    ),
    ("services", "no containers run beside a command", "start the server in the command that needs it"),
    (
        "continue-on-error",
        "a group has no failure that does not count",
        "let those that need it name its outcomes: `depends_on: [{step: …, on: [success, failure]}]`",
    ),
    ("snapshot", "no image is made of the machine", ""),
];

/// A job as it is converted: its step or group, what those that need it know of it, and what it adds to the plan.
pub(super) struct Converted {
    pub(super) step: Step,
    pub(super) job: Job,
    /// How many of its combinations run at once, if it says so.
    pub(super) max_parallel: Option<usize>,
    /// How many steps it may run side by side.
    pub(super) width: usize,
}

/// Settings of a workflow for all its jobs.
pub(super) struct Workflow<'n> {
    pub(super) defaults: Defaults,
    pub(super) env: Option<Field<'n>>,
    /// The inputs that it declares.
    pub(super) inputs: BTreeMap<String, Value>,
}

/// Reads `defaults`.
pub(super) fn defaults(field: Option<Field<'_>>, outer: &Defaults, report: &mut Report) -> Result<Defaults, Refusal> {
    let mut defaults = outer.clone();
    let Some(field) = field else { return Ok(defaults) };
    let mut fields = field.fields()?;
    if let Some(run) = fields.take("run") {
        let mut run = run.fields()?;
        defaults.shell = run.take("shell").and_then(|shell| shell.text()).or(defaults.shell);
        defaults.folder = run.take("working-directory").and_then(|folder| folder.text()).or(defaults.folder);
        run.leave_rest(report, &[]);
    }
    fields.leave_rest(report, &[]);
    Ok(defaults)
}

/// Converts a job. `context` knows the inputs of the workflow and the jobs that this one needs.
pub(super) fn convert(
    name: &str,
    field: &Field<'_>,
    workflow: &Workflow<'_>,
    context: &mut Context,
    ids: &mut Ids,
    report: &mut Report,
) -> Result<Converted, Refusal> {
    let mut fields = field.fields()?;
    let id = ids.unique(name);
    // Taken by the caller, who knows the other jobs.
    fields.take("needs");
    let title = fields.take("name").and_then(|title| title.text()).unwrap_or_default();
    if let Some(machine) = fields.take("runs-on") {
        let named = machine.text().unwrap_or_else(|| machine.node.to_json().to_string());
        report.add(
            &machine,
            "runs-on",
            format!("`{named}`: commands run on the machine of the tool runner, and all jobs in one workspace"),
            "",
        );
    }
    let mut concurrency = fields.take("concurrency");
    let condition = fields.take("if").map(|condition| context.condition(&id, &condition, report)).unwrap_or_default();
    let strategy = strategy(fields.take("strategy"), context, report)?;
    let uses = fields.take("uses");
    let mut converted = match (&uses, strategy.for_each) {
        (Some(uses), _) => called(&id, uses, &mut fields, report)?,
        (None, Some(for_each)) => {
            let mut inner = inner_context(context);
            // It is read before the steps, which it cannot name.
            let limit = match concurrency.take() {
                Some(field) => {
                    let input = concurrency::input_of(&id);
                    concurrency::limit(&field, &input, &workflow.inputs, &mut inner, report)?
                }
                None => None,
            };
            let mut inner_ids = Ids::default();
            let (mut plan, _) =
                body(&id, &mut fields, workflow, &mut inner, &mut inner_ids, report, &strategy.dimensions)?;
            plan.inputs.insert("matrix".to_owned(), json!({}));
            plan.limits.extend(limit);
            let mut values = inner.scope.hand_over(&mut plan, &mut context.scope);
            values.insert("matrix".to_owned(), json!("${item.value}"));
            context.added_inputs.append(&mut inner.added_inputs);
            let mut step = Step::with_plan(&id, plan);
            step.inputs = values;
            step.for_each = Some(for_each);
            step.fail_fast = strategy.fail_fast;
            if strategy.max_parallel.is_some() {
                step.resources.push(id.clone());
            }
            let job = Job { end: id.clone(), steps: vec![id.clone()], has_outputs: false };
            Converted { step, job, max_parallel: strategy.max_parallel, width: strategy.width }
        }
        (None, None) => {
            let (plan, end) = body(&id, &mut fields, workflow, context, ids, report, &[])?;
            let steps = plan.steps.iter().map(|step| step.id.clone()).collect();
            let step = Step { id: id.clone(), steps: plan.steps, timeout: plan.timeout, ..Step::default() };
            Converted { step, job: Job { end, steps, has_outputs: true }, max_parallel: None, width: 1 }
        }
    };
    if let Some(field) = concurrency {
        concurrency::leave(&field, uses.is_some(), report);
    }
    converted.step.title = title;
    converted.step.run_when = condition.run_when;
    converted.step.condition = condition.cel;
    for need in context.needs.values() {
        converted.step.add_dependency(&need.end);
    }
    if converted.step.depends_on.is_empty() {
        converted.step.run_when = None;
    }
    fields.leave_rest(report, &JOB_KEYS);
    Ok(converted)
}

/// The context in the plan of a matrix job.
fn inner_context(outer: &Context) -> Context {
    Context {
        scope: Scope::inner(&["matrix"]),
        workflow: outer.workflow.clone(),
        has_matrix: true,
        needs: outer.needs.clone(),
        input_types: outer.input_types.clone(),
        ..Context::default()
    }
}

/// The steps of a job as a plan, and the last of them.
fn body(
    id: &str,
    fields: &mut Fields<'_>,
    workflow: &Workflow<'_>,
    context: &mut Context,
    ids: &mut Ids,
    report: &mut Report,
    dimensions: &[String],
) -> Result<(Plan, String), Refusal> {
    let defaults = defaults(fields.take("defaults"), &workflow.defaults, report)?;
    let env = fields.take("env");
    for env in [&workflow.env, &env].into_iter().flatten() {
        step::variables(env, context, report);
    }
    let mut plan = Plan { id: identifier(id, 64), ..Plan::default() };
    plan.timeout = fields.take("timeout-minutes").and_then(|limit| minutes(&limit, report));
    let steps = fields.need("steps")?;
    let (mut converted, after) = step::convert(id, &steps, &defaults, context, ids, report)?;
    if let Some(env) = env.filter(|_| converted.iter().all(|step| step.tool.as_deref() == Some("noop"))) {
        report.add(
            &env,
            "env",
            "the job has no command that gets the variables",
            "give them to the commands that take the place of `noop`",
        );
    }
    // It stands for the job: others depend on it, and it has the outputs of the job.
    let mut outputs = Map::new();
    if let Some(field) = fields.take("outputs") {
        for (name, value) in field.members() {
            outputs.insert(name, json!(context.text(&value.text().unwrap_or_default(), &value, report).template()));
        }
        if !dimensions.is_empty() {
            report.add(
                &field,
                "outputs of a matrix",
                "each combination has its own",
                format!("read `${{{id}.result[0].NAME}}`, the first one's, from later steps"),
            );
            plan.outputs = std::mem::take(&mut outputs);
        }
    }
    let mut end = Step::noop(
        ids.unique(&format!("{id}-end")),
        if outputs.is_empty() { Value::Null } else { Value::Object(outputs) },
    );
    After::apply(&after, &mut end);
    let end_id = end.id.clone();
    if dimensions.is_empty() || converted.is_empty() {
        converted.push(end);
    }
    plan.steps = converted;
    Ok((plan, end_id))
}

/// A job that calls another workflow.
fn called(id: &str, uses: &Field<'_>, fields: &mut Fields<'_>, report: &mut Report) -> Result<Converted, Refusal> {
    let name = uses.needed_text()?;
    report.add(
        uses,
        "workflow that is called",
        format!("`{name}` is another file: `{id}` does nothing"),
        "convert that file too, and write `plan: FILE` and `inputs` instead of the `noop`",
    );
    for key in ["with", "secrets"] {
        if let Some(field) = fields.take(key) {
            report.add(
                &field,
                format!("{key} of a called workflow"),
                "it goes with the plan that takes the place of the `noop`",
                "write it as `inputs` of the step",
            );
        }
    }
    let job = Job { end: id.to_owned(), steps: vec![id.to_owned()], has_outputs: false };
    Ok(Converted { step: Step::noop(id, Value::Null), job, max_parallel: None, width: 1 })
}

#[derive(Default)]
struct Strategy {
    for_each: Option<Value>,
    dimensions: Vec<String>,
    fail_fast: bool,
    max_parallel: Option<usize>,
    width: usize,
}

fn strategy(field: Option<Field<'_>>, context: &mut Context, report: &mut Report) -> Result<Strategy, Refusal> {
    let Some(field) = field else { return Ok(Strategy::default()) };
    let mut fields = field.fields()?;
    let mut strategy = Strategy { fail_fast: true, width: 16, ..Strategy::default() };
    if let Some(fail_fast) = fields.take("fail-fast") {
        match fail_fast.boolean() {
            Some(value) => strategy.fail_fast = value,
            None => report.add(
                &fail_fast,
                "fail-fast",
                "it depends on an expression, and is true in the plan",
                "write `fail_fast` as you want it",
            ),
        }
    }
    if let Some(max) = fields.take("max-parallel") {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, and not negative")]
        let number = max.number().filter(|number| (1.0..=256.0).contains(number)).map(|number| number as usize);
        if number.is_none() {
            report.add(&max, "max-parallel", "it is no number from 1 to 256", "write `resources` of the plan");
        }
        strategy.max_parallel = number;
    }
    if let Some(matrix) = fields.take("matrix") {
        read_matrix(&matrix, &mut strategy, context, report)?;
    }
    fields.leave_rest(report, &[]);
    Ok(strategy)
}

fn read_matrix(
    matrix: &Field<'_>,
    strategy: &mut Strategy,
    context: &mut Context,
    report: &mut Report,
) -> Result<(), Refusal> {
    if !matrix.is_mapping() {
        let list = list_text(matrix, "{\"matrix\": {…}}", context, report);
        strategy.for_each = Some(list);
        strategy.dimensions.push("matrix".to_owned());
        return Ok(());
    }
    let (mut converted, mut combinations) = (Map::new(), 1_usize);
    for (name, dimension) in matrix.members() {
        let special = name == "include" || name == "exclude";
        if dimension.text().is_some() {
            converted.insert(name.clone(), list_text(&dimension, "[…]", context, report));
        } else {
            let entries = dimension.items();
            if !special {
                combinations = combinations.saturating_mul(entries.len().max(1));
            } else if entries.len() > 256 {
                return Err(
                    dimension.refused(format!("has {} entries, and a matrix has at most 256 of them", entries.len()))
                );
            }
            let values = entries.iter().map(|entry| templates(entry, context, report)).collect();
            converted.insert(name.clone(), Value::Array(values));
        }
        if !special {
            strategy.dimensions.push(name);
        }
    }
    let exclude = matrix.members().into_iter().find(|(name, _)| name == "exclude");
    for (name, pair) in exclude.iter().flat_map(|(_, entries)| entries.items()).flat_map(|entry| entry.members()) {
        if !strategy.dimensions.contains(&name) {
            return Err(pair.refused("is no dimension of the matrix: remove it from `exclude`"));
        }
    }
    if combinations > MAX_COMBINATIONS {
        return Err(matrix.refused(format!(
            "has {combinations} combinations, and a plan has at most {MAX_COMBINATIONS}: leave out some"
        )));
    }
    if strategy.dimensions.is_empty() {
        // Without dimensions, what is included is the list.
        strategy.for_each = converted.remove("include");
        strategy.dimensions.push("include".to_owned());
        return Ok(());
    }
    strategy.width = combinations.min(16);
    strategy.for_each = Some(json!({"matrix": converted}));
    Ok(())
}

/// A list that an expression gives. A text of JSON is no list in a plan.
fn list_text(field: &Field<'_>, shape: &str, context: &mut Context, report: &mut Report) -> Value {
    let text = field.text().unwrap_or_default();
    let bare = text.replace("fromJSON(", "").replace("fromJson(", "").replace(')', "");
    let template = context.text(&bare, field, report);
    report.add(
        field,
        "matrix of an expression",
        format!("`{text}` has to be a list when the plan runs, not a text with JSON"),
        format!("let the command append `{{\"NAME\": {shape}}}` to $BELAY_OUTPUT"),
    );
    match template.single_reference() {
        // A default would be text, and no list.
        Some(reference) => json!(format!("${{{}}}", reference.trim_end_matches(" ?? \"\""))),
        None => json!([template.template()]),
    }
}

/// A value of a matrix, in which texts are templates.
fn templates(field: &Field<'_>, context: &mut Context, report: &mut Report) -> Value {
    match field.node.to_json() {
        Value::String(text) => json!(context.text(&text, field, report).template()),
        Value::Object(_) => {
            field.members().into_iter().map(|(name, member)| (name, templates(&member, context, report))).collect()
        }
        Value::Array(_) => field.items().iter().map(|item| templates(item, context, report)).collect(),
        other => other,
    }
}
