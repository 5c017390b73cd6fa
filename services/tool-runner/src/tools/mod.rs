//! The built-in tools, one file each, and those that the operator declares.
//!
//! A tool handles its arguments and its result. The policy decides what it may do, and the runner what happens to its changes.

mod agent;
mod code_exec;
mod commit_changes;
mod declaration;
mod declared;
mod delete_file;
mod fetch_url;
mod file_info;
mod files;
mod find_files;
mod http;
mod http_request;
mod list_directory;
mod mcp;
mod modify_file;
mod noop;
mod read_file;
mod rebase_changes;
mod research;
mod run_terminal;
mod search_code;
mod walk;
mod write_file;

pub use agent::AgentTool;
pub use code_exec::CodeExec;
pub use commit_changes::CommitChanges;
pub use declared::DeclaredTool;
pub use delete_file::DeleteFile;
pub use fetch_url::FetchUrl;
pub use file_info::FileInfo;
pub use find_files::FindFiles;
pub use http_request::HttpRequest;
pub use list_directory::ListDirectory;
pub use mcp::McpTool;
pub use modify_file::ModifyFile;
pub use noop::Noop;
pub use read_file::ReadFile;
pub use rebase_changes::RebaseChanges;
pub use research::Research;
pub use run_terminal::RunTerminal;
pub use search_code::SearchCode;
pub use write_file::WriteFile;

use std::sync::Arc;

use belay_service_kit::Clock;
use belay_settings::{CommandTool, ConfigError, LoadedSettings, ValueWithOrigin};
use belay_workspace::RelPath;
use serde_json::Value;

use crate::{CallIntent, CommandSettings, Enforcement, NetworkProblem, Registry, RegistryError, Tool};

/// All built-in tools. Commands run in the sandbox of `enforcement`, with the operator's settings. A new tool is a file in this directory
/// and a line here.
pub fn built_in(enforcement: &Enforcement, commands: &Arc<CommandSettings>) -> Vec<Box<dyn Tool>> {
    let terminal = RunTerminal::new(enforcement).with(Arc::clone(commands));
    let host = http::HttpHost::new(commands, terminal.proxy());
    vec![
        Box::new(CodeExec::new(terminal.clone())),
        Box::new(CommitChanges),
        Box::new(DeleteFile),
        Box::new(FetchUrl::new(host.clone())),
        Box::new(FileInfo),
        Box::new(FindFiles),
        Box::new(HttpRequest::new(host.clone())),
        Box::new(ListDirectory),
        Box::new(ModifyFile),
        Box::new(Noop),
        Box::new(ReadFile),
        Box::new(RebaseChanges),
        Box::new(Research::new(host, commands)),
        Box::new(terminal),
        Box::new(SearchCode),
        Box::new(WriteFile),
    ]
}

/// The tools of a runner: those that are built in, those that the operator declares, and those of MCP servers, which are started if they are not known yet. Where
/// nothing beyond this machine is reached, those that need a network are left out.
///
/// # Errors
/// [`ConfigError`], which names the field, when a declared tool has a name that is taken or a schema that is none, or the search endpoint cannot be asked.
pub async fn registry(
    enforcement: &Enforcement,
    commands: &Arc<CommandSettings>,
    loaded: &LoadedSettings,
    clock: Arc<dyn Clock>,
) -> Result<Registry, ConfigError> {
    Research::check_endpoint(loaded)?;
    let declared = &loaded.settings.tools;
    let terminal = RunTerminal::new(enforcement).with(Arc::clone(commands));
    let mut tools = built_in(enforcement, commands);
    tools.extend(
        declared.iter().map(|tool| Box::new(DeclaredTool::new(&tool.value, terminal.clone())) as Box<dyn Tool>),
    );
    let agents = &loaded.settings.agents;
    tools.extend(agents.iter().map(|agent| {
        Box::new(AgentTool::new(&agent.value, terminal.clone(), commands, Arc::clone(&clock))) as Box<dyn Tool>
    }));
    let servers = loaded.settings.mcp_servers.iter().map(|server| &server.value);
    let (of_servers, shown) = mcp::of_servers(&terminal, commands, servers).await;
    tools.extend(of_servers);
    if loaded.settings.air_gapped.value {
        tools.retain(|tool| !needs_network(&**tool));
    }
    let registry = Registry::new(tools).map(|registry| registry.with_servers(shown));
    registry.map_err(|error| match error {
        RegistryError::NameTaken(name) => {
            let has = |tool: &&ValueWithOrigin<CommandTool>| {
                tool.value.name == name || tool.value.aliases.iter().any(|alias| alias == name)
            };
            let tool = declared.iter().find(has).map(|tool| &tool.value.name);
            if let Some(agent) = agents.iter().find(|agent| agent.value.name == name) {
                let other = if tool.is_some() { "a declared tool" } else { "a built-in tool" };
                let message = format!(
                    "{other} has the name `{name}`, too: choose another one for the agent, and name its `reader`"
                );
                return loaded.refuse(&format!("agents.{}", agent.value.name), message);
            }
            let tool = tool.map_or(name, String::as_str);
            let other = match name.split_once('.').filter(|(server, _)| of_server(loaded, server)) {
                Some((server, _)) => format!("a tool of the MCP server `{server}`"),
                None => "a built-in tool".to_owned(),
            };
            loaded.refuse(&format!("tools.{tool}"), format!("{other} has the name `{name}`: choose another one"))
        }
        RegistryError::Schema { tool, part, source } => {
            let place = source.pointer.replace('/', ".");
            loaded.refuse(&format!("tools.{tool}.{part}{place}"), source.to_string())
        }
    })
}

/// Whether there is an MCP server of this name.
fn of_server(loaded: &LoadedSettings, name: &str) -> bool {
    loaded.settings.mcp_servers.iter().any(|server| server.value.name == name)
}

/// Whether a tool without a network cannot work, or has hosts on other machines by default.
fn needs_network(tool: &dyn Tool) -> bool {
    matches!(tool.network(None), Err(NetworkProblem::NoNetwork | NetworkProblem::AirGapped { .. }))
}

/// The intent of a call of a tool that works on its argument `path` only; the default is the workspace.
fn intent_on_path(arguments: &Value) -> CallIntent {
    let many = arguments["paths"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut paths: Vec<String> = arguments["path"].as_str().into_iter().chain(many).map(judged).collect();
    if paths.is_empty() {
        paths.push(judged("."));
    }
    CallIntent { paths, ..CallIntent::default() }
}

/// A path as the policy judges it: as its author wrote it, but with the names themselves where one is given in hexadecimal digits, so that a rule about
/// names sees them. Only bytes that are not UTF-8 are escaped, which no rule can name.
fn judged(path: &str) -> String {
    let parsed = RelPath::parse(path).ok().filter(|parsed| path.contains("hex:") && !parsed.is_root());
    parsed.map_or_else(|| path.to_owned(), |parsed| parsed.as_text())
}

#[cfg(test)]
mod tests;
