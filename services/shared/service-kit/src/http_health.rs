//! Health for probes that speak plain HTTP: `GET /healthz` and `GET /readyz`, without a credential, on the listener that serves gRPC.
//!
//! A listener accepts HTTP/1.1 for these two only. Every other HTTP/1.1 request gets a text that explains the endpoint; none reaches a
//! service.

use http::{
    Method, Request, Response, StatusCode, Version,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use tonic::body::Body;

use crate::{
    Shutdown,
    middleware::{Middleware, ResponseFuture, respond},
};

/// Liveness: 200 while the process responds.
const LIVE: &str = "/healthz";
/// Readiness: 200, and 503 from the moment a stop is requested.
const READY: &str = "/readyz";

const GRPC_ONLY: &str = "This is a gRPC endpoint and requires HTTP/2. Over HTTP/1.1 it serves only GET /healthz, GET /readyz and, where there are metrics, GET /metrics.\n";

/// Answers the probes, and every other request that came over HTTP/1.
#[derive(Clone, Debug)]
pub(crate) struct HttpHealth(pub(crate) Shutdown);

impl Middleware for HttpHealth {
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        match answer(request.method(), request.uri().path(), request.version(), self.0.is_requested()) {
            Some((status, text)) => respond(plain(status, text)),
            None => Box::pin(next(request)),
        }
    }
}

/// The status and the text of the response; `None` for what a gRPC service answers.
fn answer(method: &Method, path: &str, version: Version, stopping: bool) -> Option<(StatusCode, &'static str)> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        LIVE | READY if !is_read => Some((StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n")),
        READY if stopping => Some((StatusCode::SERVICE_UNAVAILABLE, "stopping\n")),
        LIVE | READY => Some((StatusCode::OK, "ok\n")),
        _ if version < Version::HTTP_2 => Some((StatusCode::NOT_FOUND, GRPC_ONLY)),
        _ => None,
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::new(text.to_owned()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    use super::*;
    use crate::{Access, HostedServices, People, net};

    fn hosted() -> HostedServices {
        HostedServices::new(tonic::service::Routes::default(), "test.Nothing", tonic_health::pb::FILE_DESCRIPTOR_SET)
    }

    /// A listener that refuses every caller without the token `own`.
    async fn listen() -> (net::Address, crate::Trigger, tokio::task::JoinHandle<()>) {
        let bound = net::bind(&net::Address::Tcp(([127, 0, 0, 1], 0).into())).await.unwrap();
        let address = bound.address();
        let (trigger, stop) = Shutdown::new();
        let access = Access::people(&address, People::new(Some("own"), None).unwrap()).unwrap();
        let served = tokio::spawn(async move { bound.serve(hosted(), access, stop).await.unwrap() });
        (address, trigger, served)
    }

    async fn connect(address: &net::Address) -> TcpStream {
        let net::Address::Tcp(address) = address else { panic!("{address}") };
        TcpStream::connect(address).await.unwrap()
    }

    /// Sends these bytes and returns the answer, up to the end of the connection.
    async fn send(address: &net::Address, bytes: &[u8]) -> String {
        let mut stream = connect(address).await;
        stream.write_all(bytes).await.unwrap();
        let mut received = Vec::new();
        // A connection that is cut after its answer is as good as one that is closed.
        drop(stream.read_to_end(&mut received).await);
        String::from_utf8_lossy(&received).into_owned()
    }

    #[test]
    fn a_stop_makes_it_unready_and_not_dead() {
        let ask = |path, stopping| answer(&Method::GET, path, Version::HTTP_11, stopping).unwrap().0.as_u16();
        assert_eq!([ask(LIVE, false), ask(READY, false)], [200, 200]);
        assert_eq!([ask(LIVE, true), ask(READY, true)], [200, 503]);
        assert_eq!(answer(&Method::POST, "/belay.v1.ExecutorService/GetExecution", Version::HTTP_2, false), None);
        let over_http2 = answer(&Method::GET, READY, Version::HTTP_2, false);
        assert_eq!(over_http2, Some((StatusCode::OK, "ok\n")), "probes over HTTP/2 are answered, too");
    }

    #[tokio::test]
    async fn a_raw_socket_gets_health_without_a_token_and_a_sentence_for_everything_else() {
        let (address, _trigger, _served) = listen().await;
        for path in [LIVE, READY] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let answer = send(&address, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
        }
        let head = send(&address, b"HEAD /readyz HTTP/1.0\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let upgrade = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
        assert!(send(&address, upgrade).await.starts_with("HTTP/1.1 200 OK\r\n"), "`curl --http2` asks so");
        for request in [
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            "GET /healthz/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            "POST /belay.v1.ExecutorService/GetExecution HTTP/1.1\r\nHost: x\r\nConnection: close\r\nauthorization: Bearer own\r\nContent-Type: application/grpc\r\nContent-Length: 5\r\n\r\n\0\0\0\0\0",
            "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n\0\0\0\0\0",
        ] {
            let answer = send(&address, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n") && answer.ends_with(GRPC_ONLY), "{answer}");
        }
        let posted =
            send(&address, b"POST /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        assert!(posted.starts_with("HTTP/1.1 405 ") && posted.contains("allow: GET, HEAD\r\n"), "{posted}");
        for garbage in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..], b"hello\r\n\r\n"] {
            let answer = send(&address, garbage).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
        }
        let mut health = HealthClient::new(net::connect_lazy(&address));
        let asked = HealthCheckRequest { service: "test.Nothing".into() };
        assert!(health.check(asked).await.is_ok(), "gRPC goes on beside it");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_ordinary_client_keeps_its_connection() {
        let (address, _trigger, _served) = listen().await;
        tokio::task::spawn_blocking(move || {
            let client: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            for (path, status, text) in [
                ("/healthz", 200, "ok\n"),
                ("/readyz", 200, "ok\n"),
                ("/metrics", 404, GRPC_ONLY),
                ("/readyz", 200, "ok\n"),
            ] {
                let mut answer = client.get(format!("{address}{path}")).call().unwrap();
                assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
                assert_eq!(
                    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap().as_str()),
                    (status, text)
                );
            }
        })
        .await
        .unwrap();
    }

    /// A connection that was opened and never used, or whose request is not whole, keeps no service from stopping.
    #[tokio::test]
    async fn open_connections_do_not_delay_a_stop() {
        let (address, trigger, served) = listen().await;
        let idle = connect(&address).await;
        let mut kept = connect(&address).await;
        kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut byte = [0];
        kept.read_exact(&mut byte).await.unwrap();
        trigger.pull();
        tokio::time::timeout(Duration::from_secs(10), served).await.expect("it stops").unwrap();
        drop((idle, kept));
    }
}
