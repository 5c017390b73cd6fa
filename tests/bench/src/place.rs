//! Where a measurement keeps its files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use belay_service_kit::net::Address;
use tempfile::TempDir;

use crate::Result;

/// Folders for one pair of processes, gone when this is dropped.
pub(crate) struct Place {
    state: TempDir,
    /// Apart from the state, because a socket's path may have 107 bytes only.
    sockets: TempDir,
}

impl Place {
    pub(crate) fn new(root: &Path) -> Result<Self> {
        Ok(Self {
            state: tempfile::tempdir_in(root)?,
            sockets: tempfile::Builder::new().prefix("belay-bench").tempdir()?,
        })
    }

    /// The folder of everything that is stored.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    pub(crate) fn socket(&self, name: &str) -> Address {
        Address::Unix(self.sockets.path().join(name))
    }
}

/// Makes the folder, and answers with the name of its file system.
///
/// # Errors
/// When it is one in memory, where a flush costs nothing and every figure would be a lie.
pub(crate) fn on_disk(folder: &Path) -> Result<String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // The magic numbers of statfs(2).
    let name = match rustix::fs::statfs(folder)?.f_type {
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0x794c_7630 => "overlay",
        other => return Ok(format!("file system {other:#x}")),
    };
    if matches!(name, "tmpfs" | "ramfs") {
        let folder = folder.display();
        return Err(
            format!("{folder} is on {name}, where a flush costs nothing: name a folder on a disk with --dir").into()
        );
    }
    Ok(name.into())
}
