//! Metrics in the text format that Prometheus reads (OpenMetrics): `GET /metrics` on the listener that serves gRPC, for every caller that the
//! listener accepts.
//!
//! Nothing is counted for them between two requests: a service reads its gauges anew for each.

use std::{
    fmt::Write as _,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
};

use http::{
    Method, Request, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
};
use prometheus_client::{encoding::text, metrics::gauge::Gauge as PrometheusGauge, registry::Registry};
use tonic::body::Body;

use crate::{
    Access,
    guard::shown,
    middleware::{Middleware, ResponseFuture, respond},
};

const PATH: &str = "/metrics";

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One value of a service now.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// Its name, with the unit at its end: `belay_gate_oldest_pending_approval_seconds`.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// Its value.
    pub value: f64,
}

/// The gauges that a service reads; empty when they cannot be read now.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Vec<Gauge>> + Send + 'a>>;

/// A service that can be measured.
pub trait Measured: Send + Sync + 'static {
    /// Reads its gauges, at a bounded cost.
    fn gauges(&self) -> Reading<'_>;
}

/// Answers `GET /metrics`.
#[derive(Clone)]
pub(crate) struct HttpMetrics {
    pub(crate) access: Access,
    pub(crate) services: Arc<[Arc<dyn Measured>]>,
}

impl Middleware for HttpMetrics {
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        if request.uri().path() != PATH || self.services.is_empty() {
            return Box::pin(next(request));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n".to_owned());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return respond(response);
        }
        if let Err(unknown) = shown(&request).and_then(|shown| self.access.identify(shown)) {
            let mut response = plain(StatusCode::UNAUTHORIZED, format!("{unknown}\n"));
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return respond(response);
        }
        let services = Arc::clone(&self.services);
        Box::pin(async move {
            let mut gauges = Vec::new();
            for service in services.iter() {
                gauges.extend(service.gauges().await);
            }
            let mut response = plain(StatusCode::OK, encode(&gauges));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            Ok(response)
        })
    }
}

fn encode(gauges: &[Gauge]) -> String {
    let mut registry = Registry::default();
    for Gauge { name, help, value } in gauges {
        let gauge = PrometheusGauge::<f64, AtomicU64>::default();
        gauge.set(*value);
        // The library ends it with a full stop of its own.
        registry.register(*name, help.trim_end_matches('.'), gauge);
    }
    let mut encoded = String::new();
    if let Err(error) = text::encode(&mut encoded, &registry) {
        // A text is always written; a comment is what a scraper ignores.
        let _ = writeln!(encoded, "# {error}");
    }
    encoded
}

fn plain(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use tonic::service::Routes;

    use super::*;
    use crate::{Hosted, People, Shutdown, Trigger, net};

    struct Fixed;

    impl Measured for Fixed {
        fn gauges(&self) -> Reading<'_> {
            let gauge = |name, value| Gauge { name, help: "What it is.", value };
            Box::pin(async move { vec![gauge("belay_test_things", 3.0), gauge("belay_test_age_seconds", 0.25)] })
        }
    }

    fn hosted() -> Hosted {
        Hosted::new(Routes::default(), "test.Nothing", tonic_health::pb::FILE_DESCRIPTOR_SET)
    }

    /// A listener that accepts the token `own`.
    async fn listen(hosted: Hosted) -> (net::Address, Trigger) {
        let bound = net::bind(&net::Address::Tcp(([127, 0, 0, 1], 0).into())).await.unwrap();
        let address = bound.address();
        let (trigger, stop) = Shutdown::new();
        let access = Access::people(&address, People::new(Some("own"), None).unwrap()).unwrap();
        tokio::spawn(async move { bound.serve(hosted, access, stop).await.unwrap() });
        (address, trigger)
    }

    /// The status, the content type and the text of an answer.
    async fn ask(address: &net::Address, token: Option<&'static str>) -> (u16, String, String) {
        let url = format!("{address}/metrics");
        let asking = move || {
            let client: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            let mut request = client.get(url);
            if let Some(token) = token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let mut answer = request.call().unwrap();
            let content_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
            (answer.status().as_u16(), content_type, answer.body_mut().read_to_string().unwrap())
        };
        tokio::task::spawn_blocking(asking).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_scraper_with_the_token_reads_the_gauges_of_all_services() {
        let (address, _trigger) = listen(hosted().with_metrics(Arc::new(Fixed))).await;
        let (status, content_type, text) = ask(&address, Some("own")).await;
        assert_eq!((status, content_type.as_str()), (200, OPEN_METRICS));
        let expected = "\
# HELP belay_test_things What it is.
# TYPE belay_test_things gauge
belay_test_things 3.0
# HELP belay_test_age_seconds What it is.
# TYPE belay_test_age_seconds gauge
belay_test_age_seconds 0.25
# EOF
";
        assert_eq!(text, expected);
        for token in [None, Some("other")] {
            let (status, _, text) = ask(&address, token).await;
            assert_eq!(status, 401, "{text}");
            assert!(!text.contains("belay_test"), "{text}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_listener_without_metrics_says_what_it_serves() {
        let (address, _trigger) = listen(hosted()).await;
        assert_eq!(ask(&address, Some("own")).await.0, 404);
    }
}
