//! The methods of `ToolRunnerService`, one file each.

mod acknowledge_tool_calls;
mod attach_tool_call;
mod call_tool;
mod cancel_tool_call;
mod get_tool_call;
mod list_tools;

use std::{pin::Pin, sync::Arc};

use belay_proto::v1::{
    self,
    tool_runner_service_server::{ToolRunnerService, ToolRunnerServiceServer},
};
use belay_service_kit::{Hosted, Shutdown, host::LARGEST_MESSAGE, status};
use futures::Stream;
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status, service::Routes};

use crate::{
    Calls, ToolSpec,
    calls::{Outcome, ended},
};

/// The service, ready to be served.
pub fn hosted(calls: Arc<Calls>, shutdown: Shutdown) -> Hosted {
    let service = ToolRunnerServiceServer::new(Service { calls, shutdown })
        .max_decoding_message_size(LARGEST_MESSAGE)
        .max_encoding_message_size(LARGEST_MESSAGE);
    Hosted::new(Routes::new(service), "belay.v1.ToolRunnerService", v1::FILE_DESCRIPTOR_SET)
}

struct Service {
    calls: Arc<Calls>,
    shutdown: Shutdown,
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ToolRunnerService for Service {
    type CallToolStream = Messages<v1::CallToolResponse>;
    type AttachToolCallStream = Messages<v1::AttachToolCallResponse>;

    async fn list_tools(
        &self,
        request: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        list_tools::list_tools(&self.calls, request.get_ref()).map(Response::new)
    }

    async fn call_tool(&self, request: Request<v1::CallToolRequest>) -> Result<Response<Self::CallToolStream>, Status> {
        let outcome = call_tool::call_tool(&self.calls, request.into_inner()).await?;
        Ok(Response::new(follow(outcome, self.shutdown.clone(), call_tool::message)))
    }

    async fn get_tool_call(&self, request: Request<v1::GetToolCallRequest>) -> Result<Response<v1::ToolCall>, Status> {
        get_tool_call::get_tool_call(&self.calls, request.get_ref()).map(Response::new)
    }

    async fn attach_tool_call(
        &self,
        request: Request<v1::AttachToolCallRequest>,
    ) -> Result<Response<Self::AttachToolCallStream>, Status> {
        let outcome = attach_tool_call::attach_tool_call(&self.calls, request.get_ref())?;
        Ok(Response::new(follow(outcome, self.shutdown.clone(), attach_tool_call::message)))
    }

    async fn cancel_tool_call(
        &self,
        request: Request<v1::CancelToolCallRequest>,
    ) -> Result<Response<v1::ToolCall>, Status> {
        cancel_tool_call::cancel_tool_call(&self.calls, request.into_inner()).await.map(Response::new)
    }

    type GetEffectStream = Messages<v1::GetEffectResponse>;

    async fn get_effect(
        &self,
        _request: Request<v1::GetEffectRequest>,
    ) -> Result<Response<Self::GetEffectStream>, Status> {
        Err(Status::unimplemented("being written"))
    }

    async fn commit_effect(
        &self,
        _request: Request<v1::CommitEffectRequest>,
    ) -> Result<Response<v1::ToolCall>, Status> {
        Err(Status::unimplemented("being written"))
    }

    async fn discard_effect(
        &self,
        _request: Request<v1::DiscardEffectRequest>,
    ) -> Result<Response<v1::ToolCall>, Status> {
        Err(Status::unimplemented("being written"))
    }

    async fn check_workspace(
        &self,
        _request: Request<v1::CheckWorkspaceRequest>,
    ) -> Result<Response<v1::CheckWorkspaceResponse>, Status> {
        Err(Status::unimplemented("being written"))
    }

    async fn get_enforcement(
        &self,
        _request: Request<v1::GetEnforcementRequest>,
    ) -> Result<Response<v1::EnforcementReport>, Status> {
        Err(Status::unimplemented("being written"))
    }

    async fn acknowledge_tool_calls(
        &self,
        request: Request<v1::AcknowledgeToolCallsRequest>,
    ) -> Result<Response<v1::AcknowledgeToolCallsResponse>, Status> {
        acknowledge_tool_calls::acknowledge_tool_calls(&self.calls, request.into_inner()).await.map(Response::new)
    }
}

/// What a follower hears about a call.
enum News {
    Started,
    Ended(Arc<v1::ToolCall>),
}

/// Follows a call to its end. A call that has ended already is one message, not two.
fn follow<T: Send + 'static>(outcome: Outcome, shutdown: Shutdown, message: fn(News) -> T) -> Messages<T> {
    Box::pin(async_stream::stream! {
        let known = outcome.borrow().clone();
        if let Some(call) = known {
            yield Ok(message(News::Ended(call)));
            return;
        }
        let mut end = std::pin::pin!(ended(outcome));
        let at_once = std::future::poll_fn(|context| std::task::Poll::Ready(match end.as_mut().poll(context) {
            std::task::Poll::Ready(call) => Some(call),
            std::task::Poll::Pending => None,
        })).await;
        if let Some(call) = at_once {
            yield call.map(|call| message(News::Ended(call)));
            return;
        }
        yield Ok(message(News::Started));
        let call = tokio::select! {
            biased;
            call = end => call,
            () = shutdown.requested() => {
                Err(status::error(tonic::Code::Unavailable, "RUNNER_STOPPING", "The tool runner is stopping.").into())
            }
        };
        yield call.map(|call| message(News::Ended(call)));
    })
}

/// What makes two requests the same: the tool and the arguments.
pub(crate) fn digest(tool: &ToolSpec, arguments: &str) -> String {
    hex(Sha256::new().chain_update(tool.name).chain_update([0]).chain_update(arguments))
}

pub(crate) fn arguments_digest(arguments: &str) -> String {
    format!("sha256:{}", hex(Sha256::new().chain_update(arguments)))
}

fn hex(digest: Sha256) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    digest.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The attempt in `namespaces/*/executions/*/steps/*/calls/ATTEMPT.N`.
fn attempt_of(name: &str) -> Result<u32, Status> {
    let wrong = || {
        let message =
            format!("`{name}` is no name of a call: write namespaces/N/executions/E/steps/S/calls/ATTEMPT.NUMBER");
        Status::from(status::invalid("name", message))
    };
    let parts: Vec<&str> = name.split('/').collect();
    let ["namespaces", namespace, "executions", execution, "steps", step, "calls", call] = parts[..] else {
        return Err(wrong());
    };
    if name.len() > 512 || [namespace, execution, step].iter().any(|part| part.is_empty()) {
        return Err(wrong());
    }
    let (attempt, number) = call.split_once('.').ok_or_else(wrong)?;
    match (attempt.parse(), number.parse::<u32>()) {
        (Ok(attempt), Ok(_)) => Ok(attempt),
        _ => Err(wrong()),
    }
}
