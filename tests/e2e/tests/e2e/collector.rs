//! A collector for tests: it receives spans over OTLP, and prints them as a tree, and the latest metrics of each service.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::Metric,
    trace::v1,
};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// The timeout for receiving a span.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A span, and the service that sent it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) service: String,
    pub(crate) span: v1::Span,
}

pub(crate) struct Collector {
    endpoint: String,
    received: Receiver<Span>,
    spans: Vec<Span>,
    metrics: Latest,
    /// Held while the collector receives.
    _runtime: Runtime,
}

struct Service(Sender<Span>);

/// The metrics that each service sent last.
#[derive(Clone, Default)]
struct Latest(Arc<Mutex<BTreeMap<String, Vec<Metric>>>>);

#[tonic::async_trait]
impl MetricsService for Latest {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        for sent in request.into_inner().resource_metrics {
            let service = text(&sent.resource.unwrap_or_default().attributes, "service.name");
            let metrics = sent.scope_metrics.into_iter().flat_map(|scope| scope.metrics).collect();
            self.0.lock().unwrap().insert(service, metrics);
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for sent in request.into_inner().resource_spans {
            let resource = sent.resource.unwrap_or_default();
            let service = text(&resource.attributes, "service.name");
            for span in sent.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let sent = self.0.send(Span { service: service.clone(), span });
                sent.map_err(|_| Status::unavailable("the test is over"))?;
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = channel();
        let metrics = Latest::default();
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(Service(sender)))
            .add_service(MetricsServiceServer::new(metrics.clone()));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { endpoint, received, spans: Vec::new(), metrics, _runtime: runtime }
    }

    /// Makes the command send its spans here, without delay.
    pub(crate) fn watch(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_")) {
            command.env_remove(name);
        }
        command.env_remove("TRACEPARENT").env_remove("TRACESTATE");
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        command.env("OTEL_BSP_SCHEDULE_DELAY", "20");
        // However slow the machine is: what is asked of the spans is that they come.
        command.env("OTEL_BSP_EXPORT_TIMEOUT", TIMEOUT.as_millis().to_string());
        command
    }

    /// Waits until this service has sent a span with this name.
    pub(crate) fn wait_for(&mut self, service: &str, name: &str) {
        while !self.spans.iter().any(|sent| sent.service == service && sent.span.name == name) {
            match self.received.recv_timeout(TIMEOUT) {
                Ok(span) => self.spans.push(span),
                Err(end) => panic!("{name:?} of {service} did not come ({end}); what came: {:?}", self.spans),
            }
        }
    }

    /// The metrics that each service sent last. Those that a program sends as it exits regularly are included.
    pub(crate) fn metrics(&self) -> BTreeMap<String, Vec<Metric>> {
        self.metrics.0.lock().unwrap().clone()
    }

    /// All received spans. Spans that a program sent before it exited regularly are included.
    pub(crate) fn all(mut self) -> Vec<Span> {
        self.spans.extend(self.received.try_iter());
        self.spans
    }
}

impl Span {
    /// An attribute's text; empty when it is missing.
    pub(crate) fn text(&self, key: &str) -> String {
        text(&self.span.attributes, key)
    }

    /// An attribute's number; `None` when it is missing.
    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        let attribute = self.span.attributes.iter().find(|attribute| attribute.key == key)?;
        match attribute.value.as_ref()?.value {
            Some(Value::IntValue(number)) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn trace_id(&self) -> String {
        hex(&self.span.trace_id)
    }

    pub(crate) fn span_id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub(crate) fn parent_id(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    /// `service: name`, and its end in brackets.
    fn label(&self) -> String {
        let state = self.text("belay.state");
        let state = if state.is_empty() { String::new() } else { format!(" [{state}]") };
        let failed = self.text("error.type");
        let failed = if failed.is_empty() { String::new() } else { format!(" {failed}") };
        format!("{}: {}{state}{failed}", self.service, self.span.name)
    }
}

/// The spans as a tree, each level sorted by label. Every span must occur once, with its parent, except the root.
pub(crate) fn tree(spans: &[Span]) -> String {
    let ids: BTreeSet<String> = spans.iter().map(Span::span_id).collect();
    assert_eq!(ids.len(), spans.len(), "no span is sent twice: {spans:#?}");
    let roots: Vec<&Span> = spans.iter().filter(|span| !ids.contains(&span.parent_id())).collect();
    let labels: Vec<String> = roots.iter().map(|span| span.label()).collect();
    assert_eq!(roots.len(), 1, "one span begins the trace, and these have no parent: {labels:?}");
    let mut lines = String::from("\n");
    draw(spans, roots[0], 0, &mut lines);
    lines
}

fn draw(spans: &[Span], span: &Span, depth: usize, lines: &mut String) {
    *lines += &format!("{}{}\n", "  ".repeat(depth), span.label());
    let mut children: Vec<&Span> = spans.iter().filter(|child| child.parent_id() == span.span_id()).collect();
    children.sort_by_key(|child| (child.label(), child.span.start_time_unix_nano));
    for child in children {
        draw(spans, child, depth + 1, lines);
    }
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|attribute| attribute.key == key).and_then(|attribute| attribute.value.clone());
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
