//! Reads the section `mcp_servers`.

use std::time::Duration;

use belay_yaml::{Node, Reader, Value, seconds};

use crate::{
    McpServer, ToolRecovery, ValueWithOrigin,
    read_env::{MAX_ENTRIES, env},
};

const SERVER: &str = "command cwd env tools read_only recovery network reveals start_timeout timeout";

/// The longest name of a server: a tool has 128 characters with that of its server.
const MAX_NAME: usize = 48;
/// The longest name of a tool that servers may have.
const MAX_TOOL: usize = 128;
/// The longest time limit, in seconds: a day.
const MAX_TIMEOUT: u64 = 86_400;
/// The default time limit of a call, in seconds, which is that of `run_terminal`.
const TIMEOUT: u64 = 120;
/// The default time in which a server has to be ready, in seconds: interpreters with many modules take some seconds on a busy machine.
const START_TIMEOUT: u64 = 30;

/// Reads all servers. An invalid one adds violations and is left out.
pub(crate) fn servers(reader: &mut Reader, node: &Node, field: &str) -> Vec<ValueWithOrigin<McpServer>> {
    let mut servers = Vec::new();
    reader.map(node, field, |reader, name, field, node| {
        if !is_name(name) {
            let message = format!("is not a server's name: it has 1 to {MAX_NAME} letters, digits, `-` and `_`, beginning with a letter or a digit");
            reader.refuse(field, node.line, message);
        }
        if let Some(server) = server(reader, node, field, name) {
            servers.push(ValueWithOrigin::on_line(server, reader.line_of(field)));
        }
        Ok(())
    });
    if servers.len() > MAX_ENTRIES {
        reader.refuse(field, node.line, format!("has {} servers, but the limit is {MAX_ENTRIES}", servers.len()));
    }
    servers
}

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

fn server(reader: &mut Reader, node: &Node, field: &str, name: &str) -> Option<McpServer> {
    let before = reader.violations().len();
    let mut server = McpServer {
        name: name.to_owned(),
        command: Vec::new(),
        cwd: String::new(),
        env: Vec::new(),
        tools: None,
        read_only: Vec::new(),
        recovery: ToolRecovery::Transactional,
        network: None,
        reveals: Vec::new(),
        start_timeout: Duration::from_secs(START_TIMEOUT),
        timeout: Duration::from_secs(TIMEOUT),
    };
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "command" => server.command = reader.non_empty_list(node, field, Reader::text),
            "cwd" => server.cwd = reader.text(node, field).unwrap_or_default(),
            "env" => {
                server.env = env(reader, node, field).into_iter().map(|(name, value)| (name, value.value)).collect();
            }
            "tools" => server.tools = Some(reader.non_empty_list(node, field, tool)),
            "read_only" => server.read_only = reader.list(node, field, tool),
            "recovery" => reader.word(node, field, &ToolRecovery::WORDS, &mut server.recovery),
            "network" => server.network = reader.text(node, field),
            "reveals" => server.reveals = reader.list(node, field, Reader::text),
            "start_timeout" => set_timeout(reader, node, field, &mut server.start_timeout),
            "timeout" => set_timeout(reader, node, field, &mut server.timeout),
            _ => return Err(SERVER),
        }
        Ok(())
    });
    if !reader.has_read(&format!("{field}.command")) {
        let message =
            "has no `command`: add the program of the server and its arguments, such as [/opt/mcp/bin/mcp-server-git]";
        reader.refuse(field, node.line, message);
    }
    if let Some(named) = &server.tools
        && let Some(unknown) = server.read_only.iter().find(|name| !named.contains(name))
    {
        let field = format!("{field}.read_only");
        let line = reader.line_of(&field);
        reader.refuse(
            &field,
            line,
            format!("names `{unknown}`, which `tools` does not have: add it there, or remove it here"),
        );
    }
    (reader.violations().len() == before).then_some(server)
}

/// The name of a tool, as the server calls it.
fn tool(reader: &mut Reader, node: &Node, field: &str) -> Option<String> {
    let name = reader.text(node, field)?;
    let is_valid =
        (1..=MAX_TOOL).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_valid {
        let message = format!(
            "is not the name of a server's tool: it has 1 to {MAX_TOOL} letters, digits, `-`, `_` and `.`, without that of the server"
        );
        reader.refuse(field, node.line, message);
    }
    is_valid.then_some(name)
}

fn set_timeout(reader: &mut Reader, node: &Node, field: &str, to: &mut Duration) {
    let read = match &node.value {
        Value::Text(text) => seconds(text).filter(|seconds| (1..=MAX_TIMEOUT).contains(seconds)),
        _ => None,
    };
    match read {
        Some(seconds) => *to = Duration::from_secs(seconds),
        None => {
            let message = "must be a whole number with a unit, such as 90s or 15m, and at most 24h";
            reader.refuse(field, node.line, message);
        }
    }
}
