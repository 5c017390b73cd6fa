//! The conditions of steps: checked with the plan, and evaluated apart from drivers.

use belay_condition::Condition as Expression;
use belay_plan::{Condition, StepProblem};
use serde_json::Value;

/// The problem of a step's condition, if it cannot be true or false.
pub(crate) fn problem(step: usize, condition: &Condition) -> Option<StepProblem> {
    let variables: Vec<&str> = condition.variables().collect();
    let error = Expression::new(condition.expression(), &variables).err()?;
    Some(StepProblem { step, pointer: "/condition".into(), message: condition.in_words(&error.to_string()) })
}

/// A condition to evaluate, with the values of its variables.
pub(crate) struct ToEvaluate {
    /// The id of the step that has it.
    pub(crate) step: String,
    pub(crate) expression: String,
    pub(crate) variables: Vec<(String, Value)>,
}

impl ToEvaluate {
    /// Whether it holds, or why that cannot be said. Takes up to some tens of milliseconds.
    pub(crate) fn evaluate(&self) -> Result<bool, String> {
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        let values: Vec<(&str, &Value)> = self.variables.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let holds = Expression::new(&self.expression, &names).and_then(|condition| condition.evaluate(&values));
        holds.map_err(|error| error.to_string())
    }
}
