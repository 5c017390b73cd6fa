//! Metrics in the text format that Prometheus reads (OpenMetrics): `GET /metrics` on the listener that serves gRPC, for every caller that the
//! listener accepts.
//!
//! Gauges are read anew for each request. What is counted and recorded is that of the process.

use std::{
    fmt::{self, Write as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use belay_metrics::Attributes;
pub use belay_metrics::{Counter, Histogram, Metric, Unit, Values};
use http::{
    Method, Request, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit as PrometheusUnit},
};
use tonic::body::Body;

use crate::{
    Access,
    guard::shown,
    middleware::{Middleware, ResponseFuture, respond},
};

const PATH: &str = "/metrics";

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics that a service reads; empty when they cannot be read now.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Vec<Metric>> + Send + 'a>>;

/// A service that has metrics.
pub trait MetricsSource: Send + Sync + 'static {
    /// Reads its metrics, at a bounded cost.
    fn metrics(&self) -> Reading<'_>;
}

/// The size of a store: of its database file with the write-ahead log.
#[derive(Debug)]
pub struct StoreFiles {
    name: &'static str,
    path: PathBuf,
}

impl StoreFiles {
    /// The store `name`, whose database is this file.
    pub fn new(name: &'static str, path: PathBuf) -> Self {
        Self { name, path }
    }

    fn bytes(&self) -> u64 {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        length(&self.path) + length(Path::new(&log))
    }
}

impl MetricsSource for StoreFiles {
    fn metrics(&self) -> Reading<'_> {
        let metric = Metric {
            name: "belay.store.size",
            help: "The size of a store's files; space that is free in them included",
            unit: Unit::Bytes,
            values: Values::Gauge(vec![(vec![("store", self.name)], self.bytes() as f64)]),
        };
        Box::pin(std::future::ready(vec![metric]))
    }
}

/// Sources of metrics that are measured together.
pub type AllMeasured = Arc<[Arc<dyn MetricsSource>]>;

/// The metrics of several services. Those with one name become one.
pub async fn read(services: &[Arc<dyn MetricsSource>]) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::new();
    for service in services {
        for metric in service.metrics().await {
            match (all.iter_mut().find(|known| known.name == metric.name).map(|known| &mut known.values), metric.values)
            {
                (Some(Values::Gauge(known)), Values::Gauge(more)) => known.extend(more),
                (Some(Values::Counter(known)), Values::Counter(more)) => known.extend(more),
                (Some(Values::Histogram(known)), Values::Histogram(more)) => known.extend(more),
                (_, values) => all.push(Metric { values, ..metric }),
            }
        }
    }
    all
}

/// Answers `GET /metrics`.
#[derive(Clone)]
pub(crate) struct HttpMetrics {
    pub(crate) access: Access,
    pub(crate) services: Arc<[Arc<dyn MetricsSource>]>,
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
            let mut response = plain(StatusCode::OK, encode(read(&services).await));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            Ok(response)
        })
    }
}

fn encode(metrics: Vec<Metric>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsReading(metrics)));
    let mut encoded = String::new();
    if let Err(error) = text::encode(&mut encoded, &registry) {
        // A text is always written; a comment is what a scraper ignores.
        let _ = writeln!(encoded, "# {error}");
    }
    encoded
}

/// Metrics to encode.
#[derive(Debug)]
struct MetricsReading(Vec<Metric>);

impl Collector for MetricsReading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Metric { name, help, unit, values } in &self.0 {
            let kind = match values {
                Values::Gauge(_) => MetricType::Gauge,
                Values::Counter(_) => MetricType::Counter,
                Values::Histogram(_) => MetricType::Histogram,
            };
            // The library appends the unit to the name.
            let unit = match unit {
                Unit::Seconds => Some(PrometheusUnit::Seconds),
                Unit::Bytes => Some(PrometheusUnit::Bytes),
                // What is a share says so in its name.
                Unit::None | Unit::Ratio => None,
            };
            let help = format!("{}.", help.trim_end_matches('.'));
            let name = name.replace('.', "_");
            let mut encoder = encoder.encode_descriptor(&name, &help, unit.as_ref(), kind)?;
            match values {
                Values::Gauge(points) => {
                    for (attributes, value) in points {
                        each(&mut encoder, attributes, |point| point.encode_gauge(value))?;
                    }
                }
                Values::Counter(points) => {
                    for (attributes, value) in points {
                        each(&mut encoder, attributes, |point| {
                            point.encode_counter::<NoLabelSet, _, u64>(value, None)
                        })?;
                    }
                }
                Values::Histogram(points) => {
                    for (attributes, recorded) in points {
                        let bounds = recorded.bounds().iter().copied().chain([f64::MAX]);
                        let buckets: Vec<(f64, u64)> = bounds.zip(recorded.counts().iter().copied()).collect();
                        each(&mut encoder, attributes, |point| {
                            point.encode_histogram::<NoLabelSet>(recorded.sum, recorded.count(), &buckets, None)
                        })?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Encodes one point. Without attributes it has no braces.
fn each(
    encoder: &mut MetricEncoder<'_>,
    attributes: &Attributes,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    match attributes.is_empty() {
        true => encode(encoder),
        false => encode(&mut encoder.encode_family(attributes)?),
    }
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
    use std::time::Duration;

    use tonic::service::Routes;

    use super::*;
    use crate::{HostedServices, People, Shutdown, Trigger, net};

    struct FixedMetrics;

    impl MetricsSource for FixedMetrics {
        fn metrics(&self) -> Reading<'_> {
            let help = "What it is.";
            let (counter, histogram) = (Counter::by("color", &["green", "red"]), Histogram::by("color"));
            counter.add("red");
            histogram.record("red", Duration::from_millis(1_500));
            let metrics = vec![
                Metric::gauge("belay.test.things", help, Unit::None, 3.0),
                Metric::gauge("belay.test.age", help, Unit::Seconds, 0.25),
                Metric::counter("belay.test.count", help, &counter),
                Metric::durations("belay.test.duration", help, &histogram),
            ];
            Box::pin(std::future::ready(metrics))
        }
    }

    fn hosted() -> HostedServices {
        HostedServices::new(Routes::default(), "test.Nothing", tonic_health::pb::FILE_DESCRIPTOR_SET)
    }

    /// A listener that accepts the token `own`.
    async fn listen(hosted: HostedServices) -> (net::Address, Trigger) {
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
        let (address, _trigger) = listen(hosted().with_metrics(Arc::new(FixedMetrics))).await;
        let (status, content_type, text) = ask(&address, Some("own")).await;
        assert_eq!((status, content_type.as_str()), (200, OPEN_METRICS));
        let expected = "\
# HELP belay_test_things What it is.
# TYPE belay_test_things gauge
belay_test_things 3.0
# HELP belay_test_age_seconds What it is.
# TYPE belay_test_age_seconds gauge
# UNIT belay_test_age_seconds seconds
belay_test_age_seconds 0.25
# HELP belay_test_count What it is.
# TYPE belay_test_count counter
belay_test_count_total{color=\"green\"} 0
belay_test_count_total{color=\"red\"} 1
# HELP belay_test_duration_seconds What it is.
# TYPE belay_test_duration_seconds histogram
# UNIT belay_test_duration_seconds seconds
belay_test_duration_seconds_sum{color=\"red\"} 1.5
belay_test_duration_seconds_count{color=\"red\"} 1
";
        let buckets = |line: &&str| line.contains("_bucket{");
        let without_buckets: Vec<&str> = text.lines().filter(|line| !buckets(line)).collect();
        assert_eq!(without_buckets.join("\n"), format!("{expected}# EOF"));
        let cumulative: Vec<&str> = text.lines().filter(buckets).collect();
        for (at, line) in [
            (7, "le=\"1.0\",color=\"red\"} 0"),
            (8, "le=\"2.5\",color=\"red\"} 1"),
            (18, "le=\"+Inf\",color=\"red\"} 1"),
        ] {
            assert_eq!(cumulative[at], format!("belay_test_duration_seconds_bucket{{{line}"));
        }
        for token in [None, Some("other")] {
            let (status, _, text) = ask(&address, token).await;
            assert_eq!(status, 401, "{text}");
            assert!(!text.contains("belay_test"), "{text}");
        }
    }

    #[tokio::test]
    async fn the_sizes_of_stores_are_one_metric() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, [1; 100]).unwrap();
        std::fs::write(folder.path().join("a.db-wal"), [1; 11]).unwrap();
        let stores: [Arc<dyn MetricsSource>; 2] =
            [Arc::new(StoreFiles::new("a", path)), Arc::new(StoreFiles::new("b", folder.path().join("b.db")))];
        let read = read(&stores).await;
        let sizes = vec![(vec![("store", "a")], 111.0), (vec![("store", "b")], 0.0)];
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].values, Values::Gauge(sizes));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_listener_without_metrics_says_what_it_serves() {
        let (address, _trigger) = listen(hosted()).await;
        assert_eq!(ask(&address, Some("own")).await.0, 404);
    }
}
