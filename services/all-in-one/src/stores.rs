//! The three stores of a state directory, opened before any is used, so that an outdated one is detected first.

use belay_approval_gate::Store;
use belay_executor::{MasterKey, Redactor, SealKeyFile};
use belay_journal_sqlite::Journal;
use belay_proto::stores::{Behind, Service};
use belay_service_kit::{Clock as _, Ids, SystemClock};
use belay_sqlite::{Location, Threads};
use belay_tool_runner::{Ledger, Registry, Secrets};

use crate::{StartError, StateDir};

/// The open stores.
pub(crate) struct OpenStores {
    pub(crate) journal: Journal,
    pub(crate) ledger: Ledger,
    pub(crate) approvals: Store,
    /// The key that all of them are sealed with.
    pub(crate) master_key: MasterKey,
}

impl OpenStores {
    /// Opens all three. Rejects a store that is older than another one requires, or starts a new generation of it if the caller accepts
    /// that. A new key is in its file when this returns, and in none when a store was sealed with another one.
    pub(crate) async fn open(
        state_dir: &StateDir,
        ids: &Ids,
        registry: &Registry,
        seal_key: &SealKeyFile,
        redactor: &Redactor,
        accept_older_store: bool,
    ) -> Result<Self, StartError> {
        let mut accepted = Vec::new();
        loop {
            let location = |service, path| {
                let generation = accepted.contains(&service).then(|| SystemClock.now_micros());
                Location { accepted: generation, ..Location::file(path) }
            };
            let (journal, ledger, approvals) = (state_dir.journal(), state_dir.ledger(), state_dir.approvals());
            let opened_journal =
                belay_journal_sqlite::open(&location(Service::Executor, &journal), Threads::Real, || ids.next_id())
                    .map_err(|error| StartError::journal(&journal, error))?;
            let master_key = seal_key.open(&*opened_journal.reader).await;
            let master_key = master_key.map_err(|error| StartError::seal_key(&journal, error))?;
            let random = Ids::from_system();
            let secrets =
                Secrets::new(redactor.clone(), master_key.clone(), registry.clone(), move || random.next_key());
            let opened = Self {
                journal: opened_journal,
                ledger: Ledger::open(&location(Service::Runner, &ledger), Threads::Real, secrets, || ids.next_id())
                    .map_err(|error| StartError::ledger(&ledger, &error))?,
                approvals: Store::open(&location(Service::Gate, &approvals), Threads::Real, || ids.next_id())
                    .map_err(|error| StartError::approvals(&approvals, &error.0))?,
                master_key,
            };
            match opened.compare() {
                Ok(()) => {
                    seal_key.store().map_err(StartError::SealKey)?;
                    return Ok(opened);
                }
                Err(behind) if accept_older_store && !accepted.contains(&behind.service) => {
                    tracing::warn!(%behind, "Accepted a store that is older than another store requires");
                    accepted.push(behind.service);
                    // Their writers hold them until they have ended.
                    let Self { journal, ledger, approvals, master_key: _ } = opened;
                    drop(journal);
                    ledger.close();
                    approvals.close();
                }
                Err(behind) => return Err(StartError::behind(&state_dir.store(behind.service), &behind)),
            }
        }
    }

    fn compare(&self) -> Result<(), Behind> {
        let (journal, ledger, approvals) = (&self.journal.stores, self.ledger.stores(), self.approvals.stores());
        journal.compare(ledger)?;
        journal.compare(approvals)?;
        ledger.compare(approvals)
    }
}
