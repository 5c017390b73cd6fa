//! The secrets that only the blobs of an execution tell.

use std::collections::HashSet;

use belay_blobs::{BlobStore, Owner};
use belay_execution::{Body, Event, ExecutionEvent};
use belay_journal::StoredExecution;
use thiserror::Error;

use crate::store::{
    blobs::{Opener, Unreadable},
    secrets::{Sealer, Secrets, SecretsError},
};

/// Why they are not known. Without them, secrets of the execution would be shown.
#[derive(Debug, Error)]
pub(crate) enum NotLearned {
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    #[error("the blob {0} cannot be read: {1}")]
    Blob(String, Unreadable),
}

/// Adds the key and the secrets of the blobs that these events name; the first of them is the execution's first. Blocks.
///
/// # Errors
/// [`NotLearned`] when the key or a blob cannot be read.
pub(crate) fn learn_from_blobs(
    stored: &StoredExecution,
    events: &[Event],
    sealer: &Sealer,
    store: &dyn BlobStore,
    secrets: &mut Secrets,
) -> Result<(), NotLearned> {
    let blobs = || events.iter().filter_map(|event| event.body.blob());
    if blobs().next().is_none() {
        return Ok(());
    }
    let uid = match events.first().map(|first| &first.body) {
        Some(Body::Execution(ExecutionEvent::Created(created))) => created.uid.as_str(),
        _ => "",
    };
    if secrets.own_key().is_none() {
        secrets.has_key(sealer.unwrap(uid, stored.seal_key.as_deref())?);
    }
    let redacted: HashSet<_> = blobs().filter(|blob| blob.redacted).collect();
    let Some(own_key) = secrets.own_key().filter(|_| !redacted.is_empty()).cloned() else { return Ok(()) };
    let row = &stored.row.execution;
    let owner = Owner { namespace: row.namespace.clone(), id: row.id.clone() };
    let opener = Opener { owner, uid: uid.into(), key: own_key };
    for blob in redacted {
        let original = opener.original(store, blob);
        secrets.learn_from(original.map_err(|error| NotLearned::Blob(blob.digest.to_string(), error))?);
    }
    Ok(())
}
