//! Calls over a session, and peers that break its rules or do not read.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use belay_proto::{
    runner_v1::{
        self, CancelToolCallRequest, CommitEffectRequest, Fence, OutputCredit, SessionHello, SessionOperation,
        SessionReply, SessionRequest, SessionResponse, session_operation::Operation, session_reply::Reply,
        tool_runner_service_client::ToolRunnerServiceClient,
    },
    v1::{self, tool_call::State},
};
use prost::{Message as _, bytes::Bytes};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming, body::Body, client::GrpcService, codegen::http};

use crate::support::*;

/// An executor's side of a session.
struct Peer {
    requests: Option<mpsc::UnboundedSender<SessionRequest>>,
    responses: Streaming<SessionResponse>,
    replies: Vec<SessionReply>,
    unacknowledged: Vec<String>,
}

impl Peer {
    /// Opens a session, and says nothing.
    async fn silent(runner: &Runner) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let mut client = ToolRunnerServiceClient::new(runner.channel());
        let responses = client.session(UnboundedReceiverStream::new(requests)).await.unwrap().into_inner();
        Self { requests: Some(sender), responses, replies: Vec::new(), unacknowledged: Vec::new() }
    }

    async fn new(runner: &Runner) -> Self {
        Self::with_window(runner, 1 << 20).await
    }

    async fn with_window(runner: &Runner, output_window: i64) -> Self {
        let mut peer = Self::silent(runner).await;
        peer.say(hello(output_window));
        let first = peer.responses.message().await.unwrap().unwrap();
        let ledger = first.hello.as_ref().map(|hello| hello.ledger_id.as_str());
        assert_eq!((ledger, first.replies.len()), (Some("a ledger"), 0));
        assert!(first.stores.is_some_and(|positions| positions.stores.starts_with("runner ")));
        peer.unacknowledged = first.unacknowledged;
        peer
    }

    fn say(&self, message: SessionRequest) {
        self.requests.as_ref().unwrap().send(message).unwrap();
    }

    fn ask(&self, id: i64, operation: Operation) {
        let operation = SessionOperation { id, operation: Some(operation), ..SessionOperation::default() };
        self.say(SessionRequest { operations: vec![operation], ..SessionRequest::default() });
    }

    /// The next reply.
    async fn next(&mut self) -> Result<SessionReply, Status> {
        while self.replies.is_empty() {
            let message = self.responses.message().await?.ok_or_else(|| Status::aborted("it has ended"))?;
            assert!(message.hello.is_none(), "hello is said once");
            self.replies.extend(message.replies);
        }
        Ok(self.replies.remove(0))
    }

    /// How an operation ended.
    async fn end_of(&mut self, id: i64) -> Reply {
        loop {
            let reply = self.next().await.unwrap();
            match reply.reply.unwrap() {
                Reply::Started(_) | Reply::Output(_) | Reply::Waiting(_) => {}
                end => {
                    assert_eq!(reply.operation, id);
                    return end;
                }
            }
        }
    }

    async fn result(&mut self, id: i64) -> runner_v1::ToolCall {
        match self.end_of(id).await {
            Reply::Result(call) | Reply::Held(call) => call,
            other => panic!("{other:?}"),
        }
    }

    /// The status with which the session ends.
    async fn ends(mut self) -> Status {
        loop {
            match self.responses.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("it has ended"),
                Err(status) => return status,
            }
        }
    }
}

fn hello(output_window: i64) -> SessionRequest {
    let hello = SessionHello { contract_revision: 1, output_window, ..SessionHello::default() };
    SessionRequest { hello: Some(hello), ..SessionRequest::default() }
}

fn cancel(call: &str) -> Operation {
    let workspace = "/nowhere/at/all".into();
    Operation::CancelToolCall(CancelToolCallRequest { name: name(call), workspace, ..Default::default() })
}

fn state(call: &runner_v1::ToolCall) -> State {
    call.state()
}

/// A session does what `CallTool`, `CancelToolCall`, `CommitEffect` and `AcknowledgeToolCalls` do, on one stream; the calls are the same calls.
#[tokio::test]
async fn a_session_does_what_the_methods_do() {
    let bench = Bench::new();
    bench.put("file", "1");
    let runner = bench.start(ASK).await;
    let mut peer = Peer::new(&runner).await;
    peer.ask(1, Operation::CallTool(runner.request("a", CHANGE, json!([["write", "file", "2"]]))));
    let held = peer.result(1).await;
    assert_eq!((state(&held), held.arguments.is_none()), (State::AwaitingApproval, true));
    let known = runner.get("a").await.unwrap();
    assert_eq!((held.name.as_str(), &held.approval_need), (known.name.as_str(), &known.approval_need));

    let grant = Some(bench.sign(&bench.grant(&known)));
    peer.ask(2, Operation::CommitEffect(CommitEffectRequest { name: name("a"), grant, fence: None }));
    assert_eq!(state(&peer.result(2).await), State::Completed);
    assert_eq!(bench.text("file"), "2");

    // Sent again, it attaches; with other arguments it is refused, and the session goes on.
    peer.ask(3, Operation::CallTool(runner.request("a", CHANGE, json!([["write", "file", "2"]]))));
    assert_eq!(state(&peer.result(3).await), State::Completed);
    peer.ask(4, Operation::CallTool(runner.request("a", CHANGE, json!([["write", "file", "3"]]))));
    let Reply::Refused(refusal) = peer.end_of(4).await else { panic!("it is another call") };
    let status = Status::with_details(Code::from_i32(refusal.code), refusal.message, refusal.details.into());
    assert_eq!((status.code(), refusal_of(&status)), (Code::AlreadyExists, "CALL_EXISTS".into()));

    peer.ask(5, cancel("never"));
    assert_eq!(state(&peer.result(5).await), State::Cancelled);

    // Another session learns which calls have ended unacknowledged.
    let mut other = Peer::new(&runner).await;
    assert_eq!(other.unacknowledged, [name("a"), name("never")]);
    let names = vec![name("a"), name("never")];
    other.ask(1, Operation::AcknowledgeToolCalls(runner_v1::AcknowledgeToolCallsRequest { names, fence: None }));
    assert!(matches!(other.end_of(1).await, Reply::Acknowledged(_)));
    assert_eq!(runner.get("a").await.unwrap_err().code(), Code::NotFound);
    assert!(Peer::new(&runner).await.unacknowledged.is_empty());
}

fn refusal_of(status: &Status) -> String {
    refusal(status)
}

/// A large result is in no message of the session: it holds up no other call, and is not in memory for each message that names it.
#[tokio::test]
async fn a_large_result_is_a_reference() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let mut peer = Peer::new(&runner).await;
    for (id, tool) in [(1, LOOK), (2, KEEP)] {
        peer.ask(id, Operation::CallTool(runner.request(tool, tool, json!([["fill", "5000000"]]))));
        let ended = peer.result(id).await;
        assert!(ended.encoded_len() < 1000, "{} bytes", ended.encoded_len());
        let Some(v1::payload::Content::Blob(blob)) = ended.result.unwrap().content else { panic!("it is inline") };
        let read = runner.read_blob(tool, &blob.digest, 0).await.unwrap();
        assert!(read == json!(filled(5_000_000)).to_string().as_bytes());
    }
    assert_eq!(Peer::new(&runner).await.unacknowledged, [name(KEEP), name(LOOK)]);
}

/// A call continues when its session ends, and another session attaches to it.
#[tokio::test]
async fn a_call_outlives_its_session() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let request = runner.request("a", KEEP, json!([["wait"], ["answer", "done"]]));
    let peer = Peer::new(&runner).await;
    peer.ask(1, Operation::CallTool(request.clone()));
    bench.signals.has_run(1).await;
    drop(peer);
    let mut peer = Peer::new(&runner).await;
    peer.ask(1, Operation::CallTool(request));
    assert!(matches!(peer.next().await.unwrap().reply, Some(Reply::Started(_))));
    bench.signals.resume.add_permits(1);
    let ended = peer.result(1).await;
    assert_eq!((state(&ended), bench.signals.runs()), (State::Completed, 1));
    assert_eq!(ended.result, Some(v1::Payload { content: Some(v1::payload::Content::Json("\"done\"".into())) }));
}

/// A fence that is older than one seen is refused, whichever way it comes.
#[tokio::test]
async fn each_operation_has_its_own_fence() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let mut peer = Peer::new(&runner).await;
    let fenced = |shard, token, call: &str| {
        let fence = Some(Fence { shard, token });
        Operation::CallTool(runner_v1::CallToolRequest { fence, ..runner.request(call, KEEP, json!([])) })
    };
    peer.ask(1, fenced(1, 7, "a"));
    assert_eq!(state(&peer.result(1).await), State::Completed);
    peer.ask(2, fenced(1, 6, "b"));
    let Reply::Refused(refused) = peer.end_of(2).await else { panic!("the fence is old") };
    assert_eq!(refused.code, Code::FailedPrecondition as i32);
    peer.ask(3, fenced(2, 6, "c"));
    assert_eq!(state(&peer.result(3).await), State::Completed, "another shard has its own");
}

/// A call that floods its output is sent no further than its credit, and holds up no other; control comes through.
#[tokio::test]
async fn output_waits_for_credit_and_nobody_else_does() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let mut peer = Peer::with_window(&runner, 40_000).await;
    let line = format!("{}\n", "x".repeat(9_999));
    let says: Vec<_> = std::iter::repeat_n(json!(["say", line]), 20).chain([json!(["answer", "end"])]).collect();
    peer.ask(1, Operation::CallTool(runner.request("flood", KEEP, json!(says))));
    // As much as was allowed, and not the end: that follows the output.
    let mut read = 0;
    while read < 40_000 {
        match peer.next().await.unwrap() {
            SessionReply { operation: 1, reply: Some(Reply::Output(output)) } => read += output.text.len(),
            SessionReply { operation: 1, reply: Some(Reply::Started(_)) } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(read < 40_000 + (32 << 10), "{read}");
    peer.ask(2, Operation::CallTool(runner.request("quick", KEEP, json!([["answer", "ok"]]))));
    assert_eq!(state(&peer.result(2).await), State::Completed, "nothing of the flood comes before");
    let credits = vec![OutputCredit { operation: 1, bytes: 200_000 }];
    peer.say(SessionRequest { credits, ..SessionRequest::default() });
    let ended = loop {
        match peer.next().await.unwrap().reply.unwrap() {
            Reply::Output(output) => read += output.text.len(),
            Reply::Result(call) => break call,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((state(&ended), read), (State::Completed, 200_000));
}

#[tokio::test]
async fn an_operation_beyond_its_deadline_is_refused_and_its_call_goes_on() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let mut peer = Peer::new(&runner).await;
    let call = Operation::CallTool(runner.request("a", KEEP, json!([["wait"]])));
    let deadline = Some(belay_proto::duration(Duration::from_millis(20)));
    let operation = SessionOperation { id: 1, deadline, operation: Some(call), ..SessionOperation::default() };
    peer.say(SessionRequest { operations: vec![operation], ..SessionRequest::default() });
    let Reply::Refused(refused) = peer.end_of(1).await else { panic!("it takes longer") };
    assert_eq!(refused.code, Code::DeadlineExceeded as i32);
    bench.signals.resume.add_permits(1);
    peer.ask(2, Operation::CallTool(runner.request("a", KEEP, json!([["wait"]]))));
    assert_eq!(state(&peer.result(2).await), State::Completed);
    assert_eq!(bench.signals.runs(), 1);
}

/// A breach of the rules ends the session it came on, with the reason, and no other.
#[tokio::test]
async fn a_peer_that_breaks_the_rules_loses_its_session_only() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let mut well = Peer::new(&runner).await;
    let call = || runner.request("a", KEEP, json!([["wait"]]));
    let operation = |id| SessionOperation { id, operation: Some(cancel("x")), ..SessionOperation::default() };
    let both = SessionRequest { operations: vec![operation(9), operation(9)], ..SessionRequest::default() };
    let credit =
        |bytes| SessionRequest { credits: vec![OutputCredit { operation: 4, bytes }], ..SessionRequest::default() };
    let stores =
        runner_v1::StorePositions { stores: "executor j 0 7,runner another 0 900".into(), commits: "7,900".into() };
    let behind = SessionRequest { stores: Some(stores), ..SessionRequest::default() };
    let cases: Vec<(&str, Code, Vec<SessionRequest>)> = vec![
        ("a message before hello", Code::InvalidArgument, vec![SessionRequest::default()]),
        ("a second hello", Code::InvalidArgument, vec![hello(5), hello(5)]),
        ("an operation before hello", Code::InvalidArgument, vec![both.clone()]),
        ("an id twice", Code::InvalidArgument, vec![hello(5), both]),
        ("credit for nothing", Code::InvalidArgument, vec![hello(5), credit(5)]),
        ("a window without bound", Code::InvalidArgument, vec![hello(i64::MAX)]),
        // Last: the runner refuses everything from then on.
        ("another store", Code::Unavailable, vec![hello(5), behind]),
    ];
    well.ask(1, Operation::CallTool(call()));
    bench.signals.has_run(1).await;
    for (case, code, messages) in cases {
        if code == Code::Unavailable {
            bench.signals.resume.add_permits(1);
            assert_eq!(state(&well.result(1).await), State::Completed, "the other session has noticed nothing");
        }
        let peer = Peer::silent(&runner).await;
        messages.into_iter().for_each(|message| peer.say(message));
        let status = peer.ends().await;
        assert_eq!(status.code(), code, "{case}: {status:?}");
        assert!(!refusal(&status).is_empty(), "{case}: {status:?}");
    }
}

/// Fields that this runner does not know: in an operation they refuse that one, elsewhere they end the session.
#[tokio::test]
async fn what_is_not_known_is_refused() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let mut peer = Raw::new(&runner).await;
    // Field 99, a number.
    let unknown = [0x98, 0x06, 1];
    let mut operation = SessionOperation { id: 1, operation: Some(cancel("x")), ..Default::default() }.encode_to_vec();
    operation.extend(unknown);
    let mut message = vec![0x1a];
    prost::encoding::encode_varint(operation.len() as u64, &mut message);
    message.extend(operation);
    peer.say(hello(5).encode_to_vec());
    peer.say(message);
    let refused = loop {
        let message = peer.next().await.unwrap();
        if let Some(SessionReply { reply: Some(reply), operation: 1 }) = message.replies.into_iter().next() {
            break reply;
        }
    };
    assert!(matches!(refused, Reply::Refused(refused) if refused.message.contains("field 99")));
    peer.say(unknown.to_vec());
    let status = loop {
        if let Err(status) = peer.next().await {
            break status;
        }
    };
    assert_eq!((status.code(), refusal(&status)), (Code::InvalidArgument, "UNKNOWN_FIELD".into()));
}

/// As for unary calls: bytes that are no message are the caller's fault, with a reason, before and after hello.
#[tokio::test]
async fn bytes_that_are_no_message_are_refused_with_a_reason() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    // A field that ends before it has begun; text that is not UTF-8; a field of another type; a number that never ends.
    for garbage in [vec![0x1a, 0x7f], vec![0x0a, 0x03, 0x0a, 0x01, 0xff], vec![0x08, 1], vec![0xff; 20]] {
        for says_hello in [false, true] {
            let mut peer = Raw::new(&runner).await;
            if says_hello {
                peer.say(hello(5).encode_to_vec());
            }
            peer.say(garbage.clone());
            let status = loop {
                if let Err(status) = peer.next().await {
                    break status;
                }
            };
            let expected = (Code::InvalidArgument, "MESSAGE_MALFORMED".into());
            assert_eq!((status.code(), refusal(&status)), expected, "{garbage:?}: {status:?}");
        }
    }
}

/// A peer that never reads, and one that stops in the middle of a message, hold up nobody else.
#[tokio::test]
async fn a_peer_that_never_reads_or_stops_holds_up_nobody() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let (deaf, halved) = (Peer::with_window(&runner, 1 << 20).await, Raw::new(&runner).await);
    let line = format!("{}\n", "x".repeat(9_999));
    let says: Vec<_> = std::iter::repeat_n(json!(["say", line]), 60).collect();
    for id in 1..=6 {
        deaf.ask(id, Operation::CallTool(runner.request(&format!("d{id}"), KEEP, json!(says))));
    }
    halved.half();
    let mut peer = Peer::new(&runner).await;
    for id in 1..=50 {
        peer.ask(id, Operation::CallTool(runner.request(&format!("c{id}"), KEEP, json!([["answer", "ok"]]))));
        assert_eq!(state(&peer.result(id).await), State::Completed);
    }
    drop((deaf, halved));
    peer.ask(51, Operation::CallTool(runner.request("last", KEEP, json!([]))));
    assert_eq!(state(&peer.result(51).await), State::Completed);
}

/// The runner that stops says so, and the next one has what it knew.
#[tokio::test]
async fn a_session_ends_with_its_runner_and_nothing_is_lost() {
    let bench = Bench::new();
    bench.put("file", "1");
    let runner = bench.start(FREE).await;
    let mut peer = Peer::new(&runner).await;
    let request = runner.request("a", CHANGE, json!([["write", "file", "2"]]));
    peer.ask(1, Operation::CallTool(request.clone()));
    assert_eq!(state(&peer.result(1).await), State::Completed);
    runner.lose().await;
    assert_ne!(peer.ends().await.code(), Code::Ok);
    let runner = bench.start(FREE).await;
    let mut peer = Peer::new(&runner).await;
    assert_eq!(peer.unacknowledged, [name("a")]);
    peer.ask(1, Operation::CallTool(request));
    assert_eq!(state(&peer.result(1).await), State::Completed);
    assert_eq!((bench.text("file").as_str(), bench.signals.runs()), ("2", 1));
}

/// A peer that sends bytes.
struct Raw {
    sender: mpsc::UnboundedSender<Bytes>,
    responses: Streaming<SessionResponse>,
}

/// The bytes as they are sent.
struct SentMessages(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for SentMessages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

impl Raw {
    async fn new(runner: &Runner) -> Self {
        let (sender, bytes) = mpsc::unbounded_channel();
        let request = http::Request::post("http://localhost/belay.runner.v1.ToolRunnerService/Session")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(SentMessages(bytes)))
            .unwrap();
        let mut channel = runner.channel();
        std::future::poll_fn(|context| GrpcService::<Body>::poll_ready(&mut channel, context)).await.unwrap();
        let response = GrpcService::call(&mut channel, request).await.unwrap();
        let decoder = tonic_prost::ProstDecoder::<SessionResponse>::default();
        let responses = Streaming::new_response(decoder, response.into_body(), http::StatusCode::OK, None, None);
        Self { sender, responses }
    }

    fn say(&self, message: Vec<u8>) {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend(message);
        self.sender.send(bytes.into()).unwrap();
    }

    /// Half of a message, and then nothing.
    fn half(&self) {
        self.sender.send(vec![0, 0, 1, 0, 0, 0x1a, 1].into()).unwrap();
    }

    async fn next(&mut self) -> Result<SessionResponse, Status> {
        self.responses.message().await?.ok_or_else(|| Status::aborted("it has ended"))
    }
}
