//! The operations of other planners' tools.

use serde_json::Value;

/// The tools of other planners whose argument `operation` says what they do. Here, each operation is a tool of its own.
const TOOLS_WITH_OPERATIONS: [&str; 1] = ["FILESYSTEM"];

/// The name of the tool that does one operation of another planner's tool, such as `FILESYSTEM.read`. The operation is no argument of it.
pub(super) fn operation_of(tool: &str, arguments: &mut Value) -> Option<String> {
    let arguments = arguments.as_object_mut().filter(|_| TOOLS_WITH_OPERATIONS.contains(&tool))?;
    let operation = format!("{tool}.{}", arguments.get("operation")?.as_str()?);
    arguments.remove("operation");
    Some(operation)
}
