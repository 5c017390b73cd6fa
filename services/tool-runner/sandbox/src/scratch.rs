//! Where a command may write beside its workspace, and how much.

use std::path::{Component, PathBuf};

use crate::{
    budget::WriteBudget,
    error::LaunchError,
    wire::{wire_enum, wire_struct},
};

/// Where a command may write beside its workspace: `/tmp` (also `/var/tmp`), [`crate::HOME`] and `/dev/shm`. All of it is empty when
/// the command starts and gone when it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Where `/tmp` and HOME lie.
    pub place: ScratchPlace,
    /// The size of `/tmp`.
    pub tmp: WriteBudget,
    /// The size of HOME. What a command changes in [`crate::MountKind::Scratch`] mounts counts here too.
    pub home: WriteBudget,
    /// The size of `/dev/shm`, which is always memory.
    pub shm: WriteBudget,
}

/// Where `/tmp` and HOME lie.
///
/// In memory the kernel keeps the budgets: a write beyond them fails with ENOSPC. On disk the launcher measures the places while the file
/// system fills, and ends a command that is over a budget with [`crate::Status::DiskLimit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScratchPlace {
    /// On disk, in the staging folder of the call ([`crate::WorkspaceMount::staging`]); in memory for a call that has none.
    Staging,
    /// On disk, each command in a folder of its own below this one. An absolute path to a folder that exists; the runner empties it
    /// of what commands of runners that were killed have left. Nothing else may be kept there.
    Folder(PathBuf),
    /// In memory.
    Memory,
}

wire_struct!(Scratch { place, tmp, home, shm });
wire_enum!(ScratchPlace { 0 = Staging, 1 = Folder(path), 2 = Memory });

impl Default for Scratch {
    /// On disk in the staging folder; 8 GiB and 1,000,000 inodes each for `/tmp` and HOME, which hold a build's caches; 512 MiB and
    /// 16,384 inodes for `/dev/shm`.
    fn default() -> Self {
        let disk = WriteBudget { bytes: 8 << 30, inodes: 1_000_000 };
        Self {
            place: ScratchPlace::Staging,
            tmp: disk,
            home: disk,
            shm: WriteBudget { bytes: 512 << 20, inodes: 16_384 },
        }
    }
}

impl Scratch {
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        for (name, size) in [("tmp", self.tmp), ("home", self.home), ("shm", self.shm)] {
            size.check(&format!("settings.scratch.{name}"))?;
        }
        match &self.place {
            ScratchPlace::Folder(folder)
                if !folder.is_absolute() || folder.components().any(|part| matches!(part, Component::ParentDir)) =>
            {
                Err(LaunchError::spec("settings.scratch.place", "must be an absolute path without `..`"))
            }
            _ => Ok(()),
        }
    }
}

/// The folder of the scratch places with what the command sees as `/tmp`.
pub(crate) const TMP: &str = "tmp";

/// The folder of the scratch places with HOME and the changes of [`crate::MountKind::Scratch`] mounts.
pub(crate) const HOME: &str = "home";
