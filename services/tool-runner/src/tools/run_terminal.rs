//! `run_terminal`: runs a command in the sandbox, in a view of the workspace.
//!
//! It takes an argument vector and uses no shell, so shell syntax has no effect. Without the sandbox no command runs.

mod ask;
mod asked_hosts;
mod ending;
mod network;
mod outputs;
mod process;
mod program;
mod request;
mod streams;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use belay_network::Profile;
use belay_policy::ToolKind;
use belay_proto::v1::WriteBound;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::files::{Work, no_view, read_arguments, stopped};
use crate::{
    Annotations, CallIntent, CommandSettings, Enforcement, Invocation, NetworkProblem, PlannedProblem, Recovery, Tool,
    ToolFailure, ToolSpec, Touches, proxy::ProxyHolder,
};
use process::Exchange;
use request::{Arguments, CommandRequest};

pub(super) use ask::Asker;
pub(super) use ending::{RunConditions, judge, lost, outputs_of};
pub(super) use network::{ACCOUNT_TIMEOUT, account};
pub(super) use process::{CommandResult, ServerClient};
pub(super) use request::Additions;
pub(super) use streams::text;

/// The longest word of a command, in bytes: `MAX_ARG_STRLEN` of Linux, without the NUL at its end.
pub(super) const MAX_WORD_BYTES: usize = 128 * 1024 - 1;

/// The tool.
#[derive(Clone)]
pub struct RunTerminal {
    enforcement: Enforcement,
    settings: Arc<CommandSettings>,
    lanes: process::Lanes,
    /// A permit for each call that may wait for answers.
    asking: Arc<Semaphore>,
    proxy: Arc<ProxyHolder>,
}

impl RunTerminal {
    /// Runs commands in this sandbox. If the sandbox is unavailable, every call is refused with what is missing.
    pub fn new(enforcement: &Enforcement) -> Self {
        let (enforcement, settings) = (enforcement.clone(), Arc::<CommandSettings>::default());
        let asking = Arc::new(Semaphore::new(settings.asking_calls()));
        let proxy = Arc::new(ProxyHolder::new(&settings));
        Self { enforcement, settings, lanes: process::Lanes::new(), asking, proxy }
    }

    /// Sets the operator's settings of commands.
    #[must_use]
    pub fn with(self, settings: Arc<CommandSettings>) -> Self {
        let asking = Arc::new(Semaphore::new(settings.asking_calls()));
        let proxy = Arc::new(ProxyHolder::new(&settings));
        Self { settings, asking, proxy, ..self }
    }

    /// The proxy, which tools without a command share.
    pub(super) fn proxy(&self) -> Arc<ProxyHolder> {
        Arc::clone(&self.proxy)
    }
}

impl RunTerminal {
    /// What an approval says of a credential whose value a program gets.
    pub(crate) fn shown_reveal(&self, name: &str) -> String {
        self.settings.credentials().shown_reveal(name)
    }
}

/// A command that has run to its end.
pub(crate) struct Ran {
    pub(super) program: String,
    /// Whether an exit code other than 0 is a failure.
    pub(super) check: bool,
    pub(super) limit: Duration,
    pub(super) has_network: bool,
    pub(super) result: CommandResult,
}

impl RunTerminal {
    /// Runs a command to its end. `exchange` makes the use of its pipes, of the means to ask people.
    fn run(
        &self,
        invocation: Invocation,
        additions: Additions,
        exchange: impl FnOnce(Option<Asker>) -> Option<Exchange> + Send + 'static,
    ) -> impl Future<Output = Result<Ran, ToolFailure>> + Send + 'static {
        let (launcher, settings, lanes) = (self.enforcement.launcher(), Arc::clone(&self.settings), self.lanes.clone());
        let (calls, enforcement) = (Arc::clone(&self.asking), self.enforcement.clone());
        let proxy = Arc::clone(&self.proxy);
        async move {
            let Invocation {
                name,
                arguments,
                view,
                output,
                trace,
                context,
                questions,
                enforced,
                limit,
                mut stop,
                network,
                reveals,
                network_use,
                never_began,
                ..
            } = invocation;
            let launcher = launcher?;
            let view = view.ok_or_else(no_view)?;
            let arguments: Arguments = read_arguments(arguments)?;
            let limit = arguments.timeout_ms.map_or(limit, |ms| limit.min(Duration::from_millis(ms)));
            let program = arguments.command.first().cloned().unwrap_or_default();
            let check = arguments.check.unwrap_or(true);
            let view = view.hold().await.map_err(|_gone| stopped())?;
            let asker = questions.map(|questions| Asker { questions, calls, most_calls: settings.asking_calls() });
            let exchange = exchange(asker.clone());
            let asked = CommandRequest {
                name,
                arguments,
                trace,
                context,
                limit,
                dialogue: exchange.as_ref().map(Exchange::dialogue),
                network: network.clone(),
                reveals,
                additions,
            };
            let (life, over) = process::Life::new(never_began);
            let guard = process::KillOnDrop(life.clone());
            let host = process::Host { launcher, settings, lanes, enforcement, enforced, proxy, network_use };
            // In a task of its own, which outlives this future: the view is released only after the last process of the command has ended.
            let mut command =
                tokio::spawn(process::run(view, host, asked, life.clone(), over, (output, exchange, asker)));
            let ended = tokio::select! {
                ended = &mut command => ended,
                () = stop.requested() => {
                    life.ask_to_end();
                    command.await
                }
            };
            drop(guard);
            let result = match ended {
                Ok(ended) => ended?,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is shutting down.
                    Err(_) => return Err(stopped()),
                },
            };
            Ok(Ran { program, check, limit, has_network: network.is_some(), result })
        }
    }

    /// Runs a command that is a server, with a client that is made of the means to ask people.
    pub(super) fn serve(
        &self,
        invocation: Invocation,
        additions: Additions,
        client: impl FnOnce(Option<Asker>) -> ServerClient + Send + 'static,
    ) -> impl Future<Output = Result<Ran, ToolFailure>> + Send + 'static {
        self.run(invocation, additions, move |asker| Some(Exchange::Client(client(asker))))
    }
}

impl Tool for RunTerminal {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "run_terminal",
            aliases: &["run_command", "RUN_TERMINAL", "RUN_COMMAND", "RunTerminal", "RunCommand"],
            description: "Runs a program in the workspace, in a sandbox with the network of the step's `network` profile, or none. There is no shell: `|`, `>` and `$` have no \
                          special meaning. Its changes are kept only if it succeeds.",
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
      "description": "The program and its arguments, one string each.",
      "examples": [["git", "status", "--short"]]
    },
    "cwd": {"type": "string", "format": "workspace-path", "default": ".", "description": "The working directory.", "examples": ["src"]},
    "env": {
      "type": "object",
      "additionalProperties": {"type": "string"},
      "description": "Additional environment variables. PATH, HOME, LANG and the like are fixed.",
      "examples": [{"CI": "true"}]
    },
    "timeout_ms": {
      "type": "integer",
      "minimum": 1,
      "maximum": 86400000,
      "description": "A time limit in milliseconds, if shorter than that of the call."
    },
    "check": {
      "type": "boolean",
      "default": true,
      "description": "Fail and discard all changes if the exit code is not 0."
    }
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["exit_code", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "truncated"],
  "properties": {
    "exit_code": {"type": "integer", "description": "The exit code of the program."},
    "stdout": {"type": "string", "description": "The standard output; if it is longer, its first and last 512 KiB."},
    "stderr": {"type": "string", "description": "The standard error, likewise."},
    "stdout_bytes": {"type": "integer", "description": "The full length of the standard output, in bytes."},
    "stderr_bytes": {"type": "integer", "description": "The full length of the standard error, in bytes."},
    "truncated": {"type": "boolean", "description": "Whether the middle of either stream was left out."},
    "stdout_lossy": {"type": "boolean", "description": "Set when `stdout` has bytes that are not UTF-8: U+FFFD stands for them."},
    "stderr_lossy": {"type": "boolean", "description": "The same of `stderr`."},
    "outputs": {"type": "object", "description": "The outputs that the program has appended to the file `$BELAY_OUTPUT`, by name; set when there are any, and the exit code is 0."}
  }
}"#,
            recovery: Recovery::Transactional,
            touches: Touches::Changes,
            kind: ToolKind::Terminal,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations {
                title: "Run a command",
                destructive: true,
                idempotent: false,
                open_world: false,
            },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        let words = arguments["command"].as_array().into_iter().flatten();
        let command: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
        let environment: Vec<String> =
            arguments["env"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let is_there = |path: &Path| path.exists();
        // If the call sets PATH, the program may be anywhere.
        let program = command.first().filter(|_| !environment.iter().any(|name| name == "PATH"));
        CallIntent {
            program: program.and_then(|program| program::outside(program, self.enforcement.path(), is_there)),
            environment,
            command,
            working_directory: arguments["cwd"].as_str().unwrap_or_default().to_owned(),
            ..CallIntent::default()
        }
    }

    fn check_planned(&self, arguments: &Value) -> Vec<PlannedProblem> {
        let set = arguments["env"].as_object().into_iter().flat_map(|env| env.keys());
        let refused = set.clone().filter(|name| belay_sandbox::is_reserved(name) && !self.settings.plan_may_set(name));
        let mut problems: Vec<_> = refused
            .map(|name| PlannedProblem {
                pointer: format!("/env/{}", name.replace('~', "~0").replace('/', "~1")),
                message: ending::reserved_variable(name),
                refused: true,
            })
            .collect();
        let sets_path = set.clone().any(|name| name == "PATH" && self.settings.plan_may_set(name));
        let program = arguments["command"][0].as_str().filter(|_| !sets_path);
        problems.extend(program.and_then(|program| self.settings.missing(program)).map(|message| PlannedProblem {
            pointer: "/command/0".to_owned(),
            message,
            refused: false,
        }));
        problems
    }

    fn enforced(&self) -> Vec<String> {
        if self.enforcement.launcher().is_err() {
            return Vec::new();
        }
        self.enforcement.active_layers().into_iter().chain(self.settings.kept_caches()).collect()
    }

    fn write_bounds(&self) -> Vec<WriteBound> {
        if self.enforcement.launcher().is_ok() { self.settings.write_bounds() } else { Vec::new() }
    }

    fn kept_caches(&self, namespace: &str, workspace: &Path) -> io::Result<Vec<PathBuf>> {
        self.settings.kept_folders(namespace, workspace)
    }

    fn takes_network(&self) -> bool {
        true
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        asked.map_or(Ok(None), |name| self.settings.profile_of_call(name))
    }

    fn may_ask_about_hosts(&self) -> bool {
        self.settings.profiles().iter().any(Profile::asks)
    }

    fn stop_grace(&self) -> Duration {
        self.settings.stop_grace()
    }

    fn call(&self, invocation: Invocation) -> Work {
        let asks = invocation.asks;
        let ran =
            self.run(invocation, Additions::default(), move |asker| asker.filter(|_| asks).map(Exchange::Questions));
        Box::pin(async move {
            let Ran { program, check, limit, has_network, result } = ran.await?;
            let CommandResult { outcome, output, outputs, loopback, refusal, .. } = result;
            let ran = ending::RunConditions { check, limit, loopback, has_network, refusal };
            ending::judge(&program, outcome, (&output, &outputs), &ran)
        })
    }
}

#[cfg(test)]
mod tests;
