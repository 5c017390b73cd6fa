//! The operator's settings for all commands.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::{
    budget::{Reserve, WriteBudget},
    error::LaunchError,
    limits::Limits,
    mounts::{self, Mount},
    scratch::Scratch,
};

/// The operator's settings for all commands.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The binary to execute as the launcher, whose `main` has to call [`crate::take_over_if_asked`] first. The default, `/proc/self/exe`,
    /// stays valid when an upgrade replaces the file.
    pub executable: PathBuf,
    /// The user outside the sandbox that commands run as if the runner is root. Never 0, and used for nothing else.
    pub service_uid: u32,
    /// The group of `service_uid`.
    pub service_gid: u32,
    /// Mounts that every command sees besides `/usr`, such as toolchains and caches. [`crate::Spec::mounts`] adds to them. They are mounted
    /// in order of depth, so that one may lie below another.
    pub mounts: Vec<Mount>,
    /// Where a command may write outside its workspace, and how much.
    pub scratch: Scratch,
    /// The budget for changes in the view of the workspace. The launcher measures it like scratch places on disk.
    pub view: WriteBudget,
    /// How much must stay free on each disk that a command writes to. A command that would start below it is refused; when a disk falls
    /// below it, the commands of this runner are terminated, largest first.
    pub reserve: Reserve,
    /// The limits of a command without [`crate::Spec::limits`].
    pub limits: Limits,
    /// The `PATH` of commands, also used to find a program without a slash.
    pub path: Vec<PathBuf>,
    /// Variables of every command; they override the defaults of the sandbox (`HOME`, `TZ`, and the offline switches of package managers).
    /// Variables that loaders and interpreters obey (`LD_LIBRARY_PATH`, `PYTHONPATH`) can be set only here.
    pub env: Vec<(String, OsString)>,
    /// Reserved variables that a call may set all the same ([`crate::Spec::env`]).
    pub calls_may_set: Vec<String>,
    /// The minimum Landlock ABI. The default, 1 (Linux 5.13), restricts reads, writes and execution. 3 (6.2) adds truncation, 4 (6.7) TCP
    /// ports, 6 (6.12) signals and abstract sockets, which namespaces restrict as well.
    pub landlock_floor: u8,
    /// How many sandboxes are set up before their commands are known, once there has been a command.
    pub armed_sandboxes: usize,
    /// How long they wait for another command before they are ended.
    pub armed_for: Duration,
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
            // One is made while the other is used.
            armed_sandboxes: 2,
            armed_for: Duration::from_secs(60),
        }
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        if self.service_uid == 0 || self.service_gid == 0 {
            return Err(LaunchError::spec("settings.service_uid", "must not be 0: commands never run as root"));
        }
        if self.landlock_floor == 0 {
            return Err(LaunchError::spec(
                "settings.landlock_floor",
                "must be at least 1: nothing runs without Landlock",
            ));
        }
        mounts::check(&self.mounts, "settings.mounts")?;
        self.scratch.check()?;
        LaunchError::check_budget("settings.view", self.view)?;
        self.limits.check("settings.limits")
    }

    /// The value of `PATH`.
    pub(crate) fn path_value(&self) -> OsString {
        let folders: Vec<_> = self.path.iter().map(|folder| folder.as_os_str()).collect();
        folders.join(":".as_ref())
    }
}
