use belay_proto::v1::{self, Approval};
use tonic::Status;

use crate::{
    Gate,
    gate::{no_approval, unreadable},
    names::check_approval,
};

pub(super) async fn get_approval(gate: &Gate, request: v1::GetApprovalRequest) -> Result<Approval, Status> {
    check_approval("name", &request.name)?;
    gate.expire_due().await?;
    let found = match request.view() {
        v1::ApprovalView::Basic => gate.store.get(&request.name).await,
        v1::ApprovalView::Full | v1::ApprovalView::Unspecified => gate.store.get_full(&request.name).await,
    };
    found.map_err(|error| unreadable(&error))?.ok_or_else(|| no_approval(&request.name))
}
