//! The command's own span: the root of the trace of its requests, or a child where the command was started within a trace.

use std::env;

use belay_all_in_one::{
    Telemetry, TelemetryError, TraceContext,
    spans::{KeyValue, SpanKind, SpanRecord, Status, end_of_command, semconv},
};
use belay_reasons as reasons;

use crate::{
    clock,
    exit::Exit,
    failure::{Failure, Report},
};

/// The span of a command that changes something; `None` for one that only reads.
pub(crate) struct Trace {
    span: Option<Span>,
}

struct Span {
    name: &'static str,
    telemetry: Telemetry,
    context: TraceContext,
    parent: Option<TraceContext>,
    start_micros: i64,
}

impl Trace {
    /// Begins, as the environment says: `OTEL_*` for where spans go, `TRACEPARENT` and `TRACESTATE` for the trace that the command is in.
    pub(crate) fn begin(command: Option<&'static str>) -> Result<Self, Failure> {
        let Some(name) = command else { return Ok(Self { span: None }) };
        let telemetry = belay_all_in_one::telemetry("belay").map_err(|error| unusable(&error))?;
        let variable = |name: &str| env::var(name).unwrap_or_default();
        let parent = TraceContext::parse(&variable("TRACEPARENT"), &variable("TRACESTATE")).ok();
        let context = match &parent {
            Some(parent) => Some(telemetry.child(parent)),
            // Without telemetry the services begin the trace: a root here would be exported nowhere.
            None => telemetry.is_on().then(|| telemetry.root()),
        };
        let span = context.map(|context| Span { name, telemetry, context, parent, start_micros: now() });
        Ok(Self { span })
    }

    /// The trace context of every request.
    pub(crate) fn context(&self) -> Option<&TraceContext> {
        self.span.as_ref().map(|span| &span.context)
    }

    /// Ends with the command, and sends the span. A report of what went wrong names the trace.
    pub(crate) async fn end(self, outcome: Result<Exit, Failure>) -> Result<Exit, Failure> {
        let Some(Span { name, telemetry, context, parent, start_micros }) = self.span else { return outcome };
        let (exit, code) = match &outcome {
            Ok(exit) | Err(Failure::Quiet(exit)) => (*exit, None),
            Err(Failure::ClosedPipe) => (Exit::OK, None),
            Err(Failure::Report(report)) => (report.exit, Some(report.code.clone())),
        };
        let mut attributes = vec![
            KeyValue::new(semconv::PROCESS_EXECUTABLE_NAME, "belay"),
            KeyValue::new(semconv::PROCESS_EXIT_CODE, i64::from(exit.0)),
        ];
        let mut status = Status::Unset;
        if exit != Exit::OK {
            let code = code.unwrap_or_else(|| exit.0.to_string());
            attributes.push(KeyValue::new(semconv::ERROR_TYPE, code.clone()));
            status = Status::error(code);
        }
        let record = SpanRecord::new(context.clone(), name, start_micros, now());
        telemetry.emit(SpanRecord { parent, kind: SpanKind::Client, attributes, status, ..record });
        // What could not be delivered is logged; the command does not fail for it.
        end_of_command(&telemetry).await;
        match outcome {
            Err(Failure::Report(report)) if context.is_sampled() => Err(named(*report, &context.trace_id()).into()),
            outcome => outcome,
        }
    }
}

/// The report with the trace, unless it names it already.
fn named(report: Report, trace_id: &str) -> Report {
    let line = format!("trace {trace_id}");
    if report.details.contains(&line) { report } else { report.detail(line) }
}

fn unusable(error: &TelemetryError) -> Report {
    Report::new(reasons::TELEMETRY_UNUSABLE, error.to_string()).advice()
}

fn now() -> i64 {
    i64::try_from(clock::now().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_trace_once() {
        let report = || Report::new(reasons::INTERNAL, "no");
        assert_eq!(named(report(), "4bf92f").details, ["trace 4bf92f"]);
        assert_eq!(named(report().detail("trace 4bf92f"), "4bf92f").details, ["trace 4bf92f"]);
    }
}
