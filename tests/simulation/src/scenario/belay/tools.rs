//! Tools that act as their arguments say: take time, fail a few times, hang, change files. One or more of every recovery class.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use belay_policy::ToolKind;
use belay_proto::v1::{self, ErrorClass};
use belay_tool_runner::{
    Annotations, CallIntent, Invocation, Questions, Recovery, Tool, ToolFailure, ToolResult, ToolSpec, Touches, View,
    ViewHandle,
};
use belay_workspace::{RelPath, ViewError};
use serde_json::{Value, json};

use super::outside::{Effect, Outside};
use super::workspaces::ModelView;
use crate::machine;

/// Changes nothing.
pub(super) const LOOK: &str = "look";
/// Changes an external resource; idempotent.
pub(super) const PUT: &str = "put";
/// Changes an external resource once more at each call.
pub(super) const SEND: &str = "send";
/// The same; the policy requires approval first.
pub(super) const PUBLISH: &str = "publish";
/// The same; the policy denies it.
pub(super) const WIPE: &str = "wipe";
/// Adds a line to a file.
pub(super) const APPEND: &str = "append";
/// Writes a whole file.
pub(super) const WRITE: &str = "write";
/// Removes a file if it is there.
pub(super) const REMOVE: &str = "remove";
/// Fails unless a file is there. A check of a step calls the tool of this name.
pub(super) const FIND: &str = "file_info";
/// Runs a command: [`PASS`] or [`FAIL`], then the milliseconds that it takes, then the file to which it adds a line, if it does. A check of a step calls the tool of
/// this name.
pub(super) const COMMAND: &str = "run_terminal";

/// Changes nothing, and asks people before it ends.
pub(super) const ASK: &str = "ask";

/// The command that ends with exit code 0.
pub(super) const PASS: &str = "pass";
/// The command that does not.
pub(super) const FAIL: &str = "fail";

const PARAMETERS: &str = r#"{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "value": {"description": "Returned in the result."},
    "ms": {"type": "integer", "minimum": 0, "description": "How long it takes, in milliseconds."},
    "hangs": {"type": "integer", "minimum": 0, "description": "The first so many attempts never end."},
    "fails": {"type": "integer", "minimum": 0, "description": "The first so many attempts fail."},
    "wavers": {"type": "boolean", "description": "One in three of its calls fails, by their names."},
    "class": {"type": "integer", "description": "With this ErrorClass."},
    "path": {"type": "string", "description": "The file to change, at the beginning."},
    "command": {"type": "array", "items": {"type": "string"}, "description": "A command."},
    "asks": {"type": "integer", "minimum": 0, "description": "How many questions it asks, two at a time."},
    "patience": {"type": "integer", "minimum": 1, "description": "For how many milliseconds a question is open."},
    "also": {"type": "string", "description": "Another file to change at the end, which the policy does not see before the call."}
  }
}"#;

/// Every tool of the simulation.
pub(super) fn all(outside: &Outside) -> Vec<Box<dyn Tool>> {
    let tool = |name, recovery, touches, kind| -> Box<dyn Tool> {
        Box::new(SimulatedTool { name, recovery, touches, kind, outside: outside.clone() })
    };
    vec![
        tool(LOOK, Recovery::ReadOnly, Touches::Nothing, ToolKind::Other),
        tool(PUT, Recovery::Idempotent, Touches::Nothing, ToolKind::Other),
        tool(SEND, Recovery::Manual, Touches::Nothing, ToolKind::Other),
        tool(PUBLISH, Recovery::Manual, Touches::Nothing, ToolKind::Other),
        tool(WIPE, Recovery::Manual, Touches::Nothing, ToolKind::Other),
        tool(APPEND, Recovery::Transactional, Touches::Changes, ToolKind::FileWrite),
        tool(WRITE, Recovery::Transactional, Touches::Changes, ToolKind::FileWrite),
        tool(REMOVE, Recovery::Transactional, Touches::Changes, ToolKind::FileDelete),
        tool(ASK, Recovery::Idempotent, Touches::Nothing, ToolKind::Other),
        tool(FIND, Recovery::ReadOnly, Touches::Reads, ToolKind::FileRead),
        Box::new(belay_tool_runner::tools::CommitChanges),
        Box::new(belay_tool_runner::tools::RebaseChanges),
        // No terminal: the simulated runner has no sandbox for one.
        tool(COMMAND, Recovery::Transactional, Touches::Changes, ToolKind::FileWrite),
    ]
}

/// Whether a tool works in a workspace.
pub(super) fn changes_files(tool: &str) -> bool {
    matches!(tool, APPEND | WRITE | REMOVE)
}

/// Whether a tool has external effects that cannot be checked afterwards, so that its calls are never made again (MANUAL).
pub(super) fn reaches_out(tool: &str) -> bool {
    matches!(tool, SEND | PUBLISH | WIPE)
}

/// The line that identifies a run of a call in a file.
pub(super) fn line(run: usize, call: &str) -> String {
    format!("{run} {call}\n")
}

struct SimulatedTool {
    name: &'static str,
    recovery: Recovery,
    touches: Touches,
    kind: ToolKind,
    outside: Outside,
}

impl Tool for SimulatedTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name,
            aliases: &[],
            description: "Does what its arguments say.",
            parameters: PARAMETERS,
            result: r#"{"type": "object", "required": ["run", "value"]}"#,
            recovery: self.recovery,
            touches: self.touches,
            kind: self.kind,
            default_timeout: Duration::from_secs(10),
            annotations: Annotations::default(),
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        let paths = arguments["path"].as_str().map(str::to_owned).into_iter().collect();
        CallIntent { paths, ..CallIntent::default() }
    }

    fn asks(&self) -> bool {
        self.name == ASK
    }

    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> {
        let (name, outside) = (self.name, self.outside.clone());
        Box::pin(async move {
            let Invocation { name: call, attempt, arguments, view, questions, .. } = invocation;
            if !machine::is_powered() {
                // Code of a dead machine has no effect.
                return pending().await;
            }
            let run = outside.begin(&call, name, &arguments);
            if let Some(questions) = questions {
                ask(&questions, &outside, run, &call, &arguments).await;
            }
            let ended = match (name, &view) {
                (FIND, Some(view)) => Some(find(view, &outside, run, &arguments).await?),
                (COMMAND, Some(view)) => Some(command(view, &outside, run, &call, &arguments).await?),
                _ => None,
            };
            if let Some(succeeded) = ended {
                outside.end(run, succeeded);
                return match succeeded {
                    true => Ok(json!({"run": run, "value": null})),
                    false => Err(ToolFailure::new(ErrorClass::Transient, "SCRIPTED", "it does not hold")),
                };
            }
            let number = |field: &str| arguments[field].as_u64().unwrap_or(0);
            // The first file at the beginning and the other at the end: others commit in between.
            for (field, before) in [("path", 0), ("also", number("ms"))] {
                if before > 0 {
                    if u64::from(attempt) <= number("hangs") {
                        return pending().await;
                    }
                    tokio::time::sleep(Duration::from_millis(before)).await;
                }
                if let (Some(view), Some(path)) = (&view, arguments[field].as_str().map(str::to_owned)) {
                    let line = line(run, &call);
                    let changed = view.work(move |view| change(name, view, &path, &line)).await;
                    outside.changed(run, changed.map_err(stopped)?.map_err(failed)?);
                }
            }
            if u64::from(attempt) <= number("fails") {
                outside.end(run, false);
                let class = i32::try_from(number("class")).unwrap_or_default();
                let class = ErrorClass::try_from(class).unwrap_or(ErrorClass::Transient);
                return Err(ToolFailure::new(class, "SCRIPTED", "as the arguments said"));
            }
            if arguments["wavers"] == true && call.bytes().map(u32::from).sum::<u32>().is_multiple_of(3) {
                outside.end(run, false);
                return Err(ToolFailure::new(ErrorClass::Transient, "SCRIPTED", "now and then"));
            }
            outside.end(run, true);
            Ok(json!({"run": run, "value": arguments["value"]}))
        })
    }
}

/// Asks, and keeps what it is told.
async fn ask(questions: &Questions, outside: &Outside, run: usize, call: &str, arguments: &Value) {
    let count = arguments["asks"].as_u64().unwrap_or(0);
    let patience = arguments["patience"].as_u64().map(Duration::from_millis);
    let schema = json!({"type": "object", "required": ["run"], "properties": {"run": {"type": "integer"}}}).to_string();
    let mut open = Vec::new();
    for number in 0..count {
        let title = question(run, call, number);
        let form = v1::Form { title: title.clone(), description: String::new(), schema: schema.clone() };
        let reply = questions.ask(form, patience).expect("it is within the bounds");
        open.push((title, reply));
        if open.len() == 2 || number + 1 == count {
            for (title, reply) in open.drain(..) {
                // Its future is dropped when the call is stopped.
                let Ok(reply) = reply.await else { return pending().await };
                outside.told(run, title, reply);
            }
        }
    }
}

/// The title of a question, which no other has.
fn question(run: usize, call: &str, number: u64) -> String {
    let call = call.rsplit_once("/executions/").map_or(call, |(_, call)| call);
    format!("{run} of {call} asks {number}")
}

/// Whether a file is there.
async fn find(view: &ViewHandle, outside: &Outside, run: usize, arguments: &Value) -> Result<bool, ToolFailure> {
    let path = arguments["path"].as_str().unwrap_or_default().to_owned();
    let look = move |view: &mut dyn View| {
        let is_there = view.read(&RelPath::parse(&path).expect("the plans name files"), 0, None).is_ok();
        (is_there, effect(view, BTreeMap::new()))
    };
    let (is_there, looked) = view.work(look).await.map_err(stopped)?;
    outside.changed(run, looked);
    Ok(is_there)
}

/// Runs a command; returns whether its exit code is 0.
async fn command(
    view: &ViewHandle,
    outside: &Outside,
    run: usize,
    call: &str,
    arguments: &Value,
) -> Result<bool, ToolFailure> {
    let word = |place: usize| arguments["command"][place].as_str().unwrap_or_default().to_owned();
    tokio::time::sleep(Duration::from_millis(word(1).parse().unwrap_or_default())).await;
    let (path, line) = (word(2), line(run, call));
    if !path.is_empty() {
        let changed = view.work(move |view| change(APPEND, view, &path, &line)).await;
        outside.changed(run, changed.map_err(stopped)?.map_err(failed)?);
    }
    Ok(word(0) == PASS)
}

fn stopped<E>(_: E) -> ToolFailure {
    ToolFailure::new(ErrorClass::Cancelled, "CANCELLED", "the call was stopped")
}

fn failed(error: ViewError) -> ToolFailure {
    ToolFailure::new(ErrorClass::Transient, "VIEW", error.to_string())
}

/// Changes a file; returns the effect.
fn change(tool: &str, view: &mut dyn View, path: &str, line: &str) -> Result<Effect, ViewError> {
    let mut after = BTreeMap::new();
    let file = RelPath::parse(path).expect("the plans name files");
    let before = match view.read(&file, 0, None) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Err(ViewError::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    let content = match (tool, before) {
        (REMOVE, before) => before.map(|_| None),
        (APPEND, Some(before)) => Some(Some(before + line)),
        _ => Some(Some(line.to_owned())),
    };
    if let Some(content) = content {
        match &content {
            Some(content) => view.write(&file, content.as_bytes(), None)?,
            None => view.remove(&file)?,
        }
        after.insert(path.to_owned(), content);
    }
    Ok(effect(view, after))
}

fn effect(view: &dyn View, after: BTreeMap<String, Option<String>>) -> Effect {
    let view: &dyn Any = view;
    let view = view.downcast_ref::<ModelView>().expect("the simulation's own view");
    Effect { workspace: view.workspace().to_owned(), commit: view.id().to_owned(), after }
}
