//! Sessions of the scripted runner: each operation is what the method of its name does.

use belay_proto::{
    runner_v1::{
        self, SessionHello, SessionRefusal, SessionReply, SessionResponse, call_tool_response::Event,
        session_operation::Operation, session_reply::Reply, tool_runner_service_server::ToolRunnerService as _,
    },
    session::{ReceivedOperation, ReceivedRequest},
};
use futures::StreamExt as _;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::runner::{Messages, Runner};

/// The replies of one session.
pub(super) fn serve(runner: Runner, mut received: Streaming<ReceivedRequest>) -> Messages<SessionResponse> {
    let (sender, mut replies) = mpsc::unbounded_channel();
    let serving = runner.clone();
    tokio::spawn(async move {
        while let Ok(Some(message)) = received.message().await {
            for operation in message.operations {
                let ReceivedOperation::Known(operation) = operation else { panic!("{operation:?}") };
                let (id, operation) = (operation.id, operation.operation.expect("it was checked"));
                let (runner, sender) = (serving.clone(), sender.clone());
                tokio::spawn(carry_out(runner, operation, move |reply| {
                    let reply = SessionReply { operation: id, reply: Some(reply) };
                    let reply = match reply.encoded_len() {
                        ..16_775_168 => reply,
                        // No message can have it.
                        _ => SessionReply { reply: Some(refused(&Status::out_of_range("too large"))), ..reply },
                    };
                    // An error means that the session has ended.
                    drop(sender.send(reply));
                }));
            }
        }
    });
    let hello = SessionHello { contract_revision: 1, ledger_id: "ledger".into(), output_window: 0 };
    Box::pin(async_stream::stream! {
        let unacknowledged = runner.seen().unacknowledged();
        yield Ok(SessionResponse { hello: Some(hello), unacknowledged, ..SessionResponse::default() });
        while let Some(reply) = replies.recv().await {
            yield Ok(SessionResponse { replies: vec![reply], ..SessionResponse::default() });
        }
    })
}

async fn carry_out(runner: Runner, operation: Operation, reply: impl Fn(Reply)) {
    let ended = |ended: Result<Response<runner_v1::ToolCall>, Status>| match ended {
        Ok(call) => reply(Reply::Result(call.into_inner())),
        Err(status) => reply(refused(&status)),
    };
    match operation {
        Operation::CancelToolCall(request) => ended(runner.cancel_tool_call(Request::new(request)).await),
        Operation::CommitEffect(request) => ended(runner.commit_effect(Request::new(request)).await),
        Operation::DiscardEffect(request) => ended(runner.discard_effect(Request::new(request)).await),
        Operation::AcknowledgeToolCalls(request) => match runner.acknowledge_tool_calls(Request::new(request)).await {
            Ok(taken) => reply(Reply::Acknowledged(taken.into_inner())),
            Err(status) => reply(refused(&status)),
        },
        Operation::CallTool(request) => {
            let mut events = match runner.call_tool(Request::new(request)).await {
                Ok(events) => events.into_inner(),
                Err(status) => return reply(refused(&status)),
            };
            while let Some(event) = events.next().await {
                reply(match event.map(|message| message.event.expect("the runner sets it")) {
                    Ok(Event::Started(started)) => Reply::Started(started),
                    Ok(Event::Output(output)) => Reply::Output(output),
                    Ok(Event::Waiting(waiting)) => Reply::Waiting(waiting),
                    Ok(Event::Asking(asking)) => Reply::Asking(asking),
                    Ok(Event::Held(call)) => Reply::Held(call),
                    Ok(Event::Result(call)) => Reply::Result(call),
                    Err(status) => refused(&status),
                });
            }
        }
    }
}

fn refused(status: &Status) -> Reply {
    let (code, message) = (status.code() as i32, status.message().to_owned());
    Reply::Refused(SessionRefusal { code, message, details: status.details().to_vec() })
}
