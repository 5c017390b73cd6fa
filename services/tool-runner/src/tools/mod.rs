//! The built-in tools, one file each.
//!
//! A tool decides about its arguments and its result. What it may do is a policy's to say, and what becomes of its changes the runner's.

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

/// Every built-in tool; commands run behind the walls of `enforcement`, as the operator's settings say. A new tool is a file beside this one and a line here.
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

/// What a tool is asked to do whose argument `path` names all that it works on; without it, the workspace.
fn operation_on_path(arguments: &Value) -> Operation {
    Operation { paths: vec![arguments["path"].as_str().unwrap_or(".").to_owned()], ..Operation::default() }
}

#[cfg(test)]
mod tests;
