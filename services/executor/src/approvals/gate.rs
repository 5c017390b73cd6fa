//! The client of the approval gate.

use std::time::Duration;

use belay_proto::{
    gate_v1::{self, approval_gate_service_client::ApprovalGateServiceClient},
    runner_v1, v1,
};
use belay_reasons as reasons;
use belay_service_kit::{ServiceChannel, host::MAX_MESSAGE_BYTES, status};
use belay_telemetry::TraceContext;
use tonic::{Code, Request, Status, metadata::MetadataValue};

use crate::{
    InvalidToken,
    wire::{self, NotUnderstood},
};

/// The time limit of one request. The gate calls the runner and renders previews.
const RPC_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of an approval gate, connected to its endpoint for services.
#[derive(Clone)]
pub struct Gate {
    client: ApprovalGateServiceClient<ServiceChannel>,
    authorization: Option<MetadataValue<tonic::metadata::Ascii>>,
}

/// Why a request to the gate failed.
#[derive(Debug)]
pub(crate) enum GateError {
    /// No reply now: retry. The gate is unavailable, is stopping, does not authenticate the executor, or cannot reach its runner.
    Unavailable(Status),
    /// The gate is at its limit: retry.
    Busy(Status),
    /// The gate refuses it permanently.
    Refused(Status),
}

impl Gate {
    /// A client on this channel; it sends `token` with every request.
    ///
    /// # Errors
    /// [`InvalidToken`] when the token contains characters that a header cannot.
    pub fn new(channel: impl Into<ServiceChannel>, token: Option<&str>) -> Result<Self, InvalidToken> {
        let client = ApprovalGateServiceClient::new(channel.into())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let authorization =
            token.map(|token| format!("Bearer {token}").parse().map_err(|_| InvalidToken)).transpose()?;
        Ok(Self { client, authorization })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    fn with_timeout<T>(&self, message: T) -> Request<T> {
        let mut request = self.request(message);
        request.set_timeout(RPC_TIMEOUT);
        request
    }

    /// Creates the approval of a held call, or returns the existing one.
    pub(crate) async fn create(
        &self,
        asked: gate_v1::CreateApprovalRequest,
        trace: &TraceContext,
    ) -> Result<v1::Approval, GateError> {
        let digest = asked.subject_digest.clone();
        let mut request = self.with_timeout(asked);
        trace.put(request.metadata_mut());
        let reply = self.client.clone().create_approval(request).await;
        let approval = reply.map_err(gate_error)?.into_inner();
        if approval.subject_digest != digest {
            let message = format!("the gate's approval is for {} and not for {digest}", approval.subject_digest);
            return Err(GateError::Unavailable(Status::internal(message)));
        }
        wire::check_approval(&approval).map_err(|problem| GateError::Unavailable(not_understood(&problem)))?;
        Ok(approval)
    }

    /// Returns the grant of an approved call.
    pub(crate) async fn grant(&self, approval: String) -> Result<runner_v1::Grant, GateError> {
        let request = self.with_timeout(gate_v1::GetGrantRequest { approval });
        Ok(self.client.clone().get_grant(request).await.map_err(gate_error)?.into_inner())
    }

    /// Cancels a pending approval, for the executor with this fencing token.
    pub(crate) async fn cancel(&self, name: String, fencing_token: i64) -> Result<(), GateError> {
        let request = self.with_timeout(gate_v1::CancelApprovalRequest { name, fencing_token });
        self.client.clone().cancel_approval(request).await.map(drop).map_err(gate_error)
    }

    /// Makes the gate forget deleted executions.
    pub(crate) async fn forget(&self, executions: Vec<String>) -> Result<(), GateError> {
        let request = self.with_timeout(gate_v1::ForgetExecutionsRequest { executions });
        self.client.clone().forget_executions(request).await.map(drop).map_err(gate_error)
    }

    /// The names of the pending approvals of a call.
    pub(crate) async fn pending_for_call(&self, execution: &str, call: &str) -> Result<Vec<String>, GateError> {
        let parent = execution.split("/executions/").next().unwrap_or_default();
        let (mut names, mut page_token) = (Vec::new(), String::new());
        loop {
            let page = self.open(parent, execution, page_token).await?;
            let about = page.approvals.into_iter().filter(|approval| approval.call == call);
            names.extend(about.map(|approval| approval.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(names);
            }
        }
    }

    /// A page of the pending approvals of one execution or, with an empty name, of all.
    pub(crate) async fn open(
        &self,
        parent: &str,
        execution: &str,
        page_token: String,
    ) -> Result<gate_v1::ListPendingApprovalsResponse, GateError> {
        let request = self.with_timeout(gate_v1::ListPendingApprovalsRequest {
            parent: parent.to_owned(),
            page_size: 1000,
            page_token,
            execution: execution.to_owned(),
        });
        Ok(self.client.clone().list_pending_approvals(request).await.map_err(gate_error)?.into_inner())
    }

    /// Acknowledges stored decisions and reports the use of grants.
    pub(crate) async fn acknowledge(
        &self,
        acknowledged: gate_v1::AcknowledgeApprovalsRequest,
    ) -> Result<(), GateError> {
        let request = self.with_timeout(acknowledged);
        self.client.clone().acknowledge_approvals(request).await.map(drop).map_err(gate_error)
    }

    /// Streams every decision that no executor has acknowledged, then every new one.
    pub(crate) async fn watch(&self) -> Result<tonic::Streaming<gate_v1::WatchDecisionsResponse>, Status> {
        let request = self.request(gate_v1::WatchDecisionsRequest { heartbeat_interval: None });
        Ok(self.client.clone().watch_decisions(request).await?.into_inner())
    }
}

/// Whether the gate refuses the grant of an approved call because it does not know that decision: its store was restored or lost. Since then the
/// approval may have been requested again, and decided otherwise: a request for it returns that decision, which is the one that counts.
pub(crate) fn has_lost_decision(status: &Status) -> bool {
    matches!(status::reason(status).as_deref(), Some(reasons::APPROVAL_NOT_FOUND | reasons::NOT_APPROVED))
}

/// Whether the gate refuses because another executor has replaced this one.
pub(crate) fn is_fenced(status: &Status) -> bool {
    status::reason(status).as_deref() == Some(reasons::FENCED)
}

/// A reply from which nothing follows: the gate is asked again.
pub(crate) fn not_understood(problem: &NotUnderstood) -> Status {
    let message = format!(
        "The approval gate's reply cannot be understood: {problem}. Upgrade the executor, or correct the gate."
    );
    status::error(Code::Internal, reasons::REPLY_NOT_UNDERSTOOD, message).into()
}

/// Only a refusal of the gate itself is permanent: a status from a proxy or the transport says nothing.
/// Whether a refusal of the gate, which asked for the approval of a call that the runner holds, will be the same the next time. One about what the runner
/// held at that moment may not be; and who may ask is the operator's to change.
pub(crate) fn refuses_for_good(status: &Status) -> bool {
    let is_of_the_moment = matches!(
        status::reason(status).as_deref(),
        Some(reasons::SUBJECT_CHANGED | reasons::CALL_NOT_HELD | reasons::RUNNER_UNAVAILABLE)
    );
    matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument | Code::AlreadyExists) && !is_of_the_moment
}

fn gate_error(status: Status) -> GateError {
    let final_code = matches!(
        status.code(),
        Code::FailedPrecondition
            | Code::NotFound
            | Code::InvalidArgument
            | Code::PermissionDenied
            | Code::AlreadyExists
    );
    match status::reason(&status).as_deref() {
        Some(reasons::OVERLOADED | reasons::LIMIT_REACHED) => GateError::Busy(status),
        Some(_) if final_code => GateError::Refused(status),
        _ => GateError::Unavailable(status),
    }
}
