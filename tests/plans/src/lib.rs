//! Plans as their authors write them, good and bad, and how they are checked before a tool is known: for the tests of this crate.

pub mod bad;
pub mod good;

use belay_condition::Condition as Expression;
use belay_plan::{Format, InvalidPlan, Plan, Planned, StepProblem};

/// Reads a plan, and checks its conditions as the executor does.
///
/// # Errors
/// [`InvalidPlan`] with every violation.
pub fn parse(format: Format, text: &str) -> Result<Plan, InvalidPlan> {
    Plan::parse_with(format, text, |planned| match planned {
        Planned::Condition { step, condition } => {
            let variables: Vec<&str> = condition.variables().collect();
            let error = Expression::new(condition.expression(), &variables).err();
            let problem = |message: String| StepProblem {
                step,
                pointer: "/condition".into(),
                message: condition.in_words(&message),
            };
            error.map(|error| problem(error.to_string())).into_iter().collect()
        }
        Planned::Call(_) | Planned::Form { .. } => Vec::new(),
    })
}

/// A plan as JSON text, in the shape that its author could have written.
pub fn written(plan: &Plan) -> serde_json::Value {
    serde_json::to_value(plan.to_draft()).expect("a draft is JSON")
}
