//! A tool of a server, as it is known when the runner starts.

use std::path::PathBuf;

use belay_mcp::Definition;
use belay_settings::McpServer;

use crate::{ToolSpec, tools::run_terminal::RunTerminal};

/// A tool of a server.
pub(super) struct ServedTool {
    pub(super) spec: ToolSpec,
    pub(super) server: McpServer,
    /// As the server described it when it was first listed.
    pub(super) definition: Definition,
    /// The revision of the protocol that the server spoke then.
    pub(super) revision: String,
    /// Where that is kept.
    pub(super) kept_in: PathBuf,
    pub(super) terminal: RunTerminal,
}
