//! The executor: carries out plans, each execution in one task, many at once.
//!
//! `belay-execution`, which is pure, decides what happens, and `belay-reading`, which is pure too, what follows from that for readers; this crate receives
//! requests and replies, stores events, publishes them and makes calls. Nothing is shown, acknowledged or acted on before it is stored.

mod approvals;
mod driver;
mod feeds;
mod intake;
mod models;
mod names;
mod observe;
mod owned;
mod program;
mod runners;
mod service;
mod settings;
mod store;
mod thresholds;
mod upkeep;
mod wire;

pub use approvals::gate::Gate;
pub use belay_redaction::{MasterKey, Redactor};
pub use feeds::{ExecutionReader, ReaderParts};
pub use models::{Answering, ModelServer, Models, models};
pub use names::shard_of;
pub use owned::registry::{ExecutionRegistry, Parts};
pub use program::serve;
pub use runners::runner::{InvalidToken, Runner};
pub use service::{hosted, hosted_to_read};
pub use settings::Settings;
pub use store::check_blobs::check_blobs;
pub use store::journal_reads::store_reason;
pub use store::seal_key::{SealKeyError, SealKeyFile};
pub use thresholds::Thresholds;
pub use upkeep::webhooks::{Webhook, webhooks};
