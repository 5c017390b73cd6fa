//! Spans over OTLP/HTTP, as a collector's HTTP server receives them; and collectors that are away.

use std::{collections::BTreeMap, io, time::Duration};

use belay_metrics::{Counter, Histogram, Metric, Unit};
use belay_redaction::Redactor;
use belay_telemetry::{
    LAST_FLUSH, LAST_FLUSH_OF_COMMAND, MetricsExporter, MetricsSettings, Settings, SpanRecord, Telemetry,
};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    metrics::v1::metric::Data,
};
use prost::Message as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A request as it came.
#[derive(Debug)]
struct PostedRequest {
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// An HTTP/1.1 server that hands over what is posted, and answers with a status each.
struct Collector {
    endpoint: String,
    posted: mpsc::UnboundedReceiver<PostedRequest>,
}

impl Collector {
    async fn start(status: &'static str) -> Self {
        Self::slow(status, Duration::ZERO).await
    }

    /// A collector that answers so much later.
    async fn slow(status: &'static str, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, posted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, status, delay, sender.clone()));
            }
        });
        Self { endpoint, posted }
    }

    async fn next(&mut self) -> PostedRequest {
        self.posted.recv().await.expect("the collector runs")
    }
}

/// Answers the requests of one connection until its client closes it.
async fn serve(
    stream: TcpStream,
    status: &str,
    delay: Duration,
    sender: mpsc::UnboundedSender<PostedRequest>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            let Some((key, value)) = header.trim_end().split_once(": ") else { break };
            headers.insert(key.to_ascii_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await?;
        tokio::time::sleep(delay).await;
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await?;
        drop(sender.send(PostedRequest { line: line.trim_end().to_owned(), headers, body }));
    }
}

fn telemetry(variables: &[(&str, &str)]) -> Telemetry {
    let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let settings = Settings::read("belay-executor", &get).unwrap().expect("an endpoint is named");
    Telemetry::on(&settings, Redactor::new(), |bytes| bytes.fill(7)).unwrap()
}

#[tokio::test]
async fn spans_are_posted_to_the_path_of_traces_with_the_headers() {
    let mut collector = Collector::start("200 OK").await;
    let base = format!("{}/otel/", collector.endpoint);
    let telemetry = telemetry(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &base),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue,authorization=Bearer%20x"),
    ]);
    for name in ["first", "second"] {
        telemetry.emit(SpanRecord::new(telemetry.root(), name, 1, 2));
        telemetry.flush(Duration::from_secs(5)).await.unwrap();
        let posted = collector.next().await;
        assert_eq!(posted.line, "POST /otel/v1/traces HTTP/1.1");
        let header = |name: &str| posted.headers.get(name).map(String::as_str);
        assert_eq!(header("content-type"), Some("application/x-protobuf"));
        assert_eq!((header("x-tenant"), header("authorization")), (Some("blue"), Some("Bearer x")));
        let request = ExportTraceServiceRequest::decode(posted.body.as_slice()).unwrap();
        assert_eq!(crate::collector::spans(request)[0].name, name);
    }
    telemetry.shutdown(LAST_FLUSH).await.unwrap();
}

/// S4-32: metrics are posted with their names, at the interval and once more at the end.
#[tokio::test]
async fn metrics_are_posted_to_the_path_of_metrics() {
    let mut collector = Collector::start("200 OK").await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=ignored,deployment.environment.name=test"),
        ("OTEL_SERVICE_NAME", "mine"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "20"),
    ];
    let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let settings = MetricsSettings::read("belay-executor", &get).unwrap().expect("an endpoint is named");
    let exporter = MetricsExporter::new(settings, "one-run").unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let exporting = tokio::spawn(async move {
        let retries = Counter::new();
        let durations = Histogram::by("status");
        let read = || {
            retries.increment();
            durations.record("FAILED", Duration::from_secs(2));
            let metrics = vec![
                Metric::counter("executor.retries.count", "Retries", &retries),
                Metric::durations("executor.step.duration", "Steps", &durations),
                Metric::gauge("belay.store.size", "Sizes", Unit::Bytes, 3.0),
            ];
            async move { metrics }
        };
        exporter.run(read, || 7, async { drop(stopped.await) }).await;
    });
    let posted = collector.next().await;
    assert_eq!((posted.line.as_str(), posted.headers["x-tenant"].as_str()), ("POST /v1/metrics HTTP/1.1", "blue"));
    let request = ExportMetricsServiceRequest::decode(posted.body.as_slice()).unwrap();
    let sent = &request.resource_metrics[0];
    let attributes = &sent.resource.as_ref().unwrap().attributes;
    let keys: Vec<&str> = attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(keys, ["service.version", "service.instance.id", "service.name", "deployment.environment.name"]);
    let metrics = &sent.scope_metrics[0].metrics;
    let named: Vec<_> = metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
    assert_eq!(named, [("executor.retries.count", ""), ("executor.step.duration", "s"), ("belay.store.size", "By")]);
    let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("a counter is a sum: {:?}", metrics[0]) };
    assert!(sum.is_monotonic && sum.data_points[0].start_time_unix_nano == 7_000, "{sum:?}");
    let Some(Data::Histogram(histogram)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.sum, point.bucket_counts.len()), (1, Some(2.0), point.explicit_bounds.len() + 1));
    stop.send(()).unwrap();
    exporting.await.unwrap();
    let mut last = collector.next().await;
    while let Ok(posted) = collector.posted.try_recv() {
        last = posted;
    }
    assert!(!last.body.is_empty(), "the last ones are sent at the end");
}

#[tokio::test]
async fn a_refusal_of_the_collector_is_reported() {
    let mut collector = Collector::start("401 Unauthorized").await;
    let url = format!("{}/spans", collector.endpoint);
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url)]);
    telemetry.emit(SpanRecord::new(telemetry.root(), "unwanted", 1, 2));
    let refused = telemetry.flush(Duration::from_secs(5)).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    assert_eq!(collector.next().await.line, "POST /spans HTTP/1.1", "the endpoint for traces is the whole URL");
}

/// `OTEL_EXPORTER_OTLP_TIMEOUT`: a collector that takes a request and never answers it.
#[tokio::test]
async fn the_timeout_bounds_a_request() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let telemetry = telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), ("OTEL_EXPORTER_OTLP_TIMEOUT", "50")]);
    telemetry.emit(SpanRecord::new(telemetry.root(), "lost", 1, 2));
    let lost = telemetry.flush(Duration::from_secs(4)).await.unwrap_err();
    assert!(!lost.to_string().contains("4000 ms"), "the exporter ended the request before the test did: {lost}");
}

/// The last spans are not waited for when nothing listens at the collector's address: the exporter's retries would take seconds.
#[tokio::test]
async fn a_collector_that_is_away_does_not_delay_the_end() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for protocol in ["grpc", "http/protobuf"] {
        let endpoint = format!("http://{closed}");
        let telemetry =
            telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
        telemetry.emit(SpanRecord::new(telemetry.root(), "lost", 1, 2));
        let ended = tokio::time::timeout(LAST_FLUSH / 3, telemetry.shutdown(LAST_FLUSH)).await;
        ended.expect("it does not wait for the collector").expect_err("nothing was delivered");
    }
}

/// A collector that accepts connections and never answers costs a command a moment at its end, and a service no more than it may take.
#[tokio::test]
async fn a_collector_that_never_answers_hardly_delays_the_end_of_a_command() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    for protocol in ["grpc", "http/protobuf"] {
        let sender = || {
            let telemetry =
                telemetry(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
            telemetry.emit(SpanRecord::new(telemetry.root(), "lost", 1, 2));
            telemetry
        };
        let lost = sender().shutdown(LAST_FLUSH_OF_COMMAND).await.unwrap_err().to_string();
        assert!(lost.contains("within 300 ms (OTEL_BSP_EXPORT_TIMEOUT"), "{lost}");
        let (one, other) = (sender(), sender());
        let ended = tokio::time::timeout(LAST_FLUSH, Telemetry::end(&[&one, &other], LAST_FLUSH_OF_COMMAND)).await;
        assert_eq!(ended, Ok(false));
    }
}

/// `OTEL_BSP_EXPORT_TIMEOUT`: who would rather wait than lose spans gets them all to a slow collector.
#[tokio::test]
async fn a_slow_collector_gets_everything_where_the_environment_allows_it_the_time() {
    let mut collector = Collector::slow("200 OK", LAST_FLUSH_OF_COMMAND * 2).await;
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.as_str()), ("OTEL_BSP_EXPORT_TIMEOUT", "60000")];
    let telemetry = telemetry(&variables);
    telemetry.emit(SpanRecord::new(telemetry.root(), "late", 1, 2));
    assert!(Telemetry::end(&[&telemetry], LAST_FLUSH_OF_COMMAND).await);
    let request = ExportTraceServiceRequest::decode(collector.next().await.body.as_slice()).unwrap();
    assert_eq!(crate::collector::spans(request)[0].name, "late");
}
