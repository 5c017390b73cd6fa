//! The executor: carries out plans, each execution in one task, many at once.
//!
//! `belay-execution`, which is pure, decides what happens; this crate receives requests and replies, stores events, publishes them and
//! makes calls. Nothing is shown, acknowledged or acted on before it is stored.

mod acknowledge;
mod asks;
mod availability;
mod blob_secrets;
mod blobs;
mod call_reply;
mod check_blobs;
mod commits;
mod conditions;
mod connection;
mod copy;
mod decisions;
mod deletion_rounds;
mod deletions;
mod driver;
mod event_feed;
mod followed;
mod form_request;
mod gate;
mod in_doubt;
mod journal_reads;
mod link;
mod loading;
mod messages;
mod metrics;
mod names;
mod operation;
mod output;
mod paths;
mod program;
mod queue;
mod registry;
mod replayed;
mod request_again;
mod retention;
mod runner;
mod secrets;
mod service;
mod session;
mod settings;
mod snapshots;
mod startup;
mod thresholds;
mod timers;
mod tool_calls;
mod trace;
mod unowned_decisions;
mod view;
mod wake_ups;
mod wire;

pub use belay_redaction::{MasterKey, Redactor};
pub use check_blobs::check_blobs;
pub use gate::Gate;
pub use journal_reads::store_reason;
pub use names::shard_of;
pub use program::serve;
pub use registry::{ExecutionRegistry, Parts};
pub use runner::{InvalidToken, Runner};
pub use secrets::open_seal_key;
pub use service::hosted;
pub use settings::Settings;
pub use thresholds::Thresholds;
