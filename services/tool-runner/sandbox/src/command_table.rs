//! What the running commands of one runner hold on disk, for their launchers to see who holds most.
//!
//! A table in shared memory, one row for each command. A command's launcher writes its row; the runner takes it back when the launcher has
//! ended. It decides only in which order commands are ended when a disk runs out, so a torn read does no harm.

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
    /// The file system that is meant (`st_dev`).
    pub(crate) disk: u64,
    /// What the command holds there.
    pub(crate) held: WriteBudget,
}

/// How current an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It may hold more by now.
    Running = 1,
    /// It was measured when the disk was short already.
    Measured = 2,
    /// It is being ended, and gives back what it holds.
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

    /// `None`: the row is free.
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

/// Bytes of a row.
const ROW: usize = 32;

/// Rows. A command beyond them counts alone.
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

    /// A row for one command. `None`: there are more commands than rows.
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

/// A command's row, as long as its launcher lives.
#[derive(Debug)]
pub(crate) struct TakenRow {
    table: Arc<CommandTable>,
    row: usize,
}

impl TakenRow {
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.row).expect("there are a few thousand rows")
    }
}

impl Drop for TakenRow {
    fn drop(&mut self) {
        // A row that cannot be emptied is written over by the next command that takes it.
        let _ = self.table.file.write_all_at(&[0; ROW], (self.row * ROW) as u64);
        if let Some(taken) = self.table.taken().get_mut(self.row) {
            *taken = false;
        }
    }
}

/// The table, in a command's launcher.
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

    /// Says what this command holds.
    pub(crate) fn write(&self, entry: Entry) -> io::Result<()> {
        self.table.write_all_at(&entry.to_bytes(), (self.row * ROW) as u64)
    }

    /// All commands, by the numbers of their rows.
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
    fn a_row_is_one_commands_until_it_is_dropped() {
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
