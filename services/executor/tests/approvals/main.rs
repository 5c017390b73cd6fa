//! The executor's program between a scripted runner and a scripted gate, over real sockets.

mod artifacts;
mod beside;
mod blobs;
mod budgets;
mod commits;
mod comparison;
mod copies;
mod deletions;
mod faults;
mod forms;
mod holds;
mod losses;
mod lost_answers;
mod memory;
mod metrics;
mod newer;
mod output;
mod reads;
mod retries;
mod secrets;
mod snapshots;
mod starts;
mod stores;
mod support;
mod tool_calls;
mod watches;
