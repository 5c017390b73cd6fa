//! Whether what a sandbox was set up from is still what the host has.
//!
//! What is mounted shows its changes. What was copied, or replaced as a whole, does not.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{etc, protocol::Armed, sources};

/// The sources of a sandbox, as they were.
#[derive(Debug)]
pub(crate) struct Fingerprint {
    /// Is exceptional once a file system has been mounted or unmounted since it was opened.
    mount_table: File,
    entries: Vec<(PathBuf, Option<Identity>)>,
    /// The defect that a test has planted.
    planted: Option<String>,
}

/// The device, the inode, and for what is not a directory the time of its last change.
type Identity = (u64, u64, Option<(i64, i64)>);

impl Fingerprint {
    /// Must be taken before the sandbox is set up, so that a change meanwhile is noticed.
    pub(crate) fn take(armed: &Armed) -> io::Result<Self> {
        let mount_table = File::open("/proc/self/mountinfo")?;
        let mounts = armed.mounts.iter().map(|mount| mount.source.clone());
        let paths = sources::system_places().map(PathBuf::from).chain(etc::listed()).chain(mounts);
        let entries = paths.map(|path| (path.clone(), identity(&path))).collect();
        Ok(Self { mount_table, entries, planted: belay_defects::handed_on() })
    }

    /// Whether nothing has changed since.
    pub(crate) fn is_current(&self) -> bool {
        let mut fds = [PollFd::new(&self.mount_table, PollFlags::PRI)];
        let same_mounts = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0);
        same_mounts
            && self.planted == belay_defects::handed_on()
            && self.entries.iter().all(|(path, then)| identity(path) == *then)
    }
}

/// The identity of what is at a path; a link is followed. `None`: nothing is there.
fn identity(path: &Path) -> Option<Identity> {
    let of = |metadata: Metadata| {
        // A directory changes with its entries, which its mount shows; in /etc itself they are copied.
        let is_shown = metadata.is_dir() && path != Path::new("/etc");
        let changed = (!is_shown).then(|| (metadata.ctime(), metadata.ctime_nsec()));
        (metadata.dev(), metadata.ino(), changed)
    };
    fs::metadata(path).ok().map(of)
}
