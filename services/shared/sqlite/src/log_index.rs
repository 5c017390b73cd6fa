//! The index of the write-ahead log: the file `-shm`, which SQLite maps into memory and writes there.
//!
//! SQLite extends the file by writing one byte in every 4 KiB. Where the blocks of the disk are as large, all of it has its space then, and a full disk
//! is an error. Where they are smaller, most of it has none, and writing there on a full disk would end the process with SIGBUS. So the index gets its
//! space when the store is opened: all that it can ever need, because the log cannot be larger than the disk.

use std::{fs::File, io, path::Path};

use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
};

/// The index has parts of this size, each for so many pages of the log (`WALINDEX_PGSZ` and `HASHTABLE_NPAGE` of SQLite's wal.c).
pub(crate) const PART: u64 = 32 << 10;
const PAGES_PER_PART: u64 = 4096;

/// The pages for which the first part has no room, because of its header.
const HEADER: u64 = 34;

/// A page in the log, with its header.
const PAGE_IN_LOG: u64 = 24 + 4096;

/// SQLite writes one byte in each piece of this size when it extends the index.
const EXTENDED_BY: u64 = 4096;

/// The most that is reserved: the index of a log of 8 GiB.
const MAX_RESERVED: u64 = 16 << 20;

/// The size of the index of a log of so many bytes.
pub(crate) fn index_size(log: u64) -> u64 {
    (log / PAGE_IN_LOG + HEADER).div_ceil(PAGES_PER_PART) * PART
}

/// Reserves the space of an index that SQLite has created, where it has to be: for a log that takes all of the disk. A file system that cannot reserve
/// space is left as it is.
///
/// Returns the index if it had to be opened. It must stay open as long as SQLite has it: a process that closes any descriptor of a file loses all its
/// locks on it (fcntl(2)), also the one by which SQLite tells other processes that the index is in use. The next one that opened the store would cut it
/// off and begin anew, under the feet of this one.
pub(crate) fn reserve(index: &Path) -> io::Result<Option<File>> {
    let disk = statvfs(index)?;
    if disk.f_frsize >= EXTENDED_BY {
        return Ok(None);
    }
    let file = File::options().write(true).open(index)?;
    let wanted = index_size(disk.f_blocks.saturating_mul(disk.f_frsize)).min(MAX_RESERVED);
    match fallocate(&file, FallocateFlags::empty(), 0, wanted) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Some(file)),
        // Nothing is open yet but the connection that fails with this.
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_grows_with_the_log() {
        assert_eq!(index_size(0), PART);
        assert_eq!(index_size(4062 * PAGE_IN_LOG), PART);
        assert_eq!(index_size(4063 * PAGE_IN_LOG), 2 * PART);
        assert_eq!(index_size((4062 + 4096) * PAGE_IN_LOG), 2 * PART);
        assert_eq!(index_size((4062 + 4097) * PAGE_IN_LOG), 3 * PART);
    }
}
