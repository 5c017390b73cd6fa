use std::sync::Arc;

use belay_proto::{
    runner_v1,
    v1::{self, ErrorClass},
};
use belay_reasons as reasons;
use tonic::Status;

use super::checks::check_name;
use crate::Calls;

pub(super) async fn discard_effect(
    calls: &Arc<Calls>,
    request: runner_v1::DiscardEffectRequest,
) -> Result<runner_v1::ToolCall, Status> {
    check_name(&request.name)?;
    calls.admit(request.fence).await?;
    let why = request.failure.unwrap_or_else(|| v1::Failure {
        error_class: ErrorClass::ApprovalDenied.into(),
        message: "The call was not approved.".into(),
        reason: reasons::APPROVAL_DENIED.into(),
        ..v1::Failure::default()
    });
    calls.discard_effect(&request.name, why).await.map(Arc::unwrap_or_clone)
}
