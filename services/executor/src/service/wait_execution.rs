use std::{pin::pin, sync::Arc, time::Duration};

use belay_proto::v1::{self, ExecutionView};
use belay_reasons as reasons;
use belay_service_kit::{Principal, status};
use tokio::sync::watch;
use tonic::{Code, Status};

use super::{get_execution::show, watch_execution::is_terminal};
use crate::{ExecutionReader, feeds::End, names::ExecutionName};

/// The longest wait, which is also the default.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Returns the execution when it has ended, or as it is when the wait has lasted as long as it may, and never before either.
pub(super) async fn wait_execution(
    reading: &Arc<ExecutionReader>,
    caller: &Principal,
    request: v1::WaitExecutionRequest,
) -> Result<v1::Execution, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    let longest = match &request.longest_wait {
        None => MAX_WAIT,
        Some(wait) => belay_proto::to_duration(wait)
            .ok_or_else(|| Status::from(status::invalid("longest_wait", "must not be negative")))?
            .min(MAX_WAIT),
    };
    let _taken = reading.watchers.take_for(caller)?;
    let mut is_over = pin!(tokio::time::sleep(longest));
    let row = reading.follower.find(&name).await?;
    let feed = reading.feed(row.key);
    let mut end = feed.subscribe_end();
    loop {
        // Read after the subscription, so that an end in between is not missed.
        if reading.follower.find(&name).await?.summary.ended {
            let execution = show(reading, &name, ExecutionView::Basic).await?;
            // It may have been retried since its row was read.
            if is_terminal(execution.state()) {
                return Ok(execution);
            }
        }
        tokio::select! {
            biased;
            () = reading.shutdown.requested() => {
                let stopping = status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry.");
                return Err(stopping.into());
            }
            () = is_over.as_mut() => return show(reading, &name, ExecutionView::Basic).await,
            shown = shown(&mut end) => {
                if let Some(shown) = shown {
                    return Ok(Arc::unwrap_or_clone(shown));
                }
            }
        }
    }
}

/// Waits for the end, and returns the execution if its commit brought it along.
async fn shown(end: &mut watch::Receiver<Option<End>>) -> Option<Arc<v1::Execution>> {
    end.wait_for(Option::is_some).await.ok()?.as_ref()?.shown.clone()
}
