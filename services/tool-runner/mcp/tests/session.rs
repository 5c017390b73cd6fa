//! A session with servers that follow the protocol, and with those that do not.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_mcp::{Answer, Host, MAX_LINE, McpError, Question, Reply, Session};
use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex, split},
    task::JoinHandle,
    time::timeout,
};

/// A person who answers every question in the same way, and remembers what was asked.
#[derive(Default)]
struct Person {
    reply: Mutex<Option<Reply>>,
    asked: Mutex<Vec<Question>>,
    lines: Mutex<Vec<String>>,
}

impl Person {
    fn who_replies(reply: Reply) -> Arc<Self> {
        Arc::new(Self { reply: Mutex::new(Some(reply)), ..Self::default() })
    }
}

impl Host for Person {
    fn ask(&self, question: Question) -> BoxFuture<'static, Reply> {
        self.asked.lock().unwrap().push(question);
        ready(self.reply.lock().unwrap().clone().unwrap_or(Reply::Cancelled)).boxed()
    }

    fn report(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }
}

/// What a scripted server writes to a request: lines, without their line breaks.
type Script = fn(&Value) -> Vec<String>;

/// Serves as the script says, and returns the methods that were asked for.
fn scripted(stream: DuplexStream, script: Script) -> JoinHandle<Vec<String>> {
    tokio::spawn(async move {
        let (read, mut write) = split(stream);
        let (mut lines, mut methods) = (BufReader::new(read).lines(), Vec::new());
        while let Ok(Some(line)) = lines.next_line().await {
            let request: Value = serde_json::from_str(&line).unwrap();
            methods.push(request["method"].as_str().unwrap_or("response").to_owned());
            for line in script(&request) {
                if write.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return methods;
                }
            }
        }
        methods
    })
}

fn result(request: &Value, result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string()
}

fn error(request: &Value, code: i64, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}).to_string()
}

/// The handshake and the tools of a server of the revision 2025-11-25.
fn handshake(request: &Value) -> Vec<String> {
    match request["method"].as_str().unwrap_or_default() {
        "server/discover" => vec![error(request, -32601, "Method not found")],
        "initialize" => vec![result(
            request,
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}),
        )],
        "tools/list" => vec![result(
            request,
            json!({"tools": [{"name": "t", "description": "Does.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}]}),
        )],
        _ => Vec::new(),
    }
}

fn text(request: &Value, text: &str) -> String {
    result(request, json!({"content": [{"type": "text", "text": text}]}))
}

async fn start(script: Script, person: Arc<Person>) -> (Result<Session, McpError>, JoinHandle<Vec<String>>) {
    let (ours, theirs) = duplex(64 << 10);
    let served = scripted(theirs, script);
    let (read, write) = split(ours);
    (Session::start(read, write, person, None).await, served)
}

async fn call(script: Script) -> Result<Answer, McpError> {
    let (session, _served) = start(script, Arc::default()).await;
    let session = session?;
    timeout(Duration::from_secs(20), session.call("t", Map::new(), "")).await.expect("it ends")
}

#[tokio::test]
async fn a_server_of_an_earlier_revision_is_spoken_to_in_that() {
    let (session, served) = start(
        |request| match request["method"].as_str() {
            Some("tools/call") => {
                assert_eq!(request["params"]["arguments"], json!({"a": 1}));
                assert_eq!(request["params"]["_meta"]["traceparent"], "00-1-2-01");
                vec![result(
                    request,
                    json!({"content": [
                        {"type": "text", "text": "one"},
                        {"type": "image", "data": "AA==", "mimeType": "image/png"},
                        {"type": "text", "text": "two"},
                    ], "structuredContent": {"n": 1}}),
                )]
            }
            _ => handshake(request),
        },
        Arc::default(),
    )
    .await;
    let session = session.unwrap();
    let server = session.server();
    assert_eq!((server.name.as_str(), server.revision.as_str()), ("old", "2025-11-25"));
    let tools = session.tools().await.unwrap();
    assert_eq!((tools.len(), tools[0].name.as_str(), tools[0].annotations.read_only), (1, "t", Some(true)));
    let arguments = json!({"a": 1}).as_object().unwrap().clone();
    let answer = session.call("t", arguments, "00-1-2-01").await.unwrap();
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    let expected =
        Answer { text: "one\ntwo".into(), blocks: vec![image], structured: Some(json!({"n": 1})), is_error: false };
    assert_eq!(answer, expected);
    session.end().await;
    let methods = served.await.unwrap();
    assert_eq!(methods, ["server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"]);
}

/// S2-X-33: a person answers what a server asks in the middle of a call; sampling is not offered, and roots are empty.
#[tokio::test]
async fn a_question_is_asked_and_sampling_is_refused() {
    fn script(request: &Value) -> Vec<String> {
        match (request["method"].as_str(), request["id"].as_str()) {
            (Some("tools/call"), _) => {
                let schema =
                    json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
                let params = json!({"message": "Which name?", "requestedSchema": schema});
                vec![
                    json!({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}).to_string(),
                    json!({"jsonrpc": "2.0", "id": format!("q{}", request["id"]), "method": "elicitation/create", "params": params}).to_string(),
                ]
            }
            (None, Some("s")) => {
                assert_eq!(request["error"]["code"], -32601, "{request}");
                Vec::new()
            }
            // The reply to the question, whose id has that of the call.
            (None, Some(id)) => {
                let call = json!({"id": id[1..].parse::<u64>().unwrap()});
                vec![text(&call, &request["result"].to_string())]
            }
            _ => handshake(request),
        }
    }
    for (reply, expected) in [
        (Reply::Answer(json!({"name": "n"})), json!({"action": "accept", "content": {"name": "n"}})),
        (Reply::Declined, json!({"action": "decline"})),
        (Reply::Cancelled, json!({"action": "cancel"})),
    ] {
        let person = Person::who_replies(reply);
        let (session, _served) = start(script, Arc::clone(&person)).await;
        let session = session.unwrap();
        let answer = timeout(Duration::from_secs(20), session.call("t", Map::new(), "")).await.unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&answer.text).unwrap(), expected);
        let asked = person.asked.lock().unwrap().clone();
        assert_eq!((asked.len(), asked[0].message.as_str()), (1, "Which name?"));
        assert_eq!(asked[0].schema["required"], json!(["name"]));
    }
}

#[tokio::test]
async fn what_a_server_says_beside_its_answer_changes_nothing() {
    // Words on its standard output, an answer to a question that was not asked, and a second answer.
    let answer = call(|request| match request["method"].as_str() {
        Some("tools/call") => vec![
            "Server is warming up".to_owned(),
            r#"{"jsonrpc": "2.0", "id": 99, "result": {"content": []}}"#.to_owned(),
            text(request, "first"),
            text(request, "second"),
        ],
        _ => handshake(request),
    });
    assert_eq!(answer.await.unwrap().text, "first");
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_ends_its_call() {
    let overlong = call(|request| match request["method"].as_str() {
        Some("tools/call") => vec![text(request, &"a".repeat(MAX_LINE))],
        _ => handshake(request),
    });
    assert!(matches!(overlong.await, Err(McpError::Overlong)));
    let refused = call(|request| match request["method"].as_str() {
        Some("tools/call") => vec![error(request, -32602, "unknown tool")],
        _ => handshake(request),
    });
    assert!(matches!(refused.await, Err(McpError::Refused(why)) if why == "unknown tool (-32602)"));
    let task = call(|request| match request["method"].as_str() {
        Some("tools/call") => vec![result(
            request,
            json!({"resultType": "task", "taskId": "1", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 1}),
        )],
        _ => handshake(request),
    });
    assert!(matches!(task.await, Err(McpError::NotUnderstood(_))));
    let failed = call(|request| match request["method"].as_str() {
        Some("tools/call") => {
            vec![result(request, json!({"content": [{"type": "text", "text": "no such file"}], "isError": true}))]
        }
        _ => handshake(request),
    });
    let failed = failed.await.unwrap();
    assert!(failed.is_error && failed.text == "no such file");
    // One that knows neither handshake, and one that has gone.
    let neither = call(|request| vec![error(request, -32601, "Method not found")]);
    assert!(matches!(neither.await, Err(McpError::NotStarted(_))));
    let (ours, theirs) = duplex(64);
    drop(theirs);
    let (read, write) = split(ours);
    assert!(matches!(Session::start(read, write, Arc::<Person>::default(), None).await, Err(McpError::NotStarted(_))));
}

#[tokio::test]
async fn a_list_without_end_is_refused() {
    let (session, _served) = start(
        |request| match request["method"].as_str() {
            Some("tools/list") => {
                let tools: Vec<Value> =
                    (0..400).map(|n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}})).collect();
                vec![result(request, json!({"tools": tools, "nextCursor": "more"}))]
            }
            _ => handshake(request),
        },
        Arc::default(),
    )
    .await;
    assert!(matches!(session.unwrap().tools().await, Err(McpError::TooMany)));
}

/// S2-X-33: a server of the newest revision has no handshake, and asks by its result.
#[tokio::test]
async fn a_server_of_the_newest_revision_asks_by_its_result() {
    fn script(request: &Value) -> Vec<String> {
        let meta = &request["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28", "{request}");
        match request["method"].as_str() {
            Some("server/discover") => vec![result(
                request,
                json!({
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "ttlMs": 0,
                    "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}},
                }),
            )],
            Some("tools/list") => vec![result(
                request,
                json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
            )],
            Some("tools/call") => match request["params"].get("inputResponses") {
                None => {
                    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                    let ask = json!({"method": "elicitation/create", "params": {"mode": "form", "message": "Which name?", "requestedSchema": schema}});
                    let needed =
                        json!({"resultType": "input_required", "inputRequests": {"k": ask}, "requestState": "state"});
                    vec![result(request, needed)]
                }
                Some(responses) => {
                    assert_eq!(request["params"]["requestState"], "state");
                    let content = json!([{"type": "text", "text": responses.to_string()}]);
                    vec![result(request, json!({"resultType": "complete", "content": content}))]
                }
            },
            _ => Vec::new(),
        }
    }
    let person = Person::who_replies(Reply::Answer(json!({"name": "n"})));
    let (session, served) = start(script, Arc::clone(&person)).await;
    let session = session.unwrap();
    let server = session.server();
    assert_eq!((server.name.as_str(), server.revision.as_str()), ("new", "2026-07-28"));
    assert_eq!(session.tools().await.unwrap().len(), 1);
    let answer = timeout(Duration::from_secs(20), session.call("t", Map::new(), "")).await.unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&answer.text).unwrap()["k"]["content"], json!({"name": "n"}));
    assert_eq!(person.asked.lock().unwrap().len(), 1);
    session.end().await;
    let methods = served.await.unwrap();
    assert_eq!(methods, ["server/discover", "tools/list", "tools/call", "tools/call"]);
}
