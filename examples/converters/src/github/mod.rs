//! Workflow files of GitHub Actions.
//!
//! A job is a group of steps, and with a matrix a step that carries out a plan for each combination. The last step of a group, `JOB-end`, stands for the
//! job: those that need it depend on it, and its result has the outputs of the job.

mod actions;
mod concurrency;
mod context;
mod events;
mod expression;
mod job;
mod step;

use std::collections::BTreeMap;

use context::{Context, Job};
use job::Workflow;

use crate::{
    conversion::Conversion,
    fields::{Field, Homeless, Refusal, read_yaml},
    left_out::Report,
    limit,
    plan::{Ids, Plan, Step, identifier},
};

const KEYS: [Homeless; 2] = [
    ("permissions", "a plan has no token of GitHub", "policies say what calls may do"),
    ("run-name", "an execution is named when it is started", "`belay run --id NAME`"),
];

/// Converts a workflow file.
///
/// # Errors
/// When it is no YAML, or no workflow: with the line and what to do.
pub fn convert(text: &str, name: &str) -> Result<Conversion, Refusal> {
    let document = read_yaml(text)?;
    let mut fields = Field::document(&document).fields()?;
    let mut report = Report::default();
    let title = fields.take("name").and_then(|title| title.text()).unwrap_or_default();
    let wanted = if title.is_empty() { name } else { &title };
    let mut plan = Plan { id: identifier(wanted, 64), description: title.clone(), ..Plan::default() };

    let mut types = BTreeMap::new();
    let on = fields.need("on")?;
    let outputs = events::convert(&on, &mut plan, &mut types, &mut report)?;
    let workflow_name = wanted.to_owned();
    let mut context = Context { workflow: workflow_name.clone(), input_types: types.clone(), ..Context::default() };
    if let Some(field) = fields.take("concurrency") {
        plan.limits.extend(concurrency::limit(&field, "concurrency", &plan.inputs, &mut context, &mut report)?);
    }
    let mut added_inputs = context.added_inputs;
    let defaults = job::defaults(fields.take("defaults"), &step::Defaults::default(), &mut report)?;
    let workflow = Workflow { defaults, env: fields.take("env"), inputs: plan.inputs.clone() };
    plan.inputs.append(&mut added_inputs);

    let jobs = fields.need("jobs")?;
    let members = jobs.members();
    let order = order(&jobs, &members)?;
    if members.is_empty() {
        return Err(jobs.refused("has no job: a plan needs at least one step"));
    }
    let (mut ids, mut known) = (Ids::default(), BTreeMap::<String, Job>::new());
    let (mut steps, mut width) = (BTreeMap::new(), 0);
    for index in order {
        let (name, field) = &members[index];
        let needed = needs(field)?.into_iter().filter_map(|(need, _)| Some((need.clone(), known.get(&need)?.clone())));
        let mut context = Context {
            workflow: workflow_name.clone(),
            needs: needed.collect(),
            input_types: types.clone(),
            ..Context::default()
        };
        let converted = job::convert(name, field, &workflow, &mut context, &mut ids, &mut report)?;
        if let Some(max) = converted.max_parallel {
            plan.resources.insert(converted.step.id.clone(), max);
        }
        width += converted.width;
        plan.inputs.append(&mut context.added_inputs);
        known.insert(name.clone(), converted.job);
        steps.insert(index, converted.step);
    }
    plan.steps = steps.into_values().collect();
    if let Some(env) = workflow.env.filter(|_| !plan.steps.iter().any(has_command)) {
        report.add(
            &env,
            "env",
            "no command of the workflow gets the variables",
            "give them to the commands that take the place of `noop`",
        );
    }
    plan.set_parallelism(width);
    let mut context = Context { workflow: workflow_name, needs: known, input_types: types, ..Context::default() };
    events::outputs(outputs, &mut plan, &mut context, &mut report)?;
    plan.inputs.append(&mut context.added_inputs);
    fields.leave_rest(&mut report, &KEYS);
    limit::leave_out_impossible(&mut plan, &mut report);
    Ok(Conversion { plan, left_out: report.finish() })
}

/// Whether a step runs a command, itself or one of its steps.
fn has_command(step: &Step) -> bool {
    let within = step.plan.iter().flat_map(|plan| &plan.steps).chain(&step.steps);
    step.tool.as_deref() == Some("run_terminal") || within.into_iter().any(has_command)
}

/// The jobs that a job needs, with the places where it says so.
fn needs<'n>(job: &Field<'n>) -> Result<Vec<(String, Field<'n>)>, Refusal> {
    let Some(needs) = job.fields()?.take("needs") else { return Ok(Vec::new()) };
    needs.items().into_iter().map(|need| Ok((need.needed_text()?, need))).collect()
}

/// The positions of the jobs, each after all that it needs.
fn order(jobs: &Field<'_>, members: &[(String, Field<'_>)]) -> Result<Vec<usize>, Refusal> {
    let mut needed = Vec::new();
    for (_, field) in members {
        let mut positions = Vec::new();
        for (need, place) in needs(field)? {
            let position = members.iter().position(|(name, _)| *name == need);
            positions
                .push(position.ok_or_else(|| place.refused(format!("there is no job `{need}`: correct the name")))?);
        }
        needed.push(positions);
    }
    let mut order: Vec<usize> = Vec::new();
    while order.len() < members.len() {
        let is_next = |index: &usize| !order.contains(index) && needed[*index].iter().all(|need| order.contains(need));
        match (0..members.len()).find(is_next) {
            Some(index) => order.push(index),
            None => {
                let circle: Vec<&str> = (0..members.len())
                    .filter(|index| !order.contains(index))
                    .map(|index| members[index].0.as_str())
                    .collect();
                return Err(jobs.refused(format!(
                    "these jobs need each other in a circle, or need one that does: {}; remove one of their `needs`",
                    circle.join(", ")
                )));
            }
        }
    }
    Ok(order)
}
