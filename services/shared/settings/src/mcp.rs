//! The section `mcp_servers`: servers of the Model Context Protocol, whose tools plans and models call as `SERVER.TOOL`.

use std::time::Duration;

use crate::ToolRecovery;

/// A server of the Model Context Protocol: a program that runs in the sandbox, and speaks over its standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServer {
    /// Its name, with which the names of its tools begin.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The directory in which it runs, relative to the workspace; empty for its root.
    pub cwd: String,
    /// Variables that it gets.
    pub env: Vec<(String, String)>,
    /// The names of the tools that are offered; `None` for all that it has.
    pub tools: Option<Vec<String>>,
    /// The names of the tools that change nothing: what they write is discarded.
    pub read_only: Vec<String>,
    /// The recovery of calls of its other tools whose outcome is unknown.
    pub recovery: ToolRecovery,
    /// The network profile of its program; `None`: its own loopback alone.
    pub network: Option<String>,
    /// The credentials whose values it gets, each in the credential's variable.
    pub reveals: Vec<String>,
    /// The time in which it has to be ready for calls.
    pub start_timeout: Duration,
    /// The time limit of a call when the plan sets none; its start is part of it.
    pub timeout: Duration,
}

impl McpServer {
    /// Whether it offers a tool that the server calls so.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|named| named.iter().any(|name| name == tool))
    }

    /// The recovery of a call of one of its tools.
    pub fn recovery_of(&self, tool: &str) -> ToolRecovery {
        if self.read_only.iter().any(|name| name == tool) { ToolRecovery::ReadOnly } else { self.recovery }
    }
}
