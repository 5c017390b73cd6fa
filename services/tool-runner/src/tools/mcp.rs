//! The tools of servers of the Model Context Protocol: programs that run in the sandbox, in a view of the workspace, and speak over their standard streams.
//!
//! A server lives for one call ([ADR 60](../../../../docs/adr/0060-a-server-lives-for-a-call.md)): what it writes is the effect of that call, as with any command.

mod call;
mod listing;
mod names;
mod served_tool;
mod server;

use std::{path::PathBuf, sync::Arc, time::Duration};

use belay_mcp::Definition;
use belay_network::Profile;
use belay_policy::ToolKind;
use belay_proto::v1::{self, WriteBound};
use belay_settings::McpServer;
use serde_json::Value;

use listing::{ListedServer, list};
use names::{name, result_schema};
use served_tool::ServedTool;
use server::command;

use super::{
    RunTerminal,
    declaration::{kept, recovery},
    files::Work,
};
use crate::{
    Annotations, CallIntent, CommandSettings, Invocation, NetworkProblem, PlannedProblem, Recovery, Tool, ToolSpec,
};

/// A tool of a server.
pub struct McpTool(Arc<ServedTool>);

/// The tools of servers, and the servers as they are shown. Those that are not known yet are started.
pub(super) async fn of_servers(
    terminal: &RunTerminal,
    commands: &CommandSettings,
    servers: impl IntoIterator<Item = &McpServer>,
) -> (Vec<Box<dyn Tool>>, Vec<v1::ToolServer>) {
    let (mut tools, mut messages) = (Vec::new(), Vec::new());
    // Only a runner of a test keeps no files, and its settings have no servers.
    let Some(folder) = commands.mcp_in() else { return (tools, messages) };
    for ListedServer { server, tools: listed, kept_in, message } in
        list(terminal, commands.redactor(), &folder, servers).await
    {
        let made = listed
            .into_iter()
            .map(|tool| McpTool::new(&server, tool, &message.revision, kept_in.clone(), terminal.clone()));
        tools.extend(made.map(|tool| Box::new(tool) as Box<dyn Tool>));
        messages.push(message);
    }
    (tools, messages)
}

impl McpTool {
    /// A tool whose server `terminal` runs.
    fn new(
        server: &McpServer,
        definition: Definition,
        revision: &str,
        kept_in: PathBuf,
        terminal: RunTerminal,
    ) -> Self {
        let (recovery, touches) = recovery(server.recovery_of(&definition.name));
        let hints = definition.annotations;
        let spec = ToolSpec {
            name: kept(&name(&server.name, &definition.name)),
            aliases: &[],
            description: kept(&definition.description),
            parameters: kept(&definition.parameters.to_string()),
            result: kept(&result_schema(&definition)),
            recovery,
            touches,
            kind: ToolKind::Terminal,
            default_timeout: server.timeout,
            annotations: Annotations {
                title: kept(&definition.title),
                destructive: hints.destructive.unwrap_or(true) && recovery != Recovery::ReadOnly,
                idempotent: hints.idempotent.unwrap_or(false),
                open_world: hints.open_world.unwrap_or(true),
            },
        };
        let (server, revision) = (server.clone(), revision.to_owned());
        Self(Arc::new(ServedTool { spec, server, definition, revision, kept_in, terminal }))
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.0.spec.clone()
    }

    fn intent(&self, _arguments: &Value) -> CallIntent {
        let ServedTool { server, terminal, .. } = &*self.0;
        CallIntent { credentials: server.reveals.clone(), ..terminal.intent(&command(server)) }
    }

    fn check_planned(&self, _arguments: &Value) -> Vec<PlannedProblem> {
        let ServedTool { server, terminal, .. } = &*self.0;
        let mut problems = terminal.check_planned(&command(server));
        for problem in &mut problems {
            // They are of the operator's settings, not of an argument.
            problem.pointer.clear();
            problem.message = format!("the MCP server `{}` cannot run: {}", server.name, problem.message);
        }
        problems
    }

    fn enforced(&self) -> Vec<String> {
        self.0.terminal.enforced()
    }

    fn write_bounds(&self) -> Vec<WriteBound> {
        self.0.terminal.write_bounds()
    }

    fn kept_caches(&self, namespace: &str, workspace: &std::path::Path) -> std::io::Result<Vec<PathBuf>> {
        self.0.terminal.kept_caches(namespace, workspace)
    }

    fn takes_network(&self) -> bool {
        self.0.server.network.is_none() && self.0.server.reveals.is_empty()
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        // A step may ask for another profile than the operator's default: the policy decides about either.
        self.0.terminal.network(asked.or(self.0.server.network.as_deref()))
    }

    fn reveals(&self) -> Vec<String> {
        self.0.server.reveals.iter().map(|name| self.0.terminal.shown_reveal(name)).collect()
    }

    fn may_ask_about_hosts(&self) -> bool {
        self.0.terminal.may_ask_about_hosts()
    }

    fn asks(&self) -> bool {
        // Any server may have questions, and says so only when it asks.
        true
    }

    fn stop_grace(&self) -> Duration {
        self.0.terminal.stop_grace()
    }

    fn call(&self, invocation: Invocation) -> Work {
        Box::pin(call::call(Arc::clone(&self.0), invocation))
    }
}
