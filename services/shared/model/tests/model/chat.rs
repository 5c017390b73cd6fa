//! Chat Completions, as each server streams it.

use belay_model::{Api, Delta, End, Failure, Usage};
use serde_json::{Value, json};

use crate::support::{calls, model, no_beginning_is_an_answer, read, read_whole, stream};

fn chunk(delta: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "qwen3", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn piece(index: u64, id: Option<&str>, name: Option<&str>, arguments: Value) -> Value {
    let mut call = json!({"index": index, "type": "function", "function": {"arguments": arguments}});
    if let Some(id) = id {
        call["id"] = id.into();
    }
    if let Some(name) = name {
        call["function"]["name"] = name.into();
    }
    chunk(json!({"tool_calls": [call]}))
}

const DONE: &str = "data: [DONE]\n\n";

/// The calls of a stream of these pieces.
fn called(pieces: &[Value]) -> Vec<(String, String)> {
    let text = stream(&[pieces, &[finish("tool_calls")]].concat()) + DONE;
    calls(&read(&model(Api::Chat), &text).unwrap().0)
}

fn pair(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

// vLLM 0.11 and llama.cpp b11434: the arguments come in pieces, the usage in a chunk without a choice.
#[test]
fn two_calls_in_pieces() {
    let text = stream(&[
        chunk(json!({"role": "assistant", "content": null})),
        chunk(json!({"content": "I lo"})),
        chunk(json!({"content": "ok."})),
        piece(0, Some("call_a"), Some("read_file"), json!("{\"path")),
        piece(0, None, None, json!("\":\"a\"}")),
        piece(1, Some("call_b"), Some("list"), json!("")),
        piece(1, None, None, json!("{}")),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}}}),
    ]) + DONE;
    let (answer, deltas) = read(&model(Api::Chat), &text).unwrap();
    assert_eq!((answer.text.as_str(), answer.end, answer.model.as_str()), ("I look.", End::Complete, "qwen3"));
    assert_eq!(calls(&answer), [pair("read_file", "{\"path\":\"a\"}"), pair("list", "{}")]);
    assert_eq!(answer.calls[1].server_id, "call_b");
    assert_eq!(answer.usage, Some(Usage { input: 50, cached_input: 40, output: 20, reasoning: 0 }));
    let shown = [
        Delta::Text("I lo".to_owned()),
        Delta::Text("ok.".to_owned()),
        Delta::Call("read_file".to_owned()),
        Delta::Call("list".to_owned()),
    ];
    assert_eq!(deltas, shown);
    no_beginning_is_an_answer(
        &model(Api::Chat),
        &text,
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"",
    );
}

// Pieces of calls that take turns belong to them by their indices, whatever comes between them.
#[test]
fn interleaved_calls_are_put_together() {
    let pieces = [
        piece(0, Some("call_a"), Some("read_file"), json!("{\"path")),
        piece(1, Some("call_b"), Some("list"), json!("{\"in")),
        piece(0, None, None, json!("\":\"a\"}")),
        chunk(json!({"content": "and"})),
        piece(1, None, None, json!("\":1}")),
    ];
    assert_eq!(called(&pieces), [pair("read_file", "{\"path\":\"a\"}"), pair("list", "{\"in\":1}")]);
}

// Ollama 0.33 sends each call whole; other servers give all of them the index 0 (dynamo's PR 4723).
#[test]
fn whole_calls_with_one_index_are_several() {
    let both = [pair("read_file", "{\"path\":\"a\"}"), pair("read_file", "{\"path\":\"b\"}")];
    let with_ids = [
        piece(0, Some("call_a"), Some("read_file"), json!("{\"path\":\"a\"}")),
        piece(0, Some("call_b"), Some("read_file"), json!("{\"path\":\"b\"}")),
    ];
    assert_eq!(called(&with_ids), both);
    let without_ids = [
        piece(0, None, Some("read_file"), json!("{\"path\":\"a\"}")),
        piece(0, Some(""), Some("read_file"), json!("{\"path\":\"b\"}")),
    ];
    assert_eq!(called(&without_ids), both);
    let without_index =
        |path: &str| chunk(json!({"tool_calls": [{"function": {"name": "read_file", "arguments": {"path": path}}}]}));
    assert_eq!(called(&[without_index("a"), without_index("b")]), both);
    let in_one_delta = chunk(json!({"tool_calls": [
        {"index": 0, "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}},
        {"index": 0, "function": {"name": "read_file", "arguments": "{\"path\":\"b\"}"}},
    ]}));
    assert_eq!(called(&[in_one_delta]), both);
}

// llama.cpp's PR 12379.
#[test]
fn a_name_that_is_repeated_is_one_name() {
    let pieces = [
        piece(0, Some("call_a"), Some("read_file"), json!("")),
        piece(0, Some("call_a"), Some("read_file"), json!("{\"path\":")),
        piece(0, Some("call_a"), Some("read_file"), json!("\"a\"}")),
    ];
    assert_eq!(called(&pieces), [pair("read_file", "{\"path\":\"a\"}")]);
    let without_id = [
        piece(0, None, Some("read_file"), json!("{\"path\":")),
        piece(0, None, Some("read_file"), json!("\"a\"}")),
        piece(0, None, Some("read_file"), json!("")),
    ];
    assert_eq!(called(&without_id), [pair("read_file", "{\"path\":\"a\"}")]);
    for nothing in [json!(null), json!("")] {
        let pieces = [piece(0, Some("a"), Some("list"), json!("{}")), piece(0, None, Some("list"), nothing.clone())];
        assert_eq!(called(&pieces), [pair("list", "{}")], "{nothing}");
    }
}

// vLLM's issue 47901, LM Studio's 1922, llama.cpp's 22072.
#[test]
fn arguments_are_taken_as_they_are_or_refused() {
    for none in [json!(null), json!(""), json!("null"), json!({})] {
        assert_eq!(called(&[piece(0, Some("a"), Some("list"), none.clone())]), [pair("list", "{}")], "{none}");
    }
    assert_eq!(called(&[piece(0, Some("a"), Some("list"), json!({"path": "x"}))]), [pair("list", "{\"path\":\"x\"}")]);
    for (wrong, says) in [
        ("{\"path\":\"a", "line 1 column"),
        ("{\"path\":\"a\"}{\"path\":\"b\"}", "more text"),
        ("[\"a\"]", "this is a list"),
        ("{\"path\":\"a\",\"path\":\"b\"}", "path"),
    ] {
        let found = called(&[piece(0, Some("a"), Some("read_file"), json!(wrong))]);
        assert!(found.len() == 1 && found[0].1.contains(says), "{wrong}: {found:?}");
    }
    // The pieces of two calls, mixed: neither is repaired into a call.
    let mixed = [
        piece(0, Some("a"), Some("read_file"), json!("{\"path\":\"a")),
        piece(1, Some("b"), Some("read_file"), json!("{\"path\":\"b")),
        piece(0, None, None, json!("b\"}")),
        piece(1, None, None, json!("a\"}")),
    ];
    assert_eq!(called(&mixed), [pair("read_file", "{\"path\":\"ab\"}"), pair("read_file", "{\"path\":\"ba\"}")]);
}

// LM Studio's issue 1318.
#[test]
fn an_empty_list_is_no_call_and_the_reason_does_not_count() {
    let (answer, _) = read(
        &model(Api::Chat),
        &(stream(&[chunk(json!({"content": "x", "tool_calls": []})), finish("tool_calls")]) + DONE),
    )
    .unwrap();
    assert_eq!((answer.calls.len(), answer.end), (0, End::Complete));
    let text = stream(&[piece(0, Some("a"), Some("list"), json!("{}")), finish("stop")]) + DONE;
    assert_eq!(read(&model(Api::Chat), &text).unwrap().0.calls.len(), 1, "`stop` beside a call");
}

#[test]
fn no_answer_has_endless_calls_and_what_was_filtered_has_none() {
    let many: Vec<Value> = (0..300).map(|index| json!({"index": index, "function": {"name": "list"}})).collect();
    let text = stream(&[chunk(json!({"tool_calls": many})), finish("stop")]);
    let mut reader = belay_model::Reader::new(&model(Api::Chat), &crate::support::prompt(), "text/event-stream");
    assert!(matches!(reader.push(text.as_bytes()), Err(Failure::Malformed { why }) if why.contains("256 calls")));
    let filtered = stream(&[piece(0, Some("a"), Some("list"), json!("{}")), finish("content_filter")]);
    let (answer, _) = read(&model(Api::Chat), &filtered).unwrap();
    assert_eq!((answer.calls.len(), answer.end), (0, End::Refused));
}

#[test]
fn what_reaches_the_limit_is_text_or_nothing() {
    let text = stream(&[chunk(json!({"content": "I"})), finish("length")]) + DONE;
    assert_eq!(read(&model(Api::Chat), &text).unwrap().0.end, End::Length);
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}});
    for arguments in ["{\"path\":\"a", "{\"path\":\"a\"}"] {
        let text = stream(&[piece(0, Some("a"), Some("read_file"), json!(arguments)), finish("length"), usage.clone()]);
        let failed = read(&model(Api::Chat), &(text + DONE)).unwrap_err();
        let counted = Usage { input: 5, output: 7, ..Usage::default() };
        assert_eq!(failed, Failure::Truncated { usage: Some(counted) }, "{arguments}");
    }
}

// Ollama 0.33 ends a stream that has failed with an empty chunk and nothing more.
#[test]
fn a_stream_without_its_end_is_cut() {
    let call = piece(0, Some("a"), Some("list"), json!("{}"));
    for events in [vec![], vec![chunk(json!({"content": "x"})), chunk(json!({"content": ""}))], vec![call.clone()]] {
        assert_eq!(read(&model(Api::Chat), &stream(&events)), Err(Failure::Cut), "{events:?}");
    }
    let ended = [stream(&[call.clone(), finish("stop")]), stream(&[call]) + "data: [DONE]"];
    for text in ended {
        assert_eq!(read(&model(Api::Chat), &text).unwrap().0.calls.len(), 1, "{text}");
    }
}

#[test]
fn an_error_in_the_stream_is_the_servers() {
    let text = stream(&[chunk(json!({"content": "x"})), json!({"error": {"message": "out of\n memory", "code": 500}})]);
    assert_eq!(read(&model(Api::Chat), &text), Err(Failure::Server { message: "out of memory".to_owned() }));
    let text = stream(&[json!({"error": "model runner has stopped"})]) + DONE;
    assert!(matches!(read(&model(Api::Chat), &text), Err(Failure::Server { message }) if message.contains("stopped")));
    assert!(matches!(read(&model(Api::Chat), "data: <html>\n\n"), Err(Failure::Malformed { .. })));
}

#[test]
fn the_rest_of_what_servers_vary() {
    // Comments, carriage returns, parts as content, reasoning under either name, other choices, the usage in every chunk.
    let with_usage = |n: u64, mut value: Value| {
        value["usage"] =
            json!({"prompt_tokens": 9, "completion_tokens": n, "completion_tokens_details": {"reasoning_tokens": 1}});
        value
    };
    let events = [
        with_usage(1, chunk(json!({"reasoning": "Hm"}))),
        with_usage(2, chunk(json!({"reasoning_content": "m", "content": [{"type": "text", "text": "é€"}]}))),
        json!({"choices": [{"index": 1, "delta": {"content": "another"}}]}),
        with_usage(3, finish("stop")),
    ];
    let text: String =
        events.iter().map(|event| format!(": keep\r\nid: 7\r\nretry: 10\r\ndata: {event}\r\n\r\n")).collect();
    let (answer, deltas) = read(&model(Api::Chat), &text).unwrap();
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str()), ("é€", "Hmm"));
    assert_eq!(answer.usage, Some(Usage { input: 9, cached_input: 0, output: 3, reasoning: 1 }));
    assert_eq!(deltas.len(), 3);
    let refused = stream(&[chunk(json!({"refusal": "No."})), finish("stop")]);
    let (answer, _) = read(&model(Api::Chat), &refused).unwrap();
    assert_eq!((answer.text.as_str(), answer.end), ("No.", End::Refused));
}

#[test]
fn a_server_that_does_not_stream_answers_whole() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "list", "arguments": "{}"}});
    let document = json!({"model": "m", "choices": [{"index": 0, "message": {"content": "x", "tool_calls": [call]}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let answer = read_whole(&model(Api::Chat), &document).unwrap();
    assert_eq!((answer.text.as_str(), calls(&answer)), ("x", vec![pair("list", "{}")]));
    assert!(matches!(read_whole(&model(Api::Chat), &json!({"data": []})), Err(Failure::Malformed { .. })));
    assert!(matches!(read_whole(&model(Api::Chat), &json!({"error": {"message": "x"}})), Err(Failure::Server { .. })));
}
