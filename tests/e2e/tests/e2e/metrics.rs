//! Metrics for a monitoring system: over OTLP and at `/metrics`.

use std::{collections::BTreeMap, time::Duration};

use belay_e2e::{Client, Service, Services, belay::Home};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point::Value};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use crate::collector::Collector;

const PLAN: &str = "
id: measured
stop_on_error: false
steps:
  - {id: fine, tool: noop}
  - {id: flaky, tool: noop, arguments: {fail: not yet, fail_attempts: 1}, retry: {max_attempts: 2, backoff: [10ms]}}
  - {id: broken, tool: noop, arguments: {fail: 'no'}, retry: {max_attempts: 1}}
";

/// The value of a counter or gauge, summed over its attributes; of a histogram, how many values it has.
fn value(metric: &Metric) -> f64 {
    let number = |value: &Option<Value>| match value {
        Some(Value::AsInt(value)) => *value as f64,
        Some(Value::AsDouble(value)) => *value,
        None => f64::NAN,
    };
    match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => gauge.data_points.iter().map(|point| number(&point.value)).sum(),
        Data::Sum(sum) => sum.data_points.iter().map(|point| number(&point.value)).sum(),
        Data::Histogram(histogram) => histogram.data_points.iter().map(|point| point.count as f64).sum(),
        other => panic!("no service sends {other:?}"),
    }
}

/// S4-32, B-14: the six metrics, the histograms beside them and the sizes of the stores come over OTLP by their exact names, from the service that
/// measures them, and no attribute is an id.
#[test]
fn a_collector_gets_the_metrics_of_each_service_by_their_names() {
    let home = Home::new();
    home.file("plan.yaml", PLAN);
    let collector = Collector::start();
    let command = home.belay(["run", "plan.yaml", "--id", "secret-id"]);
    let ended = belay_e2e::belay::RunningCommand::start(collector.watch(command)).end();
    assert_eq!(ended.code, 30, "{}", ended.talk);
    let sent = collector.metrics();
    let names = |service: &str| -> BTreeMap<&str, f64> {
        sent[service].iter().map(|metric| (metric.name.as_str(), value(metric))).collect()
    };
    let executor = names("belay-executor");
    let expected = [
        ("executor.executions.count", 1.0),
        ("executor.executions.success_rate", 0.0),
        ("executor.steps.executed", 3.0),
        ("executor.steps.failed", 1.0),
        ("executor.retries.count", 1.0),
        ("executor.execution.duration", 1.0),
        ("executor.step.duration", 3.0),
        ("belay.executor.calls_in_doubt", 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(executor.get(name), Some(&value), "{name}: {executor:?}");
    }
    assert!(executor["executor.duration.average_ms"] > 0.0, "{executor:?}");
    assert!(executor.contains_key("executor.execution.active"), "{executor:?}");
    assert!(names("belay-approval-gate").contains_key("belay.gate.oldest_pending_approval"));
    assert!(names("belay-tool-runner").contains_key("belay.runner.commands"));
    for service in ["belay-executor", "belay-tool-runner", "belay-approval-gate"] {
        assert!(names(service)["belay.store.size"] > 4_096.0, "{service}");
    }
    assert!(!format!("{sent:?}").contains("secret-id"));
}

/// Whether this is a line of the executor's metrics, as a scraper gets them.
async fn scraped(services: &Services, line: &str) -> bool {
    let mut stream = UnixStream::connect(services.socket()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    answer.lines().any(|found| found == line)
}

/// Scrapes until this is a line of the metrics: what is counted follows what is recorded, which a watcher may see first.
pub(crate) async fn until_scraped(services: &Services, line: &str) {
    let scraping = async {
        while !scraped(services, line).await {
            tokio::task::yield_now().await;
        }
    };
    let within = tokio::time::timeout(Duration::from_secs(60), scraping).await;
    within.unwrap_or_else(|_| panic!("{line} does not come"));
}

/// S4-32: a scraper reads the same with underscores; counts are of the process, and begin anew with the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scraper_reads_the_counters_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("measured", PLAN).await;
    assert!(client.watch_to_the_end("measured").await.ended());
    for line in [
        "executor_executions_count_total{status=\"PARTIAL\"} 1",
        "executor_executions_success_rate 0.0",
        "executor_steps_executed_total 3",
        "executor_steps_failed_total 1",
        "executor_retries_count_total 1",
        "executor_execution_duration_seconds_count{status=\"PARTIAL\"} 1",
        "executor_step_duration_seconds_count{status=\"FAILED\"} 1",
        "belay_executor_queue_length{queue=\"notices\"} 0.0",
    ] {
        until_scraped(&services, line).await;
    }
    services.restart(Service::Executor).await;
    services.ready().await;
    assert!(scraped(&services, "executor_steps_executed_total 0").await);
}
