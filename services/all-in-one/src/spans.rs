//! Exporters of spans and metrics of the bundled services: each uses the service name that it has as a separate process.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use belay_redaction::Redactor;
use belay_service_kit::{
    Clock as _, Ids, Shutdown, SystemClock,
    metrics::{self, AllMeasured},
};
pub use belay_telemetry::{KeyValue, SpanKind, SpanRecord, Status, semconv};
use belay_telemetry::{LAST_FLUSH, LAST_FLUSH_OF_COMMAND, MetricsExport, Telemetry, TelemetryError};

/// An exporter for each service.
pub(crate) struct Spans {
    pub(crate) executor: Telemetry,
    pub(crate) runner: Telemetry,
    pub(crate) gate: Telemetry,
}

impl Spans {
    /// Configures the exporters from the environment.
    pub(crate) fn from_env(redactor: &Redactor) -> Result<Self, TelemetryError> {
        Ok(Self {
            executor: with_redactor("belay-executor", redactor)?,
            runner: with_redactor("belay-tool-runner", redactor)?,
            gate: with_redactor("belay-approval-gate", redactor)?,
        })
    }

    /// Flushes the remaining spans, within [`LAST_FLUSH`]. Failures were logged.
    pub(crate) async fn shutdown(&self, is_service: bool) {
        let Self { executor, runner, gate } = self;
        let limit = if is_service { LAST_FLUSH } else { LAST_FLUSH_OF_COMMAND };
        end(&[executor, runner, gate], limit).await;
    }
}

/// Whether the collector has failed at the end of this process: it is the same for every sender, as the environment names it, and is waited
/// for once.
static FAILED: AtomicBool = AtomicBool::new(false);

async fn end(senders: &[&Telemetry], limit: Duration) {
    let limit = if FAILED.load(Ordering::Relaxed) { Duration::ZERO } else { limit };
    if !Telemetry::end(senders, limit).await {
        FAILED.store(true, Ordering::Relaxed);
    }
}

/// Sends what is left of a command's own spans, as it ends.
pub async fn end_of_command(sender: &Telemetry) {
    end(&[sender], LAST_FLUSH_OF_COMMAND).await;
}

/// Configures an exporter from the environment, with this service name unless the environment sets one. It knows the built-in rules for secrets
/// alone: what a client's own spans say is not made of texts.
///
/// # Errors
/// [`TelemetryError`], which names the invalid variable.
pub fn telemetry(service_name: &str) -> Result<Telemetry, TelemetryError> {
    with_redactor(service_name, &Redactor::new())
}

fn with_redactor(service_name: &str, redactor: &Redactor) -> Result<Telemetry, TelemetryError> {
    let entropy = Ids::from_system();
    Telemetry::from_env(service_name, redactor.clone(), move |bytes| entropy.fill(bytes))
}

/// The running exports of the bundled services' metrics, each under the service name that it has as a separate process.
pub(crate) struct MetricsExports([MetricsExport; 3]);

impl MetricsExports {
    /// Starts them with the settings of the environment.
    pub(crate) fn start(measured: [(&str, AllMeasured); 3], stop: &Shutdown) -> Result<Self, TelemetryError> {
        let ids = Ids::from_system();
        let [executor, runner, gate] = measured.map(|(service, measured)| {
            let read = move || {
                let measured = AllMeasured::clone(&measured);
                async move { metrics::read(&measured).await }
            };
            let stop = stop.clone();
            let stopping = async move { stop.requested().await };
            MetricsExport::start(service, &ids.next_id(), read, || SystemClock.now_micros(), stopping)
        });
        Ok(Self([executor?, runner?, gate?]))
    }

    /// Waits until the last metrics are sent, as long as for the last spans.
    pub(crate) async fn end(self, is_service: bool) {
        let limit = if is_service { LAST_FLUSH } else { LAST_FLUSH_OF_COMMAND };
        let [executor, runner, gate] = self.0;
        tokio::join!(executor.end(limit), runner.end(limit), gate.end(limit));
    }
}
