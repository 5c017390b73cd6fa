//! Numbers of JSON: whole ones, which are exact, and others.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::ConditionError;

/// A number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Num {
    Whole(i128),
    Other(f64),
}

impl Num {
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let number = value.as_number()?;
        let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        Some(whole.map_or_else(|| Self::Other(number.as_f64().unwrap_or(f64::NAN)), Self::Whole))
    }

    pub(crate) fn as_f64(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "a number that is not whole is not exact either")]
            Self::Whole(whole) => whole as f64,
            Self::Other(other) => other,
        }
    }

    /// `None` when one of them is not a number.
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => Some(one.cmp(&other)),
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }

    /// The number as JSON.
    ///
    /// # Errors
    /// [`ConditionError::Failed`] when JSON has no such number.
    pub(crate) fn value(self) -> Result<Value, ConditionError> {
        let number = match self {
            Self::Whole(whole) => {
                i64::try_from(whole).map(Number::from).or_else(|_| u64::try_from(whole).map(Number::from)).ok()
            }
            Self::Other(other) => Number::from_f64(other),
        };
        number
            .map(Value::Number)
            .ok_or_else(|| ConditionError::Failed("a calculation leaves the numbers that there are".to_owned()))
    }

    /// Calculates.
    ///
    /// # Errors
    /// [`ConditionError::Failed`] when there is no result.
    pub(crate) fn calculate(self, operator: char, other: Self) -> Result<Self, ConditionError> {
        let failed = |why: &str| ConditionError::Failed(why.to_owned());
        match (self, other) {
            (Self::Whole(_), Self::Whole(0)) if operator == '/' || operator == '%' => Err(failed("divides by zero")),
            (Self::Whole(one), Self::Whole(other)) => {
                // Two numbers of 65 bits: no sum or product leaves 128 bits but that of the largest.
                let result = match operator {
                    '+' => one.checked_add(other),
                    '-' => one.checked_sub(other),
                    '*' => one.checked_mul(other),
                    '/' => one.checked_div(other),
                    _ => one.checked_rem(other),
                };
                result.map(Self::Whole).ok_or_else(|| failed("a calculation leaves the numbers that there are"))
            }
            _ if operator == '%' => Err(failed("takes a remainder, which only whole numbers have")),
            _ => {
                let (one, other) = (self.as_f64(), other.as_f64());
                Ok(Self::Other(match operator {
                    '+' => one + other,
                    '-' => one - other,
                    '*' => one * other,
                    _ => one / other,
                }))
            }
        }
    }
}
