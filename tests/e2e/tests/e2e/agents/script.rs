//! A model whose answers are written down, in each of the APIs, and the folder of a person who uses it.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_e2e::{Home, Service, Services, belay::CommandEnd};
use belay_model_server::{Piece, Received, Reply, Server};
use serde_json::{Value, json};

/// Longer than any test takes.
pub(super) const FOREVER: Duration = Duration::from_secs(3600);

/// The words by which the settings name the APIs.
pub(super) const APIS: [&str; 3] = ["chat", "responses", "messages"];

/// A part of a conversation, whatever the API.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    User(String),
    Text(String),
    Call { id: String, tool: String, arguments: String },
    Result { id: String, text: String },
}

/// What the model is asked.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) api: &'static str,
    /// The turn, from 1: how many answers the conversation has, and one more.
    pub(super) turn: usize,
    /// How many times this conversation has been asked for this turn, this time included.
    pub(super) times: usize,
    /// The task.
    pub(super) task: String,
    /// The conversation.
    pub(super) parts: Vec<Part>,
    /// The body of the request.
    pub(super) body: Value,
}

impl Ask {
    pub(super) fn new(received: &Received) -> Self {
        let body: Value = serde_json::from_str(&received.body).expect("a request is JSON");
        let (api, parts) = match received.target.as_str() {
            "POST /v1/chat/completions" => ("chat", of_chat(&body)),
            "POST /v1/responses" => ("responses", of_responses(&body)),
            "POST /v1/messages" => ("messages", of_messages(&body)),
            other => panic!("nobody asks for {other}"),
        };
        let is_answer = |part: &Part| matches!(part, Part::Text(_) | Part::Call { .. });
        let begins = |place: &usize| is_answer(&parts[*place]) && (*place == 0 || !is_answer(&parts[place - 1]));
        let turn = 1 + (0..parts.len()).filter(begins).count();
        let task = parts.iter().find_map(|part| match part {
            Part::User(text) => Some(text.clone()),
            _ => None,
        });
        Self { api, turn, times: 0, task: task.unwrap_or_default(), parts, body }
    }

    /// The results of the turn before, and what else it was told.
    pub(super) fn told(&self) -> Vec<String> {
        let new = self.parts.iter().rev().take_while(|part| !matches!(part, Part::Text(_) | Part::Call { .. }));
        let texts = new.filter_map(|part| match part {
            Part::User(text) | Part::Result { text, .. } => Some(text.clone()),
            _ => None,
        });
        let mut texts: Vec<String> = texts.collect();
        texts.reverse();
        texts
    }

    /// The results of the conversation, all of them.
    pub(super) fn results(&self) -> Vec<&str> {
        let results = self.parts.iter().filter_map(|part| match part {
            Part::Result { text, .. } => Some(text.as_str()),
            _ => None,
        });
        results.collect()
    }

    /// The messages as the API has them, without the marks that move with the end of the conversation.
    pub(super) fn messages(&self) -> Vec<String> {
        let key = if self.api == "responses" { "input" } else { "messages" };
        let mut messages = self.body[key].as_array().expect("a request has messages").clone();
        for message in &mut messages {
            for block in message["content"].as_array_mut().into_iter().flatten() {
                block.as_object_mut().expect("a block is an object").remove("cache_control");
            }
        }
        messages.iter().map(Value::to_string).collect()
    }

    /// All of the request but the messages.
    pub(super) fn frame(&self) -> String {
        let mut body = self.body.clone();
        let body_fields = body.as_object_mut().expect("a request is an object");
        body_fields.remove("messages");
        body_fields.remove("input");
        body.to_string()
    }

    /// An answer with this text and these calls.
    pub(super) fn says(&self, text: &str, calls: &[(&str, Value)]) -> Reply {
        let calls: Vec<_> = calls.iter().map(|(tool, arguments)| (*tool, arguments.to_string())).collect();
        self.writes(text, &calls)
    }

    /// A call.
    pub(super) fn calls(&self, tool: &str, arguments: Value) -> Reply {
        self.says("", &[(tool, arguments)])
    }

    /// A call of a shell.
    pub(super) fn runs(&self, script: &str) -> Reply {
        self.calls("run_terminal", json!({"command": ["sh", "-c", script]}))
    }

    /// The step is done.
    pub(super) fn completes(&self, result: Value) -> Reply {
        self.calls("complete_step", json!({"result": result}))
    }

    /// The model refuses, in the form that its API has for that, and wants to write the file `a` all the same.
    pub(super) fn refuses(&self, words: &str) -> Reply {
        let call = [("write_file", json!({"path": "a", "content": "x"}).to_string())];
        let (events, from, to) = match self.api {
            "chat" => (chat(words, &call, Some(9)), r#""content":""#, r#""refusal":""#),
            "responses" => (responses(words, &call, Some(9)), "output_text.delta", "refusal.delta"),
            _ => (messages(words, &call, Some(9)), r#""stop_reason":"tool_use""#, r#""stop_reason":"refusal""#),
        };
        Reply::pieces(events.into_iter().map(|event| Piece::Bytes(event.replace(from, to).into_bytes())).collect())
    }

    /// An answer with calls whose arguments are this text, whatever it is.
    pub(super) fn writes(&self, text: &str, calls: &[(&str, String)]) -> Reply {
        self.counts(text, calls, Some(self.body.to_string().len() as u64 / 4))
    }

    /// The same, with so many tokens of the prompt.
    pub(super) fn counts(&self, text: &str, calls: &[(&str, String)], input: Option<u64>) -> Reply {
        let events = match self.api {
            "chat" => chat(text, calls, input),
            "responses" => responses(text, calls, input),
            _ => messages(text, calls, input),
        };
        Reply::pieces(events.into_iter().map(|event| Piece::Bytes(event.into_bytes())).collect())
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Array(parts) => parts.iter().map(|part| text_of(&part["text"])).collect(),
        value => value.as_str().unwrap_or_default().to_owned(),
    }
}

fn call(id: &Value, tool: &Value, arguments: &Value) -> Part {
    let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    Part::Call { id: text_of(id), tool: text_of(tool), arguments }
}

fn some_text(value: &Value) -> Option<Part> {
    Some(text_of(value)).filter(|text| !text.is_empty()).map(Part::Text)
}

fn of_chat(body: &Value) -> Vec<Part> {
    let mut parts = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        match message["role"].as_str() {
            Some("user") => parts.push(Part::User(text_of(&message["content"]))),
            Some("tool") => {
                parts.push(Part::Result { id: text_of(&message["tool_call_id"]), text: text_of(&message["content"]) })
            }
            Some("assistant") => {
                // An empty answer is one all the same.
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                let text = text_of(&message["content"]);
                parts.extend((!text.is_empty() || calls.is_empty()).then_some(Part::Text(text)));
                parts.extend(
                    calls.iter().map(|of| call(&of["id"], &of["function"]["name"], &of["function"]["arguments"])),
                );
            }
            _ => {}
        }
    }
    parts
}

fn of_responses(body: &Value) -> Vec<Part> {
    let items = body["input"].as_array().into_iter().flatten();
    let parts = items.filter_map(|item| match (item["type"].as_str()?, item["role"].as_str()) {
        ("message", Some("user")) => Some(Part::User(text_of(&item["content"]))),
        ("message", _) => some_text(&item["content"]),
        ("function_call", _) => Some(call(&item["call_id"], &item["name"], &item["arguments"])),
        _ => Some(Part::Result { id: text_of(&item["call_id"]), text: text_of(&item["output"]) }),
    });
    parts.collect()
}

fn of_messages(body: &Value) -> Vec<Part> {
    let messages = body["messages"].as_array().into_iter().flatten();
    let blocks = messages.flat_map(|message| {
        let role = message["role"].as_str().unwrap_or_default();
        message["content"].as_array().into_iter().flatten().map(move |block| (role, block))
    });
    let parts = blocks.filter_map(|(role, block)| match (block["type"].as_str()?, role) {
        ("text", "user") => Some(Part::User(text_of(&block["text"]))),
        ("text", _) => some_text(&block["text"]),
        ("tool_use", _) => Some(call(&block["id"], &block["name"], &block["input"])),
        _ => Some(Part::Result { id: text_of(&block["tool_use_id"]), text: text_of(&block["content"]) }),
    });
    parts.collect()
}

/// The text in two pieces, where characters allow it: what comes in pieces is put together.
fn halves(text: &str) -> [&str; 2] {
    let place = (0..=text.len() / 2).rev().find(|place| text.is_char_boundary(*place)).unwrap_or_default();
    [&text[..place], &text[place..]]
}

fn chat(text: &str, calls: &[(&str, String)], input: Option<u64>) -> Vec<String> {
    let chunk = |delta: Value| json!({"model": "m", "choices": [{"index": 0, "delta": delta}]});
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}))];
    events.extend(halves(text).into_iter().filter(|half| !half.is_empty()).map(|half| chunk(json!({"content": half}))));
    for (place, (tool, arguments)) in calls.iter().enumerate() {
        let [first, rest] = halves(arguments);
        // All with the same id, as a careless server sends them.
        let function = json!({"name": tool, "arguments": first});
        events.push(chunk(
            json!({"tool_calls": [{"index": place, "id": "call", "type": "function", "function": function}]}),
        ));
        events.push(chunk(json!({"tool_calls": [{"index": place, "function": {"arguments": rest}}]})));
    }
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    let usage = input.map(|input| json!({"prompt_tokens": input, "completion_tokens": 9}));
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}));
    let lines = events.iter().map(|event| format!("data: {event}\n\n"));
    lines.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn responses(text: &str, calls: &[(&str, String)], input: Option<u64>) -> Vec<String> {
    let mut events = Vec::new();
    let halves_of_text = halves(text).into_iter().filter(|half| !half.is_empty());
    events.extend(
        halves_of_text.map(|half| json!({"type": "response.output_text.delta", "output_index": 0, "delta": half})),
    );
    for (place, (tool, arguments)) in calls.iter().enumerate() {
        let at = place + 1;
        let item = json!({"type": "function_call", "call_id": "call", "name": tool, "arguments": ""});
        events.push(json!({"type": "response.output_item.added", "output_index": at, "item": item}));
        let pieces = halves(arguments)
            .map(|half| json!({"type": "response.function_call_arguments.delta", "output_index": at, "delta": half}));
        events.extend(pieces);
    }
    let usage = input.map(|input| json!({"input_tokens": input, "output_tokens": 9}));
    let response = json!({"status": "completed", "model": "m", "usage": usage});
    events.push(json!({"type": "response.completed", "response": response}));
    named(&events)
}

fn messages(text: &str, calls: &[(&str, String)], input: Option<u64>) -> Vec<String> {
    let usage = input.map(|input| json!({"input_tokens": input, "output_tokens": 1}));
    let start = json!({"model": "m", "content": [], "stop_reason": null, "usage": usage});
    let mut events = vec![json!({"type": "message_start", "message": start})];
    let mut block = |index: usize, begins: Value, deltas: [Value; 2]| {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begins}));
        events.extend(deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": index}));
    };
    if !text.is_empty() {
        let deltas = halves(text).map(|half| json!({"type": "text_delta", "text": half}));
        block(0, json!({"type": "text", "text": ""}), deltas);
    }
    for (place, (tool, arguments)) in calls.iter().enumerate() {
        let deltas = halves(arguments).map(|half| json!({"type": "input_json_delta", "partial_json": half}));
        block(place + 1, json!({"type": "tool_use", "id": "toolu", "name": tool, "input": {}}), deltas);
    }
    let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}));
    events.push(json!({"type": "message_stop"}));
    named(&events)
}

fn named(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect()
}

/// The beginning of an answer, up to this part of its bytes, and then nothing more.
pub(super) fn held(reply: Reply, percent: usize) -> Reply {
    let bytes: Vec<u8> = reply
        .pieces
        .iter()
        .flat_map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.clone(),
            Piece::Pause(_) => Vec::new(),
        })
        .collect();
    let pieces = vec![Piece::Bytes(bytes[..bytes.len() * percent / 100].to_vec()), Piece::Pause(FOREVER)];
    Reply { pieces, ..reply }
}

/// A folder with settings that have the model `m`, and its server.
pub(super) struct Scene {
    pub(super) home: Home,
    pub(super) server: Server,
}

impl Scene {
    /// A model of the Chat API that answers so.
    pub(super) fn new(script: impl Fn(&Ask) -> Reply + Send + Sync + 'static) -> Self {
        Self::with("chat", "", "", script)
    }

    /// A model of this API that answers so, with these more keys and settings, in which `{url}` is that of its server.
    pub(super) fn with(
        api: &str,
        keys: &str,
        settings: &str,
        script: impl Fn(&Ask) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let times = Arc::<Mutex<HashMap<(String, usize), usize>>>::default();
        let server = Server::start(move |received| {
            let mut ask = Ask::new(received);
            let count = {
                let mut times = times.lock().expect("no script panics while it is held");
                let count = times.entry((ask.task.clone(), ask.turn)).or_default();
                *count += 1;
                *count
            };
            ask.times = count;
            script(&ask)
        });
        let home = Home::new();
        fs::create_dir(home.path("w")).expect("a folder can be made");
        let window = if keys.contains("window") { "" } else { "window: 100000, " };
        let model = format!("{{api: {api}, base_url: '{}', model: m, {window}{keys}}}", server.base_url());
        let settings = settings.replace("{url}", &server.base_url());
        home.file("config.yaml", format!("models:\n  m: {model}\n{settings}\n"));
        home.file("policy.yaml", "terminal_commands: auto\n");
        Self { home, server }
    }

    /// Runs a plan with a step `a` that has this goal and these other fields, as the execution `x`.
    pub(super) fn run(&self, agent: &Value, more: &Value, words: &[&str]) -> CommandEnd {
        let plan = self.plan(agent, more);
        self.home.run(self.words(&plan, words))
    }

    /// The command that runs a plan.
    pub(super) fn words<'a>(&self, plan: &'a str, words: &[&'a str]) -> Vec<&'a str> {
        let run = ["run", plan, "--workspace", "w", "--id", "x", "--config", "config.yaml", "--policy", "policy.yaml"];
        [&run, words].concat()
    }

    /// Writes a plan whose step `a` has this goal and these other fields.
    pub(super) fn plan(&self, agent: &Value, more: &Value) -> String {
        let mut step = json!({"id": "a", "agent": agent});
        let fields = more.as_object().expect("fields are an object").clone();
        step.as_object_mut().expect("a step is an object").extend(fields);
        self.home.file("plan.json", json!({"id": "p", "steps": [step]}).to_string())
    }

    /// The requests so far.
    pub(super) fn asks(&self) -> Vec<Ask> {
        self.server.received().iter().map(Ask::new).collect()
    }

    /// The execution.
    pub(super) fn execution(&self) -> Value {
        self.home.json(&["executions", "get", "x"]).1
    }

    /// A step of the execution, with what it has returned.
    pub(super) fn step(&self, id: &str) -> Value {
        let execution = self.execution();
        let steps = execution["steps"].as_array().into_iter().flatten();
        steps.into_iter().find(|step| step["stepId"] == id).cloned().unwrap_or_default()
    }

    /// A file of the workspace; empty when there is none.
    pub(super) fn file(&self, path: &str) -> String {
        fs::read_to_string(self.home.path("w").join(path)).unwrap_or_default()
    }
}

/// A goal with these tools.
pub(super) fn goal(tools: &[&str]) -> Value {
    json!({"model": "m", "task": "Do it.", "tools": tools, "max_turns": 20})
}

/// The three services, whose executor knows the model, and the path of its settings.
pub(super) async fn services_with(folder: &Path, server: &Server) -> (Services, String) {
    let settings =
        format!("models:\n  m: {{api: chat, base_url: '{}', model: m, window: 100000}}\n", server.base_url());
    let config = folder.join("config.yaml");
    fs::write(&config, settings).expect("a file can be written");
    let config = config.display().to_string();
    let mut services = Services::under(folder, "terminal_commands: auto").await;
    services.kill(Service::Executor).await;
    services.launch_with(Service::Executor, &["--config", config.as_str()]);
    services.ready().await;
    (services, config)
}

/// Waits until the model was asked so many times.
pub(super) fn until_asked(server: &Server, times: usize) {
    while server.received().len() < times {
        std::thread::sleep(Duration::from_millis(5));
    }
}
