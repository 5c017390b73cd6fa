//! A client of the tool runner that is not an executor: everything that a process with access to its socket can do.

use std::{path::Path, time::Duration};

use belay_proto::{
    runner_v1::{
        self, CallToolRequest, ToolCall, call_tool_response::Event, tool_runner_service_client::ToolRunnerServiceClient,
    },
    v1::{self, payload::Content},
};
use tonic::{Code, Status, transport::Channel};

use crate::client::{channel, retry};

/// A client of one runner.
#[derive(Clone, Debug)]
pub struct Runner {
    runner: ToolRunnerServiceClient<Channel>,
}

impl Runner {
    /// A client of the runner on this socket.
    pub fn new(socket: &Path) -> Self {
        Self { runner: ToolRunnerServiceClient::new(channel(socket)) }
    }

    /// The bare client.
    pub fn raw(&self) -> ToolRunnerServiceClient<Channel> {
        self.runner.clone()
    }

    /// Calls a tool; returns the call when it has ended or is held.
    ///
    /// # Errors
    /// The runner's refusal.
    pub async fn call(&self, request: CallToolRequest) -> Result<ToolCall, Status> {
        let mut stream = self.raw().call_tool(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            if let Some(Event::Result(call) | Event::Held(call)) = message.event {
                return Ok(call);
            }
        }
        Err(Status::unknown("the stream ended before the call"))
    }

    /// The runner's record of a call.
    ///
    /// # Errors
    /// The runner's refusal.
    pub async fn get(&self, name: &str) -> Result<ToolCall, Status> {
        let request = runner_v1::GetToolCallRequest { name: name.into() };
        self.raw().get_tool_call(request).await.map(tonic::Response::into_inner)
    }

    /// Returns when the runner has received a policy, without which it runs nothing.
    ///
    /// # Panics
    /// When it does not within a minute, or refuses for another reason.
    pub async fn until_it_has_a_policy(&self) {
        let first = request("namespaces/test/executions/first/steps/first/calls/1.1", "noop", "{}");
        let heard = retry(|| async { self.call(first.clone()).await.map(tonic::Response::new) });
        let heard = tokio::time::timeout(Duration::from_secs(60), heard).await;
        heard.expect("the runner receives a policy within a minute").expect("noop runs");
    }
}

impl Runner {
    /// The calls that have ended and were not acknowledged.
    ///
    /// # Errors
    /// The runner's refusal.
    pub async fn unacknowledged(&self) -> Result<Vec<String>, Status> {
        let request = runner_v1::WatchUnacknowledgedToolCallsRequest::default();
        let mut watch = self.raw().watch_unacknowledged_tool_calls(request).await?.into_inner();
        let mut names = Vec::new();
        while let Some(message) = watch.message().await? {
            if message.names.is_empty() {
                return Ok(names);
            }
            names.extend(message.names);
        }
        Err(Status::unknown("the stream ended before its first heartbeat"))
    }

    /// Returns when every ended call has been acknowledged.
    ///
    /// # Panics
    /// When one is not acknowledged within a minute.
    pub async fn until_all_is_acknowledged(&self) {
        let mut left = Vec::new();
        for _ in 0..3000 {
            let now = retry(|| async { self.unacknowledged().await.map(tonic::Response::new) }).await;
            left = now.expect("the runner says which");
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("these calls have ended and are not acknowledged: {left:?}");
    }
}

/// A request for a call with arguments as JSON text, in a workspace of the runner's own.
pub fn request(name: &str, tool: &str, arguments: &str) -> CallToolRequest {
    let arguments = Some(v1::Payload { content: Some(Content::Json(arguments.into())) });
    let made_folder = made_folder_of(name);
    CallToolRequest { name: name.into(), tool: tool.into(), arguments, made_folder, ..CallToolRequest::default() }
}

/// The folder of an execution with this name, or of a call's, where no directory was named.
fn made_folder_of(name: &str) -> Option<runner_v1::MadeFolder> {
    let mut ids = name.split('/').skip(1).step_by(2).map(str::to_owned);
    Some(runner_v1::MadeFolder { namespace: ids.next()?, id: ids.next()? })
}

/// The code and reason of an error.
pub fn reason(status: &Status) -> (Code, String) {
    let info = tonic_types::StatusExt::get_details_error_info(status);
    (status.code(), info.map(|info| info.reason).unwrap_or_default())
}
