//! The approval gate: asks people, keeps what they decided, and signs for it. It also says which policy holds.
//!
//! A question is bound to the digest of what it is about. The gate fetches that from the runner itself, digests it, and renders what a
//! person sees from the same bytes: a hostile executor cannot have a false picture shown. A decision echoes the digest and comes from a
//! person who has been authenticated; no text, no silence and no service can stand in for one. What follows from a yes is a signed grant
//! for one call, which the runner verifies alone.

mod decide;
mod feed;
mod gate;
pub mod keys;
mod names;
pub mod policy;
mod preview;
mod runner;
mod service;
mod settings;
mod store;

pub use gate::{Gate, GateError};
pub use policy::ActivePolicy;
pub use runner::{BadToken, RunnerClient};
pub use service::{hosted, hosted_for_services};
pub use settings::Settings;
pub use store::{Store, StoreError};

use std::sync::Arc;

use belay_grant::SigningKey;
use belay_policy::Policy;
use belay_redaction::Redactor;
use belay_service_kit::{Clock, Ids, Shutdown};
use belay_settings::GateLimits;
use belay_telemetry::Telemetry;

/// What the service is made of. Everything that a simulation replaces is handed in here.
pub struct Parts {
    /// What it remembers.
    pub store: Store,
    /// What it signs with; see [`keys::open`].
    pub key: SigningKey,
    /// What holds from now on; see [`policy::load`].
    pub policy: Policy,
    /// Where calls wait.
    pub runner: RunnerClient,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Where nonces come from.
    pub ids: Ids,
    /// What hides the secrets in what is stored and shown.
    pub redactor: Redactor,
    /// Where spans go.
    pub telemetry: Telemetry,
    /// When to stop.
    pub shutdown: Shutdown,
    /// What it takes on. Beyond that a request gets RESOURCE_EXHAUSTED with a delay.
    pub limits: GateLimits,
}
