//! The tool runner: a registry of tools, and a ledger that knows of every call.
//!
//! Every call has an identity that the executor derives. Asking twice runs it once; leaving does not stop it; after a loss its true
//! outcome can be asked for. What a call changes, it changes in a view; that becomes real as a whole or not at all, and only where the
//! policy says so or a person's signed grant does. Nobody is trusted with that but this service: it holds the policy, and it checks each
//! grant itself.

mod acknowledgements;
mod calls;
mod commands;
mod commit_log;
mod contents;
mod enforcement;
mod lanes;
mod ledger;
mod output;
mod policy;
mod registry;
mod repository;
mod room;
mod secrets;
mod service;
mod settings;
mod subject;
mod tier;
pub mod tools;
mod view;
mod workspace_directory;
mod workspace_locks;
mod workspaces;

pub use calls::Calls;
pub use commands::CommandSettings;
pub use enforcement::Enforcement;
pub use ledger::{Ledger, LedgerError, LedgerFailure};
pub use policy::{Accepted, BadToken, GateChannel, PolicyHolder, Refused};
pub use registry::{
    Annotations, Foreseen, Invocation, Operation, Output, Recovery, Registry, RegistryError, Tool, ToolFailure,
    ToolResult, ToolSpec, Touches,
};
pub use secrets::Secrets;
pub use service::hosted;
pub use settings::{NoKey, Settings, gate_key};
pub use view::{Gone, HeldView, Mount, View, ViewHandle};
pub use workspace_directory::{Place, Places, RealPlaces, Staged};
pub use workspaces::{Allowed, NotAllowed, Workspaces};

// Whoever hosts the runner has to give it a launcher, and may widen what commands see.
pub use belay_sandbox::{Settings as SandboxSettings, take_over_if_asked};

use std::{sync::Arc, time::Duration};

use belay_grant::Keys;
use belay_proto::v1;
use belay_service_kit::Clock;
use belay_settings::RunnerLimits;
use belay_sqlite::Threads;
use belay_telemetry::Telemetry;

/// What the service is made of. Everything that a simulation replaces is handed in here.
pub struct Parts {
    /// The tools it offers.
    pub registry: Registry,
    /// Its memory of calls.
    pub ledger: Ledger,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The approval gate's public keys: whose policies and grants count. Without a policy no call is made: see [`PolicyHolder::offer`].
    pub keys: Keys,
    /// Which folders may be workspaces.
    pub workspaces: Workspaces,
    /// How they are opened.
    pub places: Arc<dyn Places>,
    /// The walls that stand around commands here, as they were tried out.
    pub enforcement: v1::EnforcementReport,
    /// Where spans go.
    pub telemetry: Telemetry,
    /// Where work runs that blocks.
    pub threads: Threads,
    /// What it takes on. A call beyond that gets RESOURCE_EXHAUSTED with a delay.
    pub limits: RunnerLimits,
    /// Where one way of working ends and another begins.
    pub thresholds: Thresholds,
}

/// Where one way of working ends and another begins. What callers see is the same on both sides of each, which the simulation shows by
/// turning them.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// How many rows of the ledger wait for something at most: for a commit to go with, or for a sync of their workspace.
    pub max_waiting_rows: usize,
    /// How long a workspace stays open that no call is in.
    pub linger: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { max_waiting_rows: 256, linger: Duration::from_secs(2) }
    }
}
