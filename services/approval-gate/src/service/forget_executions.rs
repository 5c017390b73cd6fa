use belay_proto::gate_v1;
use belay_service_kit::status;
use tonic::Status;

use crate::{
    Gate,
    gate::{log_in_use, unwritable},
    names::check_execution,
};

/// The maximum number of executions in one request.
const MAX_EXECUTIONS: usize = 100;

pub(super) async fn forget_executions(
    gate: &Gate,
    request: gate_v1::ForgetExecutionsRequest,
) -> Result<gate_v1::ForgetExecutionsResponse, Status> {
    let executions = request.executions;
    if executions.len() > MAX_EXECUTIONS {
        return Err(status::invalid("executions", format!("has more than {MAX_EXECUTIONS} names")).into());
    }
    executions.iter().try_for_each(|name| check_execution("executions", name))?;
    match gate.store.forget(executions).await.map_err(|error| unwritable(&error))? {
        true => Ok(gate_v1::ForgetExecutionsResponse {}),
        false => Err(log_in_use()),
    }
}
