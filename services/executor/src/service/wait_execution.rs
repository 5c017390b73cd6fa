use std::{sync::Arc, time::Duration};

use belay_proto::v1::{self, ExecutionView};
use belay_service_kit::status;
use tonic::Status;

use super::get_execution::show;
use crate::{ExecutionRegistry, names::ExecutionName};

/// The longest wait, which is also the default.
const MAX_WAIT: Duration = Duration::from_secs(60);

pub(super) async fn wait_execution(
    registry: &Arc<ExecutionRegistry>,
    request: v1::WaitExecutionRequest,
) -> Result<v1::Execution, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    let longest = match &request.longest_wait {
        None => MAX_WAIT,
        Some(wait) => belay_proto::to_duration(wait)
            .ok_or_else(|| Status::from(status::invalid("longest_wait", "must not be negative")))?
            .min(MAX_WAIT),
    };
    let _taken = registry.watchers.take()?;
    let row = registry.client_reads.find(&name).await?;
    // Subscribed before the row is read again, so that an end in between is not missed.
    let feed = registry.feed(row.key);
    let mut end = feed.subscribe_end();
    if registry.client_reads.find(&name).await?.summary.ended {
        return show(registry, &name, ExecutionView::Basic).await;
    }
    tokio::select! {
        biased;
        Ok(ended) = end.wait_for(Option::is_some) => {
            let ended = ended.clone().expect("waited for");
            return Ok(Arc::unwrap_or_clone(ended));
        }
        () = registry.shutdown.requested() => {}
        () = tokio::time::sleep(longest) => {}
    }
    show(registry, &name, ExecutionView::Basic).await
}
