//! The agents that Belay knows: how each is called without a person, and where its configuration is. Pure.
//!
//! The sandbox is Belay's, and approvals are asked by Belay: an agent's own sandbox and questions are off. What a workspace says to agents about programs to run
//! (hooks, plugins, servers of tools) is not read where the agent has a switch for that.

use belay_agent_output::Format;
use belay_sandbox::HOME;
use belay_settings::ExternalAgent;
use serde_json::{Map, Value, json};

/// How an agent that Belay knows is called.
struct Preset {
    /// The program and its arguments.
    command: &'static [&'static str],
    /// Arguments that come last, behind those of the operator.
    last: &'static [&'static str],
    /// The flag that names the model.
    model_flag: &'static str,
    /// Variables; those of the operator come after them.
    env: &'static [(&'static str, &'static str)],
    /// The directory of its configuration, in its home.
    config: &'static str,
}

/// The words are those of the programs' own manuals, as of the versions that the readers name.
fn preset(format: Format) -> Preset {
    match format {
        Format::Claude => Preset {
            command: &[
                "claude",
                "-p",
                "--output-format",
                "stream-json",
                "--verbose",
                "--permission-mode",
                "bypassPermissions",
                "--setting-sources",
                "user",
                "--strict-mcp-config",
            ],
            last: &[],
            model_flag: "--model",
            env: &[
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                // Its own retries take minutes, and hide in one attempt of a step.
                ("CLAUDE_CODE_MAX_RETRIES", "2"),
                ("DISABLE_AUTOUPDATER", "1"),
            ],
            config: ".claude",
        },
        Format::Codex => Preset {
            command: &[
                "codex",
                "exec",
                "--json",
                "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox",
            ],
            last: &["-"],
            model_flag: "--model",
            env: &[],
            config: ".codex",
        },
        Format::Gemini => Preset {
            command: &[
                "gemini",
                "-o",
                "stream-json",
                "--approval-mode",
                "yolo",
                "--skip-trust",
                "--extensions",
                "none",
            ],
            last: &[],
            model_flag: "--model",
            env: &[],
            config: ".gemini",
        },
        Format::Opencode => Preset {
            command: &["opencode", "run", "--format", "json", "--auto", "--pure"],
            last: &[],
            model_flag: "--model",
            env: &[("OPENCODE_DISABLE_AUTOUPDATE", "1")],
            config: ".config/opencode",
        },
        Format::Text => Preset { command: &[], last: &[], model_flag: "--model", env: &[], config: ".config/agent" },
    }
}

/// The place of an agent's configuration in its view.
pub(super) fn config_target(format: Format) -> String {
    format!("{HOME}/{}", preset(format).config)
}

/// The words of an agent's command. Those that the operator wrote are all of it, but for the model.
fn words(agent: &ExternalAgent, model: Option<&str>) -> Vec<String> {
    let preset = preset(agent.format);
    let is_own = !agent.command.is_empty();
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut words = if is_own { agent.command.clone() } else { owned(preset.command) };
    words.extend(agent.flags.iter().cloned());
    words.extend(model.into_iter().flat_map(|model| [preset.model_flag.to_owned(), model.to_owned()]));
    words.extend(if is_own { Vec::new() } else { owned(preset.last) });
    words
}

/// The arguments of `run_terminal` that start an agent.
pub(super) fn command(agent: &ExternalAgent, arguments: &Value) -> Value {
    let preset = preset(agent.format);
    let shipped = preset.env.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    let own = agent.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    let env: Map<String, Value> = shipped.chain(own).collect();
    let cwd = if agent.cwd.is_empty() { "." } else { &agent.cwd };
    json!({"command": words(agent, arguments["model"].as_str()), "cwd": cwd, "env": env})
}

/// The description of an agent that the operator has not described.
pub(super) fn description(agent: &ExternalAgent) -> String {
    if !agent.description.is_empty() {
        return agent.description.clone();
    }
    format!(
        "Has the agent `{}` work on a task in the workspace, on its own. All that it changes is one effect, which is kept only if it succeeds.",
        agent.name
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_agent_output::Patterns;
    use belay_settings::ToolRecovery;

    use super::*;

    fn agent(format: Format) -> ExternalAgent {
        ExternalAgent {
            name: "a".to_owned(),
            description: String::new(),
            format,
            command: Vec::new(),
            flags: vec!["--own".to_owned()],
            cwd: String::new(),
            env: vec![("DISABLE_AUTOUPDATER".to_owned(), "0".to_owned())],
            config_dir: None,
            recovery: ToolRecovery::Transactional,
            network: None,
            reveals: Vec::new(),
            timeout: None,
            max_tokens: None,
            linger: Duration::from_secs(10),
            patterns: Patterns::default(),
        }
    }

    #[test]
    fn flags_come_before_what_is_last() {
        let words = words(&agent(Format::Codex), Some("m"));
        assert_eq!(words[words.len() - 4..], ["--own", "--model", "m", "-"]);
        let own = ExternalAgent { command: vec!["mine".to_owned()], ..agent(Format::Codex) };
        assert_eq!(super::words(&own, None), ["mine", "--own"]);
    }

    #[test]
    fn variables_of_the_operator_come_last() {
        let command = command(&agent(Format::Claude), &json!({"task": "t", "model": "m"}));
        assert_eq!(command["env"]["DISABLE_AUTOUPDATER"], "0");
        assert_eq!(command["env"]["CLAUDE_CODE_MAX_RETRIES"], "2");
        assert_eq!(command["cwd"], ".");
    }
}
