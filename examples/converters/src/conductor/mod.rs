//! Workflow definitions of Conductor, in JSON.
//!
//! The tasks of a list run one after the other: each task depends on those before it. A branch of a `SWITCH` is a group with a condition, so that what follows
//! runs when none of the branches has failed.

mod limits;
mod loops;
mod references;
mod tasks;
mod waits;

use serde_json::Value;

use references::References;
use tasks::{KEYS, READ, plan};

use crate::{
    conversion::Conversion,
    fields::{Field, Refusal, read_json},
    left_out::Report,
    limit,
    plan::{Ids, RunWhen, Step},
    scope::Scope,
};

/// Converts a workflow definition.
///
/// # Errors
/// When it is no JSON, or no workflow: with the place and what to do.
pub fn convert(text: &str, name: &str) -> Result<Conversion, Refusal> {
    let document = read_json(text)?;
    let whole = Field::document(&document);
    // Some tools write a list with one workflow.
    let workflow = match (whole.is_mapping(), whole.items().as_slice()) {
        (true, _) => whole,
        (false, [one]) => one.clone(),
        (false, more) => {
            return Err(whole.refused(format!("is a list of {} workflows: convert one at a time", more.len())));
        }
    };
    let mut report = Report::default();
    let mut fields = workflow.fields()?;
    let title = fields.take("name").and_then(|title| title.text()).unwrap_or_else(|| name.to_owned());
    let mut references = References::new(Scope::default());
    let mut ids = Ids::default();
    let mut plan = plan(&workflow, &title, &mut references, &mut ids, &mut report)?;
    READ.iter().for_each(|key| drop(fields.take(key)));
    if let Some(failure) =
        fields.take("failureWorkflow").filter(|failure| failure.text().is_some_and(|text| !text.is_empty()))
    {
        let id = ids.unique("failure-workflow");
        let named = failure.text().unwrap_or_default();
        report.add(
            &failure,
            "failureWorkflow",
            format!("`{named}` is another definition: `{id}` does nothing"),
            "convert it too, and write `plan: FILE` instead of the `noop`",
        );
        let mut step = Step::noop(id, Value::Null);
        plan.steps.iter().for_each(|before| step.add_dependency(&before.id));
        step.run_when = Some(RunWhen::Failure);
        plan.steps.push(step);
    }
    fields.drop_empty();
    fields.leave_rest(&mut report, &KEYS);
    limit::leave_out_impossible(&mut plan, &mut report);
    Ok(Conversion { plan, left_out: report.finish() })
}
