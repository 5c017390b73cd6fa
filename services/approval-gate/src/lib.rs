//! The approval gate: asks people for approvals, stores their decisions, and signs grants. It also publishes the active policy.
//!
//! An approval is bound to the digest of its subject. The gate fetches the subject from the runner itself, digests it, and renders the preview
//! from the same bytes, so a hostile executor cannot show a person something else. A decision echoes the digest and comes from an authenticated
//! person; no text, timeout or service can replace one. For an approved call, the gate signs a grant, which the runner verifies on its own.

mod decide;
mod feed;
mod form;
mod gate;
pub mod keys;
mod metrics;
mod names;
pub mod policy;
mod preview;
mod program;
mod runner;
mod service;
mod settings;
mod store;

pub use gate::{Gate, GateError};
pub use policy::ActivePolicy;
pub use program::serve;
pub use runner::{InvalidToken, RunnerClient};
pub use service::{hosted, hosted_for_services};
pub use settings::Settings;
pub use store::{Store, StoreError, check, measure};

use std::sync::Arc;

use belay_grant::SigningKey;
use belay_policy::Policies;
use belay_redaction::Redactor;
use belay_service_kit::{Clock, Ids, Shutdown};
use belay_settings::GateLimits;
use belay_telemetry::Telemetry;

/// The parts of the service, including everything that a simulation replaces.
pub struct Parts {
    /// The store.
    pub store: Store,
    /// The signing key; see [`keys::open`].
    pub key: SigningKey,
    /// The policy to activate; see [`policy::load`].
    pub policies: Policies,
    /// The runner at which calls wait.
    pub runner: RunnerClient,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of nonces.
    pub ids: Ids,
    /// Redacts what is stored and shown.
    pub redactor: Redactor,
    /// Exports spans.
    pub telemetry: Telemetry,
    /// Signals the shutdown.
    pub shutdown: Shutdown,
    /// The limits beyond which a request gets RESOURCE_EXHAUSTED with a delay.
    pub limits: GateLimits,
}
