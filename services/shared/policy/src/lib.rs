//! What may happen: rules about what a call is asked to do, and about what it did in its view.

/// Which of the simple settings speaks about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolKind {
    /// None.
    Other,
    /// It reads files.
    FileRead,
    /// It writes files: `file_write`.
    FileWrite,
    /// It removes files: `file_delete`.
    FileDelete,
    /// It runs commands: `terminal_commands`.
    Terminal,
}
