use std::sync::Arc;

use belay_proto::gate_v1::{self, watch_decisions_response::Content};
use belay_proto::v1::{self, approval::State};
use belay_service_kit::{Principal, watch::heartbeat_interval};
use futures::StreamExt as _;
use tonic::Status;

use super::{
    messages::Messages,
    watch_approvals::{Update, watch},
};
use crate::{Gate, gate::unreadable, store::Filter};

pub(super) async fn watch_decisions(
    gate: &Arc<Gate>,
    caller: &Principal,
    request: gate_v1::WatchDecisionsRequest,
) -> Result<Messages<gate_v1::WatchDecisionsResponse>, Status> {
    let heartbeat = heartbeat_interval(request.heartbeat_interval.as_ref())?;
    let updates = watch(gate, caller, Filter::default(), true, 0, heartbeat).await?;
    let gate = Arc::clone(gate);
    Ok(Box::pin(updates.then(move |update| {
        let gate = Arc::clone(&gate);
        async move {
            let (content, answer) = match update? {
                Update::Approval(approval) => {
                    let answer = answer(&gate, &approval).await?;
                    (Content::Approval(*approval), answer)
                }
                Update::Listed(_) | Update::Quiet(_) => (Content::Heartbeat(gate_v1::WatchDecisionsHeartbeat {}), None),
            };
            Ok(gate_v1::WatchDecisionsResponse { content: Some(content), answer })
        }
    })))
}

/// The answer to a form; `None` for a decision, and for an answer that was acknowledged meanwhile.
async fn answer(gate: &Gate, approval: &v1::Approval) -> Result<Option<v1::Payload>, Status> {
    if approval.state() != State::Answered {
        return Ok(None);
    }
    let sealed = gate.store.sealed_answer(&approval.name).await.map_err(|error| unreadable(&error))?;
    Ok(sealed.and_then(|sealed| gate.answer_key.open(&approval.name, &sealed)).map(v1::Payload::of_json))
}
