//! What the state directory of a Belay is known by: a key beside a store. No call may reach one, whosever it is.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

use crate::open::stat_entry;

/// Keys that services keep in their state directories.
const KEYS: [&str; 2] = ["seal.key", "gate.key"];

/// Stores that stand beside them.
const STORES: [&str; 3] = ["journal.db", "ledger.db", "gate.db"];

/// Whether a folder is the state directory of a Belay.
pub(crate) fn are_in(folder: impl AsFd) -> Result<bool, Errno> {
    Ok(holds_any(&folder, &KEYS)? && holds_any(&folder, &STORES)?)
}

fn holds_any(folder: impl AsFd, names: &[&str]) -> Result<bool, Errno> {
    for name in names {
        if stat_entry(&folder, name.as_ref())?.is_some_and(|found| found.is_file()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The state directory of a Belay, this one's or another's, that `path` is or lies in. A folder that cannot be looked into is none: what
/// lies in it has a path that others may pass and not read.
#[must_use]
pub fn stores_around(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_one = |folder: &&Path| openat(CWD, *folder, flags, Mode::empty()).and_then(are_in).unwrap_or(false);
    path.ancestors().find(is_one).map(Path::to_owned)
}
