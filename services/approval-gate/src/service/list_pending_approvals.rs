use belay_proto::{gate_v1, v1};
use tonic::Status;

use super::list_approvals::{Page, page};
use crate::{Gate, names::parent, store::Filter};

pub(super) async fn list_pending_approvals(
    gate: &Gate,
    request: gate_v1::ListPendingApprovalsRequest,
) -> Result<gate_v1::ListPendingApprovalsResponse, Status> {
    let filter = Filter {
        namespace: parent(&request.parent)?,
        execution: request.execution,
        states: vec![v1::approval::State::Pending.into()],
        id_prefix: String::new(),
    };
    let Page { approvals, next_page_token } = page(gate, filter, request.page_size, &request.page_token).await?;
    Ok(gate_v1::ListPendingApprovalsResponse { approvals, next_page_token })
}
