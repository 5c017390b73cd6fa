use std::sync::Arc;

use belay_proto::runner_v1;
use belay_service_kit::{names::check_execution, status};
use tonic::Status;

use crate::Calls;

/// The maximum number of executions in one request.
const MAX_EXECUTIONS: usize = 100;

pub(super) async fn forget_executions(
    calls: &Arc<Calls>,
    request: runner_v1::ForgetExecutionsRequest,
) -> Result<runner_v1::ForgetExecutionsResponse, Status> {
    let executions = request.executions;
    if executions.len() > MAX_EXECUTIONS {
        return Err(status::invalid("executions", format!("has more than {MAX_EXECUTIONS} entries")).into());
    }
    for execution in &executions {
        check_execution("executions.name", &execution.name)?;
        calls.admit(execution.fence).await?;
    }
    // At the same time, so that the ledger deletes them with few commits.
    let forgetting =
        executions.into_iter().map(|runner_v1::DeletedExecution { name, fence, made_folder }| async move {
            match calls.forget_execution(&name, made_folder.as_ref(), fence.unwrap_or_default().token).await {
                Ok(()) => Some(name),
                Err(status) => {
                    tracing::warn!(execution = name, %status, "A deleted execution cannot be forgotten now");
                    None
                }
            }
        });
    let forgotten = futures::future::join_all(forgetting).await.into_iter().flatten().collect();
    Ok(runner_v1::ForgetExecutionsResponse { forgotten })
}
