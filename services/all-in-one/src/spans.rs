//! Where the spans of the bundled services go: each under the name that it has as a process of its own.

use belay_redaction::Redactor;
use belay_service_kit::Ids;
pub use belay_telemetry::{KeyValue, LAST_FLUSH, SpanKind, SpanRecord, Status, semconv};
use belay_telemetry::{NotStarted, Telemetry};

/// One sender for each service.
pub(crate) struct Spans {
    pub(crate) executor: Telemetry,
    pub(crate) runner: Telemetry,
    pub(crate) gate: Telemetry,
}

impl Spans {
    /// As the environment says.
    pub(crate) fn from_env() -> Result<Self, NotStarted> {
        Ok(Self {
            executor: telemetry("belay-executor")?,
            runner: telemetry("belay-tool-runner")?,
            gate: telemetry("belay-approval-gate")?,
        })
    }

    /// Sends what is left, within [`LAST_FLUSH`]. What could not be delivered has been logged.
    pub(crate) async fn shutdown(&self) {
        let Self { executor, runner, gate } = self;
        drop(tokio::join!(executor.shutdown(LAST_FLUSH), runner.shutdown(LAST_FLUSH), gate.shutdown(LAST_FLUSH)));
    }
}

/// Spans as the environment says, under this name unless the environment gives another.
///
/// # Errors
/// [`NotStarted`], naming the variable that cannot be followed.
pub fn telemetry(service_name: &str) -> Result<Telemetry, NotStarted> {
    let entropy = Ids::from_system();
    Telemetry::from_env(service_name, Redactor::new(), move |bytes| entropy.fill(bytes))
}
