//! Spans, sent over OTLP, without one that is held open.
//!
//! An execution may wait for a person for a week, and its process may be replaced meanwhile. So a span is not an object that stays alive: its ids are
//! chosen first ([`Telemetry::root`], [`Telemetry::child`], or derived from a stable name by [`Telemetry::derived`]), travel as a
//! [`TraceContext`], and the span is emitted whole when it has ended ([`Telemetry::emit`]), perhaps by another process than the one that
//! began it.
//!
//! Without `OTEL_EXPORTER_OTLP_ENDPOINT` nothing of this runs. With it a collector that is away costs spans and nothing else. No secret
//! leaves: each text of a span goes through the redactor before it is sent.

mod context;
mod export;
mod rpc;
pub mod semconv;
mod settings;
mod span;
mod telemetry;

pub use context::{NoTraceContext, TraceContext, span_id_of};
pub use opentelemetry::{
    Array, KeyValue, Value,
    trace::{SpanKind, Status},
};
pub use rpc::RpcSpan;
pub use settings::{Settings, SettingsRefused};
pub use span::{SpanEvent, SpanRecord};
pub use telemetry::{LAST_FLUSH, LAST_FLUSH_OF_COMMAND, NotDelivered, NotStarted, Telemetry};
