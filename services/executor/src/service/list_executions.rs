use std::sync::Arc;

use belay_journal::{ExecutionKey, Filter};
use belay_proto::v1;
use belay_service_kit::status;
use tonic::Status;

use crate::{ExecutionRegistry, names::namespace, registry::unreadable, wire};

/// How many entries a page has where the request says so many.
pub(super) fn page_size(requested: i32) -> Result<usize, Status> {
    match requested {
        0 => Ok(50),
        size => match usize::try_from(size) {
            Ok(size) => Ok(size.min(1000)),
            Err(_) => Err(status::invalid("page_size", "must not be negative").into()),
        },
    }
}

pub(super) async fn list_executions(
    registry: &Arc<ExecutionRegistry>,
    request: v1::ListExecutionsRequest,
) -> Result<v1::ListExecutionsResponse, Status> {
    let size = page_size(request.page_size)?;
    // The token is the key of the last row of the previous page.
    let before = match request.page_token.as_str() {
        "" => None,
        token => {
            let wrong =
                || Status::from(status::invalid("page_token", "is not valid: use the next_page_token of a response"));
            Some(ExecutionKey(token.parse().map_err(|_| wrong())?))
        }
    };
    let filter = Filter {
        namespace: namespace("parent", &request.parent)?,
        states: request.states,
        labels: registry.vault.labels(request.labels),
        created_since: request.created_since.as_ref().map(belay_proto::micros),
        id_prefix: request.id_prefix,
        before,
        limit: size + 1,
    };
    let mut rows = registry.read(move |reader| reader.list(&filter)).await.map_err(|error| unreadable(&error))?;
    let more = rows.len() > size;
    rows.truncate(size);
    let next_page_token = rows.last().filter(|_| more).map(|row| row.key.0.to_string()).unwrap_or_default();
    Ok(v1::ListExecutionsResponse { executions: rows.iter().map(wire::basic).collect(), next_page_token })
}
