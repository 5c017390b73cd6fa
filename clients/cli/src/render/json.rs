//! JSON for programs: the canonical proto3 form of the contract's messages, with the values of steps in plain sight.
//!
//! Beside what [`belay_proto::json`] does, every failure says whether it is `retryable`, as errors do; commands to type next lead to where this command worked; and
//! what only the services need is left out.

use std::{fmt, time::Duration};

use belay_proto::v1::{Execution, ExecutionEvent};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::next;
use belay_text::is_plain;

/// The fields of the contract that only the services need.
const INTERNAL: [&str; 2] = ["shard", "etag"];
/// The fields of the contract whose type is `Failure`.
const FAILURES: [&str; 3] = ["failure", "cause", "outputsFailure"];

/// A message that cannot be written as JSON.
#[derive(Debug)]
pub(crate) struct JsonError(serde_json::Error);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server's answer cannot be written as JSON: {}", self.0)
    }
}

/// A message as the value that is printed.
pub(crate) fn of<T: Serialize>(message: &T) -> Result<Value, JsonError> {
    belay_proto::json::with(message, &for_programs).map_err(JsonError)
}

/// An event as the value that is printed, with what a watch says once for all of them: each line stands for itself.
pub(crate) fn of_event(event: &ExecutionEvent, execution: &Execution) -> Result<Value, JsonError> {
    let mut value = of(event)?;
    if let Value::Object(fields) = &mut value {
        fields.insert("execution".to_owned(), execution.name.clone().into());
        if event.sequence > 0 {
            fields.insert("eventId".to_owned(), format!("{}.{}", execution.uid, event.sequence).into());
        }
        let call = belay_proto::call_name(&execution.name, event);
        if !call.is_empty() {
            fields.insert("call".to_owned(), call.into());
        }
    }
    Ok(value)
}

/// A duration as proto3 JSON writes it: `"1.500s"`.
pub(crate) fn duration(duration: Duration) -> Value {
    match duration.subsec_nanos() {
        0 => format!("{}s", duration.as_secs()),
        nanos if nanos % 1_000_000 == 0 => format!("{}.{:03}s", duration.as_secs(), nanos / 1_000_000),
        nanos => format!("{}.{nanos:09}s", duration.as_secs()),
    }
    .into()
}

/// The value as text: on one line, or indented for reading. Characters that would steer a terminal are escaped, which JSON allows.
pub(crate) fn text(value: &Value, indented: bool) -> String {
    let text = if indented { format!("{value:#}") } else { value.to_string() };
    if !text.contains(|c| !is_plain(c) && c != '\n') {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) || c == '\n' {
            escaped.push(c);
        } else {
            escaped.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    escaped
}

fn for_programs(fields: &mut Map<String, Value>) {
    fields.retain(|name, _| !INTERNAL.contains(&name.as_str()));
    if let Some(Value::String(command)) = fields.get_mut("nextCommand")
        && let Some(here) = next::of_server(command)
    {
        *command = here;
    }
    for name in FAILURES {
        if let Some(Value::Object(failure)) = fields.get_mut(name) {
            failure.entry("retryable").or_insert(false.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{
        BlobRef, Form, Payload, Plan, PlanInput, Step, StepItemsListed, StepSpec, ToolCallRequested, ToolStep,
        WaitEnded, execution_event::Kind, payload::Content, step,
    };
    use pbjson_types::Timestamp;
    use serde_json::json;

    use super::*;

    fn payload(json: &str) -> Option<Payload> {
        Some(Payload { content: Some(Content::Json(json.to_owned())) })
    }

    #[test]
    fn the_facts_of_a_failure_stay_as_the_tool_wrote_them() {
        let facts = [("parametersSchema", "{}"), ("endTime", "1+00:00"), ("shard", "7")];
        let failure = belay_proto::v1::Failure {
            metadata: facts.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            cause: Some(Box::default()),
            ..Default::default()
        };
        let expected = json!({
            "metadata": {"parametersSchema": "{}", "endTime": "1+00:00", "shard": "7"},
            "cause": {"retryable": false},
        });
        assert_eq!(of(&failure).unwrap(), expected);
    }

    #[test]
    fn an_event_is_canonical_with_plain_values() {
        let event = ExecutionEvent {
            sequence: 3,
            record_time: Some(Timestamp { seconds: 1_795_230_245, nanos: 120_000_000 }),
            step_id: "fetch".to_owned(),
            kind: Some(Kind::ToolCallRequested(ToolCallRequested {
                tool: "read_file".to_owned(),
                arguments: payload(r#"{"path":"a","big":9007199254740993,"json":"1","time":"1+00:00"}"#),
                ..Default::default()
            })),
            ..Default::default()
        };
        assert_eq!(
            of(&event).unwrap(),
            json!({
                "sequence": "3",
                "recordTime": "2026-11-21T03:04:05.120Z",
                "stepId": "fetch",
                "toolCallRequested": {
                    "tool": "read_file",
                    "arguments": {"path": "a", "big": 9_007_199_254_740_993_i64, "json": "1", "time": "1+00:00"},
                },
            })
        );
    }

    #[test]
    fn an_execution_shows_outputs_references_and_labels_as_they_are() {
        let blob =
            BlobRef { digest: "sha256:00".to_owned(), size_bytes: 5, media_type: String::new(), redacted: false };
        let execution = Execution {
            state: belay_proto::v1::execution::State::TimedOut.into(),
            labels: [("json".to_owned(), "1".to_owned()), ("createTime".to_owned(), "x+00:00".to_owned())].into(),
            steps: vec![
                Step { state: step::State::Completed.into(), output: payload("[1]"), ..Default::default() },
                Step { output: Some(Payload { content: Some(Content::Blob(blob)) }), ..Default::default() },
                Step { output: payload("no json"), ..Default::default() },
            ],
            ..Default::default()
        };
        assert_eq!(
            of(&execution).unwrap(),
            json!({
                "state": "STATE_TIMED_OUT",
                "labels": {"json": "1", "createTime": "x+00:00"},
                "steps": [
                    {"state": "STATE_COMPLETED", "output": [1]},
                    {"output": {"blob": {"digest": "sha256:00", "sizeBytes": "5"}}},
                    {"output": {"json": "no json"}},
                ],
            })
        );
    }

    #[test]
    fn json_as_text_is_json_and_what_only_services_need_is_left_out() {
        let step = ToolStep { arguments: Some(Payload::of_json(r#"{"path":"a"}"#)), ..Default::default() };
        assert_eq!(of(&step).unwrap(), json!({"arguments": {"path": "a"}}));
        let form = Form { schema: r#"{"type":"object"}"#.to_owned(), ..Default::default() };
        assert_eq!(of(&form).unwrap(), json!({"schema": {"type": "object"}}));
        let ended = WaitEnded { answer: payload(r#"{"n":1}"#), ..Default::default() };
        assert_eq!(of(&ended).unwrap(), json!({"answer": {"n": 1}}));
        let input = PlanInput {
            name: "n".to_owned(),
            schema: payload(r#"{"type":"integer"}"#),
            default_value: payload("3"),
            ..Default::default()
        };
        let each = StepSpec { for_each: payload("[1]"), ..Default::default() };
        let plan = Plan { inputs: vec![input], steps: vec![each], ..Default::default() };
        let items = vec![Payload::of_json(r#"{"json":"1"}"#), Payload::of_json("2")];
        let listed = StepItemsListed { items, ..StepItemsListed::default() };
        assert_eq!(of(&listed).unwrap(), json!({"items": [{"json": "1"}, 2]}));
        let given = Execution { plan: Some(plan), inputs: payload(r#"{"n":4}"#), ..Default::default() };
        assert_eq!(
            of(&given).unwrap(),
            json!({
                "plan": {"inputs": [{"name": "n", "schema": {"type": "integer"}, "defaultValue": 3}], "steps": [{"forEach": [1]}]},
                "inputs": {"n": 4},
            })
        );
        let execution = Execution {
            etag: "7".to_owned(),
            failure: Some(belay_proto::v1::Failure {
                reason: "TOOL_FAILED".to_owned(),
                message: "boom".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(
            of(&execution).unwrap(),
            json!({"failure": {"code": "TOOL_FAILED", "message": "boom", "retryable": false}})
        );
    }

    #[test]
    fn text_cannot_steer_a_terminal_and_loses_nothing() {
        let value = json!({"a": "\u{1b}[2J\u{9b}\u{202e}ü"});
        for indented in [false, true] {
            let text = text(&value, indented);
            assert!(!text.contains(|c| !is_plain(c) && c != '\n'), "{text:?}");
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}
