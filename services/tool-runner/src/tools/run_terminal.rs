//! `run_terminal`: a command, behind the walls of the sandbox, in a view of the workspace.
//!
//! An argument vector, never a shell: what a shell would take for its own is bytes like any other. Without the sandbox nothing runs.

mod ending;
mod process;
mod program;
mod streams;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use belay_policy::ToolKind;
use belay_proto::v1::{TraceContext, WriteBound};
use belay_sandbox::{Launcher, Spec, WorkspaceMount};
use serde::Deserialize;
use serde_json::Value;

use super::files::{Work, no_view, path, read_arguments, stopped};
use crate::{
    Annotations, CommandSettings, Enforcement, Foreseen, Invocation, Mount, Operation, Recovery, Tool, ToolFailure,
    ToolSpec, Touches,
};

/// The tool.
#[derive(Clone)]
pub struct RunTerminal {
    /// What starts commands, or why nothing can.
    launcher: Result<Arc<dyn Launcher>, ToolFailure>,
    walls: Vec<String>,
    /// The folders in which programs are looked for.
    path: Vec<PathBuf>,
    settings: Arc<CommandSettings>,
    lanes: process::Lanes,
}

#[derive(Deserialize)]
struct Arguments {
    command: Vec<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    timeout_ms: Option<u64>,
    check: Option<bool>,
}

impl RunTerminal {
    /// Runs commands behind these walls. Where they do not stand, every call is refused with what is missing.
    pub fn new(enforcement: &Enforcement) -> Self {
        let launcher = enforcement.launcher();
        let walls = if launcher.is_ok() { enforcement.walls() } else { Vec::new() };
        Self {
            launcher,
            walls,
            path: enforcement.path().to_vec(),
            settings: Arc::default(),
            lanes: process::Lanes::new(),
        }
    }

    /// The same, with what the operator decides about commands.
    #[must_use]
    pub fn with(self, settings: Arc<CommandSettings>) -> Self {
        Self { settings, ..self }
    }
}

impl Tool for RunTerminal {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "run_terminal",
            aliases: &["run_command"],
            description: "Runs a program with arguments in the workspace, in a sandbox without network. There is no shell: `|`, `>`, `$` and \
                          the like mean nothing special. What it changed counts only when it succeeds.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["command"],
  "properties": {
    "command": {
      "type": "array",
      "minItems": 1,
      "maxItems": 10000,
      "items": {"type": "string"},
      "description": "The program and its arguments, one string each. No shell looks at them.",
      "examples": [["git", "status", "--short"]]
    },
    "cwd": {"type": "string", "format": "workspace-path", "default": ".", "description": "Where to start, relative to the workspace.", "examples": ["src"]},
    "env": {
      "type": "object",
      "additionalProperties": {"type": "string"},
      "description": "Variables beside PATH, HOME, LANG and the like, which are fixed.",
      "examples": [{"CI": "true"}]
    },
    "timeout_ms": {
      "type": "integer",
      "minimum": 1,
      "maximum": 86400000,
      "description": "The time limit in milliseconds, where it is to be shorter than the call's."
    },
    "check": {
      "type": "boolean",
      "default": true,
      "description": "Fail, and leave no change, when the program ends with another code than 0."
    }
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["exit_code", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "truncated"],
  "properties": {
    "exit_code": {"type": "integer", "description": "The code with which the program ended."},
    "stdout": {"type": "string", "description": "The standard output: the first and the last 512 KiB where it is longer."},
    "stderr": {"type": "string", "description": "The standard error, likewise."},
    "stdout_bytes": {"type": "integer", "description": "All that was written to the standard output, in bytes."},
    "stderr_bytes": {"type": "integer", "description": "All that was written to the standard error, in bytes."},
    "truncated": {"type": "boolean", "description": "Whether the middle of one of the two was left out."}
  }
}"#,
            recovery: Recovery::Transactional,
            touches: Touches::Changes,
            kind: ToolKind::Terminal,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { destructive: true, idempotent: false, open_world: false },
        }
    }

    fn operation(&self, arguments: &Value) -> Operation {
        let words = arguments["command"].as_array().into_iter().flatten();
        let command: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
        let environment: Vec<String> =
            arguments["env"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let is_there = |path: &Path| path.exists();
        // A PATH of the call's own may lead anywhere.
        let program = command.first().filter(|_| !environment.iter().any(|name| name == "PATH"));
        Operation {
            program: program.and_then(|program| program::outside(program, &self.path, is_there)),
            environment,
            command,
            working_directory: arguments["cwd"].as_str().unwrap_or_default().to_owned(),
            paths: Vec::new(),
        }
    }

    fn foresee(&self, arguments: &Value) -> Vec<Foreseen> {
        let set = arguments["env"].as_object().into_iter().flat_map(|env| env.keys());
        let refused = set.clone().filter(|name| belay_sandbox::is_reserved(name) && !self.settings.plan_may_set(name));
        let mut foreseen: Vec<_> = refused
            .map(|name| Foreseen {
                pointer: format!("/env/{}", name.replace('~', "~0").replace('/', "~1")),
                message: ending::not_the_plans(name),
                refused: true,
            })
            .collect();
        let sets_path = set.clone().any(|name| name == "PATH" && self.settings.plan_may_set(name));
        let program = arguments["command"][0].as_str().filter(|_| !sets_path);
        foreseen.extend(program.and_then(|program| self.settings.missing(program)).map(|message| Foreseen {
            pointer: "/command/0".to_owned(),
            message,
            refused: false,
        }));
        foreseen
    }

    fn enforced(&self) -> Vec<String> {
        let kept = self.settings.kept_caches().filter(|_| !self.walls.is_empty());
        self.walls.iter().cloned().chain(kept).collect()
    }

    fn write_bounds(&self) -> Vec<WriteBound> {
        if self.launcher.is_ok() { self.settings.write_bounds() } else { Vec::new() }
    }

    fn call(&self, invocation: Invocation) -> Work {
        let (launcher, settings, lanes) = (self.launcher.clone(), Arc::clone(&self.settings), self.lanes.clone());
        Box::pin(async move {
            let Invocation { name, arguments, view, output, trace, enforced, limit, .. } = invocation;
            let launcher = launcher?;
            let view = view.ok_or_else(no_view)?;
            let arguments: Arguments = read_arguments(arguments)?;
            let limit = arguments.timeout_ms.map_or(limit, |ms| limit.min(Duration::from_millis(ms)));
            let program = arguments.command.first().cloned().unwrap_or_default();
            let check = arguments.check.unwrap_or(true);
            let view = view.hold().await.map_err(|_gone| stopped())?;
            let asked = Asked { name, arguments, trace, limit };
            let (life, over) = process::Life::new();
            let guard = process::KillOnDrop(life.clone());
            let host = process::Host { launcher, settings, lanes, enforced };
            // A task of its own, which outlives this future: the view is nobody else's before the last process of the command has ended.
            let ended = tokio::spawn(process::run(view, host, asked, life, over, output)).await;
            drop(guard);
            let process::Ended { outcome, output, loopback } = match ended {
                Ok(ended) => ended?,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is going down, and the call with it.
                    Err(_) => return Err(stopped()),
                },
            };
            ending::judge(&program, outcome, &output, ending::Asked { check, limit, loopback })
        })
    }
}

/// What a call asks for.
struct Asked {
    name: String,
    arguments: Arguments,
    trace: TraceContext,
    limit: Duration,
}

fn spec(asked: Asked, mount: Mount, settings: &CommandSettings) -> Result<Spec, ToolFailure> {
    let Asked { name, arguments, trace, limit } = asked;
    let Arguments { command, cwd, env, .. } = arguments;
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let Mount { lower, staging, hidden } = mount;
    // `namespaces/NAMESPACE/executions/…`
    let namespace = name.split('/').nth(1).unwrap_or_default();
    let workspace = lower.last().map(PathBuf::as_path).unwrap_or(Path::new(""));
    let mounts = settings.mounts(namespace, workspace).map_err(|error| ending::no_cache(&error))?;
    let mut spec = Spec::new(program, words, WorkspaceMount { lower, staging: Some(staging), hidden });
    spec.mounts = mounts;
    if let Some(cwd) = cwd {
        spec.cwd = PathBuf::from(path("cwd", &cwd)?.as_ref());
    }
    let trace = [("TRACEPARENT", &trace.traceparent), ("TRACESTATE", &trace.tracestate)];
    let of_trace = trace.into_iter().filter(|(_, value)| !value.is_empty());
    spec.env.extend(of_trace.map(|(name, value)| (name.to_owned(), value.into())));
    spec.env.extend(env.into_iter().map(|(name, value)| (name, value.into())));
    spec.wall = Some(limit);
    Ok(spec)
}

#[cfg(test)]
mod tests;
