//! A bit that flips in a row of the runner's ledger: of a call, or of the approval that it waits for. It happens once in a simulation, where it is
//! wanted, while the runner is down.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags, params, types::Value};
use turmoil::fs::shim::std::fs;

use crate::{machine, trace, vfs};

/// The calls whose rows were damaged. Clones are one set.
#[derive(Debug, Clone, Default)]
pub(super) struct DamagedCalls(Arc<Mutex<BTreeSet<String>>>);

impl DamagedCalls {
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
            // Few calls wait at that moment, so each of them is damaged there.
            let waits = "SELECT EXISTS (SELECT 1 FROM held WHERE name = ?1)";
            let table =
                match connection.query_row(waits, [name], |row| row.get::<_, bool>(0))? && !random.is_multiple_of(4) {
                    true => HELD,
                    false => CALL,
                };
            let column = flip(&connection, table, name, random)?;
            trace::event(format_args!("a bit flips in column {column} of table {} in the row of {name}", table.name));
            if table.name == HELD.name {
                trace::count("approvals in the ledger damaged");
            }
            trace::count("rows of the ledger damaged");
            self.calls().insert(name.clone());
            Ok(())
        })
    }

    /// Whether the row of this call was damaged.
    pub(super) fn contains(&self, call: &str) -> bool {
        self.calls().contains(call)
    }

    /// Whether the row of a call of this step was damaged.
    pub(super) fn is_of_step(&self, step: &str) -> bool {
        self.calls().iter().any(|call| call.strip_prefix(step).is_some_and(|rest| rest.starts_with("/calls/")))
    }
}

/// A table of the ledger whose rows are named by their calls.
#[derive(Clone, Copy)]
struct Table {
    name: &'static str,
    columns: &'static [&'static str],
}

const CALL: Table =
    Table { name: "call", columns: &["name", "digest", "ended", "call", "sealed", "workspace", "staged_id", "staged"] };

const HELD: Table = Table { name: "held", columns: &["name", "subject", "waits", "contents"] };

/// Flips one bit of a row, the name included; returns the column's name.
fn flip(
    connection: &Connection,
    Table { name: table, columns }: Table,
    name: &str,
    random: u64,
) -> Result<&'static str, rusqlite::Error> {
    let random = usize::try_from(random.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8).unwrap_or(usize::MAX);
    // Not every call has all of them.
    for skipped in 0..columns.len() {
        let column = columns[(random + skipped) % columns.len()];
        let read = format!("SELECT {column} FROM {table} WHERE name = ?1");
        let value = connection.query_row(&read, [name], |row| row.get::<_, Value>(0))?;
        let flipped = |mut bytes: Vec<u8>| {
            let bit = (random / columns.len()) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        let (value, written) = match value {
            Value::Integer(number) => (Value::Integer(number ^ 1), "?2"),
            Value::Text(text) if !text.is_empty() => (Value::Blob(flipped(text.into_bytes())), "CAST(?2 AS TEXT)"),
            Value::Blob(bytes) if !bytes.is_empty() => (Value::Blob(flipped(bytes)), "?2"),
            _ => continue,
        };
        connection
            .execute(&format!("UPDATE {table} SET {column} = {written} WHERE name = ?1"), params![name, value])?;
        return Ok(column);
    }
    Ok("none")
}
