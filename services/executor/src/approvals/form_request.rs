//! Requests the answer to a form from the gate, until the gate has it.

use std::sync::Arc;

use belay_execution::{Form, OperationKey, RequiredAction};
use belay_proto::{gate_v1, v1};
use belay_service_kit::{Retry, status};
use belay_telemetry::TraceContext;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::{
    approvals::gate::{self, GateError},
    owned::registry::ExecutionRegistry,
    runners::operation::{Busy, OperationHandle, ReportFault, Update},
};

/// The request of the executor with this fencing token to the gate, for a form of an execution that waits for a person. The same form is the same
/// request: the gate derives its name from the wait's name and the digest.
pub(crate) fn create_request(
    wait: String,
    form: &Form,
    requested_by: String,
    fencing_token: i64,
) -> gate_v1::CreateApprovalRequest {
    gate_v1::CreateApprovalRequest {
        call: wait,
        subject_digest: form.subject_digest.clone(),
        requested_by,
        approval_mode: v1::ApprovalMode::Wait.into(),
        form: form.subject().as_str().as_bytes().to_vec(),
        request_reason: String::new(),
        fencing_token,
    }
}

/// The request for one form.
pub(crate) struct FormRequest {
    pub(crate) registry: Arc<ExecutionRegistry>,
    /// The wait.
    pub(crate) key: OperationKey,
    pub(crate) request: gate_v1::CreateApprovalRequest,
    /// The span of the wait's attempt.
    pub(crate) trace: TraceContext,
    pub(crate) updates: mpsc::UnboundedSender<Update>,
}

impl FormRequest {
    pub(crate) fn start(self) -> OperationHandle {
        let fault = ReportFault::new(&self.updates, self.key);
        let task = tokio::spawn(async move {
            let _fault = fault;
            self.run().await;
        });
        OperationHandle::new(RequiredAction::RequestApproval, task.abort_handle())
    }

    async fn run(self) {
        let mut retry = Retry::RPC;
        loop {
            let update = match self.registry.gate.create(self.request.clone(), &self.trace).await {
                Ok(approval) => {
                    // An error means that the driver has ended.
                    return drop(self.updates.send(Update::ApprovalRequested(self.key, Box::new(approval))));
                }
                Err(GateError::Busy(status)) => {
                    retry.at_least(status::retry_after(&status).unwrap_or_default());
                    Update::Busy(self.key, Busy::Gate)
                }
                Err(GateError::Unavailable(status)) => {
                    tracing::debug!(wait = self.request.call, %status, "The approval gate does not answer, asking again");
                    Update::GateUnavailable
                }
                Err(GateError::Refused(status)) if gate::is_fenced(&status) => {
                    return drop(self.updates.send(Update::Fenced));
                }
                Err(GateError::Refused(status)) if is_about_the_form(&status) => {
                    return drop(self.updates.send(Update::FormRefused(self.key, status.message().to_owned())));
                }
                // The operator can correct it: the executor's token, for example.
                Err(GateError::Refused(status)) => {
                    tracing::warn!(wait = self.request.call, %status, "The approval gate rejects a form; asking again");
                    Update::GateUnavailable
                }
            };
            if self.updates.send(update).is_err() {
                return;
            }
            retry.pause(&self.registry.ids).await;
        }
    }
}

/// Whether the gate refuses the request itself, which stays the same.
pub(crate) fn is_about_the_form(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition)
}
