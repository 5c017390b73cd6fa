use std::sync::Arc;

use belay_proto::v1;
use tonic::Status;

use super::list_executions::{DEFAULT_PAGE_SIZE, page_size};
use crate::{
    ExecutionReader,
    owned::namespace_usage::{budget_of, current_window},
    store::journal_reads::unreadable,
    wire,
};

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
    let mut namespaces = Vec::with_capacity(found.len());
    for id in found {
        let usage = usage(reading, &id).await?;
        namespaces.push(v1::Namespace { name: format!("namespaces/{id}"), usage });
    }
    Ok(v1::ListNamespacesResponse { namespaces, next_page_token })
}

/// How far a namespace has used its budget; `None` when it has none.
async fn usage(reading: &ExecutionReader, namespace: &str) -> Result<Option<v1::NamespaceUsage>, Status> {
    let Some(budget) = budget_of(&reading.budgets, namespace) else { return Ok(None) };
    let id = namespace.to_owned();
    let rows = reading.follower.read(move |reader| reader.usage(&id)).await.map_err(|error| unreadable(&error))?;
    let (window, amounts) = current_window(&budget, &rows, reading.now());
    Ok(Some(wire::namespace_usage(&budget, window, amounts)))
}
