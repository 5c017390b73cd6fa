//! The methods of `ToolRunnerService`, one file each.

mod acknowledge_tool_calls;
mod attach_tool_call;
mod call_tool;
mod cancel_tool_call;
mod check_calls;
mod check_workspace;
mod commit_effect;
mod discard_effect;
mod forget_executions;
mod get_effect;
mod get_tool_call;
mod list_tools;
mod watch_unacknowledged_tool_calls;

use std::{os::unix::ffi::OsStrExt as _, pin::Pin, sync::Arc};

use belay_proto::{
    runner_v1::{
        self,
        tool_runner_service_server::{ToolRunnerService, ToolRunnerServiceServer},
    },
    v1,
};
use belay_reasons as reasons;
use belay_service_kit::{Hosted, Shutdown, host::MAX_MESSAGE_BYTES, ids::is_call_id, status};
use data_encoding::HEXLOWER;
use futures::Stream;
use sha2::{Digest as _, Sha256};
use tonic::{Code, Request, Response, Status, service::Routes};

use crate::{
    Calls, NotAllowed,
    calls::{CallRequest, Progress, Subscription, unresolved},
    output::Position,
    workspace_locks::WorkspaceUnavailable,
};

/// The service, ready to be served.
pub fn hosted(calls: Arc<Calls>, shutdown: Shutdown) -> Hosted {
    let stores = Arc::clone(calls.stores());
    let service = ToolRunnerServiceServer::new(Service { calls, shutdown })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Hosted::new(Routes::new(service), "belay.runner.v1.ToolRunnerService", belay_proto::FILE_DESCRIPTOR_SET)
        .with_stores(stores)
}

struct Service {
    calls: Arc<Calls>,
    shutdown: Shutdown,
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ToolRunnerService for Service {
    type CallToolStream = Messages<runner_v1::CallToolResponse>;
    type AttachToolCallStream = Messages<runner_v1::AttachToolCallResponse>;

    async fn list_tools(
        &self,
        request: Request<runner_v1::ListToolsRequest>,
    ) -> Result<Response<runner_v1::ListToolsResponse>, Status> {
        list_tools::list_tools(&self.calls, request.get_ref()).map(Response::new)
    }

    async fn call_tool(
        &self,
        request: Request<runner_v1::CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        let subscription = call_tool::call_tool(&self.calls, request.into_inner()).await?;
        Ok(Response::new(follow(subscription, Position::default(), self.shutdown.clone(), call_tool::message)))
    }

    async fn get_tool_call(
        &self,
        request: Request<runner_v1::GetToolCallRequest>,
    ) -> Result<Response<v1::ToolCall>, Status> {
        get_tool_call::get_tool_call(&self.calls, request.get_ref()).map(Response::new)
    }

    async fn attach_tool_call(
        &self,
        request: Request<runner_v1::AttachToolCallRequest>,
    ) -> Result<Response<Self::AttachToolCallStream>, Status> {
        let (subscription, position) = attach_tool_call::attach_tool_call(&self.calls, request.get_ref())?;
        Ok(Response::new(follow(subscription, position, self.shutdown.clone(), attach_tool_call::message)))
    }

    async fn cancel_tool_call(
        &self,
        request: Request<runner_v1::CancelToolCallRequest>,
    ) -> Result<Response<v1::ToolCall>, Status> {
        cancel_tool_call::cancel_tool_call(&self.calls, request.into_inner()).await.map(Response::new)
    }

    type GetEffectStream = Messages<runner_v1::GetEffectResponse>;

    async fn get_effect(
        &self,
        request: Request<runner_v1::GetEffectRequest>,
    ) -> Result<Response<Self::GetEffectStream>, Status> {
        get_effect::get_effect(&self.calls, request.get_ref()).await.map(Response::new)
    }

    async fn commit_effect(
        &self,
        request: Request<runner_v1::CommitEffectRequest>,
    ) -> Result<Response<v1::ToolCall>, Status> {
        let span = self.calls.start_span("belay.runner.v1.ToolRunnerService/CommitEffect", request.metadata());
        let result = commit_effect::commit_effect(&self.calls, request.into_inner()).await;
        self.calls.end_span(span, &result);
        result.map(Response::new)
    }

    async fn discard_effect(
        &self,
        request: Request<runner_v1::DiscardEffectRequest>,
    ) -> Result<Response<v1::ToolCall>, Status> {
        let span = self.calls.start_span("belay.runner.v1.ToolRunnerService/DiscardEffect", request.metadata());
        let result = discard_effect::discard_effect(&self.calls, request.into_inner()).await;
        self.calls.end_span(span, &result);
        result.map(Response::new)
    }

    async fn check_workspace(
        &self,
        request: Request<runner_v1::CheckWorkspaceRequest>,
    ) -> Result<Response<runner_v1::CheckWorkspaceResponse>, Status> {
        check_workspace::check_workspace(&self.calls, request.get_ref()).await.map(Response::new)
    }

    async fn check_calls(
        &self,
        request: Request<runner_v1::CheckCallsRequest>,
    ) -> Result<Response<runner_v1::CheckCallsResponse>, Status> {
        check_calls::check_calls(&self.calls, request.get_ref()).map(Response::new)
    }

    async fn get_enforcement(
        &self,
        _request: Request<runner_v1::GetEnforcementRequest>,
    ) -> Result<Response<runner_v1::EnforcementReport>, Status> {
        Ok(Response::new(self.calls.enforcement.clone()))
    }

    async fn acknowledge_tool_calls(
        &self,
        request: Request<runner_v1::AcknowledgeToolCallsRequest>,
    ) -> Result<Response<runner_v1::AcknowledgeToolCallsResponse>, Status> {
        acknowledge_tool_calls::acknowledge_tool_calls(&self.calls, request.into_inner()).await.map(Response::new)
    }

    async fn forget_executions(
        &self,
        request: Request<runner_v1::ForgetExecutionsRequest>,
    ) -> Result<Response<runner_v1::ForgetExecutionsResponse>, Status> {
        forget_executions::forget_executions(&self.calls, request.into_inner()).await.map(Response::new)
    }

    type WatchUnacknowledgedToolCallsStream = Messages<runner_v1::WatchUnacknowledgedToolCallsResponse>;

    async fn watch_unacknowledged_tool_calls(
        &self,
        request: Request<runner_v1::WatchUnacknowledgedToolCallsRequest>,
    ) -> Result<Response<Self::WatchUnacknowledgedToolCallsStream>, Status> {
        let shutdown = self.shutdown.clone();
        watch_unacknowledged_tool_calls::watch_unacknowledged_tool_calls(&self.calls, request.get_ref(), shutdown)
            .map(Response::new)
    }
}

/// An update that a subscriber of a call gets.
enum CallUpdate {
    Started(String),
    Output(v1::ToolCallOutput),
    /// It waits for the end of this exclusive call; empty once it does not wait any more.
    WaitingFor(String),
    AwaitingApproval(Arc<v1::ToolCall>),
    Ended(Arc<v1::ToolCall>),
}

/// Streams a call until it ends or waits for approval. A call that has ended already, without output, is one message, not two.
fn follow<T: Send + 'static>(
    subscription: Subscription,
    mut position: Position,
    shutdown: Shutdown,
    message: fn(CallUpdate) -> T,
) -> Messages<T> {
    Box::pin(async_stream::stream! {
        let Subscription { name, mut progress, mut waits_for, output } = subscription;
        let mut sent_waits_for = None;
        let mut more = output.subscribe();
        let (mut yielded, mut started) = (false, false);
        loop {
            // Marked before `progress` is read: all output precedes the end of the call.
            more.mark_unchanged();
            let last = match &*progress.borrow_and_update() {
                Progress::Running | Progress::Resolving => Ok(None),
                Progress::AwaitingApproval(call) => Ok(Some(CallUpdate::AwaitingApproval(Arc::clone(call)))),
                Progress::Ended(call) => Ok(Some(CallUpdate::Ended(Arc::clone(call)))),
                Progress::Unresolved => Err(unresolved()),
            };
            let last = match last {
                Ok(last) => last,
                Err(status) => {
                    yield Err(status);
                    return;
                }
            };
            if last.is_none() && !yielded {
                // Lets a quick call end first.
                yielded = true;
                tokio::task::yield_now().await;
                continue;
            }
            if last.is_none() && !started {
                started = true;
                yield Ok(message(CallUpdate::Started(name.clone())));
            }
            let now = waits_for.borrow_and_update().clone();
            if last.is_none() && now != sent_waits_for {
                yield Ok(message(CallUpdate::WaitingFor(now.as_deref().unwrap_or_default().to_owned())));
                sent_waits_for = now;
            }
            while let Some(piece) = output.next(&mut position, last.is_some()) {
                yield Ok(message(CallUpdate::Output(piece)));
            }
            if let Some(last) = last {
                yield Ok(message(last));
                return;
            }
            let open = tokio::select! {
                biased;
                changed = progress.changed() => changed.is_ok(),
                _ = more.changed() => true,
                Ok(()) = waits_for.changed() => true,
                () = shutdown.requested() => false,
            };
            if !open {
                yield Err(stopping());
                return;
            }
        }
    })
}

fn stopping() -> Status {
    status::error(Code::Unavailable, reasons::RUNNER_STOPPING, "The tool runner is stopping.").into()
}

fn not_allowed(refused: NotAllowed) -> Status {
    WorkspaceUnavailable::from(refused).into_status()
}

/// The identity of a request: tool, workspace as named, and arguments.
pub(crate) fn digest(order: &CallRequest) -> String {
    let CallRequest { tool, workspace, arguments, .. } = order;
    let named = if workspace.own { &[][..] } else { workspace.path.as_os_str().as_bytes() };
    let parts = [tool.spec.name.as_bytes(), named, arguments.as_bytes()];
    // Names and paths contain no NUL.
    hex(parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part).chain_update([0])))
}

pub(crate) fn arguments_digest(arguments: &str) -> String {
    format!("sha256:{}", hex(Sha256::new().chain_update(arguments)))
}

fn hex(digest: Sha256) -> String {
    HEXLOWER.encode(&digest.finalize())
}

/// Checks that a name has the form `namespaces/*/executions/*`.
fn check_execution(field: &str, name: &str) -> Result<(), Status> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["namespaces", namespace, "executions", execution]
            if name.len() <= 512 && [namespace, execution].iter().all(|part| !part.is_empty()) =>
        {
            Ok(())
        }
        _ => {
            let message = format!("`{name}` is not the name of an execution: use namespaces/N/executions/E");
            Err(status::invalid(field, message).into())
        }
    }
}

/// Checks that a name has the form `namespaces/*/executions/*/steps/*/calls/*`.
fn check_name(name: &str) -> Result<(), Status> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["namespaces", namespace, "executions", execution, "steps", step, "calls", call]
            if name.len() <= 512
                && [namespace, execution, step].iter().all(|part| !part.is_empty())
                && is_call_id(call) =>
        {
            Ok(())
        }
        _ => {
            let message =
                format!("`{name}` is not a valid call name: use namespaces/N/executions/E/steps/S/calls/CALL");
            Err(status::invalid("name", message).into())
        }
    }
}
