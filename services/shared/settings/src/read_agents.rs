//! Reads the section `agents`.

use std::{
    path::{Component, Path},
    time::Duration,
};

use belay_agent_output::{Format, Patterns};
use belay_network::Profiles;
use belay_yaml::{Node, Reader, Value, seconds};

use crate::{
    ExternalAgent, ToolRecovery, ValueWithOrigin,
    paths::absolute,
    read_env::{MAX_ENTRIES, env},
};

const AGENT: &str = "reader command flags cwd env config_dir description recovery network reveals timeout max_tokens linger rate_limit_phrases fatal_phrases";

/// The longest name of an agent.
const MAX_NAME: usize = 64;
/// The longest time limit, in seconds: 30 days.
const MAX_TIMEOUT: u64 = 30 * 86_400;
/// The longest time after the final event, in seconds.
const MAX_LINGER: u64 = 3_600;
/// The default time after the final event, in seconds: some agents write their session then, and some never end.
const LINGER: u64 = 10;
/// The most tokens of one call.
const MAX_TOKENS: u64 = 1_000_000_000_000;
/// The longest phrase, in bytes.
const MAX_PHRASE: usize = 200;

/// Reads all agents. An invalid one adds violations and is left out.
pub(crate) fn agents(
    reader: &mut Reader,
    node: &Node,
    field: &str,
    home: Option<&Path>,
) -> Vec<ValueWithOrigin<ExternalAgent>> {
    let mut agents = Vec::new();
    reader.map(node, field, |reader, name, field, node| {
        if !is_name(name) {
            let message = format!(
                "is not an agent's name: it has 1 to {MAX_NAME} letters, digits, `-` and `_`, beginning with a letter or a digit"
            );
            reader.refuse(field, node.line, message);
        }
        if let Some(agent) = agent(reader, node, field, name, home) {
            agents.push(ValueWithOrigin::on_line(agent, reader.line_of(field)));
        }
        Ok(())
    });
    if agents.len() > MAX_ENTRIES {
        reader.refuse(field, node.line, format!("has {} agents, but the limit is {MAX_ENTRIES}", agents.len()));
    }
    agents
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

fn agent(reader: &mut Reader, node: &Node, field: &str, name: &str, home: Option<&Path>) -> Option<ExternalAgent> {
    let before = reader.violations().len();
    let mut agent = ExternalAgent {
        name: name.to_owned(),
        description: String::new(),
        format: Format::Text,
        command: Vec::new(),
        flags: Vec::new(),
        cwd: String::new(),
        env: Vec::new(),
        config_dir: None,
        recovery: ToolRecovery::Transactional,
        network: None,
        reveals: Vec::new(),
        timeout: None,
        max_tokens: None,
        linger: Duration::from_secs(LINGER),
        patterns: Patterns::default(),
    };
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "reader" => reader.word(node, field, &Format::WORDS, &mut agent.format),
            "command" => agent.command = words(reader, node, field),
            "flags" => agent.flags = words(reader, node, field),
            "cwd" => agent.cwd = cwd(reader, node, field),
            "env" => {
                agent.env = env(reader, node, field).into_iter().map(|(name, value)| (name, value.value)).collect();
            }
            "config_dir" => match reader.text(node, field).map(|text| absolute(&text, home)) {
                Some(Ok(path)) => agent.config_dir = Some(path),
                Some(Err(why)) => reader.refuse(field, node.line, why),
                None => {}
            },
            "description" => agent.description = reader.text(node, field).unwrap_or_default(),
            "recovery" => reader.word(node, field, &ToolRecovery::WORDS, &mut agent.recovery),
            "network" => agent.network = reader.text(node, field),
            "reveals" => agent.reveals = reader.list(node, field, Reader::text),
            "timeout" => match &node.value {
                Value::Text(text) if text == "none" => agent.timeout = None,
                _ => {
                    agent.timeout = time(reader, node, field, MAX_TIMEOUT, "such as 90m or 24h, at most 30d, or `none`")
                }
            },
            "max_tokens" => agent.max_tokens = max_tokens(reader, node, field),
            "linger" => {
                let linger = time(reader, node, field, MAX_LINGER, "such as 10s, at most 1h");
                agent.linger = linger.unwrap_or(agent.linger);
            }
            "rate_limit_phrases" => agent.patterns.rate_limit = reader.list(node, field, phrase),
            "fatal_phrases" => agent.patterns.fatal = reader.list(node, field, phrase),
            _ => return Err(AGENT),
        }
        Ok(())
    });
    // An agent named as a form is of that form.
    let named = Format::WORDS.iter().find(|(word, _)| *word == name);
    if let Some((_, format)) = named.filter(|_| !reader.has_read(&format!("{field}.reader"))) {
        agent.format = *format;
    }
    if agent.format == Format::Text && agent.command.is_empty() && !reader.has_read(&format!("{field}.command")) {
        let message = "has no `command`: add the program of the agent and its arguments, such as [aider, --message-file, prompt.md], or `reader: codex` \
                       (claude, gemini, opencode) for one that Belay knows";
        reader.refuse(field, node.line, message);
    }
    (reader.violations().len() == before).then_some(agent)
}

/// Words of a command: a list of them, or one text that is split as a shell would, without a shell.
fn words(reader: &mut Reader, node: &Node, field: &str) -> Vec<String> {
    let Value::Text(text) = &node.value else { return reader.non_empty_list(node, field, Reader::text) };
    match shlex::split(text) {
        Some(words) if !words.is_empty() => return words,
        Some(_) => reader.refuse(field, node.line, "is empty: write the words, or remove it"),
        None => reader.refuse(field, node.line, "has a quote that is not closed: close it, or write a list of words"),
    }
    Vec::new()
}

/// A directory of the workspace.
fn cwd(reader: &mut Reader, node: &Node, field: &str) -> String {
    let cwd = reader.text(node, field).unwrap_or_default();
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(&cwd).components().all(is_inside) || cwd.contains('\0') {
        let message =
            "must be a directory of the workspace, relative to its root and without `..`, such as services/api";
        reader.refuse(field, node.line, message);
    }
    cwd
}

fn time(reader: &mut Reader, node: &Node, field: &str, most: u64, form: &str) -> Option<Duration> {
    let read = match &node.value {
        Value::Text(text) => seconds(text).filter(|seconds| (1..=most).contains(seconds)),
        _ => None,
    };
    if read.is_none() {
        reader.refuse(field, node.line, format!("must be a whole number with a unit, {form}"));
    }
    read.map(Duration::from_secs)
}

fn max_tokens(reader: &mut Reader, node: &Node, field: &str) -> Option<u64> {
    let read = match &node.value {
        Value::Number(number) => number.as_u64().filter(|tokens| (1..=MAX_TOKENS).contains(tokens)),
        _ => None,
    };
    if read.is_none() {
        let message = "must be a whole number of tokens from 1 on, such as 500000, without a unit";
        reader.refuse(field, node.line, message);
    }
    read
}

/// Refuses a bound on tokens that nobody would see: only a model behind a base URL is counted.
pub(crate) fn refuse_unseen_tokens(
    reader: &mut Reader,
    agents: &[ValueWithOrigin<ExternalAgent>],
    profiles: &Profiles,
) {
    for agent in agents.iter().map(|agent| &agent.value).filter(|agent| agent.max_tokens.is_some()) {
        let profile = agent.network.as_deref().and_then(|name| profiles.find(name));
        if profile.is_some_and(|profile| profile.base_urls().next().is_some()) {
            continue;
        }
        let field = format!("agents.{}.max_tokens", agent.name);
        let line = reader.line_of(&field);
        let message = "cannot be counted: tokens are seen where `network` names a profile with a rule that has a `base_url` for the agent's model";
        reader.refuse(&field, line, message);
    }
}

fn phrase(reader: &mut Reader, node: &Node, field: &str) -> Option<String> {
    let phrase = reader.text(node, field)?;
    let is_valid = !belay_text::is_blank(&phrase) && phrase.len() <= MAX_PHRASE;
    if !is_valid {
        let message =
            format!("must be a text of at most {MAX_PHRASE} bytes that is looked for in each line, in any case");
        reader.refuse(field, node.line, message);
    }
    is_valid.then_some(phrase)
}
