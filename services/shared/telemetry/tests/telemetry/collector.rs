//! A collector that hands over what it receives.

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, metadata::MetadataMap};

type ExportedTrace = (MetadataMap, ExportTraceServiceRequest);

pub(crate) struct Collector {
    pub(crate) endpoint: String,
    received: mpsc::UnboundedReceiver<ExportedTrace>,
}

struct Service(mpsc::UnboundedSender<ExportedTrace>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        self.0.send((metadata, request)).map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = mpsc::unbounded_channel();
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Service(sender)));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { endpoint, received }
    }

    /// The next batch, with its headers.
    pub(crate) async fn batch(&mut self) -> ExportedTrace {
        self.received.recv().await.expect("the collector runs")
    }

    /// The next batch's spans.
    pub(crate) async fn spans(&mut self) -> Vec<Span> {
        spans(self.batch().await.1)
    }

    /// Whether nothing more has come.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

pub(crate) fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}
