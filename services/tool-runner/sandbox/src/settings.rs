//! What the operator decides once for all commands.

use std::{ffi::OsString, path::PathBuf};

use crate::{
    budget::{Reserve, WriteBudget},
    error::LaunchError,
    limits::Limits,
    mounts::{self, Mount},
    scratch::Scratch,
};

/// What the operator decides once for all commands.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The binary to execute as the launcher. Its `main` has to call [`crate::take_over_if_asked`] first.
    /// `/proc/self/exe` by default: it stays right when the file is replaced by an upgrade.
    pub executable: PathBuf,
    /// The user commands run as outside the sandbox when the runner is root. Never 0; nothing else should belong to it.
    pub service_uid: u32,
    /// The group to `service_uid`.
    pub service_gid: u32,
    /// Folders and files that every command sees beside `/usr`: toolchains outside of it, caches. [`crate::Spec::mounts`] adds to
    /// them. They are mounted in the order of their depth, so that one may lie below another.
    pub mounts: Vec<Mount>,
    /// Where a command may write beside its workspace, and how much.
    pub scratch: Scratch,
    /// How much a command may change in its view of the workspace. The launcher measures it like scratch places on disk.
    pub view: WriteBudget,
    /// How much a command leaves free on each disk that it writes to: one that would begin below is refused, and when the reserve is
    /// touched, the commands of this runner are ended, the one that holds most first.
    pub reserve: Reserve,
    /// What one command may use, unless its [`crate::Spec::limits`] say otherwise.
    pub limits: Limits,
    /// The folders in which a program without a slash is looked for, and the command's `PATH`.
    pub path: Vec<PathBuf>,
    /// Variables every command gets; of equal names these count over what the sandbox sets by default (`HOME`, `TZ`, and the offline
    /// switches of package managers). Only here may names stand that loaders and interpreters obey (`LD_LIBRARY_PATH`, `PYTHONPATH`).
    pub env: Vec<(String, OsString)>,
    /// Variables of those that loaders and interpreters obey that a call may set all the same ([`crate::Spec::env`]).
    pub calls_may_set: Vec<String>,
    /// The Landlock ABI below which nothing is started. 1 (Linux 5.13) by default: it confines reads, writes and execution.
    /// 3 (6.2) adds truncation, 4 (6.7) TCP ports, 6 (6.12) signals and abstract sockets, which namespaces confine as well.
    pub landlock_floor: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            executable: PathBuf::from("/proc/self/exe"),
            // Just below the overflow id (65534), which would make foreign files look like the service's own.
            service_uid: 65533,
            service_gid: 65533,
            mounts: Vec::new(),
            scratch: Scratch::default(),
            view: WriteBudget { bytes: 8 << 30, inodes: 1_000_000 },
            reserve: Reserve::default(),
            limits: Limits::default(),
            path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from).to_vec(),
            env: Vec::new(),
            calls_may_set: Vec::new(),
            landlock_floor: 1,
        }
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        if self.service_uid == 0 || self.service_gid == 0 {
            return Err(LaunchError::spec("settings.service_uid", "must not be 0: no command ever runs as root"));
        }
        if self.landlock_floor == 0 {
            return Err(LaunchError::spec(
                "settings.landlock_floor",
                "must be at least 1: nothing runs without Landlock",
            ));
        }
        mounts::check(&self.mounts, "settings.mounts")?;
        self.scratch.check()?;
        self.view.check("settings.view")?;
        self.limits.check("settings.limits")
    }

    /// The value of `PATH`.
    pub(crate) fn path_value(&self) -> OsString {
        let folders: Vec<_> = self.path.iter().map(|folder| folder.as_os_str()).collect();
        folders.join(":".as_ref())
    }
}
