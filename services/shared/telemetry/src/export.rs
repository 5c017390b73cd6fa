//! The export: without secrets, and with one sentence in the log when the collector is away.

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

/// Sends what the OTLP exporter is given, on the telemetry's own runtime.
#[derive(Debug)]
pub(crate) struct Exporter {
    otlp: Arc<opentelemetry_otlp::SpanExporter>,
    runtime: Handle,
    redactor: Redactor,
    /// As it may be logged.
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
        batch.iter_mut().for_each(|span| clean(&self.redactor, span));
        let otlp = Arc::clone(&self.otlp);
        let sent = self.runtime.spawn(async move { otlp.export(batch).await }).await;
        let result = sent.unwrap_or_else(|lost| Err(OTelSdkError::InternalFailure(lost.to_string())));
        match (self.outage.turn(result.is_ok()), &result) {
            (Some(Turn::Away), Err(error)) => {
                tracing::warn!(endpoint = %self.endpoint, %error, "Spans cannot be delivered and are dropped until the collector is back");
            }
            (Some(Turn::Back), _) => tracing::info!(endpoint = %self.endpoint, "Spans are delivered again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        // The OTLP exporter has only this one.
        self.otlp.shutdown()
    }
}

/// Whether the collector is known to be away, so that it is said once.
#[derive(Debug, Default)]
struct Outage(AtomicBool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Away,
    Back,
}

impl Outage {
    /// What is new, if anything.
    fn turn(&self, delivered: bool) -> Option<Turn> {
        match (self.0.swap(!delivered, Ordering::Relaxed), delivered) {
            (false, false) => Some(Turn::Away),
            (true, true) => Some(Turn::Back),
            _ => None,
        }
    }
}

/// Takes the secrets out of every text of the span.
fn clean(redactor: &Redactor, span: &mut SpanData) {
    let attributes = |attributes: &mut Vec<KeyValue>| {
        for attribute in attributes {
            match &mut attribute.value {
                Value::String(text) => clean_value(redactor, text),
                Value::Array(Array::String(texts)) => texts.iter_mut().for_each(|text| clean_value(redactor, text)),
                _ => {}
            }
        }
    };
    clean_name(redactor, &mut span.name);
    attributes(&mut span.attributes);
    for event in &mut span.events.events {
        clean_name(redactor, &mut event.name);
        attributes(&mut event.attributes);
    }
    if let Status::Error { description } = &mut span.status {
        clean_name(redactor, description);
    }
}

fn clean_value(redactor: &Redactor, text: &mut StringValue) {
    let redacted = redactor.redact_text(text.as_str());
    if !redacted.found.is_empty() {
        *text = redacted.text.into();
    }
}

fn clean_name(redactor: &Redactor, text: &mut Cow<'static, str>) {
    let redacted = redactor.redact_text(text);
    if !redacted.found.is_empty() {
        *text = redacted.text.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_said_once_and_so_is_its_end() {
        let outage = Outage::default();
        let turns = [true, false, false, false, true, true, false].map(|delivered| outage.turn(delivered));
        assert_eq!(turns, [None, Some(Turn::Away), None, None, Some(Turn::Back), None, Some(Turn::Away)]);
    }
}
