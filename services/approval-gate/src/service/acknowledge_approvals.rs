use belay_proto::gate_v1;
use belay_service_kit::status;
use tonic::Status;

use crate::{Gate, gate::unwritable, names::check_approval};

/// The maximum number of names in one list.
const MAX_NAMES: usize = 1_000;

pub(super) async fn acknowledge_approvals(
    gate: &Gate,
    request: gate_v1::AcknowledgeApprovalsRequest,
) -> Result<gate_v1::AcknowledgeApprovalsResponse, Status> {
    let lists = [("delivered", &request.delivered), ("consumed", &request.consumed), ("stale", &request.stale)];
    for (field, names) in lists {
        if names.len() > MAX_NAMES {
            return Err(status::invalid(field, format!("has more than {MAX_NAMES} names")).into());
        }
        names.iter().try_for_each(|name| check_approval(field, name))?;
    }
    gate.store.acknowledge(request).await.map_err(|error| unwritable(&error))??;
    Ok(gate_v1::AcknowledgeApprovalsResponse {})
}
