//! Calls by answers that follow a schema.

use belay_model::{Api, End, Failure, Model, Prompt, ToolCalls, request};
use serde_json::{Value, json};

use crate::support::{calls, model, prompt, read, stream, tool};

fn constrained(api: Api) -> Model {
    Model { tool_calls: ToolCalls::Constrained, ..model(api) }
}

fn body(model: &Model, prompt: &Prompt) -> Value {
    serde_json::from_slice(&request(model, prompt).body.unwrap()).unwrap()
}

#[test]
fn the_tools_become_a_schema_and_the_conversation_text() {
    let body = body(&constrained(Api::Chat), &prompt());
    assert_eq!(body.get("tools"), None);
    let schema = &body["response_format"]["json_schema"];
    assert_eq!(schema["strict"], true);
    let choices = schema["schema"]["anyOf"].as_array().unwrap();
    assert_eq!(choices[0]["properties"]["tool"], json!({"const": "read_file"}));
    assert_eq!(choices[0]["required"], json!(["tool", "arguments"]));
    assert_eq!(choices[1]["properties"]["arguments"], json!({"type": "object", "properties": {}}));
    let messages = body["messages"].as_array().unwrap();
    let system = messages[0]["content"].as_str().unwrap();
    assert!(system.starts_with("Be brief.\n\n") && system.contains("read_file: Does read_file."), "{system}");
    assert_eq!(
        messages[2]["content"],
        "I look.\n{\"arguments\":{\"path\":\"1.0\"},\"tool\":\"read_file\"}\n{\"arguments\":{\"path\":\"1.1\"},\"tool\":\"read_file\"}"
    );
    assert_eq!(messages[3], json!({"role": "user", "content": "of 1.0\n\nof 1.1"}));
    let one = Prompt { tools: vec![tool("list")], ..prompt() };
    assert_eq!(
        self::body(&constrained(Api::Responses), &one)["text"]["format"]["schema"]["properties"]["tool"],
        json!({"const": "list"})
    );
    let none = Prompt { tools: Vec::new(), ..prompt() };
    assert_eq!(self::body(&constrained(Api::Chat), &none).get("response_format"), None, "nothing to call");
}

#[test]
fn the_answer_is_one_call() {
    let of = |text: &str, finish: &str| {
        let chunk = json!({"choices": [{"delta": {"content": text}, "finish_reason": finish}]});
        read(&constrained(Api::Chat), &stream(&[chunk]))
    };
    let (answer, deltas) = of("{\"tool\":\"list\",\"arguments\":{\"path\":\"a\"}}", "stop").unwrap();
    assert_eq!(calls(&answer), [("list".to_owned(), "{\"path\":\"a\"}".to_owned())]);
    assert_eq!((answer.text.as_str(), answer.end, deltas.len()), ("", End::Complete, 0));
    assert_eq!(calls(&of(" {\"tool\":\"list\"}\n", "stop").unwrap().0), [("list".to_owned(), "{}".to_owned())]);
    for (wrong, says) in [
        ("I would list.", "one JSON object"),
        ("{\"tool\":\"list\",\"arguments\":{}} and so on", "more text"),
        ("[1]", "must be a JSON object"),
        ("{\"name\":\"list\"}", "in `tool`"),
        ("{\"tool\":\"list\",\"arguments\":[1]}", "this is a list"),
        ("", "one JSON object"),
    ] {
        let answer = of(wrong, "stop").unwrap().0;
        assert!(calls(&answer)[0].1.contains(says), "{wrong}: {answer:?}");
    }
    assert!(matches!(of("{\"tool\":\"list\",\"arguments\":{}}", "length"), Err(Failure::Truncated { .. })));
}
