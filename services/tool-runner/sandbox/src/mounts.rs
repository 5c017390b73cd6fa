//! Directories and files of the host that a command sees besides the system and its workspace.

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

/// A directory or file of the host that a command sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path on the host. It must be absolute, without symbolic links, and exist when a command starts, or the command is refused.
    pub source: PathBuf,
    /// The path in the view: absolute, without `..`. It may lie below `/opt`, `/usr/local` (where it must exist on the host), `/etc`, a
    /// home, [`crate::HOME`] or any new path, and below the target of another mount; not in `/proc`, `/sys`, `/dev` or the workspace, which
    /// the sandbox builds itself. Missing parent directories are created, read-only.
    pub target: PathBuf,
    /// How the command may access it.
    pub kind: MountKind,
}

/// How a command may access a [`Mount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// Read and execute. Set-user-id bits and devices have no effect.
    ReadOnly,
    /// Read, write and execute; changes are private to the command and dropped when it ends. The source is a directory and is never
    /// written. Mounts below it are not visible.
    Scratch,
    /// Read, write and execute; changes go to the staging directory of the call, see [`crate::CACHES`], and the source is never written. Without a
    /// staging directory as [`MountKind::Scratch`]. The source is a directory; mounts below it are not visible.
    Staged,
}

wire_struct!(Mount { source, target, kind });
wire_enum!(MountKind { 0 = ReadOnly, 1 = Scratch, 2 = Staged });

impl Mount {
    /// A read-only mount at the same path.
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { source: path.clone(), target: path, kind: MountKind::ReadOnly }
    }
}

/// Paths that the launcher builds: nothing is mounted there or below.
const BUILT: [&str; 4] = ["/proc", "/sys", "/dev", crate::WORKSPACE];

/// Paths that the launcher builds, but below which an operator may mount something.
const BUILT_ITSELF: [&str; 14] = [
    "/etc", "/tmp", "/var", "/var/tmp", "/run", "/home", HOME, "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
    "/libx32",
];

/// Sources that expose the running system rather than files.
const NEVER_MOUNTED: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/var/run", "/boot"];

/// Sources that are too much, whatever they contain today.
const NEVER_WHOLE: [&str; 5] = ["/home", "/root", "/Users", "/var", "/var/lib"];

/// Secrets of the machine, which no toolchain needs.
const SECRETS: [&str; 6] =
    ["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/ssl/private"];

/// The mounts of a command, parents before their children, in two parts: those that are mounted before the command is known, which `common` ones can be, and
/// the rest.
pub(crate) fn in_order(common: Vec<Mount>, of_call: Vec<Mount>) -> Result<(Vec<Mount>, Vec<Mount>), LaunchError> {
    let known = common.len();
    let mut all: Vec<(Mount, bool)> =
        common.into_iter().chain(of_call).enumerate().map(|(n, mount)| (mount, n < known)).collect();
    check(all.iter().map(|(mount, _)| mount), "mounts")?;
    all.sort_by_key(|(mount, _)| mount.target.components().count());
    // HOME and /tmp are mounted for a call, and would cover what was mounted below them before, as would any other mount of the call.
    let mut later: Vec<PathBuf> = [HOME, "/tmp"].map(PathBuf::from).to_vec();
    let (first, rest) = all.into_iter().partition::<Vec<_>, _>(|(mount, is_common)| {
        let is_first = *is_common
            && mount.kind == MountKind::ReadOnly
            && !later.iter().any(|place| mount.target.starts_with(place));
        if !is_first {
            later.push(mount.target.clone());
        }
        is_first
    });
    let mounts = |part: Vec<(Mount, bool)>| part.into_iter().map(|(mount, _)| mount).collect();
    Ok((mounts(first), mounts(rest)))
}

/// Rejects mounts that would weaken the sandbox, or that are impossible. `field`: their path, for the message.
pub(crate) fn check<'a>(mounts: impl IntoIterator<Item = &'a Mount>, field: &str) -> Result<(), LaunchError> {
    let (mut targets, mut staged) = (BTreeSet::new(), BTreeSet::new());
    for (n, mount) in mounts.into_iter().enumerate() {
        let refuse = |part: &str, problem: String| Err(LaunchError::spec(format!("{field}[{n}].{part}"), problem));
        for (part, path) in [("source", &mount.source), ("target", &mount.target)] {
            if !is_plain(path) {
                return refuse(part, format!("`{}` must be an absolute path without `..`", path.display()));
            }
            if path.as_os_str().as_bytes().contains(&0) {
                return refuse(part, "contains a NUL byte".to_owned());
            }
            if path.parent().is_none() {
                return refuse(part, "must not be `/`".to_owned());
            }
        }
        if let Some(secret) = SECRETS.iter().find(|secret| mount.source.starts_with(secret)) {
            return refuse("source", format!("{secret} holds secrets of the machine and is never mounted"));
        }
        if mount.source == Path::new("/etc") || mount.source == Path::new("/etc/ssl") {
            return refuse("source", "holds secrets of the machine: mount only the files that are needed".to_owned());
        }
        if let Some(never) = NEVER_MOUNTED.iter().find(|never| mount.source.starts_with(never)) {
            return refuse("source", format!("{never} belongs to the running system and is never mounted"));
        }
        if let Some(whole) = NEVER_WHOLE.iter().find(|whole| mount.source == Path::new(whole)) {
            return refuse("source", format!("{whole} is never mounted as a whole: mount a directory in it"));
        }
        if let Some(built) = BUILT.iter().find(|built| mount.target.starts_with(built)) {
            return refuse("target", format!("the sandbox builds {built} itself"));
        }
        if let Some(built) = BUILT_ITSELF.iter().find(|built| mount.target == Path::new(built)) {
            return refuse("target", format!("the sandbox builds {built} itself: mount something below it"));
        }
        if mount.kind == MountKind::Staged && !staged.insert(mount.source.file_name()) {
            return refuse("source", "has the last name of another source whose changes are staged".to_owned());
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
    fn toolchains_are_mounted_in_place_or_below_home() {
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
    fn paths_that_the_sandbox_builds_are_rejected_as_targets() {
        for target in
            ["/proc/sys", "/sys", "/dev/shm", "/workspace/sub", "/tmp", "/etc", "/home/belay", "/usr", "/lib64"]
        {
            let error = refusal(Mount { source: "/opt/x".into(), target: target.into(), kind: MountKind::ReadOnly });
            assert!(error.starts_with("settings.mounts[0].target:") && error.contains("builds"), "{target}: {error}");
        }
    }

    #[test]
    fn the_system_and_its_secrets_are_rejected_as_sources() {
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
    fn what_does_not_depend_on_the_call_is_mounted_before_it() {
        let mount = |target: &str, kind| Mount { source: "/opt/x".into(), target: target.into(), kind };
        let read_only = |target: &str| mount(target, MountKind::ReadOnly);
        let common = ["/opt/a/b/c/d", "/opt/a", "/home/belay/.tool", "/tmp/tool", "/opt/cache/tool", "/opt/z"];
        let common = common.map(read_only).to_vec();
        let call = vec![
            mount("/opt/cache", MountKind::Scratch),
            mount("/home/belay/.cache", MountKind::Scratch),
            read_only("/opt/y"),
        ];
        let (first, rest) = in_order(common, call).unwrap();
        let targets =
            |mounts: &[Mount]| mounts.iter().map(|mount| mount.target.display().to_string()).collect::<Vec<_>>();
        assert_eq!(targets(&first), ["/opt/a", "/opt/z", "/opt/a/b/c/d"]);
        assert_eq!(
            targets(&rest),
            ["/tmp/tool", "/opt/cache", "/opt/y", "/home/belay/.tool", "/opt/cache/tool", "/home/belay/.cache"]
        );
    }

    #[test]
    fn a_target_is_used_once() {
        let error = check(&[Mount::read_only("/opt/x"), Mount::read_only("/opt/x")], "mounts").unwrap_err();
        assert!(error.to_string().starts_with("mounts[1].target:"), "{error}");
    }
}
