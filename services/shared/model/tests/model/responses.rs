//! The Responses API.

use belay_model::{Api, Delta, End, Failure, Usage};
use serde_json::{Value, json};

use crate::support::{calls, model, no_beginning_is_an_answer, read, read_whole, stream};

fn item(kind: &str, index: u64, arguments: &str) -> Value {
    let item = json!({"type": "function_call", "id": "fc_1", "call_id": format!("call_{index}"), "name": "read_file", "arguments": arguments});
    json!({"type": kind, "output_index": index, "item": item})
}

fn ended(status: &str, why: Option<&str>, output: Value) -> Value {
    let details = why.map(|why| json!({"reason": why}));
    let usage = json!({"input_tokens": 90, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 12, "output_tokens_details": {"reasoning_tokens": 8}});
    json!({"type": format!("response.{status}"), "response": {"model": "gpt", "status": status, "incomplete_details": details, "error": null, "output": output, "usage": usage}})
}

#[test]
fn a_thought_a_text_and_two_calls() {
    let text = stream(&[
        json!({"type": "response.created", "response": {"status": "in_progress"}}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm"}),
        json!({"type": "response.output_text.delta", "output_index": 1, "delta": "I look."}),
        item("response.output_item.added", 2, ""),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"path\":"}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "\"a\"}"}),
        json!({"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"path\":\"a\"}"}),
        item("response.output_item.done", 2, "{\"path\":\"a\"}"),
        item("response.output_item.added", 3, ""),
        item("response.output_item.done", 3, "{\"path\":\"b\"}"),
        ended("completed", None, json!([])),
    ]);
    let (answer, deltas) = read(&model(Api::Responses), &text).unwrap();
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str(), answer.end), ("I look.", "Hm", End::Complete));
    let of = |path: &str| ("read_file".to_owned(), format!("{{\"path\":\"{path}\"}}"));
    assert_eq!(calls(&answer), [of("a"), of("b")]);
    assert_eq!(answer.calls[1].server_id, "call_3");
    assert_eq!(answer.usage, Some(Usage { input: 90, cached_input: 64, output: 12, reasoning: 8 }));
    assert_eq!(deltas.len(), 4);
    assert_eq!(deltas[2], Delta::Call("read_file".to_owned()));
    no_beginning_is_an_answer(&model(Api::Responses), &text, "data: {\"response\":{\"error\":null");
}

// Servers that convert from Chat Completions send the whole only at the end.
#[test]
fn what_only_the_last_event_has_counts_once() {
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "x"}]});
    let call = json!({"type": "function_call", "call_id": "c", "name": "list", "arguments": "{}"});
    let output = json!([message, call]);
    let (answer, _) = read(&model(Api::Responses), &stream(&[ended("completed", None, output.clone())])).unwrap();
    assert_eq!((answer.text.as_str(), calls(&answer)), ("x", vec![("list".to_owned(), "{}".to_owned())]));
    let again = stream(&[
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "x"}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": output[1]}),
        ended("completed", None, output),
    ]);
    let (answer, _) = read(&model(Api::Responses), &again).unwrap();
    assert_eq!((answer.text.as_str(), answer.calls.len()), ("x", 1));
}

#[test]
fn the_limit_a_refusal_and_an_error() {
    let model = model(Api::Responses);
    let of = |events: &[Value]| read(&model, &stream(events));
    let text = json!({"type": "response.output_text.delta", "delta": "I"});
    assert_eq!(
        of(&[text.clone(), ended("incomplete", Some("max_output_tokens"), json!([]))]).unwrap().0.end,
        End::Length
    );
    assert_eq!(
        of(&[text.clone(), ended("incomplete", Some("content_filter"), json!([]))]).unwrap().0.end,
        End::Refused
    );
    let cut = of(&[
        item("response.output_item.added", 0, "{\"pa"),
        ended("incomplete", Some("max_output_tokens"), json!([])),
    ]);
    assert!(matches!(cut, Err(Failure::Truncated { usage: Some(_) })));
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "Sorry"}}});
    assert_eq!(of(&[text.clone(), failed]), Err(Failure::Server { message: "Sorry".to_owned() }));
    let error = json!({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down"});
    assert_eq!(of(&[text, error]), Err(Failure::Server { message: "Slow down".to_owned() }));
}

#[test]
fn calls_without_an_id_are_calls_and_a_refusal_is_one() {
    let call =
        |path: &str| json!({"type": "function_call", "name": "list", "arguments": format!("{{\"path\":\"{path}\"}}")});
    let (answer, _) =
        read(&model(Api::Responses), &stream(&[ended("completed", None, json!([call("a"), call("b")]))])).unwrap();
    assert_eq!(answer.calls.len(), 2);
    let refusal = json!({"type": "response.refusal.delta", "delta": "No."});
    let (answer, _) = read(&model(Api::Responses), &stream(&[refusal, ended("completed", None, json!([]))])).unwrap();
    assert_eq!((answer.text.as_str(), answer.end), ("No.", End::Refused));
}

#[test]
fn an_answer_that_comes_whole() {
    let document =
        ended("completed", None, json!([{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]));
    let answer = read_whole(&model(Api::Responses), &document["response"]).unwrap();
    assert_eq!((answer.text.as_str(), answer.usage.map(|usage| usage.output)), ("x", Some(12)));
}
