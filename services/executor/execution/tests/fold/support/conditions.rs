//! Evaluates conditions at once, as an executor does apart from its driver.

use belay_agent::ModelWindow;
use belay_condition::{Condition as Expression, ConditionError};
use belay_execution::{
    BlobRef, BlobValue, Blobs, CachedResult, CallIdentity, ConditionResult, Json, LimitRoom, ModelFacts, Payload, Room,
    Timestamp,
};
use belay_model::Price;
use belay_plan::{CheckPlace, Condition, ConditionValues};
use serde_json::Value;

/// The result of the earlier execution, and when a call returned it.
pub(crate) const EARLIER_RESULT: &str = r#"{"n":1}"#;
pub(crate) const EARLIER: Timestamp = Timestamp::from_micros(1_000_000);

/// An execution without blobs whose conditions are evaluated.
pub(crate) struct Conditions {
    /// Whether it may have its limits over executions.
    pub(crate) limit_room: LimitRoom,
    /// Whether steps of other executions are in the way of entries of its lists.
    pub(crate) is_crowded: bool,
}

impl Conditions {
    /// Conditions under which every limit is free.
    pub(crate) const FREE: Self = Self { limit_room: LimitRoom::Free, is_crowded: false };
}

impl Blobs for Conditions {
    fn value(&self, _: &BlobRef) -> BlobValue<'_> {
        BlobValue::Unreadable("there are no blobs")
    }

    fn payload(&self, json: Json) -> Payload {
        json.into()
    }

    fn room(&self, _: &str, steps: usize) -> Room {
        if self.is_crowded && steps > 0 { Room::Wanted } else { Room::Free }
    }

    fn model(&self, name: &str) -> Option<ModelFacts> {
        let tokens = match name {
            "small" => 3_000,
            "medium" => 12_000,
            _ => 1_000_000,
        };
        let window = ModelWindow { tokens, max_output: 1_000 };
        Some(ModelFacts {
            window,
            max_output: 1_000,
            price: match name {
                "unpriced" => None,
                "free" => Some(Price { input: 0, cached_input: 0, output: 0 }),
                _ => Some(Price { input: 1_000_000, cached_input: 0, output: 2_000_000 }),
            },
        })
    }

    fn evaluate(
        &self,
        _: &str,
        _: Option<CheckPlace>,
        condition: &Condition,
        variables: ConditionValues,
    ) -> ConditionResult {
        let known: Vec<&str> = condition.variables().collect();
        let (mut values, mut absent) = (Vec::new(), Vec::new());
        for (name, value) in &variables {
            match value {
                Ok(value) => values.push((name.as_str(), value)),
                Err(why) => absent.push((name.as_str(), why.as_str())),
            }
        }
        match Expression::new(condition.expression(), &known).and_then(|it| it.evaluate_with(&values, &absent)) {
            Ok(holds) => ConditionResult::Known(holds),
            Err(ConditionError::Absent(why)) => ConditionResult::Absent(why),
            Err(error) => ConditionResult::Failed(error.to_string()),
        }
    }

    // Another execution has had results of some calls, and of others not.
    fn earlier_result(&self, call: &CallIdentity) -> CachedResult {
        match call.arguments_digest.ends_with(|digit: char| digit < '8') {
            true => CachedResult::Known {
                result: Json::from_text(EARLIER_RESULT),
                execution: "namespaces/default/executions/earlier".to_owned(),
                completed_at: EARLIER,
            },
            false => CachedResult::Absent,
        }
    }

    fn limit_room(&self) -> LimitRoom {
        self.limit_room
    }

    // Of a schema, the fold knows nothing but whether a value fits it: the value itself stands for that.
    fn validate(&self, _: &str, schema: &Value, output: Value) -> ConditionResult {
        if schema["const"] == output {
            ConditionResult::Known(true)
        } else {
            ConditionResult::Failed("it is another".to_owned())
        }
    }
}
