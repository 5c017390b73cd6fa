//! Deletes an execution that has ended. What follows in the other services is `crate::upkeep::deletions`.

use std::{sync::Arc, time::Duration};

use belay_execution::digest;
use belay_journal::{DeleteRequest, Deletion, ExecutionRow, Refused, StoreWrite};
use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::{Principal, status};
use tonic::{Code, Request, Status};

use super::requests::{check, check_may_control};
use crate::{
    ExecutionRegistry, names::ExecutionName, owned::registry::unwritable, store::journal_reads::unreadable, wire,
};

/// How long the reply waits for the other services: they forget an execution within milliseconds, or are not available.
const MAX_WAIT: Duration = Duration::from_secs(5);

pub(super) async fn delete_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::DeleteExecutionRequest>,
) -> Result<v1::DeleteExecutionResponse, Status> {
    let caller = Principal::of(&request)?;
    let v1::DeleteExecutionRequest { name, etag, request_id } = request.into_inner();
    let name = ExecutionName::parse("name", &name)?;
    check("request_id", &request_id)?;
    let hash = digest(format!("{caller}\n{etag}").as_bytes());
    let request = DeleteRequest { id: request_id, hash };
    let row = match registry.reading.follower.find(&name).await {
        Err(missing) if missing.code() == Code::NotFound => {
            let deletion = deletion(registry, &name).await?.ok_or_else(|| missing.clone())?;
            check_repeated(&request, &deletion, missing)?;
            return Ok(v1::DeleteExecutionResponse { complete: completed(registry, &name).await? });
        }
        row => row?,
    };
    check_may_control(&caller, &row.execution.principal)?;
    if !row.summary.ended {
        return Err(not_ended(&name));
    }
    if !etag.is_empty() {
        check_etag(registry, &name, &etag).await?;
    }
    // A task of its own: a caller that disconnects after the commit must not leave the other services to the next start.
    let deleting = tokio::spawn(delete(Arc::clone(registry), name.clone(), row, request));
    deleting.await.map_err(|_| {
        Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry."))
    })??;
    tracing::info!(execution = %name, principal = %caller, "An execution was deleted");
    Ok(v1::DeleteExecutionResponse { complete: completed(registry, &name).await? })
}

async fn delete(
    registry: Arc<ExecutionRegistry>,
    name: ExecutionName,
    row: ExecutionRow,
    request: DeleteRequest,
) -> Result<(), Status> {
    let deleted_at = registry.now().as_micros();
    let delete = StoreWrite::Delete { key: row.key, deleted_at, request, fence: registry.fence(row.execution.shard) };
    match registry.commit(delete).await.map_err(|error| unwritable(&error))? {
        Ok(_) => {
            registry.deletions.wake();
            Ok(())
        }
        Err(Refused::NotEnded(_)) => Err(not_ended(&name)),
        Err(Refused::Unrecorded { .. }) => Err(unrecorded(&name, row.execution.parent_step())),
        Err(Refused::Missing(key)) => Err(unreadable(&belay_journal::StoreError::Missing(key))),
        Err(Refused::Damaged(row)) => {
            let message = format!("Nothing was deleted: {row}.");
            Err(status::error(Code::DataLoss, reasons::STORE_CORRUPT, message).into())
        }
        Err(refused) => {
            Err(status::error(Code::Aborted, reasons::FENCED, format!("Nothing was deleted: {refused}.")).into())
        }
    }
}

/// Accepts a repeated request with an id. Everything else about a deleted execution is not found.
fn check_repeated(request: &DeleteRequest, deletion: &Deletion, missing: Status) -> Result<(), Status> {
    if request.id.is_empty() || request.id != deletion.request.id {
        return Err(missing);
    }
    if request.hash != deletion.request.hash {
        let message =
            "This request id was used with another request for this execution; nothing was changed. Use a new one.";
        return Err(status::error(Code::AlreadyExists, reasons::REQUEST_ID_REUSED, message).into());
    }
    Ok(())
}

fn not_ended(name: &ExecutionName) -> Status {
    let message =
        format!("Execution `{}` has not ended and cannot be deleted: cancel it, or wait for its end.", name.id);
    status::error(Code::FailedPrecondition, reasons::EXECUTION_NOT_ENDED, message).with("name", name).into()
}

fn unrecorded(name: &ExecutionName, parent_step: Option<String>) -> Status {
    let parent = parent_step.unwrap_or_default();
    let message = format!(
        "Execution `{}` cannot be deleted yet: `{parent}`, whose plan it carries out, has not recorded its end. Resume or cancel that execution first.",
        name.id
    );
    status::error(Code::FailedPrecondition, reasons::END_NOT_RECORDED, message)
        .with("name", name)
        .with("parent_step", parent)
        .into()
}

async fn check_etag(registry: &ExecutionRegistry, name: &ExecutionName, etag: &str) -> Result<(), Status> {
    let current = registry.reading.follower.look(name, |seen| wire::etag(seen.execution)).await?;
    if current == etag {
        return Ok(());
    }
    let message = format!("The execution has changed: its etag is {current}, not {etag}. Get it again and retry.");
    Err(status::error(Code::Aborted, reasons::ETAG_MISMATCH, message).into())
}

async fn deletion(registry: &ExecutionRegistry, name: &ExecutionName) -> Result<Option<Deletion>, Status> {
    let (namespace, id) = (name.namespace.clone(), name.id.clone());
    let deletion = registry.reading.follower.read(move |reader| reader.deletion(&namespace, &id)).await;
    deletion.map_err(|error| unreadable(&error))
}

/// Waits until the other services have forgotten the execution, but not long. Returns whether they have.
async fn completed(registry: &ExecutionRegistry, name: &ExecutionName) -> Result<bool, Status> {
    let mut rounds = registry.deletions.rounds();
    let completed = async {
        loop {
            rounds.mark_unchanged();
            let is_open = |deletion: Deletion| deletion.reusable_at.is_none();
            if !deletion(registry, name).await?.is_some_and(is_open) {
                return Ok(true);
            }
            // Never an error: the registry has the sender.
            let _ = rounds.changed().await;
        }
    };
    tokio::select! {
        biased;
        completed = completed => completed,
        () = registry.reading.shutdown.requested() => Ok(false),
        () = tokio::time::sleep(MAX_WAIT) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use belay_journal::ExecutionKey;

    use super::*;

    #[test]
    fn only_the_same_request_is_a_repetition() {
        let request = |id: &str, hash: &str| DeleteRequest { id: id.into(), hash: hash.into() };
        let deletion = |id: &str| Deletion {
            key: ExecutionKey(1),
            namespace: "n".into(),
            id: "e".into(),
            shard: 0,
            deleted_at: 0,
            request: request(id, "hash"),
            start_request: None,
            folder: None,
            reusable_at: None,
        };
        let reason = |asked: DeleteRequest, first: &str| {
            let refused = check_repeated(&asked, &deletion(first), Status::not_found("gone")).err()?;
            Some(status::reason(&refused).unwrap_or_else(|| refused.message().to_owned()))
        };
        assert_eq!(reason(request("a", "hash"), "a"), None);
        assert_eq!(reason(request("a", "other"), "a").as_deref(), Some("REQUEST_ID_REUSED"));
        assert_eq!(reason(request("b", "hash"), "a").as_deref(), Some("gone"));
        assert_eq!(reason(request("", "hash"), "").as_deref(), Some("gone"), "without an id nothing is a repetition");
    }
}
