//! What the servers of models can do, as people find it out. S2-X-28: `local_only` is enforced and shown.

use std::{fs, os::unix::fs::PermissionsExt as _};

use belay_e2e::Home;
use belay_model_server::{Piece, Received, Reply, Server};
use serde_json::{Value, json};

/// The key, which is found nowhere by chance.
const KEY: &str = "sk-the-operators-own-key-0123456789";

/// A stream of Chat Completions with these deltas, in parts, that counts this many tokens of the prompt.
fn stream(deltas: &[Value], input: u64) -> Reply {
    let chunk = |delta: &Value| json!({"model": "m", "choices": [{"index": 0, "delta": delta}]});
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": input, "completion_tokens": 9}});
    let events = deltas.iter().map(chunk).chain([last]);
    Reply::pieces(events.map(|event| Piece::Bytes(format!("data: {event}\n\n").into_bytes())).collect())
}

/// A server as good ones are: it lists its model, calls the tool, follows the schema, and counts four bytes as a token, up to its window.
fn good(window: u64) -> impl Fn(&Received) -> Reply + Send + Sync + 'static {
    move |request| {
        if request.header("authorization") != Some(&format!("Bearer {KEY}")) {
            let message = format!("Incorrect API key: {:?}", request.header("authorization"));
            return Reply::json("401 Unauthorized", json!({"error": {"message": message}}).to_string());
        }
        if request.target == "GET /v1/models" {
            return Reply::json("200 OK", json!({"data": [{"id": "m"}]}).to_string());
        }
        let body: Value = serde_json::from_str(&request.body).unwrap();
        let input = (request.body.len() as u64 / 4).min(window);
        if body.get("tools").is_some() {
            let call = |arguments: &str| json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "report_number", "arguments": arguments}}]});
            return stream(
                &[call("{\"number\""), json!({"tool_calls": [{"index": 0, "function": {"arguments": ":7}"}}]})],
                input,
            );
        }
        stream(&[json!({"content": "{\"number\":"}), json!({"content": "7}"})], input)
    }
}

/// A home whose settings have this server.
fn home(server: &Server, more: &str) -> Home {
    let home = Home::new();
    let url = server.base_url().replace("127.0.0.1", "localhost");
    let host = url.trim_end_matches("/v1");
    let key = home.file("key", format!("{KEY}\n"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let key = fs::canonicalize(key).unwrap();
    home.file(
        "config.yaml",
        format!(
            "
models:
  coder: {{api: chat, base_url: '{url}', model: m, window: 8192, price: {{input: 1, output: 2}}, credential: key}}
  far: {{api: messages, base_url: 'https://models.example.com/v1', model: large, window: 200000}}
credentials:
  key: {{file: {}, hosts: ['{host}'], clear_text: true}}
{more}",
            key.display()
        ),
    );
    home
}

/// The checks of the only model, by name.
fn checks(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = value["models"][0]["checks"].as_array().unwrap();
    checks.iter().map(|check| (text(&check["check"]), text(&check["state"]).replace("STATE_", ""))).collect()
}

#[test]
fn a_server_is_checked_with_its_key_which_nobody_sees() {
    let server = Server::start(good(u64::MAX));
    let home = home(&server, "");
    let _serving = home.serve_with(&["--config", "config.yaml"]);
    let (code, list) = home.json(&["models", "list"]);
    assert_eq!((code, list["models"][0]["name"].as_str()), (0, Some("models/coder")), "{list}");
    assert_eq!(list["models"][1]["baseUrl"], "https://models.example.com/v1");

    let (code, found) = home.json(&["models", "check", "coder", "--fill-window"]);
    let names = ["server", "model", "streams", "tool_calls", "usage", "schema", "window"];
    let expected: Vec<_> = names.iter().map(|name| ((*name).to_owned(), "PASSED".to_owned())).collect();
    assert_eq!((code, checks(&found)), (0, expected), "{found}");
    let usage = &found["models"][0]["usage"];
    let (input, cost) = (usage["inputTokens"].as_str().unwrap(), usage["costMicros"].as_str().unwrap());
    assert_eq!(cost.parse::<u64>().unwrap(), input.parse::<u64>().unwrap() + 2 * 36, "{usage}");

    let text = home.run(["models", "check", "coder"]);
    assert!(text.out.contains("  ok    tool_calls  native, with the right arguments"), "{}", text.out);
    assert!(text.out.contains("  ?     window"), "{}", text.out);

    // Another value is in its file now, and the server repeats what it got.
    let wrong = KEY.replace("own", "old");
    fs::write(home.path("key"), &wrong).unwrap();
    let refused = home.run(["models", "check", "coder"]);
    assert_eq!(refused.code, 1);
    assert!(refused.out.contains("NO    server"), "{}", refused.out);
    assert!(refused.out.contains("correct the value of `credentials.key`"), "{}", refused.out);
    for value in [KEY, &wrong] {
        assert!(!format!("{}{}{}", refused.out, refused.talk, text.out).contains(value));
    }
}

#[test]
fn a_server_that_cuts_prompts_and_says_nothing_is_found_out() {
    let server = Server::start(good(2048));
    let home = home(&server, "");
    let run = |more: &[&str]| home.run(["models", "check", "coder", "--config", "config.yaml"].iter().chain(more));
    assert_eq!(run(&[]).code, 0);
    let filled = run(&["--fill-window"]);
    assert_eq!(filled.code, 1);
    assert!(filled.out.contains("to 2048, and said nothing"), "{}", filled.out);
}

#[test]
fn only_models_on_this_machine_are_asked_where_the_settings_say_so() {
    let server = Server::start(good(u64::MAX));
    let home = home(&server, "local_only: true\n");
    let config = ["--config", "config.yaml"];
    let run = |words: &[&str]| home.run(words.iter().chain(&config));
    let list = run(&["models", "list"]);
    assert!(list.out.contains("not asked: MODEL_NOT_LOCAL"), "{}", list.out);
    let refused = run(&["models", "check", "far"]);
    assert_eq!(refused.code, 2);
    assert!(refused.talk.contains("MODEL_NOT_LOCAL"), "{}", refused.talk);
    // Without a name, those that may be asked.
    let all = run(&["models", "check"]);
    assert!(all.code == 0 && !all.out.contains("far"), "{}", all.out);
    let shown = run(&["config", "show"]);
    assert!(shown.out.lines().any(|line| line.contains("local_only") && line.contains("true")), "{}", shown.out);
    let missing = run(&["models", "check", "codr"]);
    assert!(missing.code == 2 && missing.talk.contains("MODEL_NOT_FOUND"), "{}", missing.talk);
}
