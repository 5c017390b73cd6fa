//! Exports spans with secrets redacted, and logs once when the collector becomes unavailable.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use belay_redaction::Redactor;
use opentelemetry::{Array, KeyValue, StringValue, Value, trace::Status};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};
use tokio::runtime::Handle;

/// Sends spans through the OTLP exporter, on the telemetry's own runtime.
#[derive(Debug)]
pub(crate) struct Exporter {
    otlp: Arc<opentelemetry_otlp::SpanExporter>,
    runtime: Handle,
    redactor: Redactor,
    /// The endpoint, without secrets, for logs.
    endpoint: String,
    outage: Outage,
}

impl Exporter {
    pub(crate) fn new(
        mut otlp: opentelemetry_otlp::SpanExporter,
        resource: &Resource,
        endpoint: &str,
        redactor: Redactor,
        runtime: Handle,
    ) -> Self {
        otlp.set_resource(resource);
        Self { otlp: Arc::new(otlp), runtime, redactor, endpoint: endpoint.to_owned(), outage: Outage::default() }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        batch.iter_mut().for_each(|span| redact(&self.redactor, span));
        let otlp = Arc::clone(&self.otlp);
        let sent = self.runtime.spawn(async move { otlp.export(batch).await }).await;
        let result = sent.unwrap_or_else(|lost| Err(OTelSdkError::InternalFailure(lost.to_string())));
        match (self.outage.record(result.is_ok()), &result) {
            (Some(OutageChange::Started), Err(error)) => {
                tracing::warn!(endpoint = %self.endpoint, %error, "Spans cannot be exported and are dropped until the collector is available again");
            }
            (Some(OutageChange::Ended), _) => tracing::info!(endpoint = %self.endpoint, "Spans are exported again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        // The OTLP exporter has only this one.
        self.otlp.shutdown()
    }
}

/// Whether the collector is unavailable, so that each change is logged once.
#[derive(Debug, Default)]
pub(crate) struct Outage(AtomicBool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageChange {
    Started,
    Ended,
}

impl Outage {
    /// Returns the change, if there is one.
    pub(crate) fn record(&self, delivered: bool) -> Option<OutageChange> {
        match (self.0.swap(!delivered, Ordering::Relaxed), delivered) {
            (false, false) => Some(OutageChange::Started),
            (true, true) => Some(OutageChange::Ended),
            _ => None,
        }
    }
}

/// Redacts every text of the span.
fn redact(redactor: &Redactor, span: &mut SpanData) {
    let attributes = |attributes: &mut Vec<KeyValue>| {
        for attribute in attributes {
            match &mut attribute.value {
                Value::String(text) => redact_value(redactor, text),
                Value::Array(Array::String(texts)) => texts.iter_mut().for_each(|text| redact_value(redactor, text)),
                _ => {}
            }
        }
    };
    redact_name(redactor, &mut span.name);
    attributes(&mut span.attributes);
    for event in &mut span.events.events {
        redact_name(redactor, &mut event.name);
        attributes(&mut event.attributes);
    }
    if let Status::Error { description } = &mut span.status {
        redact_name(redactor, description);
    }
}

fn redact_value(redactor: &Redactor, text: &mut StringValue) {
    let redacted = redactor.redact_text(text.as_str());
    if !redacted.found.is_empty() {
        *text = redacted.text.into();
    }
}

fn redact_name(redactor: &Redactor, text: &mut Cow<'static, str>) {
    let redacted = redactor.redact_text(text);
    if !redacted.found.is_empty() {
        *text = redacted.text.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_and_its_end_are_reported_once() {
        let outage = Outage::default();
        let changes = [true, false, false, false, true, true, false].map(|delivered| outage.record(delivered));
        assert_eq!(
            changes,
            [
                None,
                Some(OutageChange::Started),
                None,
                None,
                Some(OutageChange::Ended),
                None,
                Some(OutageChange::Started)
            ]
        );
    }
}
