use std::sync::Arc;

use belay_proto::v1::{self, ExecutionView};
use tonic::Status;

use crate::{ExecutionRegistry, names::ExecutionName};

pub(super) async fn get_execution(
    registry: &Arc<ExecutionRegistry>,
    request: v1::GetExecutionRequest,
) -> Result<v1::Execution, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    show(registry, &name, request.view()).await
}

/// Shows an execution, and which services that it needs are unavailable, whether or not one of its calls has tried them.
pub(super) async fn show(
    registry: &ExecutionRegistry,
    name: &ExecutionName,
    view: ExecutionView,
) -> Result<v1::Execution, Status> {
    let mut execution = registry.follower.look(name, |seen| seen.execution(view)).await?;
    registry.availability.add_to(&mut execution);
    Ok(execution)
}
