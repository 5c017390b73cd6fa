//! A row of the runner's ledger that cannot be read any more. It happens once in a simulation, where it is wanted, while the runner is down.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags};
use turmoil::fs::shim::std::fs;

use crate::{machine, trace, vfs};

/// The calls whose rows were damaged. Clones are one set.
#[derive(Debug, Clone, Default)]
pub(super) struct Damaged(Arc<Mutex<BTreeSet<String>>>);

impl Damaged {
    fn calls(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Damages one of the rows in the ledger at `path`, on the machine that is executing, unless one was damaged before or there is none.
    ///
    /// # Errors
    /// When the ledger is there and cannot be written.
    pub(super) fn damage_one(&self, path: &Path, random: u64) -> Result<(), rusqlite::Error> {
        if !self.calls().is_empty() || !fs::exists(path) {
            return Ok(());
        }
        machine::without_faults(|| {
            let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, vfs::NAME)?;
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            // A runner that was lost at its first start may have left a file without tables.
            let tables = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'call')";
            if !connection.query_row(tables, [], |row| row.get::<_, bool>(0))? {
                return Ok(());
            }
            let names: Vec<String> = connection
                .prepare("SELECT name FROM call ORDER BY name")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let count = u64::try_from(names.len()).unwrap_or(u64::MAX);
            let picked = random.checked_rem(count).and_then(|picked| usize::try_from(picked).ok());
            let Some(name) = picked.and_then(|picked| names.get(picked)) else { return Ok(()) };
            // No message begins like this.
            connection.execute("UPDATE call SET call = x'0affffff' WHERE name = ?1", [name])?;
            trace::event(format_args!("the ledger's row of {name} is damaged"));
            trace::count("rows of the ledger damaged");
            self.calls().insert(name.clone());
            Ok(())
        })
    }

    /// Whether the row of this call was damaged.
    pub(super) fn contains(&self, call: &str) -> bool {
        self.calls().contains(call)
    }
}
