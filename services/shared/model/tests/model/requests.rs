//! The bytes of requests.

use belay_model::{Api, Message, Prompt, Schema, list_request, request};
use serde_json::{Value, json};

use crate::support::{model, prompt};

fn body(api: Api, prompt: &Prompt) -> Value {
    serde_json::from_slice(&request(&model(api), prompt).body.unwrap()).unwrap()
}

#[test]
fn the_same_prompt_gives_the_same_bytes_and_a_longer_one_begins_with_them() {
    for (_, api) in Api::WORDS {
        let bytes = |prompt: &Prompt| request(&model(api), prompt).body.unwrap();
        assert_eq!(bytes(&prompt()), bytes(&prompt()));
    }
    // All but the end of the conversation is the same: servers have it in their caches.
    let mut longer = prompt();
    longer.messages.push(Message::User("Go on.".to_owned()));
    let of = |prompt: &Prompt| body(Api::Chat, prompt)["messages"].to_string();
    let (short, long) = (of(&prompt()), of(&longer));
    assert!(long.starts_with(short.trim_end_matches(']')), "{long}");
}

#[test]
fn chat() {
    let asked = request(&model(Api::Chat), &prompt());
    assert_eq!((asked.path, asked.headers.len()), ("/chat/completions", 0));
    let body = body(Api::Chat, &prompt());
    assert_eq!((&body["model"], &body["max_tokens"], &body["stream"]), (&json!("qwen3:8b"), &json!(100), &json!(true)));
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["parallel_tool_calls"], true);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(
        messages[2]["tool_calls"][1],
        json!({"id": "1.1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"1.1\"}"}})
    );
    assert_eq!(messages[4], json!({"role": "tool", "tool_call_id": "1.1", "content": "of 1.1"}));
    // LM Studio's issue 2254.
    assert_eq!(body["tools"][1]["function"]["parameters"], json!({"type": "object", "properties": {}}));
    let plain = self::body(Api::Chat, &Prompt { tools: Vec::new(), ..prompt() });
    assert_eq!((plain.get("tools"), plain.get("parallel_tool_calls")), (None, None), "servers refuse an empty list");
}

/// Anthropic refuses a message with nothing, and a text without a letter (home-assistant's issue 175637).
#[test]
fn messages_leave_out_what_says_nothing() {
    let mut said = prompt();
    let call = ("c".to_owned(), "list".to_owned(), json!({}));
    let answers = [("", vec![]), (" \n", vec![]), ("\n", vec![call]), ("a\n", vec![])];
    let answers = answers.map(|(text, calls)| Message::Assistant { text: text.to_owned(), calls });
    said.messages = [vec![Message::User("Look.".to_owned())], answers.to_vec()].concat();
    let body = body(Api::Messages, &said);
    let kinds = body["messages"].as_array().unwrap().iter().map(|message| {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [["text"], ["tool_use"], ["text"]]);
}

#[test]
fn responses() {
    assert_eq!(request(&model(Api::Responses), &prompt()).path, "/responses");
    let body = body(Api::Responses, &prompt());
    assert_eq!((&body["store"], &body["instructions"]), (&json!(false), &json!("Be brief.")));
    let kinds: Vec<_> = body["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["message", "message", "function_call", "function_call", "function_call_output", "function_call_output"]
    );
    assert_eq!(body["tools"][0]["strict"], false);
}

#[test]
fn messages() {
    let asked = request(&model(Api::Messages), &prompt());
    assert_eq!((asked.path, asked.headers), ("/messages", [("anthropic-version", "2023-06-01")].as_slice()));
    let body = body(Api::Messages, &prompt());
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral"}));
    let roles: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    let results = body["messages"][2]["content"].as_array().unwrap();
    assert_eq!((&results[0]["is_error"], &results[1]["is_error"]), (&json!(false), &json!(true)));
    let marks = body.to_string().matches("cache_control").count();
    assert_eq!(marks, 2, "four at most are allowed");
}

#[test]
fn a_schema_stands_where_each_api_has_it() {
    let schema = Schema { name: "verdict".to_owned(), schema: json!({"type": "object", "properties": {}}) };
    let with = Prompt { schema: Some(schema.clone()), tools: Vec::new(), ..prompt() };
    assert_eq!(body(Api::Chat, &with)["response_format"]["json_schema"]["schema"], schema.schema);
    assert_eq!(body(Api::Responses, &with)["text"]["format"]["schema"], schema.schema);
    assert_eq!(body(Api::Messages, &with)["output_config"]["format"]["schema"], schema.schema);
}

#[test]
fn a_server_is_asked_for_its_models() {
    for (_, api) in Api::WORDS {
        let asked = list_request(api);
        assert_eq!((asked.path, asked.body), ("/models", None));
        assert_eq!(asked.headers.len(), usize::from(api == Api::Messages));
    }
}
