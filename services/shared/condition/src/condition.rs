//! A condition that was parsed.

use cel::{IdedExpr, parser::PrattParser};
use serde_json::Value;

use crate::{ConditionError, MAX_BYTES, check, evaluate};

/// A condition that was parsed and checked.
#[derive(Debug)]
pub struct Condition {
    expression: IdedExpr,
}

impl Condition {
    /// Parses an expression in which `variables` are known.
    ///
    /// # Errors
    /// [`ConditionError`]: what is wrong with it.
    pub fn new(expression: &str, variables: &[&str]) -> Result<Self, ConditionError> {
        if expression.len() > MAX_BYTES {
            let message = format!("has {} bytes and the limit is {MAX_BYTES}", expression.len());
            return Err(ConditionError::Refused(message));
        }
        let parser = PrattParser::new().max_recursion_depth(64);
        let expression = parser.parse(expression).map_err(|errors| {
            let first = errors.errors.first().map(|error| error.msg.clone());
            ConditionError::Syntax(first.unwrap_or_else(|| "it is not an expression".to_owned()))
        })?;
        check::check(&expression, variables)?;
        Ok(Self { expression })
    }

    /// Whether it holds with these values of its variables.
    ///
    /// # Errors
    /// [`ConditionError::Failed`] when it is neither true nor false, [`ConditionError::TooMuch`].
    pub fn evaluate(&self, variables: &[(&str, &Value)]) -> Result<bool, ConditionError> {
        self.evaluate_with(variables, &[])
    }

    /// The same where some variables have no value, each with the reason: that matters only where the expression needs them. `||`, `&&` and `?:` may do without,
    /// and `has()` of a member of one is false.
    ///
    /// # Errors
    /// As [`Condition::evaluate`], and [`ConditionError::Absent`] with the reason when a value that is missing is needed.
    pub fn evaluate_with(&self, variables: &[(&str, &Value)], absent: &[(&str, &str)]) -> Result<bool, ConditionError> {
        evaluate::evaluate(&self.expression, variables, absent)
    }
}
