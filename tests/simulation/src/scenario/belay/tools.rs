//! Tools that do what a call's arguments say: take their time, fail a few times, hang. One for each recovery class.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use belay_proto::v1::ErrorClass;
use belay_tool_runner::{Annotations, Invocation, Recovery, Tool, ToolFailure, ToolResult, ToolSpec};
use serde_json::json;

use super::outside::Outside;
use crate::machine;

/// Changes nothing.
pub(super) const LOOK: &str = "look";
/// Changes something, always the same thing.
pub(super) const PUT: &str = "put";
/// Changes something that stays changed, once more each time.
pub(super) const SEND: &str = "send";

const PARAMETERS: &str = r#"{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "value": {"description": "Comes back in the result."},
    "ms": {"type": "integer", "minimum": 0, "description": "How long it takes, in milliseconds."},
    "hangs": {"type": "integer", "minimum": 0, "description": "The first so many attempts never end."},
    "fails": {"type": "integer", "minimum": 0, "description": "The first so many attempts fail."},
    "class": {"type": "integer", "description": "With this ErrorClass."}
  }
}"#;

/// Every tool of the simulation.
pub(super) fn all(outside: &Outside) -> Vec<Box<dyn Tool>> {
    let tool = |name, recovery| -> Box<dyn Tool> { Box::new(Scripted { name, recovery, outside: outside.clone() }) };
    vec![tool(LOOK, Recovery::ReadOnly), tool(PUT, Recovery::Idempotent), tool(SEND, Recovery::Manual)]
}

struct Scripted {
    name: &'static str,
    recovery: Recovery,
    outside: Outside,
}

impl Tool for Scripted {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name,
            aliases: &[],
            description: "Does what its arguments say.",
            parameters: PARAMETERS,
            result: r#"{"type": "object", "required": ["run", "value"]}"#,
            recovery: self.recovery,
            default_timeout: Duration::from_secs(10),
            annotations: Annotations::default(),
        }
    }

    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> {
        let (outside, recovery) = (self.outside.clone(), self.recovery);
        Box::pin(async move {
            let Invocation { name, attempt, arguments, .. } = invocation;
            if !machine::is_powered() {
                // What a dead machine still computes reaches nobody.
                return pending().await;
            }
            let run = outside.begin(&name, recovery, &arguments);
            let number = |field: &str| arguments[field].as_u64().unwrap_or(0);
            if u64::from(attempt) <= number("hangs") {
                return pending().await;
            }
            tokio::time::sleep(Duration::from_millis(number("ms"))).await;
            if u64::from(attempt) <= number("fails") {
                outside.end(run, false);
                let class = i32::try_from(number("class")).unwrap_or_default();
                let class = ErrorClass::try_from(class).unwrap_or(ErrorClass::Transient);
                return Err(ToolFailure::new(class, "SCRIPTED", "as the arguments said"));
            }
            outside.end(run, true);
            Ok(json!({"run": run, "value": arguments["value"]}))
        })
    }
}
