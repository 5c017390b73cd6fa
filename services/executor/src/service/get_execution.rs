use std::sync::Arc;

use belay_proto::v1::{self, ExecutionView};
use tonic::Status;

use crate::{ExecutionReader, names::ExecutionName};

pub(super) async fn get_execution(
    reading: &Arc<ExecutionReader>,
    request: v1::GetExecutionRequest,
) -> Result<v1::Execution, Status> {
    let name = ExecutionName::parse("name", &request.name)?;
    show(reading, &name, request.view()).await
}

/// Shows an execution, and which services that it needs are unavailable, whether or not one of its calls has tried them.
pub(super) async fn show(
    reading: &ExecutionReader,
    name: &ExecutionName,
    view: ExecutionView,
) -> Result<v1::Execution, Status> {
    let mut execution = reading.follower.look(name, |seen| seen.execution(view)).await?;
    reading.availability.add_to(&mut execution);
    Ok(execution)
}
