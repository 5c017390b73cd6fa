//! Asks a server that owns every byte.

use std::{net::TcpListener, time::Duration};

use belay_model::{
    Answer, Api, BaseUrl, Failure, Limit, Message, Model, Prompt, Refusal, TimeLimits, ToolCalls, Usage,
};
use belay_model_http::{Asked, Route, Server};
use belay_model_server::{self as scripted, Piece, Reply};
use belay_network::{Placement, Secret, UpstreamProxy};

const VALUE: &str = "sk-0123456789abcdef";

fn model(base_url: &str, api: Api) -> Model {
    Model {
        name: "coder".to_owned(),
        api,
        base_url: BaseUrl::parse(base_url).unwrap(),
        model: "qwen3:8b".to_owned(),
        window: 32_768,
        max_output: 4096,
        tool_calls: ToolCalls::Native,
        price: None,
        limits: TimeLimits::DEFAULT,
        credential: None,
    }
}

fn prompt() -> Prompt {
    Prompt { messages: vec![Message::User("Hello.".to_owned())], max_output: 10, ..Prompt::default() }
}

fn header() -> Placement {
    Placement::Header { name: "Authorization".to_owned(), prefix: "Bearer ".to_owned() }
}

async fn ask_with(model: Model, placement: Option<Placement>) -> Result<Asked, Failure> {
    let secret = Secret::new(VALUE.into()).unwrap();
    let key = placement.as_ref().map(|placement| (placement, &secret));
    Server::new(model, &Route::default()).unwrap().ask(&prompt(), key, 0).await
}

async fn ask(server: &scripted::Server) -> Result<Asked, Failure> {
    ask_with(model(&server.base_url(), Api::Chat), None).await
}

fn text(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

fn bytes(text: &str) -> Piece {
    Piece::Bytes(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_stream_is_read_in_its_parts() {
    let server = scripted::Server::start(|_| Reply::pieces(vec![bytes(&text("Hel")), bytes(&text("lo")), bytes(END)]));
    let Asked { answer, parts, request_bytes } = ask(&server).await.unwrap();
    assert_eq!((answer.text.as_str(), parts), ("Hello", 3));
    assert_eq!(answer.usage, Some(Usage { input: 3, output: 2, ..Usage::default() }));
    let [request] = &server.received()[..] else { panic!("{:?}", server.received()) };
    assert_eq!((request.target.as_str(), request.body.len()), ("POST /v1/chat/completions", request_bytes));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), None);
}

#[tokio::test]
async fn a_key_stands_where_its_credential_says_and_nowhere_else() {
    let placements = [
        (Api::Chat, header(), "authorization", Some(format!("Bearer {VALUE}"))),
        (
            Api::Messages,
            Placement::Header { name: "x-api-key".into(), prefix: String::new() },
            "x-api-key",
            Some(VALUE.to_owned()),
        ),
        (
            Api::Chat,
            Placement::Basic { user: "me".into() },
            "authorization",
            Some("Basic bWU6c2stMDEyMzQ1Njc4OWFiY2RlZg==".to_owned()),
        ),
        (Api::Chat, Placement::Query { name: "key".into() }, "authorization", None),
    ];
    for (api, placement, name, value) in placements {
        // The server repeats what it got: in its words, and in the answer.
        let refused = scripted::Server::start(|request| {
            Reply::json(
                "401 Unauthorized",
                format!(
                    "{{\"error\":{{\"message\":\"{} {:?}\"}}}}",
                    request.target,
                    request.header("authorization").or(request.header("x-api-key")).unwrap_or_default()
                )
                .replace("\\\"", "")
                .replace("\"\"", "\""),
            )
        });
        let failed = ask_with(model(&refused.base_url(), api), Some(placement.clone())).await.unwrap_err();
        let shown = format!("{failed} {failed:?}");
        assert!(!shown.contains(VALUE) && shown.contains("[REDACTED]"), "{shown}");
        let request = refused.received().remove(0);
        assert_eq!(request.header(name).map(str::to_owned), value, "{placement:?}");
        let in_query = request.target.ends_with(&format!("?key={VALUE}"));
        assert_eq!(in_query, matches!(placement, Placement::Query { .. }), "{}", request.target);
        assert!(!request.body.contains(VALUE));
    }
    let echo = scripted::Server::start(|_| Reply::stream(text(&format!("It is {VALUE}!")) + END));
    let asked = ask_with(model(&echo.base_url(), Api::Chat), Some(header())).await.unwrap();
    assert_eq!(asked.answer.text, "It is [REDACTED]!");
    // Where a long message is cut, and in the names of a list.
    let long = scripted::Server::start(|_| {
        Reply::json("400 Bad Request", format!("{{\"error\":{{\"message\":\"{} {VALUE}\"}}}}", "x".repeat(490)))
    });
    let failed = ask_with(model(&long.base_url(), Api::Chat), Some(header())).await.unwrap_err();
    assert!(!failed.to_string().contains("sk-"), "{failed}");
    let list = scripted::Server::start(|_| Reply::json("200 OK", format!("{{\"data\":[{{\"id\":\"not {VALUE}\"}}]}}")));
    let server = Server::new(model(&list.base_url(), Api::Chat), &Route::default()).unwrap();
    let secret = Secret::new(VALUE.into()).unwrap();
    assert_eq!(server.list(Some((&header(), &secret)), 0).await.unwrap()[0].id, "not [REDACTED]");
}

#[tokio::test]
async fn each_limit_of_time_ends_the_request() {
    let pause = Piece::Pause(Duration::from_secs(60));
    let short = Duration::from_millis(100);
    let cases = [
        (Limit::FirstByte, vec![pause.clone()]),
        // What keeps the connection open is no part of an answer.
        (Limit::FirstByte, vec![bytes(": keep-alive\n\n"), pause.clone()]),
        (Limit::BetweenBytes, vec![bytes(&text("a")), bytes(": keep-alive\n\n"), pause.clone()]),
        (Limit::Answer, vec![bytes(&text("a")), pause]),
    ];
    let html = scripted::Server::start(|_| {
        let mut reply = Reply::json("200 OK", "<html>");
        reply.head[1] = "content-type: text/html".to_owned();
        reply
    });
    assert!(matches!(ask(&html).await, Err(Failure::Malformed { why }) if why.contains("HTML")));
    for (limit, pieces) in cases {
        let server = scripted::Server::start(move |_| Reply::pieces(pieces.clone()));
        let mut model = model(&server.base_url(), Api::Chat);
        match limit {
            Limit::FirstByte => model.limits.first_byte = short,
            Limit::BetweenBytes => model.limits.between_bytes = short,
            Limit::Answer => model.limits.answer = short,
        }
        assert_eq!(ask_with(model, None).await, Err(Failure::Late { limit, after: short }));
    }
    // A server that accepts and says nothing at all.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut model = model(&format!("http://{}", listener.local_addr().unwrap()), Api::Chat);
    model.limits.first_byte = short;
    assert_eq!(ask_with(model, None).await, Err(Failure::Late { limit: Limit::FirstByte, after: short }));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none() {
    let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"x\",\"arguments\":\"{}\"}}]}}]}\n\n";
    let broken = scripted::Server::start(move |_| Reply::stream(call).broken());
    assert!(matches!(ask(&broken).await, Err(Failure::Broken { .. })));
    // What breaks behind the end of an answer takes nothing from it, and it is not paid for twice.
    let whole = scripted::Server::start(move |_| Reply::stream(text("hi") + END).broken());
    assert_eq!(ask(&whole).await.unwrap().answer.text, "hi");
    let open = scripted::Server::start(|_| {
        Reply::pieces(vec![bytes(&(text("hi") + END)), Piece::Pause(Duration::from_secs(60))])
    });
    let mut model_of_open = model(&open.base_url(), Api::Chat);
    model_of_open.limits.between_bytes = Duration::from_millis(100);
    assert_eq!(ask_with(model_of_open, None).await.unwrap().answer.text, "hi");
    let cut = scripted::Server::start(move |_| Reply::stream(call));
    assert_eq!(ask(&cut).await, Err(Failure::Cut));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failed = ask_with(model(&format!("http://{closed}"), Api::Chat), None).await.unwrap_err();
    let Failure::Unreachable { why } = &failed else { panic!("{failed:?}") };
    assert!(why.contains("refused") && failed.is_transient(), "{why}");
}

// llama.cpp b11434 closes a connection that it has not said it would close: one that was kept for the next request breaks that.
#[tokio::test]
async fn each_request_has_a_connection_of_its_own() {
    let server = scripted::Server::start(|_| Reply::stream(text("a") + END));
    let client = Server::new(model(&server.base_url(), Api::Chat), &Route::default()).unwrap();
    for _ in 0..3 {
        client.ask(&prompt(), None, 0).await.unwrap();
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_refusal_has_its_kind_and_its_time() {
    let server = scripted::Server::start(|_| {
        Reply::json("429 Too Many Requests", "{\"error\":{\"message\":\"slow\"}}").with("retry-after: 7")
    });
    let expected = Failure::Refused {
        refusal: Refusal::RateLimit,
        status: 429,
        message: "slow".to_owned(),
        retry_after: Some(Duration::from_secs(7)),
    };
    assert_eq!(ask(&server).await, Err(expected));
    let elsewhere = scripted::Server::start(|_| Reply::stream(END));
    let target = elsewhere.base_url();
    let redirect = scripted::Server::start(move |_| {
        Reply::json("307 Temporary Redirect", "").with(&format!("location: {target}"))
    });
    let failed = ask_with(model(&redirect.base_url(), Api::Chat), Some(header())).await;
    assert!(matches!(failed, Err(Failure::Refused { status: 307, .. })), "{failed:?}");
    assert_eq!(elsewhere.received(), [], "a key goes nowhere else");
}

#[tokio::test]
async fn all_apis_and_a_server_that_does_not_stream() {
    let replies = [
        (
            Api::Chat,
            Reply::json("200 OK", "{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}"),
        ),
        (
            Api::Responses,
            Reply::stream(
                "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}]}}\n\n",
            ),
        ),
        (
            Api::Messages,
            Reply::stream(
                "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"x\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            ),
        ),
    ];
    for (api, reply) in replies {
        let server = scripted::Server::start(move |_| reply.clone());
        let Asked { answer: Answer { text, .. }, parts, .. } =
            ask_with(model(&server.base_url(), api), None).await.unwrap();
        assert_eq!(text, "x", "{api:?}");
        assert_eq!(parts, if api == Api::Messages { 2 } else { 1 });
    }
    let list = scripted::Server::start(|request| {
        assert_eq!(request.target, "GET /v1/models");
        Reply::json("200 OK", "{\"data\":[{\"id\":\"qwen3:8b\",\"max_model_len\":4096}]}")
    });
    let server = Server::new(model(&list.base_url(), Api::Chat), &Route::default()).unwrap();
    let served = server.list(None, 0).await.unwrap();
    assert_eq!((served[0].id.as_str(), served[0].window), ("qwen3:8b", Some(4096)));
}

// A name is reached behind the operator's proxy, and a server on this machine never is.
#[tokio::test]
async fn the_operators_proxy_is_for_other_machines() {
    let proxy = scripted::Server::start(|_| Reply::stream(END));
    let upstream = UpstreamProxy::parse(&format!("http://{}", proxy.address()), Vec::new()).unwrap();
    let route = Route::new(Vec::new(), Some(upstream));
    let asked = |base_url: &str| {
        let server = Server::new(model(base_url, Api::Chat), &route).unwrap();
        async move { server.ask(&prompt(), None, 0).await }
    };
    asked("http://models.example.com/v1").await.unwrap();
    assert_eq!(proxy.received()[0].target, "POST http://models.example.com/v1/chat/completions");
    let here = scripted::Server::start(|_| Reply::stream(END));
    asked(&here.base_url()).await.unwrap();
    asked(&format!("http://localhost:{}/v1", here.address().port())).await.unwrap();
    assert_eq!((here.received().len(), proxy.received().len()), (2, 1));
}
