use std::sync::Arc;

use belay_proto::v1;
use tonic::Status;

use super::list_executions::{DEFAULT_PAGE_SIZE, page_size};
use crate::{ExecutionReader, store::journal_reads::unreadable};

pub(super) async fn list_namespaces(
    reading: &Arc<ExecutionReader>,
    request: v1::ListNamespacesRequest,
) -> Result<v1::ListNamespacesResponse, Status> {
    let size = page_size(request.page_size, DEFAULT_PAGE_SIZE)?;
    // The token is the last namespace of the previous page.
    let after = request.page_token;
    let read = reading.follower.read(move |reader| reader.namespaces(&after, size + 1)).await;
    let mut found = read.map_err(|error| unreadable(&error))?;
    let more = found.len() > size;
    found.truncate(size);
    let next_page_token = found.last().filter(|_| more).cloned().unwrap_or_default();
    let namespaces = found.into_iter().map(|id| v1::Namespace { name: format!("namespaces/{id}") }).collect();
    Ok(v1::ListNamespacesResponse { namespaces, next_page_token })
}
