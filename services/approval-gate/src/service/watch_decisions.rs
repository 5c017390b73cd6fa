use std::sync::Arc;

use belay_proto::gate_v1::{self, watch_decisions_response::Content};
use belay_service_kit::watch::heartbeat_interval;
use futures::StreamExt as _;
use tonic::Status;

use super::{
    Messages,
    watch_approvals::{Update, watch},
};
use crate::{Gate, store::Filter};

pub(super) async fn watch_decisions(
    gate: &Arc<Gate>,
    request: gate_v1::WatchDecisionsRequest,
) -> Result<Messages<gate_v1::WatchDecisionsResponse>, Status> {
    let heartbeat = heartbeat_interval(request.heartbeat_interval.as_ref())?;
    let updates = watch(gate, Filter::default(), true, 0, heartbeat).await?;
    Ok(Box::pin(updates.map(|update| {
        let content = match update? {
            Update::Approval(approval) => Content::Approval(*approval),
            // A watch without a cursor is never reset.
            Update::Quiet(_) | Update::Reset(_) => Content::Heartbeat(gate_v1::WatchDecisionsHeartbeat {}),
        };
        Ok(gate_v1::WatchDecisionsResponse { content: Some(content) })
    })))
}
