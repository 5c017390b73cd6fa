//! Reads of the journal, and the folding of what was read on a bounded number of threads.

use std::{collections::HashSet, sync::Arc};

use belay_blobs::BlobStore;
use belay_execution::{Event, Execution};
use belay_journal::{ExecutionKey, ExecutionRow, JournalReader, Reading, StoreError, StoredExecution};
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_sqlite::{Lane, READERS, Threads};
use tonic::{Code, Status};

use crate::{
    names::ExecutionName,
    store::{
        blob_secrets::{NotLearned, learn_from_blobs},
        blobs::{Opener, file_names},
        replayed_execution::{ReplayedExecution, shown_bytes},
        secrets::{Sealer, Secrets, SecretsError},
        snapshots,
    },
    wire::{self, DecodeError},
};

/// Reads of the journal. The executor's own reads and those for clients each have their own, so that no number of clients delays a driver.
pub(crate) struct JournalReads {
    reader: Arc<dyn JournalReader>,
    sealer: Arc<Sealer>,
    blobs: Arc<dyn BlobStore>,
    /// Where what was read is opened and folded.
    folding: Lane,
}

/// An execution's events as they are stored.
pub(crate) struct StoredEvents {
    /// The events with their secrets.
    pub(crate) events: Vec<Event>,
    /// The secrets to hide in them.
    pub(crate) secrets: Secrets,
    /// Their size as they are stored, without what is sealed.
    pub(crate) bytes: usize,
    /// The names of the files of their blobs.
    pub(crate) blobs: HashSet<String>,
}

impl JournalReads {
    pub(crate) fn new(
        reader: Arc<dyn JournalReader>,
        sealer: &Arc<Sealer>,
        blobs: &Arc<dyn BlobStore>,
        threads: Threads,
    ) -> Self {
        Self { reader, sealer: Arc::clone(sealer), blobs: Arc::clone(blobs), folding: Lane::new(threads, READERS / 2) }
    }

    /// Reads from the store.
    pub(crate) fn read<'a, T>(&'a self, read: impl FnOnce(&'a dyn JournalReader) -> Reading<'a, T>) -> Reading<'a, T> {
        read(self.reader.as_ref())
    }

    /// Returns the opener for the blobs of an execution with this uid.
    pub(crate) async fn opener(&self, key: ExecutionKey, name: &ExecutionName, uid: String) -> Result<Opener, Status> {
        let wrapped = self.read(move |reader| reader.seal_key(key)).await.map_err(|error| unreadable(&error))?;
        let opened = self.sealer.unwrap(&uid, wrapped.as_deref())?;
        Ok(Opener { owner: crate::store::blobs::owner(name), uid: uid.into(), key: opened })
    }

    /// Returns the row of an execution.
    pub(crate) async fn find(&self, name: &ExecutionName) -> Result<ExecutionRow, Status> {
        let (namespace, id) = (name.namespace.clone(), name.id.clone());
        let row = self.read(move |reader| reader.find(&namespace, &id)).await.map_err(|error| unreadable(&error))?;
        row.ok_or_else(|| {
            status::error(Code::NotFound, reasons::EXECUTION_NOT_FOUND, format!("There is no execution `{}`.", name.id))
                .with("name", name)
                .into()
        })
    }

    /// Reads an execution from the store.
    pub(crate) async fn replay(&self, key: ExecutionKey) -> Result<ReplayedExecution, Status> {
        let mut stored = self.load(key, Some(wire::VERSION)).await?;
        if let Some(snapshot) = stored.snapshot.take() {
            let (sealer, store) = (Arc::clone(&self.sealer), Arc::clone(&self.blobs));
            match self.folding.run(move || snapshots::restore(&stored, &snapshot, &sealer, &*store)).await {
                Ok(replayed) => return Ok(replayed),
                Err(error) => {
                    let why = self.sealer.shown(error.to_string());
                    tracing::warn!(
                        execution.key = key.0,
                        why,
                        "A snapshot is not used; the execution is read from its first event"
                    );
                }
            }
            stored = self.load(key, None).await?;
        }
        let sealer = Arc::clone(&self.sealer);
        let open = self.open(stored);
        let StoredEvents { events, secrets, bytes, blobs } = open.await?;
        // The error may quote the plan.
        let damaged = |illegal| corrupt(&sealer.shown(format!("The execution's events are inconsistent: {illegal}.")));
        let execution = Execution::replay(events).map_err(damaged)?;
        Ok(ReplayedExecution { execution, secrets, bytes, snapshot_at: 0, blobs: Some(blobs) })
    }

    /// Reads an execution's events from the store.
    pub(crate) async fn events(&self, key: ExecutionKey) -> Result<StoredEvents, Status> {
        let stored = self.load(key, None).await?;
        self.open(stored).await
    }

    /// The events of an execution after one, with their secrets: those of at most `limit` transitions.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(crate) async fn events_after(&self, key: ExecutionKey, after: u64, limit: usize) -> Result<Vec<Event>, Status> {
        let read = |after, limit| self.read(move |reader| reader.read(key, after, limit));
        let mut transitions = read(after, limit).await.map_err(|error| unreadable(&error))?;
        let mut wrapped = None;
        if transitions.iter().any(|transition| transition.sealed.is_some()) {
            wrapped = self.read(move |reader| reader.seal_key(key)).await.map_err(|error| unreadable(&error))?;
            // What is sealed is opened with the uid, which the first event has.
            if transitions[0].first_sequence > 1 {
                transitions.splice(..0, read(0, 1).await.map_err(|error| unreadable(&error))?);
            }
        }
        let sealer = Arc::clone(&self.sealer);
        let events = self.folding.run(move || {
            let (messages, _) = sealer.open(&transitions, wrapped.as_deref())?;
            let facts = |sequence| {
                let at = transitions.partition_point(|transition| transition.last_sequence() < sequence);
                transitions.get(at)?.facts.as_deref()
            };
            let later = messages.into_iter().filter(|message| u64::try_from(message.sequence).is_ok_and(|n| n > after));
            let events = wire::to_events(later, facts).collect::<Result<_, _>>();
            events.map_err(|error| undecodable(&error, &sealer))
        });
        events.await
    }

    async fn load(&self, key: ExecutionKey, snapshot: Option<u32>) -> Result<StoredExecution, Status> {
        self.reader.load(key, snapshot).await.map_err(|error| unreadable(&error))
    }

    /// The events of an execution that was read without a snapshot.
    async fn open(&self, stored: StoredExecution) -> Result<StoredEvents, Status> {
        let (sealer, store) = (Arc::clone(&self.sealer), Arc::clone(&self.blobs));
        let events = self.folding.run(move || {
            let (messages, mut secrets) = sealer.open(&stored.transitions, stored.seal_key.as_deref())?;
            let events = wire::to_events(messages, |sequence| stored.facts(sequence)).collect::<Result<Vec<_>, _>>();
            let events = events.map_err(|error| undecodable(&error, &sealer))?;
            let blobs = events.iter().filter_map(|event| event.body.blob()).flat_map(file_names).collect();
            learn_from_blobs(&stored, &events, &sealer, &*store, &mut secrets).map_err(|error| match error {
                NotLearned::Secrets(error) => error.into(),
                NotLearned::Blob(digest, error) => error.status(&digest),
            })?;
            Ok(StoredEvents { events, secrets, bytes: shown_bytes(&stored.transitions), blobs })
        });
        events.await
    }
}

/// The error of a store whose contents contradict each other.
pub(crate) fn corrupt(message: &str) -> Status {
    status::error(Code::DataLoss, reasons::STORE_CORRUPT, message).into()
}

/// The error of events that cannot be decoded. It may quote the plan.
pub(crate) fn undecodable(error: &DecodeError, sealer: &Sealer) -> Status {
    let message = sealer.shown(format!("The execution cannot be read: {error}."));
    match error {
        DecodeError::Older(_) => older(&message),
        _ if error.is_newer() => newer(&message),
        _ => corrupt(&message),
    }
}

/// An unreleased version wrote the execution.
fn older(message: &str) -> Status {
    status::error(Code::FailedPrecondition, reasons::STORE_OLDER, message).into()
}

/// A newer version wrote the execution. This one does nothing with it.
fn newer(message: &str) -> Status {
    status::error(Code::FailedPrecondition, reasons::STORE_NEWER, message).into()
}

impl From<SecretsError> for Status {
    fn from(error: SecretsError) -> Self {
        let message = format!("The execution cannot be read: {error}.");
        match error {
            SecretsError::KeyLost => status::error(Code::DataLoss, reasons::SEAL_KEY_LOST, message).into(),
            SecretsError::Newer(_) => newer(&message),
            SecretsError::Undecodable(DecodeError::Older(_)) => older(&message),
            SecretsError::Undecodable(error) if error.is_newer() => newer(&message),
            SecretsError::Changed(..) | SecretsError::Misplaced(_) | SecretsError::Undecodable(_) => corrupt(&message),
        }
    }
}

pub(crate) fn unreadable(error: &StoreError) -> Status {
    match error {
        // Reading it again would not help, and everything else can be read.
        StoreError::Damaged(row) => corrupt(&format!("The execution cannot be read: {row}.")),
        StoreError::Missing(_) => {
            status::error(Code::NotFound, reasons::EXECUTION_DELETED, "The execution was deleted.").into()
        }
        _ => {
            status::error(Code::Unavailable, store_reason(error), format!("The store cannot be read: {error}.")).into()
        }
    }
}

/// The error reason of a store failure.
pub fn store_reason(error: &StoreError) -> &'static str {
    match error {
        StoreError::Fault(fault) => fault.reason(),
        StoreError::Damaged(_) => reasons::STORE_CORRUPT,
        StoreError::Missing(_) => reasons::EXECUTION_DELETED,
        StoreError::Superseded => reasons::FENCED,
        StoreError::Broken | StoreError::OutcomeUnknown(_) => reasons::STORE_FAILED,
    }
}
