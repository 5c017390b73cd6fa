//! Every call that changes the disk, in one room, and the seam through which a test kills the process just before any of them.

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

/// Asked before each call that changes the disk. Production hands in [`Undisturbed`]; a test counts, and dies where it wants to.
pub trait Seam: Send + Sync {
    /// Whether the process lives to make this call.
    ///
    /// Once it has said no it must go on saying no: the dead change nothing.
    fn alive(&self, call: &Call<'_>) -> bool;

    /// What the file system is to be taken to keep through a loss of power: by that a commit is synced. `found` is what was found out.
    fn order(&self, found: Order) -> Order {
        found
    }
}

/// A call that changes the disk.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The system call's name, such as `rename`.
    pub name: &'static str,
    /// The file or folder that it concerns; of a rename, the folder into which something moves.
    pub on: BorrowedFd<'a>,
    /// The entry of that folder, where it concerns one.
    pub entry: Option<&'a OsStr>,
    /// Of a rename, the folder and the name from which something moves.
    pub from: Option<(BorrowedFd<'a>, &'a OsStr)>,
    /// Of a rename, whether two names change places.
    pub exchanges: bool,
}

/// Nothing goes wrong by design.
#[derive(Clone, Copy, Debug)]
pub struct Undisturbed;

impl Seam for Undisturbed {
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
    /// What a dead process gets from every call.
    pub(crate) const DEAD: Errno = Errno::CANCELED;

    /// The disk on which this folder is.
    pub(crate) fn of(folder: impl AsFd, seam: Arc<dyn Seam>) -> Self {
        let order = seam.order(Order::of(folder));
        Self { seam, order }
    }

    /// What it keeps through a loss of power.
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

    /// Makes a folder with exactly this mode, whatever the umask.
    pub(crate) fn make_folder(&self, folder: impl AsFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
        self.reach_entry("mkdir", &folder, name)?;
        mkdirat(&folder, name, Mode::RWXU)?;
        self.set_mode_of(folder, name, mode)
    }

    /// Makes a file that must not exist yet, to be written.
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

    /// Writes down that a name is gone. Without privilege on Linux ≥ 5.8.
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

    pub(crate) fn remove_folder(&self, folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        self.reach_entry("rmdir", &folder, name)?;
        unlinkat(folder, name, AtFlags::REMOVEDIR)
    }

    pub(crate) fn set_mode(&self, file: impl AsFd, mode: u32) -> Result<(), Errno> {
        self.reach("fchmod", &file)?;
        fchmod(file, Mode::from_raw_mode(mode))
    }

    /// For what cannot be opened as it is. The name was just seen to be no symbolic link, in a folder that nobody else changes.
    pub(crate) fn set_mode_of(&self, folder: impl AsFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
        self.reach_entry("chmod", &folder, name)?;
        chmodat(folder, name, Mode::from_raw_mode(mode), AtFlags::empty())
    }

    pub(crate) fn set_owner(&self, folder: impl AsFd, name: &OsStr, (user, group): (u32, u32)) -> Result<(), Errno> {
        self.reach_entry("chown", &folder, name)?;
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        chownat(folder, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
    }

    pub(crate) fn set_attribute(&self, file: impl AsFd, name: &str, value: &[u8]) -> Result<(), Errno> {
        self.reach("setxattr", &file)?;
        fsetxattr(file, name, value, XattrFlags::empty())
    }

    pub(crate) fn remove_attribute(&self, file: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        self.reach("removexattr", &file)?;
        fremovexattr(file, name)
    }

    /// Until the file, or the folder's list of names, is on the disk.
    pub(crate) fn sync(&self, file: impl AsFd) -> Result<(), Errno> {
        self.reach("fsync", &file)?;
        fsync(file)
    }

    /// Until all of the file system is on the disk.
    pub(crate) fn sync_all(&self, file: impl AsFd) -> Result<(), Errno> {
        self.reach("syncfs", &file)?;
        syncfs(file)
    }

    /// The file system's time now, read off a folder of our own: what changed before has an earlier one, what changes later has this
    /// one or a later one.
    ///
    /// Exact on Linux ≥ 6.13, where a time that somebody has looked at is not given out again (hence twice). Before, files are stamped
    /// by a clock that ticks every 1 to 10 ms, and what changed earlier in the same tick has this very time too.
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

/// What may be at a rename's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rename {
    /// Anything: it is replaced.
    Replace,
    /// Nothing.
    New,
    /// Something: it takes the source's place.
    Exchange,
}

/// A call to the file system that failed, with what it was for.
#[derive(Debug, thiserror::Error)]
#[error("{doing} `{path}` failed: {source}")]
pub struct IoFailure {
    /// What was being done, such as `reading`.
    pub doing: &'static str,
    /// To which file, made printable.
    pub path: String,
    /// What the system said.
    pub source: io::Error,
}

impl IoFailure {
    /// Whether what a path names, or a folder above it, is not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }
}

/// Adds to a call's error what it was for.
pub(crate) trait At<T> {
    fn at(self, doing: &'static str, path: impl ToString) -> Result<T, IoFailure>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, doing: &'static str, path: impl ToString) -> Result<T, IoFailure> {
        self.map_err(|error| IoFailure { doing, path: path.to_string(), source: error.into() })
    }
}
