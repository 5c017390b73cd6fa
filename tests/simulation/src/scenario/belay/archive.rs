//! The contents of the approval gate's lost stores: read from the disk before the next store is created, and kept outside of the simulated
//! machines.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_proto::{runner_v1, v1};
use prost::Message as _;
use rusqlite::{Connection, OpenFlags};

use crate::{machine, vfs};

/// Approvals and grants of stores that were lost. Clones are one archive.
#[derive(Debug, Clone, Default)]
pub(super) struct Archive(Arc<Mutex<ArchivedApprovals>>);

#[derive(Debug, Default)]
struct ArchivedApprovals {
    approvals: BTreeMap<String, Vec<v1::Approval>>,
    grants: BTreeMap<String, Vec<runner_v1::Grant>>,
}

impl Archive {
    fn kept(&self) -> MutexGuard<'_, ArchivedApprovals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the contents of the store at `path`, on the executing machine. A store that was never written to is empty.
    ///
    /// # Errors
    /// When the store exists and cannot be read.
    pub(super) fn take_over(&self, path: &Path) -> Result<(), rusqlite::Error> {
        machine::without_faults(|| {
            let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, vfs::NAME)?;
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            let mut approvals = connection.prepare("SELECT basic FROM approval")?;
            for basic in approvals.query_map([], |row| row.get::<_, Vec<u8>>(0))? {
                let approval = v1::Approval::decode(&*basic?).expect("the gate wrote it");
                self.kept().approvals.entry(approval.name.clone()).or_default().push(approval);
            }
            let mut grants = connection.prepare(
                "SELECT name, body, signature, key_id FROM approval JOIN grant ON grant.approval = approval.key",
            )?;
            let grants = grants.query_map([], |row| {
                let grant = runner_v1::Grant { body: row.get(1)?, signature: row.get(2)?, key_id: row.get(3)? };
                Ok((row.get::<_, String>(0)?, grant))
            })?;
            for grant in grants {
                let (approval, grant) = grant?;
                self.kept().grants.entry(approval).or_default().push(grant);
            }
            Ok(())
        })
    }

    /// The approvals of this name, one for each store that had it.
    pub(super) fn approvals(&self, name: &str) -> Vec<v1::Approval> {
        self.kept().approvals.get(name).cloned().unwrap_or_default()
    }

    /// The grants of an approval.
    pub(super) fn grants(&self, approval: &str) -> Vec<runner_v1::Grant> {
        self.kept().grants.get(approval).cloned().unwrap_or_default()
    }
}
