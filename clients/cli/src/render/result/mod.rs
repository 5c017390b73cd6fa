//! The result of an execution in the shapes that other planners expect. Every shape is a pure function of messages of the contract, so that a client in any
//! language can do the same: docs/user-guide/results.md says which field comes from where.

mod agent;
mod executor;
pub(crate) mod lines;
mod quota_aware;
mod recorded;
mod skills;
mod supervisor;
#[cfg(test)]
mod tests;

use belay_proto::v1::Execution;
use serde_json::{Map, Value};

use super::json;
pub(crate) use recorded::{Calls, RecordedExecution, final_result, last_completed};
use recorded::{completed, output};

/// The shape of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// Belay's own: the state, the result, the output of each step
    #[default]
    Belay,
    /// The result of one agent's prompt: success, output, exit_code, quota_state
    #[value(name = "quota_aware", alias = "s0")]
    QuotaAware,
    /// The result of one agent under supervision: exit_code, error, artifacts, metadata
    #[value(alias = "s1")]
    Supervisor,
    /// The result of an executor stage: status, step_results, metrics, next_stage
    #[value(alias = "s2")]
    Executor,
    /// The result of a plan with working memory: artifacts with their provenance, the status of plan and steps
    #[value(alias = "s3")]
    Agent,
    /// The result of a plan of skills: stepResults, finalResult, metrics, error
    #[value(alias = "s4")]
    Skills,
}

/// The result in a shape.
///
/// # Errors
/// When a message cannot be written as JSON.
pub(crate) fn of(recorded: &RecordedExecution, shape: Shape) -> Result<Value, json::JsonError> {
    match shape {
        Shape::Belay => belay(recorded),
        Shape::QuotaAware => quota_aware::result(recorded),
        Shape::Supervisor => Ok(supervisor::result(recorded)),
        Shape::Executor => Ok(executor::result(recorded)),
        Shape::Agent => Ok(agent::result(recorded)),
        Shape::Skills => skills::result(recorded),
    }
}

/// Belay's own shape, with the contract's names.
fn belay(RecordedExecution { execution, .. }: &RecordedExecution) -> Result<Value, json::JsonError> {
    let head = Execution {
        name: execution.name.clone(),
        state: execution.state,
        plan_id: execution.plan_id.clone(),
        totals: execution.totals,
        failure: execution.failure.clone(),
        outputs_failure: execution.outputs_failure.clone(),
        ..Execution::default()
    };
    let mut all = json::of(&head)?;
    all["result"] = final_result(execution).unwrap_or_default();
    let outputs: Map<String, Value> =
        completed(execution).map(|step| (step.step_id.clone(), output(step).unwrap_or_default())).collect();
    all["stepOutputs"] = outputs.into();
    Ok(all)
}
