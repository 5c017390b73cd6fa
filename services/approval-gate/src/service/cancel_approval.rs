use belay_proto::{gate_v1, v1::Approval};
use tonic::Status;

use crate::{
    Gate,
    gate::{no_approval, unwritable},
    names::check_approval,
};

pub(super) async fn cancel_approval(gate: &Gate, request: gate_v1::CancelApprovalRequest) -> Result<Approval, Status> {
    check_approval("name", &request.name)?;
    let cancelled = gate.store.cancel(&request.name, gate.clock.now_micros(), request.fencing_token).await;
    cancelled.map_err(|error| unwritable(&error))??.ok_or_else(|| no_approval(&request.name))
}
