//! External agents: command lines of models that work on a task on their own, in the sandbox, in a view of the workspace.
//!
//! The whole run of an agent is one call ([ADR 61](../../../../docs/adr/0061-an-external-agent-is-a-tool.md)): what it changes is one effect, judged, approved, and
//! committed or dropped as that of any command.

mod configured;
mod outcome;
mod preset;
mod prompt;
mod session;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use belay_network::Profile;
use belay_policy::ToolKind;
use belay_proto::v1::WriteBound;
use belay_service_kit::Clock;
use belay_settings::ExternalAgent;
use serde_json::Value;

use configured::ConfiguredAgent;
use preset::{command, description};

use super::{
    RunTerminal,
    declaration::{kept, recovery},
    files::Work,
};
use crate::{
    Annotations, CallIntent, CommandSettings, Invocation, NetworkProblem, PlannedProblem, Recovery, Tool, ToolSpec,
};

/// The time limit of a call that has none: the longest that a plan may set.
const NO_LIMIT: Duration = Duration::from_secs(365 * 86_400);

const PARAMETERS: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["task"],
  "properties": {
    "task": {
      "type": "string",
      "minLength": 1,
      "description": "What the agent is to do, in words. It gets them over its standard input, and in the file $BELAY_PROMPT_FILE."
    },
    "model": {
      "type": "string",
      "minLength": 1,
      "maxLength": 200,
      "pattern": "^[^-\\s]\\S*$",
      "description": "The model that it works with, by the agent's own name for it; left out for that of its configuration."
    }
  }
}"#;

const RESULT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["text", "exit_code", "stdout"],
  "properties": {
    "text": {"type": "string", "description": "The last words of the agent; of one that writes plain text, all of them. At most their last 256 KiB."},
    "text_truncated": {"type": "boolean", "description": "Set when the beginning of `text` is left out."},
    "exit_code": {"type": ["integer", "null"], "description": "Its exit code; null for one that was ended because it went on after its final event."},
    "stdout": {"type": "string", "description": "What people were shown while it worked: its words, and the calls of its own tools. At most their last 64 KiB."},
    "model": {"type": "string", "description": "The model that it has named."},
    "session": {"type": "string", "description": "Its own name of the session."},
    "usage": {
      "type": "object",
      "additionalProperties": false,
      "required": ["input_tokens", "cached_tokens", "output_tokens", "measured"],
      "properties": {
        "measured": {"type": "boolean", "description": "Whether Belay's proxy has counted the tokens; else they are what the agent says."},
        "input_tokens": {"type": "integer", "description": "Tokens of prompts, those from a cache included."},
        "cached_tokens": {"type": "integer", "description": "Those of them that came from a cache."},
        "output_tokens": {"type": "integer", "description": "Tokens of its model's answers."},
        "cost_usd": {"type": "number", "description": "The price in US dollars, where the agent names it."}
      },
      "description": "The tokens of its models."
    },
    "outputs": {"type": "object", "description": "The outputs that its programs have appended to the file `$BELAY_OUTPUT`, by name."}
  }
}"#;

/// An agent of the operator's settings.
pub struct AgentTool(Arc<ConfiguredAgent>);

impl AgentTool {
    /// An agent whose program `terminal` runs.
    pub fn new(
        agent: &ExternalAgent,
        terminal: RunTerminal,
        commands: &CommandSettings,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (recovery, touches) = recovery(agent.recovery);
        let spec = ToolSpec {
            name: kept(&agent.name),
            aliases: &[],
            description: kept(&description(agent)),
            parameters: PARAMETERS,
            result: RESULT,
            recovery,
            touches,
            kind: ToolKind::Terminal,
            default_timeout: agent.timeout.unwrap_or(NO_LIMIT),
            annotations: Annotations {
                title: kept(&format!("Have {} work", agent.name)),
                destructive: recovery != Recovery::ReadOnly,
                idempotent: false,
                open_world: agent.network.is_some(),
            },
        };
        Self(Arc::new(ConfiguredAgent {
            spec,
            agent: agent.clone(),
            terminal,
            clock,
            prompts_in: commands.prompts_in(),
        }))
    }
}

impl Tool for AgentTool {
    fn spec(&self) -> ToolSpec {
        self.0.spec.clone()
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        let ConfiguredAgent { agent, terminal, .. } = &*self.0;
        CallIntent { credentials: agent.reveals.clone(), ..terminal.intent(&command(agent, arguments)) }
    }

    fn check_planned(&self, _arguments: &Value) -> Vec<PlannedProblem> {
        let ConfiguredAgent { agent, terminal, .. } = &*self.0;
        let problems = terminal.check_planned(&command(agent, &Value::Null));
        let missing =
            self.0.missing_config().map(|message| PlannedProblem { pointer: String::new(), message, refused: false });
        let of_settings = problems.into_iter().chain(missing).map(|problem| PlannedProblem {
            // They are of the operator's settings, not of an argument.
            pointer: String::new(),
            message: format!("the agent `{}` cannot run: {}", agent.name, problem.message),
            ..problem
        });
        of_settings.collect()
    }

    fn enforced(&self) -> Vec<String> {
        self.0.terminal.enforced()
    }

    fn write_bounds(&self) -> Vec<WriteBound> {
        self.0.terminal.write_bounds()
    }

    fn kept_caches(&self, namespace: &str, workspace: &std::path::Path) -> io::Result<Vec<PathBuf>> {
        self.0.terminal.kept_caches(namespace, workspace)
    }

    fn takes_network(&self) -> bool {
        self.0.agent.network.is_none() && self.0.agent.reveals.is_empty()
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        // A step may ask for another profile than the operator's default: the policy decides about either.
        self.0.terminal.network(asked.or(self.0.agent.network.as_deref()))
    }

    fn reveals(&self) -> Vec<String> {
        self.0.agent.reveals.iter().map(|name| self.0.terminal.shown_reveal(name)).collect()
    }

    fn may_ask_about_hosts(&self) -> bool {
        self.0.terminal.may_ask_about_hosts()
    }

    fn stop_grace(&self) -> Duration {
        self.0.terminal.stop_grace()
    }

    fn call(&self, invocation: Invocation) -> Work {
        Box::pin(session::call(Arc::clone(&self.0), invocation))
    }
}
