//! What follows from the events of an execution: its artifacts, audit log, tool calls and progress.

pub(crate) mod artifacts;
pub(crate) mod audit;
pub(crate) mod event_index;
pub(crate) mod progress;
pub(crate) mod tool_calls;
