use std::{sync::Arc, time::Duration};

use belay_proto::gate_v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::Code;

use super::messages::Messages;
use crate::Gate;

/// The interval of heartbeats while nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) fn watch_policy(gate: &Arc<Gate>) -> Messages<gate_v1::WatchPolicyResponse> {
    let (mut policies, shutdown) = (gate.follow_policy(), gate.shutdown.clone());
    Box::pin(async_stream::stream! {
        policies.mark_changed();
        loop {
            let policy = tokio::select! {
                biased;
                () = shutdown.requested() => {
                    yield Err(status::error(Code::Unavailable, reasons::STOPPING, "The gate is stopping; watch again.").into());
                    return;
                }
                changed = policies.changed() => match changed {
                    Ok(()) => Some(policies.borrow_and_update().signed.clone()),
                    Err(_) => return,
                },
                () = tokio::time::sleep(HEARTBEAT) => None,
            };
            yield Ok(gate_v1::WatchPolicyResponse { policy });
        }
    })
}
