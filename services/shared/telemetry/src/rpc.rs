//! The server span of one request.

use belay_proto::code_name;
use opentelemetry::{
    KeyValue,
    trace::{SpanKind, Status as SpanStatus},
};
use tonic::{Code, Status};

use crate::{SpanRecord, Telemetry, TraceContext, semconv};

/// A request in progress; ending it emits a span, if its trace is sampled.
#[derive(Debug)]
#[must_use = "the span is emitted by `end`"]
pub struct RpcSpan {
    telemetry: Telemetry,
    method: &'static str,
    parent: Option<TraceContext>,
    links: Vec<TraceContext>,
    attributes: Vec<KeyValue>,
    start_micros: i64,
}

impl RpcSpan {
    /// Begins a span. `method` has the form `belay.gate.v1.ApprovalGateService/CreateApproval`; `parent` is the request's context.
    pub fn begin(telemetry: &Telemetry, method: &'static str, parent: Option<TraceContext>, now_micros: i64) -> Self {
        let (links, attributes) = (Vec::new(), Vec::new());
        Self { telemetry: telemetry.clone(), method, parent, links, attributes, start_micros: now_micros }
    }

    /// Moves the span to this trace; it then links to the request's context.
    pub fn belongs_to(&mut self, parent: TraceContext) {
        self.links.extend(self.parent.replace(parent));
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, key: &'static str, value: impl Into<opentelemetry::Value>) {
        self.attributes.push(KeyValue::new(key, value));
    }

    /// Ends the request with its result.
    pub fn end<T>(mut self, answer: &Result<T, Status>, now_micros: i64) {
        let Some(parent) = self.parent.take() else { return };
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        self.attribute(semconv::RPC_SYSTEM_NAME, "grpc");
        self.attribute(semconv::RPC_METHOD, self.method);
        self.attribute(semconv::RPC_RESPONSE_STATUS_CODE, code_name(code));
        let status = if is_fault(code) {
            self.attribute(semconv::ERROR_TYPE, code_name(code));
            SpanStatus::error(code_name(code))
        } else {
            SpanStatus::Unset
        };
        self.telemetry.emit(SpanRecord {
            parent: Some(parent.clone()),
            kind: SpanKind::Server,
            attributes: self.attributes,
            status,
            links: self.links,
            ..SpanRecord::new(self.telemetry.child(&parent), self.method, self.start_micros, now_micros)
        });
    }
}

/// Whether a code is the server's fault. Other codes are the caller's, and do not set the server span's status to error.
fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}
