//! Ids, parents, times and attributes; what is not sent; and a collector that is away.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use belay_redaction::Redactor;
use belay_telemetry::{
    Array, KeyValue, RpcSpan, Settings, SpanEvent, SpanKind, SpanRecord, Status, Telemetry, TraceContext, Value,
    semconv,
};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue as Sent, any_value},
    trace::v1::{span::SpanKind as SentKind, status::StatusCode},
};
use tokio::net::TcpListener;
use tonic::Code;

use crate::collector::{Collector, spans};

const LIMIT: Duration = Duration::from_secs(5);

/// Other bytes each time, and the same ones in every run.
fn entropy() -> impl Fn(&mut [u8]) + Send + Sync {
    let next = AtomicU8::new(1);
    move |bytes| bytes.fill_with(|| next.fetch_add(1, Ordering::Relaxed))
}

fn telemetry(endpoint: &str, variables: &[(&str, &str)]) -> Telemetry {
    let get = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.to_owned()),
        "OTEL_EXPORTER_OTLP_PROTOCOL" => Some("grpc".to_owned()),
        _ => variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
    };
    let settings = Settings::read("belay-executor", &get).unwrap().expect("an endpoint is named");
    Telemetry::on(&settings, Redactor::new().with_literals(["handed-out-value"]).unwrap(), entropy()).unwrap()
}

fn text<'a>(attributes: &'a [Sent], key: &str) -> &'a str {
    let value = attributes.iter().find(|attribute| attribute.key == key).and_then(|attribute| attribute.value.as_ref());
    match value {
        Some(AnyValue { value: Some(any_value::Value::StringValue(text)) }) => text,
        other => panic!("{key} is {other:?} in {attributes:?}"),
    }
}

/// B-11.
#[tokio::test]
async fn a_span_arrives_with_the_ids_that_were_chosen_before() {
    let mut collector = Collector::start().await;
    let telemetry = telemetry(
        &collector.endpoint,
        &[
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ],
    );
    let caller = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=1").unwrap();
    let step = telemetry.child(&caller);
    let other = telemetry.root();
    telemetry.emit(SpanRecord {
        parent: Some(caller.clone()),
        kind: SpanKind::Client,
        attributes: vec![
            KeyValue::new(semconv::GEN_AI_OPERATION_NAME, semconv::operation::EXECUTE_TOOL),
            KeyValue::new(semconv::BELAY_ATTEMPT, 2),
        ],
        status: Status::error("TOOL_FAILED"),
        events: vec![SpanEvent {
            name: "retry".into(),
            micros: 1_700_000_000_500_000,
            attributes: vec![KeyValue::new("n", 1)],
        }],
        links: vec![other.clone()],
        ..SpanRecord::new(step.clone(), "execute_tool read_file", 1_700_000_000_000_001, 1_700_000_001_000_002)
    });
    telemetry.flush(LIMIT).await.unwrap();

    let (headers, request) = collector.batch().await;
    assert_eq!(headers.get("x-tenant").unwrap(), "blue");
    let resource = &request.resource_spans[0];
    assert_eq!(resource.schema_url, semconv::SCHEMA_URL);
    assert_eq!(resource.scope_spans[0].schema_url, semconv::SCHEMA_URL);
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    assert_eq!(text(attributes, "service.name"), "belay-executor");
    assert_eq!(text(attributes, "deployment.environment.name"), "test");
    assert_eq!(text(attributes, "service.instance.id").len(), 32);

    let span = &spans(request)[0];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&span.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&span.span_id), step.span_id());
    assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(span.trace_state, "rojo=1");
    assert_eq!((span.name.as_str(), span.kind), ("execute_tool read_file", SentKind::Client as i32));
    assert_eq!(span.start_time_unix_nano, 1_700_000_000_000_001_000);
    assert_eq!(span.end_time_unix_nano, 1_700_000_001_000_002_000);
    assert_eq!(text(&span.attributes, "gen_ai.operation.name"), "execute_tool");
    let status = span.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (StatusCode::Error as i32, "TOOL_FAILED"));
    assert_eq!((span.events[0].name.as_str(), span.events[0].time_unix_nano), ("retry", 1_700_000_000_500_000_000));
    assert_eq!(hex(&span.links[0].span_id), other.span_id());
    telemetry.shutdown(LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_request_becomes_a_span_and_is_an_error_only_where_the_server_is_at_fault() {
    let mut collector = Collector::start().await;
    let telemetry = telemetry(&collector.endpoint, &[]);
    let (asked, remembered) = (telemetry.root(), telemetry.root());
    const METHOD: &str = "belay.v1.ApprovalService/DecideApproval";
    RpcSpan::begin(&telemetry, METHOD, None, 1).end(&Ok(()), 2);
    let mut decided = RpcSpan::begin(&telemetry, METHOD, Some(asked.clone()), 1);
    decided.belongs_to(remembered.clone());
    decided.attribute(semconv::BELAY_DECISION, "APPROVED");
    decided.end(&Ok(()), 2);
    let codes = [(Code::PermissionDenied, StatusCode::Unset), (Code::Unavailable, StatusCode::Error)];
    for (code, _) in codes {
        let request = RpcSpan::begin(&telemetry, METHOD, Some(asked.clone()), 3);
        request.end(&Err::<(), _>(tonic::Status::new(code, "no")), 4);
    }
    telemetry.flush(LIMIT).await.unwrap();

    let spans = collector.spans().await;
    assert_eq!(spans.len(), 3, "a request outside of any trace is no span");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let decided = &spans[0];
    assert_eq!((decided.name.as_str(), decided.kind), (METHOD, SentKind::Server as i32));
    assert_eq!(hex(&decided.trace_id), remembered.trace_id());
    assert_eq!(hex(&decided.parent_span_id), remembered.span_id());
    assert_eq!(hex(&decided.links[0].span_id), asked.span_id());
    assert_eq!(text(&decided.attributes, "rpc.response.status_code"), "OK");
    assert_eq!(text(&decided.attributes, "belay.decision"), "APPROVED");
    for (span, (code, status)) in spans[1..].iter().zip(codes) {
        let sent = span.status.as_ref().map_or(StatusCode::Unset, |status| status.code());
        assert_eq!(sent, status, "{code:?}");
        assert_eq!(hex(&span.parent_span_id), asked.span_id());
    }
}

/// B-11: one trace through a restart. The process that comes after knows the ids without having stored them, and emits a span that began
/// before it did.
#[tokio::test]
async fn a_span_that_began_before_a_restart_is_emitted_after_it() {
    let mut collector = Collector::start().await;
    let before = telemetry(&collector.endpoint, &[]);
    let execution = before.root();
    let stored = (execution.traceparent(), execution.tracestate().to_owned());
    let step = before.derived(&execution, "8x4k2m9q1p7r3s5t6v8w/build/1");
    let call = before.child(&step);
    before.emit(SpanRecord { parent: Some(step.clone()), ..SpanRecord::new(call, "execute_tool echo", 10, 20) });
    before.shutdown(LIMIT).await.unwrap();
    let first = collector.spans().await;

    let after = telemetry(&collector.endpoint, &[]);
    let execution = TraceContext::parse(&stored.0, &stored.1).unwrap();
    let step = after.derived(&execution, "8x4k2m9q1p7r3s5t6v8w/build/1");
    after.emit(SpanRecord { parent: Some(execution.clone()), ..SpanRecord::new(step, "step", 5, 30) });
    after.emit(SpanRecord::new(execution, "invoke_workflow", 1, 40));
    after.shutdown(LIMIT).await.unwrap();
    let second = collector.spans().await;

    let [child, step, root] = [&first[0], &second[0], &second[1]];
    assert!([child, step, root].iter().all(|span| span.trace_id == root.trace_id));
    assert_eq!(child.parent_span_id, step.span_id);
    assert_eq!(step.parent_span_id, root.span_id);
    assert!(root.parent_span_id.is_empty());
    assert_eq!((root.start_time_unix_nano, root.end_time_unix_nano), (1_000, 40_000));
    assert_eq!(step.start_time_unix_nano, 5_000);
}

/// B-11, S2-FR-077a: no secret in a trace, wherever a caller put it.
#[tokio::test]
async fn no_secret_is_sent() {
    let mut collector = Collector::start().await;
    let telemetry = telemetry(&collector.endpoint, &[]);
    let texts = Value::Array(Array::String(vec!["--verbose".into(), "token=hunter2abc".into()]));
    telemetry.emit(SpanRecord {
        attributes: vec![
            KeyValue::new("gen_ai.tool.call.arguments", r#"{"password":"hunter2abc","x":1}"#),
            KeyValue::new("process.command_args", texts),
            KeyValue::new("plain", "3f786850e387550fdab836ed7e6dc881de23001b"),
        ],
        status: Status::error("postgres://app:hunter2abc@db refused"),
        events: vec![SpanEvent {
            name: "token=hunter2abc".into(),
            micros: 1,
            attributes: vec![KeyValue::new("a", "handed-out-value")],
        }],
        ..SpanRecord::new(telemetry.root(), "run handed-out-value", 1, 2)
    });
    telemetry.flush(LIMIT).await.unwrap();
    let span = collector.spans().await.remove(0);
    let sent = format!("{span:?}");
    assert!(!sent.contains("hunter2abc") && !sent.contains("handed-out-value"), "{sent}");
    assert_eq!(span.name, "run [REDACTED]");
    assert_eq!(text(&span.attributes, "gen_ai.tool.call.arguments"), r#"{"password":"[REDACTED]","x":1}"#);
    assert_eq!(text(&span.attributes, "plain"), "3f786850e387550fdab836ed7e6dc881de23001b");
}

#[tokio::test]
async fn the_sampler_decides_what_is_sent() {
    let mut collector = Collector::start().await;
    let caller =
        |flags: &str| TraceContext::parse(&format!("00-{}-{}-{flags}", "a".repeat(32), "b".repeat(16)), "").unwrap();
    let by_parent = telemetry(&collector.endpoint, &[]);
    assert!(by_parent.records(&by_parent.root()));
    assert!(by_parent.records(&by_parent.child(&caller("01"))));
    let unwanted = by_parent.child(&caller("00"));
    assert!(!by_parent.records(&unwanted));
    by_parent.emit(SpanRecord::new(unwanted, "unwanted", 1, 2));
    by_parent.shutdown(LIMIT).await.unwrap();
    assert!(collector.is_silent());

    let never = telemetry(&collector.endpoint, &[("OTEL_TRACES_SAMPLER", "always_off")]);
    assert!(!never.root().is_sampled() && !never.child(&caller("01")).is_sampled());
    let some = telemetry(
        &collector.endpoint,
        &[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.0")],
    );
    assert!(!some.root().is_sampled() && some.child(&caller("01")).is_sampled());
}

/// Off: nothing is sent, no thread is there, and a trace that goes through keeps its parent.
#[tokio::test]
async fn without_telemetry_contexts_are_passed_on() {
    let off = Telemetry::off(entropy());
    let caller = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=1").unwrap();
    assert_eq!(off.child(&caller), caller);
    assert_eq!(off.derived(&caller, "x"), caller);
    assert!(!off.is_on() && !off.records(&caller) && !off.root().is_sampled());
    assert_ne!(off.root(), off.root());
    let named = off.root_named("8x4k2m9q1p7r3s5t6v8w");
    assert!(named.is_span("8x4k2m9q1p7r3s5t6v8w") && !named.is_span("another") && !off.root().is_span("another"));
    off.emit(SpanRecord::new(caller, "never sent", 1, 2));
    off.flush(LIMIT).await.unwrap();
    off.shutdown(LIMIT).await.unwrap();
}

/// S2-NFR-003: a collector that is away, and one that never answers: spans are taken and dropped, and the end comes in time.
#[tokio::test]
async fn a_collector_that_is_away_stops_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        let telemetry = telemetry(&format!("http://{address}"), &[]);
        // More than the queue holds.
        for _ in 0..5_000 {
            telemetry.emit(SpanRecord::new(telemetry.root(), "lost", 1, 2));
        }
        telemetry.flush(Duration::from_millis(50)).await.unwrap_err();
        telemetry.shutdown(Duration::from_millis(50)).await.unwrap_err();
    }
}

#[tokio::test]
async fn ending_twice_is_no_fault_and_nothing_is_sent_after_it() {
    let mut collector = Collector::start().await;
    let telemetry = telemetry(&collector.endpoint, &[]);
    telemetry.emit(SpanRecord::new(telemetry.root(), "before", 1, 2));
    telemetry.shutdown(LIMIT).await.unwrap();
    telemetry.emit(SpanRecord::new(telemetry.root(), "after", 1, 2));
    telemetry.shutdown(LIMIT).await.unwrap();
    assert_eq!(collector.spans().await[0].name, "before");
    assert!(collector.is_silent());
}
