//! The tool runner: a registry of tools, and a durable ledger of calls.
//!
//! The executor derives an identity for every call. Sending a call twice runs it once; a caller that disconnects does not stop it; after a
//! crash its true outcome can be queried. A call works in a copy-on-write view, whose effect is committed as a whole or not at all, and
//! only if the policy allows it or a grant approves it. The runner trusts no other service with that: it holds the policy and verifies each
//! grant.

mod acknowledgements;
mod calls;
mod changes;
mod commands;
mod commit_log;
mod contents;
mod credentials;
mod digests;
mod disk_errors;
mod enforcement;
mod facts;
mod json_of;
mod lanes;
mod ledger;
mod lock;
mod metrics;
mod network_profiles;
mod output;
mod owned_files;
mod policy;
mod program;
mod proxy;
mod questions;
mod registry;
mod repository;
mod secrets;
mod service;
mod session;
mod settings;
mod started_commands;
mod stop;
mod subject;
mod tier;
pub mod tools;
mod trust;
mod view;
mod workspace_directory;
mod workspace_locks;
mod workspaces;

pub use calls::Calls;
pub use commands::CommandSettings;
pub use enforcement::{Enforcement, LostTest, SandboxTest};
pub use ledger::{Ledger, LedgerError, LedgerFailure, check, measure};
pub use network_profiles::NetworkProblem;
pub use policy::{GateChannel, InvalidToken, PolicyAcceptance, PolicyHolder, PolicyRefusal};
pub use program::serve;
pub use proxy::check_network;
pub use questions::{QuestionRefusal, Questions};
pub use registry::{
    Annotations, CallIntent, Invocation, MayRead, Output, PlannedProblem, RateLimit, Recovery, Registry, RegistryError,
    Tool, ToolFailure, ToolResult, ToolSpec, Touches,
};
pub use secrets::Secrets;
pub use service::hosted;
pub use settings::{NoKey, Settings, gate_key};
pub use stop::StopRequest;
pub use view::{HeldView, LostView, Mount, View, ViewHandle};
pub use workspace_directory::{HostDirectories, StagedEffect, WorkspaceDirectories, WorkspaceDirectory};
pub use workspaces::{AllowedWorkspaces, WorkspaceRefusal, Workspaces};

// The host of the runner has to call `take_over_if_asked` first, and may widen what commands see.
pub use belay_sandbox::Settings as SandboxSettings;

/// Becomes the launcher of a sandbox or the proxy of commands, if this process was executed as one: then it does not return.
///
/// Must be the first call of `main`, before any thread is started: the runner executes its own program again for both.
pub fn take_over_if_asked() {
    belay_sandbox::take_over_if_asked();
    belay_proxy::take_over_if_asked();
}

use std::{sync::Arc, time::Duration};

use belay_grant::Keys;
use belay_proto::payload::MAX_INLINE_BYTES;
use belay_service_kit::Clock;
use belay_settings::RunnerLimits;
use belay_sqlite::Threads;
use belay_telemetry::Telemetry;

/// The dependencies of the service. A simulation replaces them.
pub struct Parts {
    /// The tools.
    pub registry: Registry,
    /// The ledger of calls.
    pub ledger: Ledger,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The approval gate's public keys, which verify policies and grants. Without a policy no call runs: see [`PolicyHolder::offer`].
    pub keys: Keys,
    /// The directories that may be workspaces.
    pub workspaces: Workspaces,
    /// How they are opened.
    pub directories: Arc<dyn WorkspaceDirectories>,
    /// The sandbox of commands.
    pub enforcement: Enforcement,
    /// Where spans go.
    pub telemetry: Telemetry,
    /// Runs blocking work.
    pub threads: Threads,
    /// The limits of the service. It rejects a call beyond them with RESOURCE_EXHAUSTED and a retry delay.
    pub limits: RunnerLimits,
    /// Internal thresholds.
    pub thresholds: Thresholds,
}

/// Internal thresholds. Callers see the same behaviour on both sides of each; the simulation varies them to show it.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// The maximum number of ledger rows that wait for a commit to delete them, or for a sync of their workspace.
    pub max_waiting_rows: usize,
    /// How long a workspace stays open after its last call.
    pub linger: Duration,
    /// Results of more bytes than this are blobs.
    pub max_inline: usize,
    /// How many bytes of blobs are kept of calls that only read: beyond, the oldest calls are forgotten, and run again when they are sent again.
    pub max_kept_bytes: usize,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_waiting_rows: 256,
            linger: Duration::from_secs(2),
            max_inline: MAX_INLINE_BYTES,
            max_kept_bytes: 256 << 20,
        }
    }
}
