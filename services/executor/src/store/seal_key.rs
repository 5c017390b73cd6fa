//! The key that wraps the executions' keys: it is believed once it has opened what the journal has sealed.

use std::path::{Path, PathBuf};

use belay_journal::{ExecutionKey, JournalReader, NewExecution, StoreError};
use belay_reasons as reasons;
use belay_redaction::{MasterKey, NotOpened};
use belay_service_kit::key_file::{self, KeyFileError, LoadedKey};
use thiserror::Error;

use crate::{
    names::ExecutionName,
    store::{journal_reads::store_reason, secrets::SEAL_KEY_FILE},
    wire,
};

/// The key that wraps the executions' keys, `seal.key` in the state directory, before it is known to be the one that the journal needs.
pub struct SealKeyFile(LoadedKey);

impl SealKeyFile {
    /// Reads the file. When there is none, the key is the 32 random bytes that `random` returns, and [`Self::store`] creates the file.
    ///
    /// # Errors
    /// [`KeyFileError`] when it is damaged, or other users can read it.
    pub fn load(state_dir: &Path, random: impl FnOnce() -> [u8; 32]) -> Result<Self, KeyFileError> {
        key_file::load(&state_dir.join(SEAL_KEY_FILE), key_file::SEAL, random).map(Self)
    }

    /// Returns the key if it opens what the journal has sealed: the first execution's key that is intact. Any key opens a journal in which
    /// nothing is sealed.
    ///
    /// # Errors
    /// [`SealKeyError`] when another key sealed it, or the journal cannot be read.
    pub async fn open(&self, journal: &dyn JournalReader) -> Result<MasterKey, SealKeyError> {
        let master_key = MasterKey::new(self.0.key());
        let mut after = ExecutionKey(i64::MIN);
        while let Some(key) = journal.next_sealed(after).await? {
            after = key;
            let Some((row, uid, wrapped)) = sealed_execution(journal, key).await? else { continue };
            let name = ExecutionName { namespace: row.namespace, id: row.id };
            return match master_key.unwrap(&uid, &wrapped) {
                Ok(_) => Ok(master_key),
                Err(newer @ NotOpened::Version(_)) => Err(SealKeyError::Newer(name.to_string(), newer)),
                Err(_) => {
                    let (path, is_missing) = (self.0.path().to_owned(), self.0.is_new());
                    Err(SealKeyError::Lost { path, is_missing, execution: name.to_string() })
                }
            };
        }
        Ok(master_key)
    }

    /// Whether there is no such file yet.
    pub fn is_missing(&self) -> bool {
        self.0.is_new()
    }

    /// Creates the file if there is none. Call it once all stores that use the key are open, and before anything is sealed with it.
    ///
    /// # Errors
    /// [`KeyFileError`] when it cannot be written.
    pub fn store(&self) -> Result<(), KeyFileError> {
        self.0.store()
    }
}

/// An execution's row, its uid and its wrapped key; `None` when one of them is damaged, or it was deleted meanwhile.
async fn sealed_execution(
    journal: &dyn JournalReader,
    key: ExecutionKey,
) -> Result<Option<(NewExecution, String, Vec<u8>)>, StoreError> {
    let read = async {
        let row = journal.get(key).await?;
        let wrapped = journal.seal_key(key).await?;
        let first = journal.read(key, 0, 1).await?;
        Ok((row, wrapped, first))
    };
    let (row, wrapped, first) = match read.await {
        Ok((Some(row), Some(wrapped), first)) => (row, wrapped, first),
        Ok(_) | Err(StoreError::Damaged(_) | StoreError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let messages = first.first().and_then(|transition| wire::decode_all(transition).ok());
    let uid = messages.as_ref().and_then(|messages| messages.first()).and_then(wire::uid_of);
    Ok(uid.map(|uid| (row.execution, uid.to_owned(), wrapped)))
}

/// Why the key in `seal.key` cannot be used.
#[derive(Debug, Error)]
pub enum SealKeyError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The journal cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A newer version of Belay sealed it.
    #[error("the secrets of {0} in journal.db were sealed by a newer version of Belay: {1}")]
    Newer(String, NotOpened),
    /// Another key sealed what the journal has.
    #[error(
        "{reason}: the secrets of {execution} and others in journal.db were sealed with {which}. Put back the seal.key that belongs to \
         journal.db. If there is none, move journal.db, journal.db-wal, journal.db-shm and blobs away and start once with \
         `--accept-older-store`: all executions are then lost",
        reason = .path.display().to_string() + if *.is_missing { " is missing" } else { " is not the key of this journal" },
        which = if *.is_missing { "it" } else { "another key" }
    )]
    Lost {
        /// The file of the key.
        path: PathBuf,
        /// Whether there is no such file.
        is_missing: bool,
        /// An execution with secrets, as an example.
        execution: String,
    },
}

impl SealKeyError {
    /// The reason code.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::File(_) => reasons::SEAL_KEY_UNUSABLE,
            Self::Lost { .. } => reasons::SEAL_KEY_LOST,
            Self::Newer(..) => reasons::STORE_NEWER,
            Self::Store(error) => store_reason(error),
        }
    }
}
