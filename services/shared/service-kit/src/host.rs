//! Where a service lives: connections in, layers around, health and reflection beside it.

use std::{io, sync::Arc, time::Duration};

use belay_proto::stores::Stores;
use futures::Stream;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::{
    service::{InterceptorLayer, Routes},
    transport::{Server, server::Connected},
};
use tower::ServiceBuilder;

use crate::{Access, Shutdown, deadline::DeadlineLayer, limits::LimitLayer, stores::StoresLayer};

/// The largest message that is decoded: above every limit of ours, so that the error is ours and names the field.
pub const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;

/// How long open requests have to end once a stop is asked for.
const GRACE: Duration = Duration::from_secs(5);

/// What a listener yields: TCP, unix sockets, a simulated network.
pub trait Connection:
    AsyncRead + AsyncWrite + Connected<ConnectInfo: Clone + Send + Sync> + Unpin + Send + 'static
{
}

impl<T: AsyncRead + AsyncWrite + Connected<ConnectInfo: Clone + Send + Sync> + Unpin + Send + 'static> Connection
    for T
{
}

/// One service or several, ready to be served on one listener.
pub struct Hosted {
    routes: Routes,
    names: Vec<&'static str>,
    descriptors: Vec<&'static [u8]>,
    stores: Option<Arc<Stores>>,
}

impl Hosted {
    /// One service: its methods, its full name under which its health is asked for, and its contract for reflection (an encoded
    /// `FileDescriptorSet`).
    pub fn new(routes: Routes, name: &'static str, descriptors: &'static [u8]) -> Self {
        Self { routes, names: vec![name], descriptors: vec![descriptors], stores: None }
    }

    /// For other services alone: what they send of how far stores have come is believed, and answered.
    #[must_use]
    pub fn with_stores(mut self, stores: Arc<Stores>) -> Self {
        self.stores = Some(stores);
        self
    }

    /// These and those on one listener.
    ///
    /// # Panics
    /// When both hold the same service.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        // Both sides answer UNIMPLEMENTED to what they do not know; two routers can be merged when one of them has such an answer.
        let theirs = other.routes.into_axum_router().reset_fallback();
        self.routes = self.routes.into_axum_router().merge(theirs).into();
        self.names.extend(other.names);
        for descriptors in other.descriptors {
            // Services of one contract bring the same one.
            if !self.descriptors.contains(&descriptors) {
                self.descriptors.push(descriptors);
            }
        }
        self
    }
}

/// Why a service stopped serving.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the listener failed")]
    Transport(#[from] tonic::transport::Error),
    /// The contract could not be offered for reflection.
    #[error("the contract cannot be reflected")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves until told to stop, with health (under each service's name and as a whole) and reflection beside it.
///
/// # Errors
/// [`ServeError`] when the transport fails.
pub async fn serve<C: Connection>(
    incoming: impl Stream<Item = io::Result<C>>,
    service: Hosted,
    access: Access,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let Hosted { routes, names, descriptors, stores } = service;
    let (reporter, health) = tonic_health::server::health_reporter();
    for name in &names {
        reporter.set_service_status(*name, tonic_health::ServingStatus::Serving).await;
    }
    // Most tools still ask by v1alpha (grpcio-reflection, ghz); v1 has been the same contract since 2022.
    let reflection = reflected(&names, &descriptors).build_v1()?;
    let reflection_v1alpha = reflected(&names, &descriptors).build_v1alpha()?;
    let access = Arc::new(access);
    let layers = ServiceBuilder::new()
        .layer(InterceptorLayer::new(move |request| access.check(request)))
        .layer(DeadlineLayer)
        .layer(StoresLayer(stores))
        .layer(LimitLayer::default())
        .into_inner();
    let stop = {
        let shutdown = shutdown.clone();
        async move {
            shutdown.requested().await;
            for name in &names {
                reporter.set_service_status(*name, tonic_health::ServingStatus::NotServing).await;
            }
        }
    };
    let serving = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .tcp_nodelay(true)
        .layer(layers)
        .add_routes(routes.add_service(health).add_service(reflection).add_service(reflection_v1alpha))
        .serve_with_incoming_shutdown(incoming, stop);
    let patience = async {
        shutdown.requested().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        served = serving => served.map_err(ServeError::from),
        () = patience => Ok(()),
    }
}

/// What reflection tells of a listener: the services that answer there and no others of the contract, and with their messages those of
/// `google.rpc`, so that generic clients can show an error's details.
fn reflected<'a>(names: &[&'static str], descriptors: &[&'a [u8]]) -> tonic_reflection::server::Builder<'a> {
    use tonic_reflection::pb;
    let beside = [
        tonic_health::pb::health_server::SERVICE_NAME,
        pb::v1::server_reflection_server::SERVICE_NAME,
        pb::v1alpha::server_reflection_server::SERVICE_NAME,
    ];
    let builder = tonic_reflection::server::Builder::configure().include_reflection_service(false);
    let builder = names.iter().chain(&beside).fold(builder, |builder, &name| builder.with_service_name(name));
    let shared = [
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        pb::v1::FILE_DESCRIPTOR_SET,
        pb::v1alpha::FILE_DESCRIPTOR_SET,
        tonic_types::pb::FILE_DESCRIPTOR_SET,
    ];
    descriptors.iter().chain(&shared).fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set))
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, path::Path};

    use tonic::{Code, Request, Status, codegen::http, transport::Channel};

    use super::*;
    use crate::net;

    /// A service with one method, which answers with the service's name.
    fn service(method: &'static str, name: &'static str) -> Hosted {
        let answer = move |_| async move { Ok::<_, Infallible>(Status::aborted(name).into_http::<String>()) };
        let router = Routes::default().into_axum_router().route_service(method, tower::service_fn(answer));
        Hosted::new(router.into(), name, tonic_health::pb::FILE_DESCRIPTOR_SET)
    }

    async fn ask(channel: Channel, path: &'static str) -> Status {
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        client.unary(Request::new(()), http::uri::PathAndQuery::from_static(path), codec).await.unwrap_err()
    }

    fn listen(path: &Path, service: Hosted, access: Access) -> (Channel, crate::Trigger) {
        let incoming = net::UnixSocket::bind(path).unwrap().incoming();
        let (trigger, stop) = Shutdown::new();
        tokio::spawn(serve(incoming, service, access, stop));
        (net::connect_lazy(&net::Address::Unix(path.to_owned())), trigger)
    }

    #[tokio::test]
    async fn two_services_share_a_listener() {
        let folder = tempfile::tempdir().unwrap();
        let both = service("/test.A/M", "test.A").and(service("/test.B/M", "test.B"));
        let (channel, _trigger) = listen(&folder.path().join("s"), both, Access::Everybody("test".into()));
        for (path, name) in [("/test.A/M", "test.A"), ("/test.B/M", "test.B")] {
            let status = ask(channel.clone(), path).await;
            assert_eq!((status.code(), status.message()), (Code::Aborted, name));
            let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
            let asked = tonic_health::pb::HealthCheckRequest { service: name.into() };
            assert!(health.check(asked).await.is_ok(), "{name} is healthy under its own name");
        }
        assert_eq!(ask(channel, "/test.C/M").await.code(), Code::Unimplemented);
    }

    #[tokio::test]
    async fn reflection_knows_what_answers_here_and_the_details_of_errors() {
        use tonic_reflection::pb::{v1, v1alpha};
        let folder = tempfile::tempdir().unwrap();
        let access = Access::Everybody("test".into());
        let (channel, _trigger) = listen(&folder.path().join("s"), service("/test.A/M", "test.A"), access);
        let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
        let mut ask = async |asked: v1::server_reflection_request::MessageRequest| {
            let request = v1::ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
            let mut answers =
                client.server_reflection_info(futures::stream::iter([request])).await.unwrap().into_inner();
            answers.message().await.unwrap().unwrap().message_response.unwrap()
        };
        use v1::{
            server_reflection_request::MessageRequest as Ask, server_reflection_response::MessageResponse as Answer,
        };
        let Answer::ListServicesResponse(list) = ask(Ask::ListServices(String::new())).await else { panic!() };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "test.A",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection"
            ]
        );
        for symbol in ["google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.Status"] {
            let answer = ask(Ask::FileContainingSymbol(symbol.into())).await;
            assert!(matches!(answer, Answer::FileDescriptorResponse(_)), "{symbol}: {answer:?}");
        }
        let mut older = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
        let request = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(String::new())),
        };
        let answers = older.server_reflection_info(futures::stream::iter([request])).await;
        assert!(answers.unwrap().into_inner().message().await.unwrap().is_some());
    }
}
