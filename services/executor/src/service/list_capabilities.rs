use std::sync::Arc;

use belay_proto::v1;
use tonic::Status;

use crate::Executions;

pub(super) async fn list_capabilities(executions: &Arc<Executions>) -> Result<v1::ListCapabilitiesResponse, Status> {
    let catalogue = executions.runner.catalogue(true).await?;
    Ok(v1::ListCapabilitiesResponse { tools: catalogue.tools.clone(), step_kinds: vec!["tool".into()] })
}
