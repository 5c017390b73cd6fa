use std::sync::Arc;

use belay_proto::runner_v1;
use tonic::Status;

use super::checks::check_name;
use crate::Calls;

pub(super) async fn commit_effect(
    calls: &Arc<Calls>,
    request: runner_v1::CommitEffectRequest,
) -> Result<runner_v1::ToolCall, Status> {
    check_name(&request.name)?;
    calls.admit(request.fence).await?;
    calls.commit_effect(&request.name, request.grant).await.map(Arc::unwrap_or_clone)
}
