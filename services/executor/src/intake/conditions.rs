//! The conditions of steps: checked with the plan, and evaluated apart from drivers.

use belay_condition::{Condition as Expression, ConditionError};
use belay_json_schema::Schema;
use belay_plan::{CheckPlace, Condition, ConditionPlace, ConditionValues, PlannedStep, StepProblem};
use serde_json::Value;

/// The problem of a step's condition, if it cannot be true or false.
pub(crate) fn problem(step: PlannedStep<'_>, place: ConditionPlace, condition: &Condition) -> Option<StepProblem> {
    let variables: Vec<&str> = condition.variables().collect();
    let error = Expression::new(condition.expression(), &variables).err()?;
    Some(step.problem(&place.pointer(), condition.in_words(&error.to_string())))
}

/// The problem of the schema of a step's output, if it is none.
pub(crate) fn problem_of_output(step: PlannedStep<'_>, schema: &Value) -> Option<StepProblem> {
    let invalid = Schema::of_form(schema).err()?;
    Some(step.problem(&format!("/output_schema{}", invalid.pointer), invalid.to_string()))
}

/// The identity of a question that is evaluated apart from drivers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EvaluationKey {
    /// The id of the step.
    pub(crate) step: String,
    pub(crate) what: Question,
}

/// The subject of a question about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    /// Whether its condition holds.
    Condition,
    /// Whether one that is checked before or after its call holds.
    Check(CheckPlace),
    /// Whether its output fits its schema.
    Output,
}

/// A question with the work that answers it.
pub(crate) struct ToEvaluate {
    pub(crate) key: EvaluationKey,
    pub(crate) work: Evaluation,
}

/// A condition with the values of its variables, or an output with its schema.
pub(crate) enum Evaluation {
    Condition { expression: String, variables: ConditionValues },
    Output { schema: Value, output: Value },
}

/// Why it cannot be said whether something holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It has no value.
    Failed(String),
    /// It needs a value that is missing.
    Absent(String),
}

impl ToEvaluate {
    /// Whether it holds, or why that cannot be said. Takes up to some tens of milliseconds.
    pub(crate) fn evaluate(&self) -> Result<bool, NoAnswer> {
        match &self.work {
            Evaluation::Condition { expression, variables } => {
                let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
                let (mut values, mut absent) = (Vec::new(), Vec::new());
                for (name, value) in variables {
                    match value {
                        Ok(value) => values.push((name.as_str(), value)),
                        Err(why) => absent.push((name.as_str(), why.as_str())),
                    }
                }
                let condition = Expression::new(expression, &names);
                let holds = condition.and_then(|condition| condition.evaluate_with(&values, &absent));
                holds.map_err(|error| match error {
                    ConditionError::Absent(why) => NoAnswer::Absent(why),
                    error => NoAnswer::Failed(error.to_string()),
                })
            }
            Evaluation::Output { schema, output } => {
                let schema = Schema::of_form(schema).map_err(|invalid| NoAnswer::Failed(invalid.to_string()))?;
                match schema.violations(output).first() {
                    None => Ok(true),
                    Some(first) if first.pointer.is_empty() => Err(NoAnswer::Failed(first.message.clone())),
                    Some(first) => Err(NoAnswer::Failed(format!("`{}`: {}", first.pointer, first.message))),
                }
            }
        }
    }
}
