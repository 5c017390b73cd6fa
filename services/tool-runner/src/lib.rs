//! The tool runner: a registry of tools, and a ledger that knows of every call.
//!
//! Every call has an identity that the executor derives. Asking twice runs it once; leaving does not stop it; after a loss its true
//! outcome can be asked for. A call that changes nothing needs no durable row: losing it loses nothing. Any other has one before it
//! starts and one when it ends.

mod calls;
mod enforcement;
mod ledger;
mod registry;
mod service;
mod settings;
pub mod tools;
mod view;

pub use calls::Calls;
pub use enforcement::Enforcement;
pub use ledger::{Ledger, LedgerError};
pub use registry::{
    Annotations, Invocation, Operation, Output, Recovery, Registry, RegistryError, Tool, ToolFailure, ToolResult,
    ToolSpec, Touches,
};
pub use service::hosted;
pub use settings::Settings;
pub use view::{Gone, Mount, View, ViewHandle};

// Whoever hosts the runner has to give it a launcher, and may widen what commands see.
pub use belay_sandbox::{Settings as SandboxSettings, take_over_if_asked};

use std::sync::Arc;

use belay_service_kit::Clock;

/// What the service is made of. Everything that a simulation replaces is handed in here.
pub struct Parts {
    /// The tools it offers.
    pub registry: Registry,
    /// Its memory of calls.
    pub ledger: Ledger,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}
