//! Whether a file system keeps the order of its changes through a loss of power.
//!
//! What is asked for is known as *strictly ordered metadata*: after the power was lost, names, modes and the like are as they were at one
//! moment, with everything before it and nothing after; and the sync of a file brings that moment to at least the last change of that
//! file. POSIX does not promise it, and no call asks for it. It follows from how a file system works, and the kernel's own tests hold some
//! of them to it (fstests, the cases that `_require_metadata_journaling`; D. Chinner on linux-kernel, 2018-09-14, "metadata operation
//! reordering regards to crash"):
//!
//! - **xfs**: each change goes into one log, which is written in order and, on a sync, up to the file's last change.
//! - **ext4 with a journal**: all changes of a moment are one transaction, and a sync commits the one with the file's last change after
//!   all those before. Without a journal there is no order at all; ext2 goes by the same number and has none either.
//!
//! Not btrfs, although its transactions are ordered: a sync writes a log of its own with little but that file (F. Manana on linux-btrfs,
//! 2025-10-26, shows one after which an older folder is missing). Nor any other of which this is not known.

use std::{fs, os::fd::AsFd};

use rustix::fs::{fstat, fstatfs, major, minor};

/// What `statfs` says of xfs.
const XFS: u64 = 0x5846_5342;
/// And of ext2, ext3 and ext4 alike.
const EXT: u64 = 0xEF53;

/// Whether the file system with this folder is known to keep the order of its changes. What cannot be found out counts as no.
pub(crate) fn is_kept(folder: impl AsFd) -> bool {
    // The fields' types differ from one architecture to the next.
    #[allow(clippy::unnecessary_cast)]
    match fstatfs(&folder).map(|found| found.f_type as u64 & 0xFFFF_FFFF) {
        Ok(XFS) => true,
        Ok(EXT) => fstat(folder).is_ok_and(|found| has_journal(major(found.st_dev), minor(found.st_dev))),
        _ => false,
    }
}

/// Whether the ext4 driver keeps a journal for a device: it names the thread that writes it.
fn has_journal(major: u32, minor: u32) -> bool {
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    let device = device.ok().and_then(|device| device.file_name().map(|name| name.to_string_lossy().into_owned()));
    let writer = device.and_then(|device| fs::read_to_string(format!("/sys/fs/ext4/{device}/journal_task")).ok());
    writer.is_some_and(|writer| writer.trim().parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_to_keep_order_does_not() {
        let open = |path: &str| fs::File::open(path).unwrap();
        assert!(!is_kept(open("/proc/self")));
        assert!(!has_journal(0, 0), "no device has this number");
    }
}
