//! `run_terminal`: a command, behind the walls of the sandbox, in a view of the workspace.
//!
//! An argument vector, never a shell: what a shell would take for its own is bytes like any other. Without the sandbox nothing runs.

mod ending;
mod program;
mod streams;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_policy::ToolKind;
use belay_proto::v1::{TraceContext, WriteBound};
use belay_sandbox::{KillHandle, Launcher, Outcome, Output as Kept, Spec, WorkspaceMount};
use serde::Deserialize;
use serde_json::Value;

use super::files::{Work, no_view, path, read_arguments, stopped};
use crate::{
    Annotations, CommandSettings, Enforcement, Foreseen, Invocation, Mount, Operation, Output, Recovery, Tool,
    ToolFailure, ToolSpec, Touches, View,
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
        Self { launcher, walls, path: enforcement.path().to_vec(), settings: Arc::default() }
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
    "cwd": {"type": "string", "default": ".", "description": "Where to start, relative to the workspace.", "examples": ["src"]},
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
            })
            .collect();
        let sets_path = set.clone().any(|name| name == "PATH" && self.settings.plan_may_set(name));
        let program = arguments["command"][0].as_str().filter(|_| !sets_path);
        foreseen.extend(
            program
                .and_then(|program| self.settings.missing(program))
                .map(|message| Foreseen { pointer: "/command/0".to_owned(), message }),
        );
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
        let (launcher, settings) = (self.launcher.clone(), Arc::clone(&self.settings));
        Box::pin(async move {
            let Invocation { name, arguments, view, output, trace, limit, .. } = invocation;
            let launcher = launcher?;
            let view = view.ok_or_else(no_view)?;
            let arguments: Arguments = read_arguments(arguments)?;
            let limit = arguments.timeout_ms.map_or(limit, |ms| limit.min(Duration::from_millis(ms)));
            let program = arguments.command.first().cloned().unwrap_or_default();
            let check = arguments.check.unwrap_or(true);
            let guard = KillOnDrop(Life::default());
            let life = guard.0.clone();
            let ended = view
                .work(move |view| {
                    let asked = Asked { name: &name, arguments, trace: &trace, limit };
                    run(view, &*launcher, &settings, asked, &life, &*output)
                })
                .await;
            drop(guard);
            let (outcome, kept) = ended.unwrap_or_else(|_gone| Err(stopped()))?;
            ending::judge(&program, outcome, &kept, check, limit)
        })
    }
}

/// Runs a command from its start until nothing of it is left.
fn run(
    view: &mut dyn View,
    launcher: &dyn Launcher,
    settings: &CommandSettings,
    asked: Asked<'_>,
    life: &Life,
    output: &dyn Output,
) -> Result<(Outcome, Kept), ToolFailure> {
    let mount = view.mount().ok_or_else(|| ending::unavailable("this workspace cannot be mounted for a command"))?;
    let limit = asked.limit;
    let spec = spec(asked, mount, settings)?;
    let program = spec.program.clone();
    life.check()?;
    let mut running = launcher.launch(spec).map_err(|error| ending::not_started(error, limit, settings))?;
    let kill = running.kill_handle();
    life.begin(kill.clone());
    let said = streams::relay(running.stdout.take(), running.stderr.take(), output);
    if said.is_err() {
        end(&kill);
    }
    // Its processes and its mounts have to be gone before anybody else gets the view.
    let outcome = running.tear_down();
    let lost = |error: io::Error| ending::lost(&program, &error.to_string());
    Ok((outcome.map_err(lost)?, said.map_err(lost)?))
}

/// What a call asks for.
struct Asked<'a> {
    name: &'a str,
    arguments: Arguments,
    trace: &'a TraceContext,
    limit: Duration,
}

fn spec(asked: Asked<'_>, mount: Mount, settings: &CommandSettings) -> Result<Spec, ToolFailure> {
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

/// A command's life, as far as whoever may end it has to know.
#[derive(Clone, Default)]
struct Life(Arc<Mutex<Stage>>);

#[derive(Default)]
enum Stage {
    /// It has not begun.
    #[default]
    Before,
    /// It has.
    Running(KillHandle),
    /// It is to end, or must not begin.
    Over,
}

impl Life {
    /// Fails when it must not begin any more.
    fn check(&self) -> Result<(), ToolFailure> {
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*stage, Stage::Over) { Err(stopped()) } else { Ok(()) }
    }

    /// Says that it has begun: if it was not to, it ends here.
    fn begin(&self, kill: KillHandle) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::Over => end(&kill),
            Stage::Before | Stage::Running(_) => *stage = Stage::Running(kill),
        }
    }
}

/// Kills a command when its call's future is dropped, whether it has begun or not.
struct KillOnDrop(Life);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let mut stage = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Running(kill) = std::mem::replace(&mut *stage, Stage::Over) {
            end(&kill);
        }
    }
}

fn end(kill: &KillHandle) {
    // A kernel that refuses leaves the command to its time limit.
    if let Err(error) = kill.kill() {
        tracing::error!(%error, "A command could not be killed; it ends with its time limit");
    }
}

#[cfg(test)]
mod tests;
