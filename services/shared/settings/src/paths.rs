//! Paths of the host and of the sandbox.

use std::path::{Component, Path, PathBuf};

/// The host directories that every command sees, read-only.
pub const SYSTEM_FOLDERS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The default search path for programs.
pub const SYSTEM_PATH: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// A command's home directory, in its view.
pub const COMMAND_HOME: &str = "/home/belay";

/// Whether every command sees this host path without any setting.
pub fn is_system(path: &Path) -> bool {
    SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// Parses an absolute path without `..`, with `~` expanded; otherwise returns what is wrong with it.
pub(crate) fn absolute(text: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    let path = match (text.strip_prefix('~'), home) {
        (Some(rest), _) if !rest.is_empty() && !rest.starts_with('/') => {
            return Err(format!(
                "`{}`: write the full path; `~` expands only to your own home directory",
                belay_yaml::shown(text)
            ));
        }
        (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
        (Some(_), None) => return Err("contains `~`, but HOME is not set: write the full path".to_owned()),
        (None, _) => PathBuf::from(text),
    };
    let plain = path.is_absolute()
        && !text.contains('\0')
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if plain {
        Ok(path.components().collect())
    } else {
        Err(format!("`{}` must be an absolute path without `..`, such as /opt/go", belay_yaml::shown(text)))
    }
}

/// Host paths that expose the running system rather than files: nothing in them is visible to commands.
const MACHINE: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/boot", "/var/run"];

/// Host paths that are never visible as a whole.
const WHOLE: [&str; 3] = ["/etc", "/var", "/var/lib"];

/// Secrets of the machine, which no toolchain needs.
const SECRETS: [&str; 12] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/letsencrypt",
    "/etc/NetworkManager/system-connections",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/wireguard",
];

/// Why commands must not see a path without symbolic links: it is or contains the root, a home or secrets, or is part of the running system.
pub(crate) fn too_much(path: &Path, home: Option<&Path>) -> Option<&'static str> {
    const ROOTS: [&str; 2] = ["/home", "/Users"];
    let is_home = path == Path::new("/root")
        || ROOTS.iter().any(|root| path == Path::new(root) || path.parent() == Some(Path::new(root)))
        || home.is_some_and(|home| home.starts_with(path));
    if path == Path::new("/") {
        Some("is the whole machine: name the directory of one toolchain")
    } else if is_home {
        Some("is, or contains, a home directory, which may hold credentials: name the directory of one toolchain")
    } else if WHOLE.iter().any(|whole| path == Path::new(whole))
        || MACHINE.iter().any(|folder| path.starts_with(folder))
    {
        Some("belongs to the running system and is never visible to commands: name the directory of one toolchain")
    } else if SECRETS.iter().any(|secret| path.starts_with(secret) || Path::new(secret).starts_with(path)) {
        Some("is, or contains, secrets of this machine: name only the files that are needed")
    } else {
        None
    }
}
