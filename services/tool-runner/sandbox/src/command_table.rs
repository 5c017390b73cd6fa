//! How much disk space the running commands of a runner hold, so that their launchers agree on which holds most.
//!
//! A table in shared memory with one row per command. The launcher of a command writes the row; the runner frees it when the launcher has
//! exited. The table only decides the order in which commands are terminated when a disk runs out, so a torn read does no harm.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::budget::{Unit, WriteBudget};

/// A command in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// The file system (`st_dev`).
    pub(crate) disk: u64,
    /// The amount that the command holds on it.
    pub(crate) held: WriteBudget,
}

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The value may be out of date.
    Running = 1,
    /// Measured after the disk fell below the reserve.
    Measured = 2,
    /// The command is being terminated and will free what it holds.
    Ending = 3,
}

impl Entry {
    pub(crate) fn held(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Bytes => self.held.bytes,
            Unit::Inodes => self.held.inodes,
        }
    }

    fn to_bytes(self) -> [u8; ROW] {
        let mut bytes = [0; ROW];
        let fields = [self.state as u64, self.disk, self.held.bytes, self.held.inodes];
        for (to, field) in bytes.chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Returns `None` for a free row.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (fields, _) = bytes.as_chunks::<8>();
        let &[state, disk, bytes, inodes] = fields else { return None };
        let state = match u64::from_le_bytes(state) {
            1 => State::Running,
            2 => State::Measured,
            3 => State::Ending,
            _ => return None,
        };
        let held = WriteBudget { bytes: u64::from_le_bytes(bytes), inodes: u64::from_le_bytes(inodes) };
        Some(Self { state, disk: u64::from_le_bytes(disk), held })
    }
}

/// The size of a row in bytes.
const ROW: usize = 32;

/// The number of rows. A command without a row considers only itself.
const MAX_ROWS: usize = 4096;

/// The table, in the runner.
#[derive(Debug)]
pub(crate) struct CommandTable {
    file: File,
    taken: Mutex<Vec<bool>>,
}

impl CommandTable {
    pub(crate) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("belay-commands", MemfdFlags::CLOEXEC)?);
        file.set_len((ROW * MAX_ROWS) as u64)?;
        Ok(Self { file, taken: Mutex::default() })
    }

    /// Takes a row for a command. `None`: all rows are taken.
    pub(crate) fn take_row(self: &Arc<Self>) -> Option<TakenRow> {
        let mut taken = self.taken();
        let row = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
        match taken.get_mut(row) {
            Some(taken) => *taken = true,
            None if row < MAX_ROWS => taken.push(true),
            None => return None,
        }
        Some(TakenRow { table: Arc::clone(self), row })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<bool>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for CommandTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The row of a command, for as long as its launcher runs.
#[derive(Debug)]
pub(crate) struct TakenRow {
    table: Arc<CommandTable>,
    row: usize,
}

impl TakenRow {
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.row).expect("MAX_ROWS fits")
    }
}

impl Drop for TakenRow {
    fn drop(&mut self) {
        // The next command that takes the row overwrites it in any case.
        let _ = self.table.file.write_all_at(&[0; ROW], (self.row * ROW) as u64);
        if let Some(taken) = self.table.taken().get_mut(self.row) {
            *taken = false;
        }
    }
}

/// The table, in the launcher of a command.
pub(crate) struct OwnRow {
    table: File,
    row: usize,
}

impl OwnRow {
    pub(crate) fn new(table: OwnedFd, row: u32) -> Self {
        Self { table: table.into(), row: row as usize }
    }

    pub(crate) fn number(&self) -> usize {
        self.row
    }

    /// Publishes what this command holds.
    pub(crate) fn write(&self, entry: Entry) -> io::Result<()> {
        self.table.write_all_at(&entry.to_bytes(), (self.row * ROW) as u64)
    }

    /// All commands, by row.
    pub(crate) fn read(&self) -> io::Result<Vec<(usize, Entry)>> {
        let mut bytes = vec![0; ROW * MAX_ROWS];
        self.table.read_exact_at(&mut bytes, 0)?;
        let entries = bytes.chunks_exact(ROW).map(Entry::from_bytes).enumerate();
        Ok(entries.filter_map(|(row, entry)| Some((row, entry?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_belongs_to_one_command_until_it_is_dropped() {
        let table = Arc::new(CommandTable::new().unwrap());
        let (first, second) = (table.take_row().unwrap(), table.take_row().unwrap());
        let own = |row: &TakenRow| OwnRow::new(table.file.try_clone().unwrap().into(), row.number());
        let entry = |bytes| Entry { state: State::Measured, disk: 7, held: WriteBudget { bytes, inodes: 3 } };
        own(&first).write(entry(100)).unwrap();
        own(&second).write(entry(200)).unwrap();
        assert_eq!(own(&first).read().unwrap(), [(0, entry(100)), (1, entry(200))]);
        drop(first);
        assert_eq!(own(&second).read().unwrap(), [(1, entry(200))]);
        let again = table.take_row().unwrap();
        assert_eq!(again.number(), 0);
        let rest: Vec<_> = std::iter::from_fn(|| table.take_row()).collect();
        assert_eq!(rest.len(), MAX_ROWS - 2);
    }
}
