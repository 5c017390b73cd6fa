//! Serves gRPC services on a listener, with middleware, health and reflection.

use std::{io, marker::PhantomData, sync::Arc, time::Duration};

use belay_proto::stores::Stores;
use futures::Stream;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::{
    service::Routes,
    transport::{Server, server::Connected},
};
use tower::ServiceBuilder;

pub use crate::limits::MAX_MESSAGE_BYTES;
use crate::{
    Access, Shutdown,
    connections::{Bounds, PassInfo, bounded},
    deadline::Deadline,
    fitting::Fitting,
    guard::Guard,
    http_health::HttpHealth,
    limits::Limits,
    metrics::{HttpMetrics, MetricsSource},
    middleware::MiddlewareLayer,
    reflection,
    stores::StoreReports,
    unread::UnreadCounter,
};

/// How long open requests have to end once a stop is requested.
const GRACE: Duration = Duration::from_secs(5);

/// A connection as listeners yield them: TCP, unix sockets, a simulated network.
pub trait Connection:
    AsyncRead + AsyncWrite + Connected<ConnectInfo: Clone + Send + Sync> + Unpin + Send + 'static
{
}

impl<T: AsyncRead + AsyncWrite + Connected<ConnectInfo: Clone + Send + Sync> + Unpin + Send + 'static> Connection
    for T
{
}

/// A service or several, ready to be served on one listener.
pub struct HostedServices {
    routes: Routes,
    names: Vec<&'static str>,
    descriptors: Vec<&'static [u8]>,
    stores: Option<Arc<Stores>>,
    measured: Vec<Arc<dyn MetricsSource>>,
}

impl HostedServices {
    /// Hosts a service: its methods, its full name (also the name of its health check), and its contract for reflection (an encoded
    /// `FileDescriptorSet`).
    pub fn new(routes: Routes, name: &'static str, descriptors: &'static [u8]) -> Self {
        Self { routes, names: vec![name], descriptors: vec![descriptors], stores: None, measured: Vec::new() }
    }

    /// For listeners that only Belay's services call: checks the store positions that requests report, and reports its own in responses.
    #[must_use]
    pub fn with_stores(mut self, stores: Arc<Stores>) -> Self {
        self.stores = Some(stores);
        self
    }

    /// Serves the gauges of what is measured as `GET /metrics`.
    #[must_use]
    pub fn with_metrics(mut self, measured: Arc<impl MetricsSource>) -> Self {
        self.measured.push(measured);
        self
    }

    /// The same with other routes around its methods: for tests that act in the middle of a request.
    #[must_use]
    pub fn map_routes(mut self, wrap: impl FnOnce(Routes) -> Routes) -> Self {
        self.routes = wrap(self.routes);
        self
    }

    /// The services of both on one listener.
    ///
    /// # Panics
    /// When both hold the same service.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        // Both routers answer UNIMPLEMENTED to unknown methods; only one of two merged routers may have such a fallback.
        let theirs = other.routes.into_axum_router().reset_fallback();
        self.routes = self.routes.into_axum_router().merge(theirs).into();
        self.names.extend(other.names);
        self.measured.extend(other.measured);
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
}

/// Serves until `shutdown` is requested, together with health (gRPC under each service's name and as a whole, and plain HTTP) and
/// reflection. Health serves every caller. Every other method serves callers that `access` accepts and that the table of methods allows.
///
/// # Errors
/// [`ServeError`] when the transport fails.
pub async fn serve<C: Connection>(
    incoming: impl Stream<Item = io::Result<C>>,
    service: HostedServices,
    access: Access,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let HostedServices { routes, names, descriptors, stores, measured } = service;
    let (reporter, health) = tonic_health::server::health_reporter();
    for name in &names {
        reporter.set_service_status(*name, tonic_health::ServingStatus::Serving).await;
    }
    let routes = reflection::add(routes.add_service(health), names.clone(), descriptors);
    let metrics = HttpMetrics { access: access.clone(), services: measured.into() };
    let layers = ServiceBuilder::new()
        .layer(MiddlewareLayer(Fitting))
        .layer(MiddlewareLayer(PassInfo::<C::ConnectInfo>(PhantomData)))
        .layer(MiddlewareLayer(metrics))
        .layer(MiddlewareLayer(HttpHealth(shutdown.clone())))
        .layer(MiddlewareLayer(Guard(access)))
        .layer(MiddlewareLayer(UnreadCounter::default()))
        .layer(MiddlewareLayer(Deadline))
        .layer(MiddlewareLayer(StoreReports(stores)))
        .layer(MiddlewareLayer(Limits::default()))
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
        // For `HttpHealth`, which answers every HTTP/1 request itself.
        .accept_http1(true)
        .layer(layers)
        .add_routes(routes)
        .serve_with_incoming_shutdown(bounded(incoming, Bounds::of_process()), stop);
    let grace_over = async {
        shutdown.requested().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        served = serving => served.map_err(ServeError::from),
        () = grace_over => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, path::Path};

    use tonic::{Code, Request, Status, codegen::http, transport::Channel};
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest,
    };

    use super::*;
    use crate::{
        People,
        guard::RECHECK,
        net,
        principal::{Principal, Role},
        register::TokenDigest,
        register_file,
    };

    /// A service with one method, which answers with the service's name.
    fn service(method: &'static str, name: &'static str) -> HostedServices {
        let answer = move |_| async move { Ok::<_, Infallible>(Status::aborted(name).into_http::<String>()) };
        let router = Routes::default().into_axum_router().route_service(method, tower::service_fn(answer));
        HostedServices::new(router.into(), name, tonic_health::pb::FILE_DESCRIPTOR_SET)
    }

    async fn ask(channel: Channel, path: &'static str) -> Status {
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        client.unary(Request::new(()), http::uri::PathAndQuery::from_static(path), codec).await.unwrap_err()
    }

    fn listen(path: &Path, service: HostedServices, access: Access) -> (Channel, crate::Trigger) {
        let incoming = net::UnixSocket::bind(path).unwrap().incoming();
        let (trigger, stop) = Shutdown::new();
        tokio::spawn(serve(incoming, service, access, stop));
        (net::connect_lazy(&net::Address::Unix(path.to_owned())), trigger)
    }

    #[tokio::test]
    async fn two_services_share_a_listener() {
        let folder = tempfile::tempdir().unwrap();
        let both = service("/test.A/M", "test.A").and(service("/test.B/M", "test.B"));
        let (channel, _trigger) = listen(&folder.path().join("s"), both, Access::unauthenticated_person("test"));
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
    async fn reflection_lists_the_services_of_this_listener_and_error_details() {
        use tonic_reflection::pb::{v1, v1alpha};
        let folder = tempfile::tempdir().unwrap();
        let access = Access::unauthenticated_person("test");
        let (channel, _trigger) = listen(&folder.path().join("s"), service("/test.A/M", "test.A"), access);
        let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
        let mut ask = async |asked: v1::server_reflection_request::MessageRequest| {
            let request = v1::ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
            let mut answers =
                client.server_reflection_info(futures::stream::iter([request])).await.unwrap().into_inner();
            answers.message().await.unwrap().unwrap().message_response.unwrap()
        };
        use v1::{
            server_reflection_request::MessageRequest as Ask,
            server_reflection_response::MessageResponse as ResponseFuture,
        };
        let ResponseFuture::ListServicesResponse(list) = ask(Ask::ListServices(String::new())).await else { panic!() };
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
            assert!(matches!(answer, ResponseFuture::FileDescriptorResponse(_)), "{symbol}: {answer:?}");
        }
        let mut older = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
        let request = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(String::new())),
        };
        let answers = older.server_reflection_info(futures::stream::iter([request])).await;
        assert!(answers.unwrap().into_inner().message().await.unwrap().is_some());
    }

    /// A service whose answer is the caller's name.
    fn who() -> HostedServices {
        async fn answer<B>(request: http::Request<B>) -> Result<http::Response<String>, Infallible> {
            let caller = request.extensions().get::<Principal>().map(ToString::to_string).unwrap_or_default();
            Ok(Status::aborted(caller).into_http())
        }
        let service = tower::service_fn(answer);
        let router = Routes::default().into_axum_router().route_service("/test.Who/Am", service);
        HostedServices::new(router.into(), "test.Who", tonic_health::pb::FILE_DESCRIPTOR_SET)
    }

    /// The caller's name, or the code and the words of the refusal.
    async fn am(channel: Channel, token: Option<&str>) -> Result<String, (Code, String)> {
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let mut request = Request::new(());
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let path = http::uri::PathAndQuery::from_static("/test.Who/Am");
        let status = client.unary::<(), (), _>(request, path, codec).await.unwrap_err();
        match status.code() {
            Code::Aborted => Ok(status.message().to_owned()),
            code => Err((code, status.message().to_owned())),
        }
    }

    struct Ann {
        folder: tempfile::TempDir,
        unix: Channel,
        tcp: Channel,
        _triggers: [crate::Trigger; 2],
    }

    impl Ann {
        /// A service on a unix socket and on TCP, which knows its owner by the token `own` and Ann by the token `ann` and by `uids`.
        async fn known(uids: &[u32]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let register = folder.path().join(register_file::FILE);
            register_file::change(&register, |register| {
                let token = Some(TokenDigest::of("ann"));
                register.add("ann", [Role::Planner].into_iter().collect(), uids, token, 1).map(drop)
            })
            .unwrap();
            let access = |address: &net::Address| {
                Access::people(address, People::new(Some("own"), Some(register.clone())).unwrap()).unwrap()
            };
            let socket = folder.path().join("s");
            let on_unix = access(&net::Address::Unix(socket.clone()));
            let (unix, unix_trigger) = listen(&socket, who(), on_unix);
            let bound = net::bind(&net::Address::Tcp(([127, 0, 0, 1], 0).into())).await.unwrap();
            let address = bound.address();
            let (tcp_trigger, stop) = Shutdown::new();
            tokio::spawn(bound.serve(who(), access(&address), stop));
            Self { folder, unix, tcp: net::connect_lazy(&address), _triggers: [unix_trigger, tcp_trigger] }
        }

        fn revoke(&self) {
            let register = self.folder.path().join(register_file::FILE);
            register_file::change(&register, |register| register.revoke("ann", 2).map(drop)).unwrap();
        }
    }

    /// B-19: a principal is a person, whichever endpoint and credential they come by.
    #[tokio::test]
    async fn one_person_is_one_over_unix_and_over_tcp() {
        let server = Ann::known(&[]).await;
        let owner = Ok("person:owner".to_owned());
        assert_eq!(am(server.unix.clone(), None).await, owner, "by the user");
        assert_eq!(am(server.unix.clone(), Some("own")).await, owner, "by the token over unix");
        assert_eq!(am(server.tcp.clone(), Some("own")).await, owner, "by the token over TCP");
        let ann = Ok("person:ann".to_owned());
        assert_eq!(am(server.unix.clone(), Some("ann")).await, ann);
        assert_eq!(am(server.tcp.clone(), Some("ann")).await, ann);

        // Bound to Ann, the owner's user is Ann: over unix by user, over TCP by either token.
        let server = Ann::known(&[rustix::process::geteuid().as_raw()]).await;
        for (channel, token) in [(&server.unix, None), (&server.tcp, Some("own")), (&server.tcp, Some("ann"))] {
            assert_eq!(am(channel.clone(), token).await, ann, "{token:?}");
        }
    }

    /// B-19: a caller without a credential, or with an unknown one, is refused; so is one whose credential was revoked, from the next request on.
    #[tokio::test]
    async fn a_revoked_credential_is_refused_from_the_next_request_on() {
        let server = Ann::known(&[]).await;
        let refused = async |channel: &Channel, token| am(channel.clone(), token).await.unwrap_err();
        assert_eq!(refused(&server.tcp, None).await.0, Code::Unauthenticated, "no token over TCP");
        assert_eq!(refused(&server.tcp, Some("an")).await.0, Code::Unauthenticated);
        assert!(am(server.tcp.clone(), Some("ann")).await.is_ok());
        server.revoke();
        for channel in [&server.tcp, &server.unix] {
            let (code, message) = refused(channel, Some("ann")).await;
            assert_eq!(code, Code::Unauthenticated);
            assert!(message.contains("revoked or replaced"), "{message}");
        }
        std::fs::write(server.folder.path().join(register_file::FILE), "nonsense").unwrap();
        assert_eq!(refused(&server.tcp, Some("own")).await.0, Code::Unavailable, "revocations cannot be read");
    }

    #[tokio::test]
    async fn a_stream_ends_soon_after_its_caller_was_revoked() {
        let server = Ann::known(&[]).await;
        let question = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let questions = futures::StreamExt::chain(
            futures::stream::iter([question]),
            futures::stream::pending::<ServerReflectionRequest>(),
        );
        let mut request = Request::new(questions);
        request.metadata_mut().insert("authorization", "Bearer ann".parse().unwrap());
        let mut client = ServerReflectionClient::new(server.tcp.clone());
        let mut answers = client.server_reflection_info(request).await.unwrap().into_inner();
        assert!(answers.message().await.unwrap().is_some(), "it is served");
        server.revoke();
        let ended = tokio::time::timeout(10 * RECHECK, answers.message()).await.expect("the service ends the stream");
        assert_eq!(ended.unwrap_err().code(), Code::Unauthenticated);
    }

    /// Supervisors and load balancers have no token; everything else needs one, reflection too.
    #[tokio::test]
    async fn health_answers_without_a_credential_and_nothing_else_does() {
        let server = Ann::known(&[]).await;
        for channel in [&server.tcp, &server.unix] {
            let asked = HealthCheckRequest { service: "test.Who".into() };
            let health = HealthClient::new(channel.clone()).check(asked).await.unwrap().into_inner();
            assert_eq!(health.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
        }
        let nothing = futures::stream::empty::<ServerReflectionRequest>();
        let refused = ServerReflectionClient::new(server.tcp.clone()).server_reflection_info(nothing).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
        assert_eq!(am(server.tcp.clone(), None).await.unwrap_err().0, Code::Unauthenticated);
    }
}
