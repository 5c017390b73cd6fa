//! The built-in tools, one file each.
//!
//! A tool handles its arguments and its result. The policy decides what it may do, and the runner what happens to its changes.

mod delete_file;
mod files;
mod list_directory;
mod modify_file;
mod noop;
mod read_file;
mod run_terminal;
mod search_code;
mod write_file;

pub use delete_file::DeleteFile;
pub use list_directory::ListDirectory;
pub use modify_file::ModifyFile;
pub use noop::Noop;
pub use read_file::ReadFile;
pub use run_terminal::RunTerminal;
pub use search_code::SearchCode;
pub use write_file::WriteFile;

use std::sync::Arc;

use serde_json::Value;

use crate::{CommandSettings, Enforcement, Operation, Tool};

/// All built-in tools. Commands run in the sandbox of `enforcement`, with the operator's settings. A new tool is a file in this directory
/// and a line here.
pub fn built_in(enforcement: &Enforcement, commands: &Arc<CommandSettings>) -> Vec<Box<dyn Tool>> {
    vec![
        Box::new(DeleteFile),
        Box::new(ListDirectory),
        Box::new(ModifyFile),
        Box::new(Noop),
        Box::new(ReadFile),
        Box::new(RunTerminal::new(enforcement).with(Arc::clone(commands))),
        Box::new(SearchCode),
        Box::new(WriteFile),
    ]
}

/// The operation of a tool that works on its argument `path` only; the default is the workspace.
fn operation_on_path(arguments: &Value) -> Operation {
    Operation { paths: vec![arguments["path"].as_str().unwrap_or(".").to_owned()], ..Operation::default() }
}

#[cfg(test)]
mod tests;
