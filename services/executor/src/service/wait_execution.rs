use std::{sync::Arc, time::Duration};

use belay_proto::v1;
use belay_service_kit::status;
use tonic::Status;

use super::describe;
use crate::{Executions, names::ExecutionName};

/// The longest wait, and the one that is meant when none is given.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) async fn wait_execution(
    executions: &Arc<Executions>,
    request: v1::WaitExecutionRequest,
) -> Result<v1::Execution, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    let longest = match &request.longest_wait {
        None => LONGEST,
        Some(wait) => belay_proto::to_duration(wait)
            .ok_or_else(|| Status::from(status::invalid("longest_wait", "must not be negative")))?
            .min(LONGEST),
    };
    let _taken = executions.watchers.take()?;
    let row = executions.find(&name).await?;
    // Heard before the row is read again, so that an end in between is not missed.
    let hub = executions.hub(row.key);
    let mut end = hub.end();
    if executions.find(&name).await?.standing.ended {
        return describe(executions, &name, &row).await;
    }
    tokio::select! {
        biased;
        Ok(ended) = end.wait_for(Option::is_some) => {
            let ended = ended.clone().expect("waited for");
            return Ok(Arc::unwrap_or_clone(ended));
        }
        () = executions.shutdown.requested() => {}
        () = tokio::time::sleep(longest) => {}
    }
    describe(executions, &name, &row).await
}
