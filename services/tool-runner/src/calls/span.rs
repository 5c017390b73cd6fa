//! The span of one stretch of a call: from its start, or its resumption on a grant, to its end or the approval that it waits for.

use belay_proto::v1;
use belay_telemetry::{
    KeyValue, SpanKind, SpanRecord, Status, Telemetry, TraceContext,
    semconv::{self, operation},
};

use super::Progress;

/// An open span in the trace of the caller.
pub(super) struct CallSpan {
    telemetry: Telemetry,
    parent: TraceContext,
    context: TraceContext,
    start_micros: i64,
}

impl CallSpan {
    pub(super) fn begin(telemetry: &Telemetry, parent: TraceContext, now_micros: i64) -> Self {
        let context = telemetry.child(&parent);
        Self { telemetry: telemetry.clone(), parent, context, start_micros: now_micros }
    }

    /// The context of this span, which commands inherit.
    pub(super) fn context(&self) -> &TraceContext {
        &self.context
    }

    pub(super) fn end(self, progress: &Progress, now_micros: i64) {
        let call = match progress {
            Progress::AwaitingApproval(call) => call,
            Progress::Ended(ended) => &ended.call,
            Progress::Running | Progress::Resolving | Progress::Unresolved => return,
        };
        if !self.telemetry.records(&self.context) {
            return;
        }
        let mut attributes = vec![
            KeyValue::new(semconv::GEN_AI_OPERATION_NAME, operation::EXECUTE_TOOL),
            KeyValue::new(semconv::GEN_AI_TOOL_NAME, call.tool.clone()),
            KeyValue::new(semconv::GEN_AI_TOOL_CALL_ID, call.name.clone()),
            KeyValue::new(semconv::BELAY_STATE, call.state().as_str_name().trim_start_matches("STATE_")),
        ];
        let receipt = call.receipt.as_ref();
        if let Some(decision) = receipt.and_then(|receipt| receipt.decision.as_ref()) {
            attributes.push(KeyValue::new(semconv::BELAY_POLICY_REVISION, decision.policy_revision));
        }
        if let Some(v1::EffectSummary { created, modified, deleted, .. }) =
            receipt.and_then(|receipt| receipt.effect.as_ref())
        {
            attributes.push(KeyValue::new(semconv::BELAY_EFFECT_CHANGES, i64::from(created + modified + deleted)));
        }
        // Only the code: the message may quote arguments.
        let status = call.failure.as_ref().map_or(Status::Unset, |failure| {
            let class = failure.error_class().as_str_name().trim_start_matches("ERROR_CLASS_");
            attributes.push(KeyValue::new(semconv::ERROR_TYPE, failure.reason.clone()));
            attributes.push(KeyValue::new(semconv::BELAY_ERROR_CLASS, class));
            Status::error(failure.reason.clone())
        });
        let name = format!("{} {}", operation::EXECUTE_TOOL, call.tool);
        let record = SpanRecord::new(self.context, name, self.start_micros, now_micros);
        self.telemetry.emit(SpanRecord {
            parent: Some(self.parent),
            kind: SpanKind::Server,
            attributes,
            status,
            ..record
        });
    }
}
