//! Requests approvals and answers again that the gate has lost, one after the other.

use std::sync::Arc;

use belay_execution::{OperationKey, RequiredAction};
use belay_proto::gate_v1;
use belay_service_kit::{Retry, status};
use belay_telemetry::TraceContext;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::{
    approvals::{
        form_request::is_about_the_form,
        gate::{self, GateError},
    },
    owned::registry::ExecutionRegistry,
    runners::operation::{OperationHandle, ReportFault, Update},
};

/// Requests of one execution that the gate has lost.
pub(crate) struct RequestAgain {
    pub(crate) registry: Arc<ExecutionRegistry>,
    /// Distinguishes it from the one that it replaces.
    pub(crate) number: u32,
    /// For each operation, the request and its span.
    pub(crate) missing: Vec<(OperationKey, gate_v1::CreateApprovalRequest, TraceContext)>,
    /// Limits how many executions do this at the same time.
    pub(crate) turn: Arc<OwnedSemaphorePermit>,
    pub(crate) updates: mpsc::UnboundedSender<Update>,
}

impl RequestAgain {
    pub(crate) fn start(self) -> OperationHandle {
        let fault = self.missing.first().map(|(key, ..)| ReportFault::new(&self.updates, *key));
        let task = tokio::spawn(async move {
            let _fault = fault;
            self.run().await;
        });
        OperationHandle::new(RequiredAction::RequestApproval, task.abort_handle())
    }

    async fn run(self) {
        let Self { registry, number, missing, turn, updates } = self;
        for (key, request, trace) in missing {
            let mut retry = Retry::RPC;
            loop {
                match registry.gate.create(request.clone(), &trace).await {
                    Ok(approval) => {
                        // An error means that the driver has ended. The answer to a form comes with the decisions.
                        drop(updates.send(Update::ApprovalRequested(key, Box::new(approval))));
                        break;
                    }
                    Err(GateError::Refused(status)) if gate::is_fenced(&status) => {
                        return drop(updates.send(Update::Fenced));
                    }
                    Err(GateError::Refused(status)) if !request.form.is_empty() && is_about_the_form(&status) => {
                        drop(updates.send(Update::FormRefused(key, status.message().to_owned())));
                        break;
                    }
                    Err(GateError::Refused(status)) => {
                        tracing::warn!(call = request.call, %status, "The approval gate rejects the approval of a waiting call");
                        break;
                    }
                    Err(GateError::Unavailable(status) | GateError::Busy(status)) => {
                        tracing::debug!(%status, "The approval gate does not answer, asking again");
                        retry.at_least(status::retry_after(&status).unwrap_or_default());
                    }
                }
                retry.pause(&registry.ids).await;
            }
        }
        drop(turn);
        drop(updates.send(Update::RequestedAgain(number)));
    }
}
