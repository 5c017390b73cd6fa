//! Anthropic's Messages.

use belay_model::{Api, Delta, End, Failure, Usage};
use serde_json::{Value, json};

use crate::support::{calls, model, no_beginning_is_an_answer, read, read_whole};

/// A stream whose events have names, as this API sends them.
fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"model": "claude", "content": [], "stop_reason": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5, "output_tokens": 1}}})
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 30}}), json!({"type": "message_stop"})]
}

fn call_of(pieces: &[&str]) -> Vec<Value> {
    let begin = block(1, json!({"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}));
    let pieces = pieces.iter().map(|piece| delta(1, json!({"type": "input_json_delta", "partial_json": piece})));
    std::iter::once(begin).chain(pieces).chain([json!({"type": "content_block_stop", "index": 1})]).collect()
}

#[test]
fn a_thought_a_text_and_a_call() {
    let mut events = vec![
        start(),
        json!({"type": "ping"}),
        block(0, json!({"type": "thinking", "thinking": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        json!({"type": "content_block_stop", "index": 0}),
        block(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "I look."})),
    ];
    events.extend(call_of(&["", "{\"path\":", "\"a\"}"]));
    events.extend(end("tool_use"));
    let text = stream(&events);
    let (answer, deltas) = read(&model(Api::Messages), &text).unwrap();
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str(), answer.end), ("I look.", "Hm", End::Complete));
    assert_eq!(calls(&answer), [("read_file".to_owned(), "{\"path\":\"a\"}".to_owned())]);
    assert_eq!(answer.usage, Some(Usage { input: 95, cached_input: 80, output: 30, reasoning: 0 }));
    let shown =
        [Delta::Reasoning("Hm".to_owned()), Delta::Text("I look.".to_owned()), Delta::Call("read_file".to_owned())];
    assert_eq!(deltas, shown);
    no_beginning_is_an_answer(&model(Api::Messages), &text, "event: message_delta");
}

#[test]
fn the_limit_a_refusal_and_an_error() {
    let text = [start(), block(0, json!({"type": "text", "text": "I"}))].into_iter();
    let of = |reason: &str| read(&model(Api::Messages), &stream(&text.clone().chain(end(reason)).collect::<Vec<_>>()));
    assert_eq!(of("max_tokens").unwrap().0.end, End::Length);
    assert_eq!(of("refusal").unwrap().0.end, End::Refused);
    let cut: Vec<Value> = [start()].into_iter().chain(call_of(&["{\"path"])).chain(end("max_tokens")).collect();
    assert!(matches!(read(&model(Api::Messages), &stream(&cut)), Err(Failure::Truncated { usage: Some(_) })));
    let failed =
        stream(&[start(), json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})]);
    assert_eq!(read(&model(Api::Messages), &failed), Err(Failure::Server { message: "Overloaded".to_owned() }));
    let stray = stream(&[start(), delta(7, json!({"type": "input_json_delta", "partial_json": "{}"}))]);
    assert!(matches!(read(&model(Api::Messages), &stray), Err(Failure::Malformed { .. })));
}

#[test]
fn a_call_without_arguments_and_an_answer_that_comes_whole() {
    let events: Vec<Value> = [start()].into_iter().chain(call_of(&[])).chain(end("tool_use")).collect();
    let (answer, _) = read(&model(Api::Messages), &stream(&events)).unwrap();
    assert_eq!(calls(&answer), [("read_file".to_owned(), "{}".to_owned())]);
    let content =
        json!([{"type": "text", "text": "x"}, {"type": "tool_use", "id": "t", "name": "list", "input": {"path": "a"}}]);
    let document = json!({"model": "m", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 4}});
    let answer = read_whole(&model(Api::Messages), &document).unwrap();
    assert_eq!((answer.text.as_str(), calls(&answer)), ("x", vec![("list".to_owned(), "{\"path\":\"a\"}".to_owned())]));
    assert_eq!(answer.usage, Some(Usage { input: 3, output: 4, ..Usage::default() }));
}
