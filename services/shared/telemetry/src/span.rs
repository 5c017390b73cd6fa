//! A span that has ended.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId,
    trace::{Event, Link, SpanKind, Status},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::TraceContext;

/// A span that has ended, with the ids that were chosen when it began.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanRecord {
    /// The span.
    pub context: TraceContext,
    /// Its parent; `None` for the root of a trace. Only the span id matters.
    pub parent: Option<TraceContext>,
    /// Its name, without ids: `execute_tool read_file`.
    pub name: Cow<'static, str>,
    /// Its kind. The parent of a server or consumer is assumed to be in another process.
    pub kind: SpanKind,
    /// When it began, in microseconds since 1970.
    pub start_micros: i64,
    /// When it ended, in microseconds since 1970. A time before the beginning (after the clock was set back) is replaced by the beginning.
    pub end_micros: i64,
    /// Its attributes, by the names in [`semconv`](crate::semconv). Secrets are redacted before it is sent.
    pub attributes: Vec<KeyValue>,
    /// How it ended. Unset unless it failed.
    pub status: Status,
    /// Its events.
    pub events: Vec<SpanEvent>,
    /// Links to spans of other traces or branches.
    pub links: Vec<TraceContext>,
}

/// A moment within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// The name of the event.
    pub name: Cow<'static, str>,
    /// When, in microseconds since 1970.
    pub micros: i64,
    /// Its attributes.
    pub attributes: Vec<KeyValue>,
}

impl SpanRecord {
    /// An internal span without attributes. Set other fields with `SpanRecord { attributes, ..SpanRecord::new(…) }`.
    pub fn new(context: TraceContext, name: impl Into<Cow<'static, str>>, start_micros: i64, end_micros: i64) -> Self {
        Self {
            context,
            parent: None,
            name: name.into(),
            kind: SpanKind::Internal,
            start_micros,
            end_micros,
            attributes: Vec::new(),
            status: Status::Unset,
            events: Vec::new(),
            links: Vec::new(),
        }
    }

    pub(crate) fn into_data(self, scope: InstrumentationScope) -> SpanData {
        let mut events = SpanEvents::default();
        events.events = self
            .events
            .into_iter()
            .map(|event| Event::new(event.name, time(event.micros), event.attributes, 0))
            .collect();
        let mut links = SpanLinks::default();
        links.links = self.links.iter().map(|link| Link::new(link.span_context(), Vec::new(), 0)).collect();
        SpanData {
            span_context: self.context.span_context(),
            parent_span_id: self.parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span_id)),
            parent_span_is_remote: matches!(self.kind, SpanKind::Server | SpanKind::Consumer),
            span_kind: self.kind,
            name: self.name,
            start_time: time(self.start_micros),
            end_time: time(self.end_micros.max(self.start_micros)),
            attributes: self.attributes,
            dropped_attributes_count: 0,
            events,
            links,
            status: self.status,
            instrumentation_scope: scope,
        }
    }
}

fn time(micros: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
