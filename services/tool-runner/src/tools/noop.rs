//! `noop`: changes nothing. Returns `output` after a delay, or fails: for trying out plans, and for benchmarks.

use std::{pin::Pin, time::Duration};

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use serde_json::Value;

use belay_policy::ToolKind;

use crate::{Annotations, Invocation, Recovery, Tool, ToolFailure, ToolResult, ToolSpec, Touches};

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

impl Tool for Noop {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "noop",
            aliases: &[],
            description: "Does nothing and returns `output`. It can wait first (`sleep_ms`) and fail (`fail`), always or only in the first \
                          attempts (`fail_attempts`): for trying out plans and for benchmarks.",
            parameters: r#"{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "output": {"description": "The result."},
    "sleep_ms": {"type": "integer", "minimum": 0, "maximum": 86400000, "description": "How long to wait first, in milliseconds."},
    "fail": {"type": "string", "description": "Fail with this message."},
    "fail_attempts": {"type": "integer", "minimum": 1, "description": "Fail only in the first this many attempts; by default in all."}
  },
  "dependentRequired": {"fail_attempts": ["fail"]}
}"#,
            result: r#"{"description": "The value of `output`, or null."}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Nothing,
            kind: ToolKind::Other,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Do nothing", ..Annotations::default() },
        }
    }

    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> {
        Box::pin(async move {
            let Invocation { mut arguments, attempt, .. } = invocation;
            if let Some(ms) = arguments["sleep_ms"].as_u64().filter(|&ms| ms > 0) {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            let fails = arguments["fail_attempts"].as_u64().is_none_or(|attempts| u64::from(attempt) <= attempts);
            match arguments["fail"].as_str().filter(|_| fails) {
                Some(message) => Err(ToolFailure::new(ErrorClass::Transient, reasons::TOOL_FAILED, message)),
                None => Ok(arguments.get_mut("output").map_or(Value::Null, Value::take)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn run(arguments: Value, attempt: u32) -> ToolResult {
        Noop.call(Invocation { attempt, ..Invocation::for_test(arguments, None) }).await
    }

    #[tokio::test(start_paused = true)]
    async fn it_returns_its_output() {
        assert_eq!(run(json!({"output": {"n": 1}, "sleep_ms": 5000}), 1).await, Ok(json!({"n": 1})));
        assert_eq!(run(json!({}), 1).await, Ok(Value::Null));
    }

    #[tokio::test]
    async fn it_fails_in_the_first_attempts() {
        let arguments = json!({"fail": "not yet", "fail_attempts": 2, "output": 7});
        for attempt in [1, 2] {
            assert_eq!(run(arguments.clone(), attempt).await.unwrap_err().message, "not yet");
        }
        assert_eq!(run(arguments, 3).await, Ok(json!(7)));
        assert!(run(json!({"fail": "never"}), 99).await.is_err());
    }
}
