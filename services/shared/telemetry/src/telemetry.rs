//! Creates trace contexts and exports spans.

use std::{
    fmt::{self, Display},
    sync::Arc,
    time::Duration,
};

use belay_redaction::Redactor;
use data_encoding::HEXLOWER;
use opentelemetry::{
    Context, InstrumentationScope, KeyValue,
    trace::{SpanKind, TraceContextExt as _, TraceId},
};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{BatchSpanProcessor, Sampler, SamplingDecision, ShouldSample as _, SpanProcessor as _},
};
use thiserror::Error;
use tokio::{net::TcpStream, runtime::Runtime};
use tonic::{
    metadata::{MetadataKey, MetadataMap},
    transport::Uri,
};

use crate::{
    InvalidSettings, Settings, SpanRecord, TraceContext,
    context::span_id_of,
    export::Exporter,
    semconv,
    settings::{Destination as Collectors, Protocol},
};

/// How long a stopping service waits for the export of its last spans; `OTEL_BSP_EXPORT_TIMEOUT` overrides it.
pub const LAST_FLUSH: Duration = Duration::from_secs(3);

/// The same for a command, whose end a person waits for.
pub const LAST_FLUSH_OF_COMMAND: Duration = Duration::from_millis(300);

/// How long an ending process waits for a connection before that.
const LAST_CONNECT: Duration = Duration::from_millis(200);

/// Fills the bytes with random ones.
type Entropy = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Creates trace contexts and sends spans. Clones share one exporter.
#[derive(Clone)]
pub struct Telemetry {
    entropy: Entropy,
    pipeline: Option<Arc<Pipeline>>,
}

/// Why the export that the environment requests cannot start.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// A variable has an invalid value.
    #[error(transparent)]
    Settings(#[from] InvalidSettings),
    /// No thread could be started.
    #[error("the thread that sends spans could not be started: {0}")]
    Thread(#[from] std::io::Error),
    /// The exporter rejects the settings.
    #[error("the exporter cannot be set up: {0}")]
    Exporter(String),
}

/// Some spans were not delivered in time. Nothing else is affected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FlushError {
    /// The collector did not take them in time.
    #[error("the collector did not take them within {} ms (OTEL_BSP_EXPORT_TIMEOUT sets how long a process waits)", .0.as_millis())]
    Late(Duration),
    /// The collector accepts no connection.
    #[error("the collector does not accept a connection")]
    Unreachable,
    /// The collector refused them, or the exporter failed.
    #[error("{0}")]
    Refused(String),
}

/// Takes spans.
type Sink = Box<dyn Fn(SpanRecord) + Send + Sync>;

struct Pipeline {
    sampler: Sampler,
    destination: Destination,
    has_messages: bool,
}

enum Destination {
    Otlp(Otlp),
    Function(Sink),
}

/// The address of the collector.
#[derive(Clone)]
struct Collector {
    host: String,
    port: u16,
}

impl Collector {
    fn of(endpoint: &Uri) -> Self {
        // An IPv6 address has brackets in a URL only.
        let host = endpoint.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        Self { host: host.to_owned(), port: endpoint.port_u16().unwrap_or(80) }
    }

    /// Whether it accepts connections.
    async fn is_reachable(&self) -> bool {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        matches!(tokio::time::timeout(LAST_CONNECT, connecting).await, Ok(Ok(_)))
    }
}

struct Otlp {
    processor: Arc<BatchSpanProcessor>,
    scope: InstrumentationScope,
    collector: Collector,
    /// The endpoint, without secrets, for logs.
    endpoint: String,
    /// How long an ending process waits, if the environment sets it.
    last_flush: Option<Duration>,
    /// Runs the connection, so that it does not depend on the service's runtime. `None` only while being dropped.
    runtime: Option<Runtime>,
}

impl Telemetry {
    /// Reads the settings from the environment. `service_name` is the default name; `entropy` fills bytes with random ones, for ids; `redactor`
    /// redacts what is sent.
    ///
    /// # Errors
    /// [`TelemetryError`], when a variable is not valid. An unavailable collector is not an error.
    pub fn from_env(
        service_name: &str,
        redactor: Redactor,
        entropy: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Result<Self, TelemetryError> {
        match Settings::from_env(service_name)? {
            Some(settings) => Self::on(&settings, redactor, entropy),
            None => Ok(Self::off(entropy)),
        }
    }

    /// Sends nothing. Contexts are still propagated.
    pub fn off(entropy: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self { entropy: Arc::new(entropy), pipeline: None }
    }

    /// Sends spans from threads of its own.
    ///
    /// # Errors
    /// [`TelemetryError`], when no thread can be started, or a header cannot be sent.
    pub fn on(
        settings: &Settings,
        redactor: Redactor,
        entropy: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Result<Self, TelemetryError> {
        let entropy: Entropy = Arc::new(entropy);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("belay-telemetry")
            .enable_all()
            .build()?;
        let otlp = {
            let _inside = runtime.enter();
            otlp_exporter(settings)?
        };
        let resource = resource(settings, &HEXLOWER.encode(&random::<16>(&entropy)));
        let endpoint = redactor.redact_text(&settings.to.endpoint.to_string()).text;
        let exporter = Exporter::new(otlp, &resource, &endpoint, redactor, runtime.handle().clone());
        let scope = InstrumentationScope::builder("belay")
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(semconv::SCHEMA_URL);
        let destination = Destination::Otlp(Otlp {
            processor: Arc::new(BatchSpanProcessor::builder(exporter).build()),
            scope: scope.build(),
            collector: Collector::of(&settings.to.endpoint),
            endpoint,
            last_flush: settings.last_flush,
            runtime: Some(runtime),
        });
        let has_messages = settings.has_messages;
        let pipeline = Pipeline { sampler: settings.sampler.clone(), destination, has_messages };
        Ok(Self { entropy, pipeline: Some(Arc::new(pipeline)) })
    }

    /// Passes each span to a function immediately, unredacted, for tests and simulations. Traces that begin here are sampled.
    pub fn to(
        sink: impl Fn(SpanRecord) + Send + Sync + 'static,
        entropy: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
        let pipeline = Pipeline { sampler, destination: Destination::Function(Box::new(sink)), has_messages: false };
        Self { entropy: Arc::new(entropy), pipeline: Some(Arc::new(pipeline)) }
    }

    /// Whether spans are sent at all.
    pub fn is_on(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Whether spans are to have what models are asked and answer.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.pipeline.as_ref().is_some_and(|pipeline| pipeline.has_messages)
    }

    /// Whether spans of this context are sent. Check this before collecting attributes.
    pub fn records(&self, context: &TraceContext) -> bool {
        self.pipeline.is_some() && context.is_sampled()
    }

    /// A new trace and its root span. The sampler decides whether it is sampled; without an exporter it is not.
    pub fn root(&self) -> TraceContext {
        let context = TraceContext { trace_id: self.random(), span_id: self.random(), flags: 0, state: String::new() };
        let sampled = self.pipeline.as_ref().is_some_and(|pipeline| pipeline.samples(&context, None));
        context.sampled(sampled)
    }

    /// A new trace whose root span has this name; [`TraceContext::is_span`] recognizes it later.
    pub fn root_named(&self, name: &str) -> TraceContext {
        let context = self.root();
        TraceContext { span_id: span_id_of(&context, name), ..context }
    }

    /// A new child span of a span of this process or of a caller. Without an exporter it returns the parent, so that a trace that passes through
    /// has no gap.
    pub fn child(&self, parent: &TraceContext) -> TraceContext {
        match &self.pipeline {
            Some(pipeline) => pipeline.below(parent, self.random()),
            None => parent.clone(),
        }
    }

    /// The child span with this name in the trace: every call returns the same ids, in every process. The name must be unique in the trace, such
    /// as an execution's uid with the step and the attempt.
    pub fn derived(&self, parent: &TraceContext, name: impl Display) -> TraceContext {
        match &self.pipeline {
            Some(pipeline) => pipeline.below(parent, span_id_of(parent, &name.to_string())),
            None => parent.clone(),
        }
    }

    /// Queues a span for sending. Never blocks: when the queue is full, the span is dropped. Emitting the same span again after a crash is
    /// harmless, because its ids are the same.
    pub fn emit(&self, span: SpanRecord) {
        let Some(pipeline) = self.pipeline.as_ref().filter(|_| span.context.is_sampled()) else { return };
        match &pipeline.destination {
            Destination::Otlp(otlp) => otlp.processor.on_end(span.into_data(otlp.scope.clone())),
            Destination::Function(sink) => sink(span),
        }
    }

    /// Sends queued spans, and waits for at most `limit`, and at most 5 s.
    ///
    /// # Errors
    /// [`FlushError`], when that did not succeed in time.
    pub async fn flush(&self, limit: Duration) -> Result<(), FlushError> {
        self.finish(limit, |processor| processor.force_flush()).await
    }

    /// Sends queued spans, then stops. Waits for at most `limit`, or `OTEL_BSP_EXPORT_TIMEOUT` if it is set, and not at all when the collector does
    /// not
    /// accept a connection. Idempotent.
    ///
    /// # Errors
    /// [`FlushError`], when that did not succeed in time.
    pub async fn shutdown(&self, limit: Duration) -> Result<(), FlushError> {
        let Some(Destination::Otlp(otlp)) = self.pipeline.as_ref().map(|pipeline| &pipeline.destination) else {
            return Ok(());
        };
        let limit = if limit.is_zero() { limit } else { otlp.last_flush.unwrap_or(limit) };
        if !limit.is_zero() && otlp.is_reachable().await {
            return self.finish(limit, move |processor| processor.shutdown_with_timeout(limit)).await;
        }
        drop(self.finish(Duration::ZERO, |processor| processor.shutdown_with_timeout(Duration::ZERO)).await);
        Err(FlushError::Unreachable)
    }

    /// Shuts down the senders of an ending process, each with [`Telemetry::shutdown`]. Logs one line when spans were not delivered, unless `limit` is
    /// zero. Returns whether all were delivered.
    pub async fn end(senders: &[&Self], limit: Duration) -> bool {
        let ending = senders.iter().map(|sender| {
            let sender = (*sender).clone();
            tokio::spawn(async move { (sender.shutdown(limit).await, sender) })
        });
        let mut lost = None;
        for sender in ending.collect::<Vec<_>>() {
            // A panic of the task was already reported.
            if let Ok((Err(error), sender)) = sender.await {
                lost.get_or_insert((error, sender));
            }
        }
        if let Some((error, sender)) = lost.as_ref().filter(|_| !limit.is_zero()) {
            tracing::warn!(endpoint = sender.endpoint(), %error, "The last spans are dropped");
        }
        lost.is_none()
    }

    /// The endpoint, without secrets, for logs.
    fn endpoint(&self) -> &str {
        match self.pipeline.as_ref().map(|pipeline| &pipeline.destination) {
            Some(Destination::Otlp(otlp)) => &otlp.endpoint,
            _ => "",
        }
    }

    async fn finish(
        &self,
        limit: Duration,
        how: impl FnOnce(&BatchSpanProcessor) -> OTelSdkResult + Send + 'static,
    ) -> Result<(), FlushError> {
        let Some(Destination::Otlp(otlp)) = self.pipeline.as_ref().map(|pipeline| &pipeline.destination) else {
            return Ok(());
        };
        let Some(runtime) = &otlp.runtime else { return Ok(()) };
        let processor = Arc::clone(&otlp.processor);
        // On the telemetry's own runtime: the processor blocks, and the caller's timers may be simulated.
        let work = runtime.spawn_blocking(move || how(&processor));
        let timed = runtime.spawn(async move { tokio::time::timeout(limit, work).await });
        match timed.await {
            Ok(Ok(Ok(Ok(()) | Err(OTelSdkError::AlreadyShutdown)))) => Ok(()),
            // The processor has the same limit, and either may fire first.
            Ok(Ok(Ok(Err(OTelSdkError::Timeout(_))))) | Ok(Err(_)) => Err(FlushError::Late(limit)),
            Ok(Ok(Ok(Err(error)))) => Err(FlushError::Refused(error.to_string())),
            Ok(Ok(Err(lost))) | Err(lost) => Err(FlushError::Refused(lost.to_string())),
        }
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        random(&self.entropy)
    }
}

impl Pipeline {
    fn below(&self, parent: &TraceContext, span_id: [u8; 8]) -> TraceContext {
        let sampled = self.samples(parent, Some(parent));
        TraceContext { span_id, ..parent.clone() }.sampled(sampled)
    }

    fn samples(&self, context: &TraceContext, parent: Option<&TraceContext>) -> bool {
        let parent = parent.map(|parent| Context::new().with_remote_span_context(parent.span_context()));
        let trace = TraceId::from_bytes(context.trace_id);
        let decided = self.sampler.should_sample(parent.as_ref(), trace, "", &SpanKind::Internal, &[], &[]);
        decided.decision == SamplingDecision::RecordAndSample
    }
}

impl Otlp {
    /// Whether the collector accepts connections; connects on the telemetry's own runtime.
    async fn is_reachable(&self) -> bool {
        let Some(runtime) = &self.runtime else { return false };
        let collector = self.collector.clone();
        runtime.spawn(async move { collector.is_reachable().await }).await.unwrap_or(false)
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        // Dropping a runtime blocks, which is not allowed inside another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.pipeline.is_some() { "Telemetry(on)" } else { "Telemetry(off)" })
    }
}

/// Random bytes that are not all zeros, which is not an id.
fn random<const N: usize>(entropy: &Entropy) -> [u8; N] {
    let mut bytes = [0; N];
    entropy(&mut bytes);
    if bytes == [0; N] { [1; N] } else { bytes }
}

fn resource(settings: &Settings, instance: &str) -> Resource {
    let defaults = [
        KeyValue::new(semconv::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        KeyValue::new(semconv::SERVICE_INSTANCE_ID, instance.to_owned()),
    ];
    let given = settings.to.attributes.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let name = KeyValue::new(semconv::SERVICE_NAME, settings.to.service_name.clone());
    Resource::builder_empty()
        .with_schema_url(defaults, semconv::SCHEMA_URL)
        .with_attributes(given)
        .with_attribute(name)
        .build()
}

fn otlp_exporter(settings: &Settings) -> Result<opentelemetry_otlp::SpanExporter, TelemetryError> {
    let builder = opentelemetry_otlp::SpanExporter::builder();
    let endpoint = settings.to.endpoint.to_string();
    let built = match settings.to.protocol {
        Protocol::Grpc => builder
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(settings.to.timeout)
            .with_metadata(metadata(&settings.to)?)
            .build(),
        Protocol::HttpProtobuf => builder
            .with_http()
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(settings.to.timeout)
            .with_headers(settings.to.headers.iter().cloned().collect())
            .build(),
    };
    built.map_err(|error| TelemetryError::Exporter(error.to_string()))
}

pub(crate) fn metadata(to: &Collectors) -> Result<MetadataMap, TelemetryError> {
    let mut metadata = MetadataMap::new();
    for (key, value) in &to.headers {
        // `Settings` has checked both.
        let refused =
            |what: &str| TelemetryError::Exporter(format!("the header `{key}` has {what} that is not valid in HTTP"));
        let name = MetadataKey::from_bytes(key.to_ascii_lowercase().as_bytes()).map_err(|_| refused("a name"))?;
        metadata.insert(name, value.parse().map_err(|_| refused("a value"))?);
    }
    Ok(metadata)
}
