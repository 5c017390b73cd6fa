//! Where a command may write outside its workspace, and how much.

use std::path::{Component, PathBuf};

use crate::{
    budget::WriteBudget,
    error::LaunchError,
    wire::{wire_enum, wire_struct},
};

/// Where a command may write outside its workspace: `/tmp` (also `/var/tmp`), [`crate::HOME`] and `/dev/shm`. All are empty when the
/// command starts, but for the file for its outputs ([`crate::OUTPUT_VARIABLE`]), and removed when it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// The storage of `/tmp` and HOME.
    pub place: ScratchPlace,
    /// The size of `/tmp`.
    pub tmp: WriteBudget,
    /// The size of HOME. Changes in [`crate::MountKind::Scratch`] mounts count here too.
    pub home: WriteBudget,
    /// The size of `/dev/shm`, which is always in memory.
    pub shm: WriteBudget,
}

/// The storage of `/tmp` and HOME.
///
/// In memory the kernel enforces the budgets: a write beyond them fails with ENOSPC. On disk the launcher measures the places and
/// terminates a command that exceeds a budget with [`crate::Status::DiskLimit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScratchPlace {
    /// On disk, in the staging directory of the call ([`crate::WorkspaceMount::staging`]); in memory for a call without one.
    Staging,
    /// On disk, in a new directory per command below this one, which must be an absolute path of an existing directory. The runner removes
    /// what the commands of crashed runners left there. It must not hold anything else.
    Folder(PathBuf),
    /// In memory.
    Memory,
}

wire_struct!(Scratch { place, tmp, home, shm });
wire_enum!(ScratchPlace { 0 = Staging, 1 = Folder(path), 2 = Memory });

impl Default for Scratch {
    /// On disk in the staging directory; 8 GiB and 1,000,000 inodes each for `/tmp` and HOME, which hold build caches; 512 MiB and 16,384
    /// inodes for `/dev/shm`.
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
            LaunchError::check_budget(&format!("settings.scratch.{name}"), size)?;
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

/// The scratch directory of `/tmp`.
pub(crate) const TMP: &str = "tmp";

/// The scratch directory of HOME and the changes of [`crate::MountKind::Scratch`] mounts.
pub(crate) const HOME: &str = "home";
