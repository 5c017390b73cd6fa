//! The order in which a file system makes changes durable: see [`Order`].
//!
//! *Strictly ordered metadata* means: after a power loss, names, modes and the like are as they were at one moment, with everything before
//! it and nothing after; and a sync of a file moves that moment to at least the last change of that file. POSIX does not promise it, and no
//! call reports it. It follows from how a file system works, and the kernel's own tests hold some file systems to it (fstests, the cases
//! that `_require_metadata_journaling`; D. Chinner on linux-kernel, 2018-09-14, "metadata operation reordering regards to crash"):
//!
//! - **xfs**: all changes go into one log, which is written in order and, on a sync, up to the last change of the file.
//! - **ext4 with a journal**: all changes of a moment form one transaction, and a sync commits the transaction with the last change of the
//!   file after all earlier ones.
//!
//! Not ordered: **ext4 without a journal**, which writes the blocks of a directory in any order; ext2 with either driver; btrfs, although
//! its transactions are ordered, because a sync writes a separate log with little but that file (F. Manana on linux-btrfs, 2025-10-26,
//! shows a case in which an older directory is missing afterwards); and any other file system whose ordering is not known.

use std::{fs, os::fd::AsFd};

use rustix::fs::{fstat, fstatfs, major, minor};

/// The `statfs` magic of xfs.
const XFS: u64 = 0x5846_5342;
/// The `statfs` magic of ext2, ext3 and ext4.
const EXT: u64 = 0xEF53;

/// The changes to a file system that survive a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A prefix of all changes, except file content; a sync of a file extends it to the last change of that file.
    Kept,
    /// Only what was synced explicitly.
    Unknown,
}

impl Order {
    /// The ordering of the file system of a directory; `Unknown` if it cannot be determined.
    #[must_use]
    pub fn of(folder: impl AsFd) -> Self {
        of(folder)
    }
}

fn of(folder: impl AsFd) -> Order {
    // The types of the fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    match fstatfs(&folder).map(|found| found.f_type as u64 & 0xFFFF_FFFF) {
        Ok(XFS) => Order::Kept,
        Ok(EXT) => fstat(folder)
            .map_or(Order::Unknown, |found| of_ext4(&journal_task(major(found.st_dev), minor(found.st_dev)))),
        _ => Order::Unknown,
    }
}

/// The journal thread of a device, as the ext4 driver reports it; empty if ext4 does not drive that device.
fn journal_task(major: u32, minor: u32) -> String {
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    let device = device.ok().and_then(|device| device.file_name().map(|name| name.to_string_lossy().into_owned()));
    device.and_then(|device| fs::read_to_string(format!("/sys/fs/ext4/{device}/journal_task")).ok()).unwrap_or_default()
}

fn of_ext4(writer: &str) -> Order {
    match writer.trim() {
        writer if writer.parse::<u32>().is_ok() => Order::Kept,
        _ => Order::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_file_system_is_not_ordered() {
        let open = |path: &str| fs::File::open(path).unwrap();
        assert_eq!(of(open("/proc/self")), Order::Unknown);
        assert_eq!(of_ext4(&journal_task(0, 0)), Order::Unknown, "no device has this number");
    }

    #[test]
    fn ext4_without_a_journal_has_no_journal_thread() {
        assert_eq!(of_ext4("123\n"), Order::Kept);
        assert_eq!(["<none>\n", "", "?"].map(of_ext4), [Order::Unknown; 3]);
    }
}
