//! What a file system keeps of its changes through a loss of power: see [`Order`].
//!
//! What is asked for first is known as *strictly ordered metadata*: after the power was lost, names, modes and the like are as they were at one
//! moment, with everything before it and nothing after; and the sync of a file brings that moment to at least the last change of that
//! file. POSIX does not promise it, and no call asks for it. It follows from how a file system works, and the kernel's own tests hold some
//! of them to it (fstests, the cases that `_require_metadata_journaling`; D. Chinner on linux-kernel, 2018-09-14, "metadata operation
//! reordering regards to crash"):
//!
//! - **xfs**: each change goes into one log, which is written in order and, on a sync, up to the file's last change.
//! - **ext4 with a journal**: all changes of a moment are one transaction, and a sync commits the one with the file's last change after
//!   all those before.
//!
//! Not **ext4 without a journal**, which writes each block of a folder when its turn comes; nor ext2 with either driver. Not btrfs, although its transactions are ordered: a sync writes a log of its own with little but that file (F. Manana on linux-btrfs,
//! 2025-10-26, shows one after which an older folder is missing). Nor any other of which this is not known.

use std::{fs, os::fd::AsFd};

use rustix::fs::{fstat, fstatfs, major, minor};

/// What `statfs` says of xfs.
const XFS: u64 = 0x5846_5342;
/// And of ext2, ext3 and ext4 alike.
const EXT: u64 = 0xEF53;

/// What of the changes to a file system is there after a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A beginning of all changes, file contents aside; the sync of a file brings whatever was changed up to its last change.
    Kept,
    /// Only what was synced itself.
    Unknown,
}

impl Order {
    /// That of the file system with this folder. What cannot be found out is unknown.
    #[must_use]
    pub fn of(folder: impl AsFd) -> Self {
        of(folder)
    }
}

fn of(folder: impl AsFd) -> Order {
    // The fields' types differ from one architecture to the next.
    #[allow(clippy::unnecessary_cast)]
    match fstatfs(&folder).map(|found| found.f_type as u64 & 0xFFFF_FFFF) {
        Ok(XFS) => Order::Kept,
        Ok(EXT) => {
            fstat(folder).map_or(Order::Unknown, |found| of_ext4(&writer(major(found.st_dev), minor(found.st_dev))))
        }
        _ => Order::Unknown,
    }
}

/// Which thread writes a device's journal, as the ext4 driver says; nothing if it does not have that device.
fn writer(major: u32, minor: u32) -> String {
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
    fn what_is_not_known_to_keep_order_does_not() {
        let open = |path: &str| fs::File::open(path).unwrap();
        assert_eq!(of(open("/proc/self")), Order::Unknown);
        assert_eq!(of_ext4(&writer(0, 0)), Order::Unknown, "no device has this number");
    }

    #[test]
    fn an_ext4_without_a_journal_is_known_by_the_thread_that_it_lacks() {
        assert_eq!(of_ext4("123\n"), Order::Kept);
        assert_eq!(["<none>\n", "", "?"].map(of_ext4), [Order::Unknown; 3]);
    }
}
