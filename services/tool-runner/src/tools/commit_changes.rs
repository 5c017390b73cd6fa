//! `commit_changes`: the last call of a step whose calls have one effect. It begins with what they have changed and changes nothing itself, so that its
//! effect is that of the step.

use std::{pin::Pin, time::Duration};

use belay_policy::ToolKind;
use serde_json::Value;

use crate::{Annotations, Invocation, Recovery, Tool, ToolResult, ToolSpec, Touches};

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitChanges;

impl Tool for CommitChanges {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: belay_policy::COMMIT_CHANGES,
            aliases: &[],
            description: "Commits what the calls of a step with `effects: per_step` have changed, as one effect. Belay calls it after \
                          them; a plan does not.",
            parameters: r#"{"type": "object", "additionalProperties": false, "properties": {}}"#,
            result: r#"{"description": "Null."}"#,
            recovery: Recovery::Transactional,
            touches: Touches::Changes,
            kind: ToolKind::Other,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Commit the changes of a step", ..Annotations::default() },
        }
    }

    fn call(&self, _: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> {
        Box::pin(async { Ok(Value::Null) })
    }
}
