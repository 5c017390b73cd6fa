use std::sync::Arc;

use belay_proto::v1;
use tonic::Status;

use crate::ExecutionRegistry;

pub(super) async fn list_capabilities(
    registry: &Arc<ExecutionRegistry>,
) -> Result<v1::ListCapabilitiesResponse, Status> {
    let catalogue = registry.runner.catalogue(true).await?;
    Ok(v1::ListCapabilitiesResponse { tools: catalogue.tools.clone(), step_kinds: vec!["tool".into()] })
}
