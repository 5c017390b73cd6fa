//! The methods of `ToolRunnerService`, one file each.

mod acknowledge_tool_calls;
mod answer_tool_call;
mod attach_tool_call;
mod call_tool;
mod cancel_tool_call;
mod check_calls;
mod check_workspace;
mod checks;
mod commit_effect;
mod discard_effect;
mod follow;
mod forget_executions;
mod get_effect;
mod get_tool_call;
mod list_tools;
mod read_blob;
mod session;
mod watch_unacknowledged_tool_calls;

use std::sync::Arc;

use belay_proto::{
    runner_v1::{
        self,
        tool_runner_service_server::{ToolRunnerService, ToolRunnerServiceServer},
    },
    session::ReceivedRequest,
};
use belay_service_kit::{HostedServices, Shutdown, host::MAX_MESSAGE_BYTES};
use tonic::{Request, Response, Status, Streaming, service::Routes};

use self::follow::{Messages, follow};
use crate::{Calls, output::Position};

/// The service, ready to be served.
pub fn hosted(calls: Arc<Calls>, shutdown: Shutdown) -> HostedServices {
    let (stores, measured) = (Arc::clone(calls.stores()), Arc::clone(&calls));
    let service = ToolRunnerServiceServer::new(Service { calls, shutdown })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    HostedServices::new(Routes::new(service), "belay.runner.v1.ToolRunnerService", belay_proto::FILE_DESCRIPTOR_SET)
        .with_stores(stores)
        .with_metrics(measured)
}

struct Service {
    calls: Arc<Calls>,
    shutdown: Shutdown,
}

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

    type SessionStream = Messages<runner_v1::SessionResponse>;

    async fn session(
        &self,
        request: Request<Streaming<ReceivedRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let session = session::Session::new(Arc::clone(&self.calls), request.into_inner(), self.shutdown.clone());
        Ok(Response::new(Box::pin(session)))
    }

    async fn get_tool_call(
        &self,
        request: Request<runner_v1::GetToolCallRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        get_tool_call::get_tool_call(&self.calls, request.get_ref()).await.map(Response::new)
    }

    async fn attach_tool_call(
        &self,
        request: Request<runner_v1::AttachToolCallRequest>,
    ) -> Result<Response<Self::AttachToolCallStream>, Status> {
        let (subscription, position) = attach_tool_call::attach_tool_call(&self.calls, request.get_ref()).await?;
        Ok(Response::new(follow(subscription, position, self.shutdown.clone(), attach_tool_call::message)))
    }

    type ReadBlobStream = Messages<runner_v1::ReadBlobResponse>;

    async fn read_blob(
        &self,
        request: Request<runner_v1::ReadBlobRequest>,
    ) -> Result<Response<Self::ReadBlobStream>, Status> {
        read_blob::read_blob(&self.calls, request.get_ref()).map(Response::new)
    }

    async fn answer_tool_call(
        &self,
        request: Request<runner_v1::AnswerToolCallRequest>,
    ) -> Result<Response<runner_v1::AnswerToolCallResponse>, Status> {
        answer_tool_call::answer_tool_call(&self.calls, request.into_inner()).await.map(Response::new)
    }

    async fn cancel_tool_call(
        &self,
        request: Request<runner_v1::CancelToolCallRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
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
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        let span = self.calls.start_span("belay.runner.v1.ToolRunnerService/CommitEffect", request.metadata());
        let result = commit_effect::commit_effect(&self.calls, request.into_inner()).await;
        self.calls.end_span(span, &result);
        result.map(Response::new)
    }

    async fn discard_effect(
        &self,
        request: Request<runner_v1::DiscardEffectRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
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
        Ok(Response::new(self.calls.enforcement.to_proto()))
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
