//! A model, a prompt, and readers that take a stream in every way in which it can be cut.

use std::time::Duration;

use belay_model::{
    Answer, Api, Arguments, BaseUrl, CallResult, Delta, Failure, Message, Model, OfferedTool, Price, Prompt, Reader,
    TimeLimits, ToolCalls,
};
use serde_json::{Value, json};

pub(crate) fn model(api: Api) -> Model {
    Model {
        name: "coder".to_owned(),
        api,
        base_url: BaseUrl::parse("http://127.0.0.1:11434/v1").unwrap(),
        model: "qwen3:8b".to_owned(),
        window: 32_768,
        max_output: 4096,
        tool_calls: ToolCalls::Native,
        price: None::<Price>,
        limits: TimeLimits { first_byte: Duration::from_secs(1), ..TimeLimits::DEFAULT },
        credential: None,
    }
}

pub(crate) fn tool(name: &str) -> OfferedTool {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    OfferedTool { name: name.to_owned(), description: format!("Does {name}."), parameters }
}

/// A conversation of three turns with two tools.
pub(crate) fn prompt() -> Prompt {
    let result = |id: &str, is_error| CallResult { id: id.to_owned(), text: format!("of {id}"), is_error };
    let call = |id: &str| (id.to_owned(), "read_file".to_owned(), json!({"path": id}));
    Prompt {
        instructions: "Be brief.".to_owned(),
        tools: vec![tool("read_file"), OfferedTool { parameters: json!({}), ..tool("list") }],
        messages: vec![
            Message::User("Look.".to_owned()),
            Message::Assistant { text: "I look.".to_owned(), calls: vec![call("1.0"), call("1.1")] },
            Message::Results(vec![result("1.0", false), result("1.1", true)]),
        ],
        schema: None,
        max_output: 100,
    }
}

/// Reads a stream in these pieces.
pub(crate) fn read_pieces(model: &Model, pieces: &[&[u8]]) -> Result<(Answer, Vec<Delta>), Failure> {
    let mut reader = Reader::new(model, &prompt(), "text/event-stream; charset=utf-8");
    let mut deltas = Vec::new();
    for piece in pieces {
        deltas.extend(reader.push(piece)?);
    }
    reader.finish().map(|answer| (answer, deltas))
}

/// Reads a stream as a whole, and cut at each place: the pieces in which it arrives must not matter.
pub(crate) fn read(model: &Model, stream: &str) -> Result<(Answer, Vec<Delta>), Failure> {
    let bytes = stream.as_bytes();
    let whole = read_pieces(model, &[bytes]);
    for cut in 0..bytes.len() {
        let (before, after) = bytes.split_at(cut);
        assert_eq!(read_pieces(model, &[before, after]), whole, "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read_pieces(model, &single), whole, "byte by byte");
    whole
}

/// Reads an answer that comes as one JSON document.
pub(crate) fn read_whole(model: &Model, document: &Value) -> Result<Answer, Failure> {
    let mut reader = Reader::new(model, &prompt(), "application/json");
    reader.push(document.to_string().as_bytes())?;
    reader.finish()
}

/// A stream with these events.
pub(crate) fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// The calls as name and arguments; what is wrong with those that are not valid.
pub(crate) fn calls(answer: &Answer) -> Vec<(String, String)> {
    let shown = |arguments: &Arguments| match arguments {
        Arguments::Object(object) => object.to_string(),
        Arguments::Invalid { why, .. } => why.clone(),
    };
    answer.calls.iter().map(|call| (call.name.clone(), shown(&call.arguments))).collect()
}

/// Every beginning of a stream that lacks its end is a failure, and never an answer.
pub(crate) fn no_beginning_is_an_answer(model: &Model, stream: &str, end: &str) {
    let end = stream.find(end).expect("the stream has this end");
    for cut in 0..=end {
        let read = read_pieces(model, &[&stream.as_bytes()[..cut]]);
        assert_eq!(read, Err(Failure::Cut), "cut at {cut}");
    }
}
