//! What the tools that an operator declares and those of MCP servers have in common.

use belay_settings::ToolRecovery;

use crate::{Recovery, Touches};

/// Keeps a text for the life of the process, as the tools that are built in do. Tools are declared once, when a runner starts.
pub(crate) fn kept(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// The recovery of a tool, and its use of the workspace, by the word of the operator.
pub(crate) fn recovery(word: ToolRecovery) -> (Recovery, Touches) {
    match word {
        // Nothing that it writes is kept.
        ToolRecovery::ReadOnly => (Recovery::ReadOnly, Touches::Reads),
        ToolRecovery::Idempotent => (Recovery::Idempotent, Touches::Changes),
        ToolRecovery::Transactional => (Recovery::Transactional, Touches::Changes),
        ToolRecovery::Manual => (Recovery::Manual, Touches::Changes),
    }
}
