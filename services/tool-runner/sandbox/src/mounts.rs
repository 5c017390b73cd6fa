//! Folders and files of the host that a command sees beside the system's and its workspace.

use std::{
    collections::BTreeSet,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use crate::{
    HOME,
    error::LaunchError,
    wire::{wire_enum, wire_struct},
};

/// A folder or file of the host that a command sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The folder or file on the host. An absolute path. It has to exist when a command starts, or the command is refused.
    pub source: PathBuf,
    /// Where the command sees it: an absolute path without `..`. It may lie below `/opt`, `/usr/local` (where it has to exist on the
    /// host), `/etc`, a home, [`crate::HOME`] or any place of its own, and below the target of another mount; not in `/proc`, `/sys`,
    /// `/dev` or the workspace, which the sandbox builds itself. Missing folders above it are made, and are not writable.
    pub target: PathBuf,
    /// What the command may do with it.
    pub kind: MountKind,
}

/// What a command may do with a [`Mount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// Read and execute. Set-user-id bits and devices have no effect.
    ReadOnly,
    /// Read, execute and change; the changes are the command's own and are dropped when it ends. The source is a folder and is never
    /// written. Mounts below it are not shown.
    Scratch,
    /// Read, execute and change; the changes stay. The source is a folder of Belay's own: what a command leaves there, later commands
    /// meet, so that nothing outside of a sandbox may read it. When the runner is root, files get the owner of the source.
    Writable,
}

wire_struct!(Mount { source, target, kind });
wire_enum!(MountKind { 0 = ReadOnly, 1 = Scratch, 2 = Writable });

impl Mount {
    /// A folder or file shown read-only at its own place.
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { source: path.clone(), target: path, kind: MountKind::ReadOnly }
    }
}

/// Places in the view that the launcher builds: nothing is mounted there or below.
const BUILT: [&str; 4] = ["/proc", "/sys", "/dev", crate::WORKSPACE];

/// Places that are the launcher's own as well, below which an operator may show something.
const BUILT_ITSELF: [&str; 14] = [
    "/etc", "/tmp", "/var", "/var/tmp", "/run", "/home", HOME, "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
    "/libx32",
];

/// Sources that are the machine rather than files. Below them, or as a whole, they would be a way out.
const NEVER_SHOWN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Secrets of the machine that no toolchain has a use for.
const SECRETS: [&str; 6] =
    ["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/ssl/private"];

/// Refuses mounts that would open the sandbox, or that cannot be. `field`: where they stand, for the message.
pub(crate) fn check(mounts: &[Mount], field: &str) -> Result<(), LaunchError> {
    let mut targets = BTreeSet::new();
    for (n, mount) in mounts.iter().enumerate() {
        let refuse = |part: &str, problem: String| Err(LaunchError::spec(format!("{field}[{n}].{part}"), problem));
        for (part, path) in [("source", &mount.source), ("target", &mount.target)] {
            if !is_plain(path) {
                return refuse(part, format!("`{}` must be an absolute path without `..`", path.display()));
            }
            if path.as_os_str().as_bytes().contains(&0) {
                return refuse(part, "contains a NUL byte".to_owned());
            }
            if path.parent().is_none() {
                return refuse(part, "must not be the whole root".to_owned());
            }
        }
        if let Some(secret) = SECRETS.iter().find(|secret| mount.source.starts_with(secret)) {
            return refuse("source", format!("{secret} holds secrets of the machine: it is never shown"));
        }
        if mount.source == Path::new("/etc") || mount.source == Path::new("/etc/ssl") {
            return refuse("source", "holds secrets of the machine: show the files that are needed".to_owned());
        }
        if let Some(never) = NEVER_SHOWN.iter().find(|never| mount.source.starts_with(never)) {
            return refuse("source", format!("{never} is the running system's: it is never shown"));
        }
        if let Some(built) = BUILT.iter().find(|built| mount.target.starts_with(built)) {
            return refuse("target", format!("the sandbox builds {built} itself"));
        }
        if let Some(built) = BUILT_ITSELF.iter().find(|built| mount.target == Path::new(built)) {
            return refuse("target", format!("the sandbox builds {built} itself: show something below it"));
        }
        if !targets.insert(&mount.target) {
            return refuse("target", format!("`{}` is the target of two mounts", mount.target.display()));
        }
    }
    Ok(())
}

fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir) && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(mount: Mount) -> String {
        check(&[mount], "settings.mounts").unwrap_err().to_string()
    }

    #[test]
    fn toolchains_are_shown_where_they_are_or_below_home() {
        let at = |source: &str, target: &str| Mount {
            source: source.into(),
            target: target.into(),
            kind: MountKind::ReadOnly,
        };
        let mounts = [
            Mount::read_only("/opt/go"),
            Mount::read_only("/usr/local/go"),
            Mount::read_only("/home/somebody/.rustup/toolchains/stable"),
            Mount::read_only("/etc/java-17-openjdk"),
            at("/root/.cargo/bin", "/home/belay/.cargo/bin"),
            at("/root/.rustup/toolchains/stable", "/home/belay/.rustup/toolchains/stable"),
        ];
        check(&mounts, "settings.mounts").unwrap();
    }

    #[test]
    fn what_the_sandbox_builds_is_no_target() {
        for target in
            ["/proc/sys", "/sys", "/dev/shm", "/workspace/sub", "/tmp", "/etc", "/home/belay", "/usr", "/lib64"]
        {
            let error = refusal(Mount { source: "/opt/x".into(), target: target.into(), kind: MountKind::ReadOnly });
            assert!(error.starts_with("settings.mounts[0].target:") && error.contains("builds"), "{target}: {error}");
        }
    }

    #[test]
    fn the_machine_and_its_secrets_are_no_source() {
        for source in [
            "/",
            "/proc/1",
            "/run/docker.sock",
            "/etc",
            "/etc/shadow",
            "/etc/ssh/ssh_host_rsa_key",
            "/etc/ssl",
            "relative",
        ] {
            let error = refusal(Mount { source: source.into(), target: "/opt/x".into(), kind: MountKind::ReadOnly });
            assert!(error.starts_with("settings.mounts[0].source:"), "{source}: {error}");
        }
    }

    #[test]
    fn a_target_is_used_once() {
        let error = check(&[Mount::read_only("/opt/x"), Mount::read_only("/opt/x")], "mounts").unwrap_err();
        assert!(error.to_string().starts_with("mounts[1].target:"), "{error}");
    }
}
