use std::sync::Arc;

use belay_proto::{runner_v1, v1};
use tonic::Status;

use super::attempt_of;
use crate::Calls;

pub(super) async fn commit_effect(
    calls: &Arc<Calls>,
    request: runner_v1::CommitEffectRequest,
) -> Result<v1::ToolCall, Status> {
    attempt_of(&request.name)?;
    calls.admit(request.fence).await?;
    calls.commit_effect(&request.name, request.grant).await.map(Arc::unwrap_or_clone)
}
