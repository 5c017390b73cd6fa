//! The gate's services, a file for each method.
//!
//! People and planners call `ApprovalService` and `PolicyService`, on the endpoint for people; executors and tool runners call
//! `ApprovalGateService`, on the endpoint for services. A service can create approvals and fetch grants, and never decides; a person decides,
//! and never gets a grant.

mod acknowledge_approvals;
mod answer_form;
mod cancel_approval;
mod create_approval;
mod decide_approval;
mod forget_executions;
mod get_approval;
mod get_approval_change;
mod get_grant;
mod list_approval_changes;
mod list_approvals;
mod list_pending_approvals;
mod messages;
mod watch_approvals;
mod watch_decisions;
mod watch_policy;

use std::sync::Arc;

use belay_proto::{
    FILE_DESCRIPTOR_SET,
    gate_v1::{
        self,
        approval_gate_service_server::{ApprovalGateService, ApprovalGateServiceServer},
    },
    runner_v1,
    v1::{
        self,
        approval_service_server::{ApprovalService, ApprovalServiceServer},
        policy_service_server::{PolicyService, PolicyServiceServer},
    },
};
use belay_service_kit::{HostedServices, Principal, host::MAX_MESSAGE_BYTES};
use belay_telemetry::{RpcSpan, TraceContext};
use tonic::{Request, Response, Status, service::Routes};

use self::messages::Messages;
use crate::Gate;

/// `ApprovalService` and `PolicyService`, for the listener for people.
pub fn hosted(gate: Arc<Gate>) -> HostedServices {
    let policy = PolicyServiceServer::new(PeopleService { gate: Arc::clone(&gate) })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let measured = Arc::clone(&gate);
    let approvals = ApprovalServiceServer::new(PeopleService { gate })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let policy = HostedServices::new(Routes::new(policy), "belay.v1.PolicyService", FILE_DESCRIPTOR_SET);
    HostedServices::new(Routes::new(approvals), "belay.v1.ApprovalService", FILE_DESCRIPTOR_SET)
        .and(policy)
        .with_metrics(measured)
}

/// `ApprovalGateService`, for the listener for services, with store positions in requests and responses.
pub fn hosted_for_services(gate: Arc<Gate>) -> HostedServices {
    let stores = Arc::clone(gate.store.stores());
    let service = ApprovalGateServiceServer::new(GateService { gate })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    HostedServices::new(Routes::new(service), "belay.gate.v1.ApprovalGateService", FILE_DESCRIPTOR_SET)
        .with_stores(stores)
}

struct PeopleService {
    gate: Arc<Gate>,
}

#[tonic::async_trait]
impl ApprovalService for PeopleService {
    type WatchApprovalsStream = Messages<v1::WatchApprovalsResponse>;

    async fn get_approval(&self, request: Request<v1::GetApprovalRequest>) -> Result<Response<v1::Approval>, Status> {
        get_approval::get_approval(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        list_approvals::list_approvals(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn watch_approvals(
        &self,
        request: Request<v1::WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        let caller = Principal::of(&request)?;
        watch_approvals::watch_approvals(&self.gate, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_approval_changes(
        &self,
        request: Request<v1::ListApprovalChangesRequest>,
    ) -> Result<Response<v1::ListApprovalChangesResponse>, Status> {
        list_approval_changes::list_approval_changes(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn get_approval_change(
        &self,
        request: Request<v1::GetApprovalChangeRequest>,
    ) -> Result<Response<v1::GetApprovalChangeResponse>, Status> {
        let by = Principal::of(&request)?;
        get_approval_change::get_approval_change(&self.gate, &by, request.into_inner()).await.map(Response::new)
    }

    async fn decide_approval(
        &self,
        request: Request<v1::DecideApprovalRequest>,
    ) -> Result<Response<v1::Approval>, Status> {
        let by = Principal::of(&request)?;
        let span = self.gate.begin_request("belay.v1.ApprovalService/DecideApproval", request.metadata());
        let answer = decide_approval::decide_approval(&self.gate, by, request.into_inner()).await;
        self.decided(span, answer)
    }

    async fn answer_form(&self, request: Request<v1::AnswerFormRequest>) -> Result<Response<v1::Approval>, Status> {
        let by = Principal::of(&request)?;
        let span = self.gate.begin_request("belay.v1.ApprovalService/AnswerForm", request.metadata());
        let answer = answer_form::answer_form(&self.gate, by, request.into_inner()).await;
        self.decided(span, answer)
    }
}

impl PeopleService {
    /// The reply to a person's decision or answer, with its span.
    fn decided(
        &self,
        mut span: RpcSpan,
        answer: Result<v1::Approval, Status>,
    ) -> Result<Response<v1::Approval>, Status> {
        // It belongs to the execution's trace; the person's own trace is only linked.
        let asked = answer.as_ref().ok().and_then(|approval| approval.trace.as_ref());
        if let Some(asked) = asked.and_then(|trace| TraceContext::parse(&trace.traceparent, &trace.tracestate).ok()) {
            span.belongs_to(asked);
        }
        self.gate.end_request(span, &answer);
        answer.map(Response::new)
    }
}

#[tonic::async_trait]
impl PolicyService for PeopleService {
    async fn get_policy(&self, _: Request<v1::GetPolicyRequest>) -> Result<Response<v1::SignedPolicy>, Status> {
        Ok(Response::new(self.gate.policy().signed.clone()))
    }
}

struct GateService {
    gate: Arc<Gate>,
}

#[tonic::async_trait]
impl ApprovalGateService for GateService {
    type WatchDecisionsStream = Messages<gate_v1::WatchDecisionsResponse>;
    type WatchPolicyStream = Messages<gate_v1::WatchPolicyResponse>;

    async fn create_approval(
        &self,
        request: Request<gate_v1::CreateApprovalRequest>,
    ) -> Result<Response<v1::Approval>, Status> {
        let span = self.gate.begin_request("belay.gate.v1.ApprovalGateService/CreateApproval", request.metadata());
        let trace = TraceContext::of(request.metadata());
        let answer = create_approval::create_approval(&self.gate, request.into_inner(), trace).await;
        self.gate.end_request(span, &answer);
        answer.map(Response::new)
    }

    async fn list_pending_approvals(
        &self,
        request: Request<gate_v1::ListPendingApprovalsRequest>,
    ) -> Result<Response<gate_v1::ListPendingApprovalsResponse>, Status> {
        list_pending_approvals::list_pending_approvals(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn watch_decisions(
        &self,
        request: Request<gate_v1::WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        let caller = Principal::of(&request)?;
        watch_decisions::watch_decisions(&self.gate, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn cancel_approval(
        &self,
        request: Request<gate_v1::CancelApprovalRequest>,
    ) -> Result<Response<v1::Approval>, Status> {
        cancel_approval::cancel_approval(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn acknowledge_approvals(
        &self,
        request: Request<gate_v1::AcknowledgeApprovalsRequest>,
    ) -> Result<Response<gate_v1::AcknowledgeApprovalsResponse>, Status> {
        acknowledge_approvals::acknowledge_approvals(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn forget_executions(
        &self,
        request: Request<gate_v1::ForgetExecutionsRequest>,
    ) -> Result<Response<gate_v1::ForgetExecutionsResponse>, Status> {
        forget_executions::forget_executions(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn get_grant(
        &self,
        request: Request<gate_v1::GetGrantRequest>,
    ) -> Result<Response<runner_v1::Grant>, Status> {
        get_grant::get_grant(&self.gate, request.into_inner()).await.map(Response::new)
    }

    async fn watch_policy(
        &self,
        _: Request<gate_v1::WatchPolicyRequest>,
    ) -> Result<Response<Self::WatchPolicyStream>, Status> {
        Ok(Response::new(watch_policy::watch_policy(&self.gate)))
    }

    async fn get_verification_keys(
        &self,
        _: Request<gate_v1::GetVerificationKeysRequest>,
    ) -> Result<Response<gate_v1::GetVerificationKeysResponse>, Status> {
        let key = |(id, key): (&str, &belay_grant::VerifyingKey)| gate_v1::VerificationKey {
            key_id: id.into(),
            public_key: key.as_bytes().to_vec(),
        };
        Ok(Response::new(gate_v1::GetVerificationKeysResponse { keys: self.gate.keys.iter().map(key).collect() }))
    }
}
