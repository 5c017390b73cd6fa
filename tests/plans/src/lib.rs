//! Plans as their authors write them, good and bad, and how they are checked before a tool is known: for the tests of this crate.

pub mod bad;
pub mod good;

use belay_condition::Condition as Expression;
use belay_plan::{Format, InvalidPlan, Plan, PlanPart};
use serde_json::Value;

/// Reads a plan, and checks its conditions as the executor does.
///
/// # Errors
/// [`InvalidPlan`] with every violation.
pub fn parse(format: Format, text: &str) -> Result<Plan, InvalidPlan> {
    Plan::parse_with(format, text, |planned| match planned {
        PlanPart::Condition { step, place, condition } => {
            let variables: Vec<&str> = condition.variables().collect();
            let error = Expression::new(condition.expression(), &variables).err();
            let pointer = place.pointer();
            let problem = |message: String| step.problem(&pointer, condition.in_words(&message));
            error.map(|error| problem(error.to_string())).into_iter().collect()
        }
        PlanPart::Call(_) | PlanPart::Form { .. } | PlanPart::Model { .. } | PlanPart::Output { .. } => Vec::new(),
    })
}

/// The value of a text, as editors and validators see it; `None` when it is not in the format.
pub fn value(format: Format, text: &str) -> Option<Value> {
    match format {
        Format::Json => serde_json::from_str(text).ok(),
        // YAML 1.2: `yes` is text.
        Format::Auto | Format::Yaml => {
            serde_saphyr::from_str_with_options(text, serde_saphyr::options! {strict_booleans: true}).ok()
        }
    }
}
