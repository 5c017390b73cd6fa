//! Evaluates conditions at once, as an executor does apart from its driver.

use belay_condition::{Condition as Expression, ConditionError};
use belay_execution::{BlobRef, BlobValue, Blobs, Evaluated, Json, Payload};
use belay_plan::{CheckPlace, Condition, ConditionValues};
use serde_json::Value;

/// An execution without blobs whose conditions are evaluated.
pub(crate) struct Conditions;

impl Blobs for Conditions {
    fn value(&self, _: &BlobRef) -> BlobValue<'_> {
        BlobValue::Unreadable("there are no blobs")
    }

    fn payload(&self, json: Json) -> Payload {
        json.into()
    }

    fn evaluate(&self, _: &str, _: Option<CheckPlace>, condition: &Condition, variables: ConditionValues) -> Evaluated {
        let known: Vec<&str> = condition.variables().collect();
        let (mut values, mut absent) = (Vec::new(), Vec::new());
        for (name, value) in &variables {
            match value {
                Ok(value) => values.push((name.as_str(), value)),
                Err(why) => absent.push((name.as_str(), why.as_str())),
            }
        }
        match Expression::new(condition.expression(), &known).and_then(|it| it.evaluate_with(&values, &absent)) {
            Ok(holds) => Evaluated::Known(holds),
            Err(ConditionError::Absent(why)) => Evaluated::Absent(why),
            Err(error) => Evaluated::Failed(error.to_string()),
        }
    }

    // Of a schema, the fold knows nothing but whether a value fits it: the value itself stands for that.
    fn validate(&self, _: &str, schema: &Value, output: Value) -> Evaluated {
        if schema["const"] == output { Evaluated::Known(true) } else { Evaluated::Failed("it is another".to_owned()) }
    }
}
