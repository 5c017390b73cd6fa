//! Spans and metrics, exported over OTLP; no span is kept open.
//!
//! An execution may wait for a person for a week, and its process may be replaced meanwhile. So a span is not a live object: its ids are chosen
//! first ([`Telemetry::root`], [`Telemetry::child`], or derived from a stable name by [`Telemetry::derived`]) and propagated as a
//! [`TraceContext`]. The span is emitted whole when it has ended ([`Telemetry::emit`]), possibly by another process than the one that began it.
//!
//! Without `OTEL_EXPORTER_OTLP_ENDPOINT` nothing is sent. With it, an unavailable collector loses spans and affects nothing else. Each text of a
//! span passes the redactor before it is sent.

mod context;
mod export;
mod metrics;
mod rpc;
pub mod semconv;
mod settings;
mod span;
mod telemetry;

pub use context::{InvalidTraceContext, TraceContext, span_id_of};
pub use metrics::{MetricsExport, MetricsExporter};
pub use opentelemetry::{
    Array, KeyValue, Value,
    trace::{SpanKind, Status},
};
pub use rpc::RpcSpan;
pub use settings::{InvalidSettings, MetricsSettings, Settings};
pub use span::{SpanEvent, SpanRecord};
pub use telemetry::{FlushError, LAST_FLUSH, LAST_FLUSH_OF_COMMAND, Telemetry, TelemetryError};
