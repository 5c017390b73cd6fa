use std::time::Duration;

use belay_proto::v1;
use belay_service_kit::{Shutdown, status};
use tonic::Status;

use super::{Messages, stopping};
use crate::Calls;

/// How many names go into one message.
const PAGE: usize = 1000;

pub(super) fn watch_unacknowledged_tool_calls(
    calls: &Calls,
    request: &v1::WatchUnacknowledgedToolCallsRequest,
    shutdown: Shutdown,
) -> Result<Messages<v1::WatchUnacknowledgedToolCallsResponse>, Status> {
    let heartbeat = match &request.heartbeat_interval {
        None => Duration::from_secs(15),
        Some(interval) => belay_proto::to_duration(interval)
            .filter(|interval| (Duration::from_millis(100)..=Duration::from_secs(600)).contains(interval))
            .ok_or_else(|| {
                Status::from(status::invalid("heartbeat_interval", "must be between 100 ms and 10 minutes"))
            })?,
    };
    let names = calls.unacknowledged();
    Ok(Box::pin(async_stream::try_stream! {
        for page in names.chunks(PAGE) {
            yield v1::WatchUnacknowledgedToolCallsResponse { names: page.to_vec() };
        }
        loop {
            yield v1::WatchUnacknowledgedToolCallsResponse::default();
            if tokio::time::timeout(heartbeat, shutdown.requested()).await.is_ok() {
                Err(stopping())?;
            }
        }
    }))
}
