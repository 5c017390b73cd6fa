use std::future::pending;

use belay_proto::runner_v1;
use belay_service_kit::{
    Shutdown,
    watch::{Wake, heartbeat_interval, wake},
};
use tonic::Status;

use super::follow::{Messages, stopping};
use crate::Calls;

/// The number of names per message.
const NAMES_PER_MESSAGE: usize = 1000;

pub(super) fn watch_unacknowledged_tool_calls(
    calls: &Calls,
    request: &runner_v1::WatchUnacknowledgedToolCallsRequest,
    shutdown: Shutdown,
) -> Result<Messages<runner_v1::WatchUnacknowledgedToolCallsResponse>, Status> {
    let heartbeat = heartbeat_interval(request.heartbeat_interval.as_ref())?;
    let names = calls.unacknowledged();
    Ok(Box::pin(async_stream::try_stream! {
        for page in names.chunks(NAMES_PER_MESSAGE) {
            yield runner_v1::WatchUnacknowledgedToolCallsResponse { names: page.to_vec() };
        }
        loop {
            yield runner_v1::WatchUnacknowledgedToolCallsResponse::default();
            if wake(pending(), &shutdown, heartbeat).await == Wake::Stopping {
                Err(stopping())?;
            }
        }
    }))
}
