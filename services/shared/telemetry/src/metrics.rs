//! Sends metrics over OTLP: those that a service reads of itself, at an interval.

use std::time::Duration;

use belay_metrics::{Attributes, Distribution, Metric, Unit, Values};
use belay_redaction::Redactor;
use opentelemetry_http::{Bytes, HttpClient as _, Request, hyper::HyperClient};
use opentelemetry_proto::tonic::{
    collector::metrics::v1::{ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric as Message, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point::Value,
    },
    resource::v1::Resource,
};
use prost::Message as _;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use crate::{
    MetricsSettings, TelemetryError,
    export::{Outage, OutageChange},
    semconv,
    settings::{Destination, Protocol},
    telemetry::metadata,
};

/// Sends the metrics of one service.
#[derive(Debug)]
pub struct MetricsExporter {
    to: Destination,
    interval: Duration,
    client: Client,
    resource: Resource,
    /// The endpoint, without secrets, for logs.
    endpoint: String,
    outage: Outage,
}

#[derive(Debug)]
enum Client {
    Grpc(MetricsServiceClient<Channel>),
    Http(HyperClient),
}

impl MetricsExporter {
    /// Reads the settings from the environment; `None` when the export is off. `service_name` is the default name, `instance` identifies this run of
    /// the service. Connects when something is sent.
    ///
    /// # Errors
    /// [`TelemetryError`], when a variable is not valid.
    pub fn from_env(service_name: &str, instance: &str) -> Result<Option<Self>, TelemetryError> {
        MetricsSettings::from_env(service_name)?.map(|settings| Self::new(settings, instance)).transpose()
    }

    /// With these settings.
    ///
    /// # Errors
    /// [`TelemetryError`], when the endpoint or a header cannot be used.
    pub fn new(settings: MetricsSettings, instance: &str) -> Result<Self, TelemetryError> {
        let MetricsSettings { to, interval } = settings;
        let client = match to.protocol {
            Protocol::Grpc => {
                let endpoint = Endpoint::from(to.endpoint.clone()).timeout(to.timeout).connect_timeout(to.timeout);
                Client::Grpc(MetricsServiceClient::new(endpoint.connect_lazy()))
            }
            Protocol::HttpProtobuf => Client::Http(HyperClient::with_default_connector(to.timeout, None)),
        };
        // Refused now, rather than at the first export.
        metadata(&to)?;
        let own = [
            (semconv::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
            (semconv::SERVICE_INSTANCE_ID, instance),
            (semconv::SERVICE_NAME, &to.service_name),
        ];
        let given = to.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let is_given = |key: &str| own.iter().any(|(own, _)| *own == key);
        let attributes = own.into_iter().chain(given.filter(|(key, _)| !is_given(key)));
        let resource = Resource {
            attributes: attributes.map(|(key, value)| attribute(key, value)).collect(),
            ..Resource::default()
        };
        let endpoint = Redactor::new().redact_text(&to.endpoint.to_string()).text;
        Ok(Self { to, interval, client, resource, endpoint, outage: Outage::default() })
    }

    /// Sends what `read` returns at each interval, and once more when `stop` returns. `now` is the time in microseconds since the Unix epoch.
    pub async fn run<F: Future<Output = Vec<Metric>>>(
        &self,
        read: impl Fn() -> F,
        now: impl Fn() -> i64,
        stop: impl Future<Output = ()>,
    ) {
        let started = now();
        let mut stop = std::pin::pin!(stop);
        loop {
            let stopping = tokio::select! {
                () = stop.as_mut() => true,
                () = tokio::time::sleep(self.interval) => false,
            };
            let request = self.request(&read().await, started, now());
            let sent = self.send(request).await;
            match (self.outage.record(sent.is_ok()), sent) {
                (Some(OutageChange::Started), Err(error)) => {
                    tracing::warn!(endpoint = %self.endpoint, %error, "Metrics cannot be exported until the collector is available again");
                }
                (Some(OutageChange::Ended), _) => {
                    tracing::info!(endpoint = %self.endpoint, "Metrics are exported again");
                }
                _ => {}
            }
            if stopping {
                return;
            }
        }
    }

    async fn send(&self, request: ExportMetricsServiceRequest) -> Result<(), String> {
        match &self.client {
            Client::Grpc(client) => {
                let mut request = tonic::Request::new(request);
                *request.metadata_mut() = metadata(&self.to).map_err(|error| error.to_string())?;
                client.clone().export(request).await.map(drop).map_err(|status| status.to_string())
            }
            Client::Http(client) => {
                let mut post = Request::post(self.to.endpoint.clone()).header("content-type", "application/x-protobuf");
                for (key, value) in &self.to.headers {
                    post = post.header(key, value);
                }
                let post = post.body(Bytes::from(request.encode_to_vec())).map_err(|error| error.to_string())?;
                let answer = client.send_bytes(post).await.map_err(|error| error.to_string())?;
                match answer.status() {
                    status if status.is_success() => Ok(()),
                    status => Err(format!("the collector answered {status}")),
                }
            }
        }
    }

    fn request(&self, metrics: &[Metric], started: i64, now: i64) -> ExportMetricsServiceRequest {
        let scope = InstrumentationScope {
            name: "belay".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let metrics = metrics.iter().map(|metric| message(metric, started, now)).collect();
        let schema_url = semconv::SCHEMA_URL.to_owned();
        let scoped = ScopeMetrics { scope: Some(scope), metrics, schema_url: schema_url.clone() };
        let resource = Some(self.resource.clone());
        let sent = ResourceMetrics { resource, scope_metrics: vec![scoped], schema_url };
        ExportMetricsServiceRequest { resource_metrics: vec![sent] }
    }
}

/// The running export of a service's metrics; nothing runs where the environment names no collector.
#[derive(Debug)]
pub struct MetricsExport(Option<JoinHandle<()>>);

impl MetricsExport {
    /// Starts it with the settings of the environment. `instance` identifies this run of the service; the others are those of [`MetricsExporter::run`].
    ///
    /// # Errors
    /// [`TelemetryError`], when a variable is not valid.
    pub fn start<F: Future<Output = Vec<Metric>> + Send>(
        service_name: &str,
        instance: &str,
        read: impl Fn() -> F + Send + Sync + 'static,
        now: impl Fn() -> i64 + Send + Sync + 'static,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, TelemetryError> {
        let exporter = MetricsExporter::from_env(service_name, instance)?;
        Ok(Self(exporter.map(|exporter| tokio::spawn(async move { exporter.run(read, now, stop).await }))))
    }

    /// Waits until the last metrics are sent, for at most `limit`. It has been told to stop before.
    pub async fn end(self, limit: Duration) {
        if let Some(running) = self.0 {
            // What could not be sent is lost; a collector that is away was logged.
            drop(tokio::time::timeout(limit, running).await);
        }
    }
}

fn message(metric: &Metric, started: i64, now: i64) -> Message {
    let (started, now) = (nanos(started), nanos(now));
    let temporality = AggregationTemporality::Cumulative.into();
    let data = match &metric.values {
        Values::Gauge(points) => {
            // A gauge has no start.
            let point = |(attributes, value): &(_, f64)| number(attributes, Value::AsDouble(*value), 0, now);
            Data::Gauge(Gauge { data_points: points.iter().map(point).collect() })
        }
        Values::Counter(points) => {
            let count = |value: u64| Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX));
            let point = |(attributes, value): &(_, u64)| number(attributes, count(*value), started, now);
            let data_points = points.iter().map(point).collect();
            Data::Sum(Sum { data_points, aggregation_temporality: temporality, is_monotonic: true })
        }
        Values::Histogram(points) => {
            let data_points = points.iter().map(|(of, recorded)| distribution(of, recorded, started, now)).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality: temporality })
        }
    };
    let unit = match metric.unit {
        Unit::None => "",
        Unit::Ratio => "1",
        Unit::Seconds => "s",
        Unit::Bytes => "By",
    };
    Message {
        name: metric.name.to_owned(),
        description: metric.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Message::default()
    }
}

fn number(of: &Attributes, value: Value, start_time_unix_nano: u64, time_unix_nano: u64) -> NumberDataPoint {
    let (attributes, value) = (attributes(of), Some(value));
    NumberDataPoint { attributes, start_time_unix_nano, time_unix_nano, value, ..NumberDataPoint::default() }
}

fn distribution(of: &Attributes, recorded: &Distribution, started: u64, now: u64) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: attributes(of),
        start_time_unix_nano: started,
        time_unix_nano: now,
        count: recorded.count(),
        sum: Some(recorded.sum),
        bucket_counts: recorded.counts().to_vec(),
        explicit_bounds: recorded.bounds().to_vec(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(attributes: &Attributes) -> Vec<KeyValue> {
    attributes.iter().map(|(key, value)| attribute(key, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

fn nanos(micros: i64) -> u64 {
    u64::try_from(micros).unwrap_or(0).saturating_mul(1_000)
}
