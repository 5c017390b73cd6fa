//! All calls that change the disk, and the seam at which a test kills the process before any of them.

use std::{
    ffi::OsStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags, chmodat,
        chownat, fchmod, fremovexattr, fsetxattr, fstat, fsync, futimens, mkdirat, mknodat, openat, renameat_with,
        syncfs, unlinkat,
    },
    io::Errno,
};

use crate::{
    order::Order,
    stat::{FileTime, Stat},
};

/// Consulted before each call that changes the disk. Production uses [`QuietSeam`]; a test counts calls and crashes at one.
pub trait Seam: Send + Sync {
    /// Whether the process is still alive to make this call. Once it returned `false` it has to keep doing so.
    ///
    fn alive(&self, call: &Call<'_>) -> bool;

    /// Overrides the write ordering of the file system. `found` is the detected one.
    fn order(&self, found: Order) -> Order {
        found
    }
}

/// A call that changes the disk.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The name of the system call, such as `rename`.
    pub name: &'static str,
    /// The file or directory that it concerns; for a rename, the target directory.
    pub on: BorrowedFd<'a>,
    /// The entry in that directory, if it concerns one.
    pub entry: Option<&'a OsStr>,
    /// For a rename, the source directory and name.
    pub from: Option<(BorrowedFd<'a>, &'a OsStr)>,
    /// For a rename, whether it exchanges two names.
    pub exchanges: bool,
}

/// A seam that never fails.
#[derive(Clone, Copy, Debug)]
pub struct QuietSeam;

impl Seam for QuietSeam {
    fn alive(&self, _: &Call<'_>) -> bool {
        true
    }
}

/// The calls.
#[derive(Clone)]
pub(crate) struct Disk {
    seam: Arc<dyn Seam>,
    order: Order,
}

impl Disk {
    /// The error of every call after a simulated crash.
    pub(crate) const DEAD: Errno = Errno::CANCELED;

    /// The disk of a directory.
    pub(crate) fn of(folder: impl AsFd, seam: Arc<dyn Seam>) -> Self {
        let order = seam.order(Order::of(folder));
        Self { seam, order }
    }

    /// Its write ordering.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    fn alive(&self, call: &Call<'_>) -> Result<(), Errno> {
        if self.seam.alive(call) { Ok(()) } else { Err(Self::DEAD) }
    }

    fn reach(&self, name: &'static str, on: impl AsFd) -> Result<(), Errno> {
        self.alive(&Call { name, on: on.as_fd(), entry: None, from: None, exchanges: false })
    }

    fn reach_entry(&self, name: &'static str, folder: impl AsFd, entry: &OsStr) -> Result<(), Errno> {
        self.alive(&Call { name, on: folder.as_fd(), entry: Some(entry), from: None, exchanges: false })
    }

    /// Creates a directory with exactly this mode, whatever the umask.
    pub(crate) fn create_directory(&self, folder: impl AsFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
        self.reach_entry("mkdir", &folder, name)?;
        mkdirat(&folder, name, Mode::RWXU)?;
        self.set_mode_of(folder, name, mode)
    }

    /// Creates a new file for writing.
    pub(crate) fn create(&self, folder: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
        self.reach_entry("create", &folder, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
    }

    pub(crate) fn write_all(&self, file: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
        self.reach("write", &file)?;
        while !bytes.is_empty() {
            match rustix::io::write(&file, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Marks a name as deleted. Needs no privilege on Linux 5.8 or newer.
    pub(crate) fn make_whiteout(&self, folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        self.reach_entry("mknod", &folder, name)?;
        mknodat(folder, name, FileType::CharacterDevice, Mode::empty(), 0)
    }

    pub(crate) fn rename(
        &self,
        (from, name): (impl AsFd, &OsStr),
        (to, new_name): (impl AsFd, &OsStr),
        how: Rename,
    ) -> Result<(), Errno> {
        self.alive(&Call {
            name: "rename",
            on: to.as_fd(),
            entry: Some(new_name),
            from: Some((from.as_fd(), name)),
            exchanges: how == Rename::Exchange,
        })?;
        let flags = match how {
            Rename::Replace => RenameFlags::empty(),
            Rename::New => RenameFlags::NOREPLACE,
            Rename::Exchange => RenameFlags::EXCHANGE,
        };
        renameat_with(from, name, to, new_name, flags)
    }

    pub(crate) fn unlink(&self, folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        self.reach_entry("unlink", &folder, name)?;
        unlinkat(folder, name, AtFlags::empty())
    }

    pub(crate) fn remove_directory(&self, folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        self.reach_entry("rmdir", &folder, name)?;
        unlinkat(folder, name, AtFlags::REMOVEDIR)
    }

    pub(crate) fn set_mode(&self, file: impl AsFd, mode: u32) -> Result<(), Errno> {
        self.reach("fchmod", &file)?;
        fchmod(file, Mode::from_raw_mode(mode))
    }

    /// For an entry that cannot be opened. The caller has checked that it is not a symbolic link, in a directory that no one else changes.
    pub(crate) fn set_mode_of(&self, folder: impl AsFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
        self.reach_entry("chmod", &folder, name)?;
        chmodat(folder, name, Mode::from_raw_mode(mode), AtFlags::empty())
    }

    pub(crate) fn set_owner(&self, folder: impl AsFd, name: &OsStr, (user, group): (u32, u32)) -> Result<(), Errno> {
        self.reach_entry("chown", &folder, name)?;
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        chownat(folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
    }

    pub(crate) fn set_attribute(&self, file: impl AsFd, name: impl AsRef<OsStr>, value: &[u8]) -> Result<(), Errno> {
        self.reach("setxattr", &file)?;
        fsetxattr(file, name.as_ref(), value, XattrFlags::empty())
    }

    pub(crate) fn remove_attribute(&self, file: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        self.reach("removexattr", &file)?;
        fremovexattr(file, name)
    }

    /// Syncs a file, or the entries of a directory, to disk.
    pub(crate) fn sync(&self, file: impl AsFd) -> Result<(), Errno> {
        self.reach("fsync", &file)?;
        fsync(file)
    }

    /// Syncs the whole file system to disk.
    pub(crate) fn sync_all(&self, file: impl AsFd) -> Result<(), Errno> {
        self.reach("syncfs", &file)?;
        syncfs(file)
    }

    /// The current time of the file system, read from a directory of ours: earlier changes have an earlier time, later ones this time or a
    /// later one.
    ///
    /// Exact on Linux 6.13 or newer, which does not reuse a time that was read (hence two calls). Before, timestamps come from a clock with
    /// ticks of 1 to 10 ms, and an earlier change in the same tick has the same time.
    pub(crate) fn now(&self, own: impl AsFd) -> Result<FileTime, Errno> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let touch = || {
            self.reach("utimens", &own)?;
            futimens(&own, &Timestamps { last_access: now, last_modification: now })?;
            fstat(&own).map(|found| Stat::from(found).changed)
        };
        touch()?;
        touch()
    }
}

/// The entry that may exist at the target of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rename {
    /// Anything: it is replaced.
    Replace,
    /// No entry.
    New,
    /// Something: it moves to the source.
    Exchange,
}

/// A failed call to the file system, with its purpose.
#[derive(Debug, thiserror::Error)]
#[error("{doing} `{path}` failed: {source}")]
pub struct IoFailure {
    /// The operation, such as `reading`.
    pub doing: &'static str,
    /// The path, escaped.
    pub path: String,
    /// The error of the system.
    pub source: io::Error,
}

impl IoFailure {
    /// Whether the path, or a parent of it, does not exist any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }
}

/// Adds the operation and path to an error.
pub(crate) trait IoContext<T> {
    fn at(self, doing: &'static str, path: impl ToString) -> Result<T, IoFailure>;
}

impl<T> IoContext<T> for Result<T, Errno> {
    fn at(self, doing: &'static str, path: impl ToString) -> Result<T, IoFailure> {
        self.map_err(|error| IoFailure { doing, path: path.to_string(), source: error.into() })
    }
}

/// Ends the process of a test before a change to the disk.
#[cfg(test)]
pub(crate) mod deadly {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Call, Seam};

    /// How many changes are left until the process ends.
    pub(crate) struct Deadly(pub(crate) AtomicU64);

    impl Seam for Deadly {
        fn alive(&self, _: &Call<'_>) -> bool {
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        }
    }
}
