//! The status of a file, as plain values.

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

/// A time of a file system: seconds and nanoseconds since 1970. Only compared with others of the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileTime(pub i64, pub u32);

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
}

impl FileKind {
    /// With its article, for a sentence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        }
    }
}

/// The part of `stat(2)` that is used here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) kind: FileKind,
    pub(crate) ino: u64,
    pub(crate) dev: u64,
    /// Permission, set-id and sticky bits: `07777`.
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) size: u64,
    pub(crate) modified: FileTime,
    pub(crate) changed: FileTime,
    /// A character device 0:0, by which an overlay marks a deleted name.
    pub(crate) is_null_device: bool,
}

impl Stat {
    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// Whether it cannot be committed: a pipe, a socket or a device.
    pub(crate) fn is_special(&self) -> bool {
        matches!(self.kind, FileKind::Fifo | FileKind::Socket | FileKind::Device)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

impl From<rustix::fs::Stat> for Stat {
    // The types of the fields differ between architectures.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    fn from(stat: rustix::fs::Stat) -> Self {
        let mode = stat.st_mode as u32;
        let file_type = FileType::from_raw_mode(mode as _);
        let kind = match file_type {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => FileKind::Device,
        };
        Self {
            kind,
            ino: stat.st_ino as u64,
            dev: stat.st_dev as u64,
            mode: mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
            size: stat.st_size as u64,
            modified: FileTime(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            changed: FileTime(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
            is_null_device: file_type == FileType::CharacterDevice && stat.st_rdev == 0,
        }
    }
}
