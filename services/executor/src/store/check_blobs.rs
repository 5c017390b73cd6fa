//! Reads every blob that an event names, as `belay store check` does.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use belay_blobs::{Folder, Owner};
use belay_execution::BlobRef;
use belay_journal::{ExecutionKey, StoreError};
use belay_journal_sqlite::SealedTransition;
use belay_redaction::{MasterKey, SealKey};
use belay_service_kit::key_file;
use belay_sqlite::Location;

use crate::{
    store::{
        blobs::{Form, Opener},
        secrets::SEAL_KEY_FILE,
    },
    wire,
};

/// An execution whose blobs are being checked.
struct BlobCheck {
    uid: String,
    /// The digests of the blobs that were checked.
    seen: HashSet<String>,
}

/// Reads every blob that an event of the journal names, whether or not a process has the stores open, and returns a sentence about each that is
/// missing or damaged. `None` when there is no blob.
///
/// # Errors
/// [`StoreError`] when the journal cannot be read.
pub fn check_blobs(state_dir: &Path, journal: &Location, folder: &Folder) -> Result<Option<Vec<String>>, StoreError> {
    let (mut executions, mut damaged, mut count) = (HashMap::<ExecutionKey, BlobCheck>::new(), Vec::new(), 0_usize);
    let mut master_key = None;
    belay_journal_sqlite::each_sealed(journal, &mut |SealedTransition { key, namespace, id, wrapped, shown }| {
        // `check` of the journal finds what cannot be decoded.
        let Ok(messages) = wire::decode_bytes(shown) else { return };
        let uid = messages.first().and_then(wire::uid_of).unwrap_or_default().to_owned();
        let execution = executions.entry(key).or_insert_with(|| BlobCheck { uid, seen: HashSet::new() });
        for blob in wire::to_events(messages, |_| None).flatten().filter_map(|event| event.body.blob().cloned()) {
            if !execution.seen.insert(blob.digest.to_string()) {
                continue;
            }
            count += 1;
            let master_key = master_key.get_or_insert_with(|| open_master_key(state_dir));
            let opened = master_key.as_ref().map_err(Clone::clone).and_then(|master_key| {
                master_key.unwrap(&execution.uid, wrapped).map_err(|error| format!("its key cannot be opened: {error}"))
            });
            let owner = Owner { namespace: namespace.to_owned(), id: id.to_owned() };
            if let Err(why) = opened.and_then(|key| check(folder, owner, &execution.uid, key, &blob)) {
                let execution = format!("namespaces/{namespace}/executions/{id}");
                damaged.push(format!("blob {}: {why}; affected: execution {execution}", blob.digest));
            }
        }
    })?;
    Ok((count > 0).then_some(damaged))
}

/// Reads both forms of a blob.
fn check(folder: &Folder, owner: Owner, uid: &str, key: SealKey, blob: &BlobRef) -> Result<(), String> {
    let opener = Opener { owner, uid: uid.into(), key };
    let shown = opener.whole(folder, blob, Form::Shown).map_err(|error| error.to_string())?;
    if shown.len() as u64 != blob.size {
        return Err(format!("it has {} bytes, and its event says {}", shown.len(), blob.size));
    }
    opener.original(folder, blob).map(drop).map_err(|error| error.to_string())
}

/// The key that wraps those of the executions. It is not created here.
fn open_master_key(state_dir: &Path) -> Result<MasterKey, String> {
    let path = state_dir.join(SEAL_KEY_FILE);
    if !path.exists() {
        return Err(format!("{} is missing", path.display()));
    }
    let key = key_file::load(&path, key_file::SEAL, || unreachable!("it exists"));
    key.map(|key| MasterKey::new(key.key())).map_err(|error| error.to_string())
}
