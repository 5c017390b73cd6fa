//! Sends notices to the gate, in order, until it has accepted them.
//!
//! Notices are not stored. What they say follows from the journal: which approvals and forms nothing waits for, by `compare`; how a decision was
//! used, by `outcome`, when the gate sends it again. So a notice that is lost with the process, or that finds the queue full, is found out again.
//!
//! An executor that another has replaced sends none, and the gate refuses those that it sent before it knew: what it takes for superfluous, the other
//! may be waiting for.

use std::sync::Arc;

use belay_proto::gate_v1;
use belay_service_kit::{Ids, Retry};

use crate::{
    approvals::gate::{Gate, GateError},
    owned::{messages::GateNotice, ownership::Ownership, queue::QueueReceiver},
};

/// How many are sent together: a list of names has at most as many.
const BATCH: usize = 1_000;

/// Sends what is queued, until the service stops.
pub(crate) async fn run(notices: Arc<QueueReceiver<GateNotice>>, gate: Gate, ids: Arc<Ids>, ownership: Ownership) {
    let fencing_token = ownership.token();
    let (gate, sender) = (&gate, &Sender { ids, ownership });
    let (mut notices, mut batch) = (notices.messages().await, Vec::new());
    while notices.take(&mut batch, BATCH).await {
        let nothing = gate_v1::AcknowledgeApprovalsRequest { fencing_token, ..Default::default() };
        let mut acknowledged = nothing.clone();
        for notice in batch.drain(..) {
            match notice {
                GateNotice::Delivered(name) => acknowledged.delivered.push(name),
                GateNotice::Consumed(name) => acknowledged.consumed.push(name),
                GateNotice::Stale(name) => acknowledged.stale.push(name),
                GateNotice::Cancel(name) => sender.until_accepted(|| gate.cancel(name.clone(), fencing_token)).await,
                GateNotice::Withdraw { execution, call } => {
                    sender.until_accepted(|| withdraw(gate, &execution, &call, fencing_token)).await;
                }
            }
        }
        if acknowledged != nothing {
            sender.until_accepted(|| gate.acknowledge(acknowledged.clone())).await;
        }
    }
}

async fn withdraw(gate: &Gate, execution: &str, call: &str, fencing_token: i64) -> Result<(), GateError> {
    for name in gate.pending_for_call(execution, call).await? {
        gate.cancel(name, fencing_token).await?;
    }
    Ok(())
}

/// Sends one notice.
struct Sender {
    ids: Arc<Ids>,
    ownership: Ownership,
}

impl Sender {
    async fn until_accepted<F: Future<Output = Result<(), GateError>>>(&self, send: impl Fn() -> F) {
        let mut retry = Retry::RPC;
        while self.ownership.is_still_owner().await {
            match send().await {
                Ok(()) => return,
                Err(GateError::Refused(status)) => {
                    tracing::warn!(%status, "The approval gate rejects a notice");
                    return;
                }
                Err(GateError::Unavailable(status) | GateError::Busy(status)) => {
                    tracing::debug!(%status, "The approval gate is not available; retrying a notice");
                    retry.pause(&self.ids).await;
                }
            }
        }
    }
}
