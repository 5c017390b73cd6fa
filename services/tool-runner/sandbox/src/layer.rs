//! The layers the sandbox is made of, and what to do where the kernel does not give one.

use std::fmt;

use crate::wire::wire_enum;

/// One wall of the sandbox, or one thing the walls stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Executing this binary again as the launcher.
    Launcher,
    /// Becoming the service user before anything else, when the runner is root.
    ServiceUser,
    /// A user namespace with one id in it.
    UserNamespace,
    /// Namespaces for mounts, processes, network, System V IPC, host name and cgroups.
    Namespaces,
    /// A root of the command's own: a tmpfs with read-only mounts.
    View,
    /// A fresh `/proc` that shows the command's processes only.
    Proc,
    /// The workspace's mount with its owner mapped to the service user (only when the runner is root).
    IdMappedWorkspace,
    /// The workspace at its place: an overlay, or a read-only mount.
    Workspace,
    /// The pid namespace's own process limit (Linux ≥ 6.14). Without it RLIMIT_NPROC counts alone.
    ProcessLimit,
    /// No capabilities, and none to be gained.
    Privileges,
    /// Resource limits of the process.
    Limits,
    /// Landlock.
    Landlock,
    /// The seccomp filter.
    Seccomp,
}

wire_enum!(Layer {
    0 = Launcher,
    1 = ServiceUser,
    2 = UserNamespace,
    3 = Namespaces,
    4 = View,
    5 = Proc,
    6 = IdMappedWorkspace,
    7 = Workspace,
    8 = ProcessLimit,
    9 = Privileges,
    10 = Limits,
    11 = Landlock,
    12 = Seccomp,
});

impl Layer {
    /// The name used in reports, errors and receipts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Launcher => "launcher",
            Self::ServiceUser => "service user",
            Self::UserNamespace => "user namespace",
            Self::Namespaces => "namespaces",
            Self::View => "root view",
            Self::Proc => "fresh /proc",
            Self::IdMappedWorkspace => "id-mapped workspace",
            Self::Workspace => "workspace mount",
            Self::ProcessLimit => "process limit",
            Self::Privileges => "privileges",
            Self::Limits => "resource limits",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }

    /// What an operator can do about the layer missing on this machine.
    #[must_use]
    pub fn fix(self) -> &'static str {
        match self {
            Self::Launcher => {
                "give `Settings::executable` the path of this binary, and leave the launcher alone while it works"
            }
            Self::ServiceUser => {
                "run as root with CAP_SETUID and CAP_SETGID, or as an ordinary user; choose a service uid that this user \
                 namespace knows (`cat /proc/self/uid_map`)"
            }
            Self::UserNamespace | Self::Namespaces => user_namespace_fix(),
            Self::View => {
                "needs Linux 5.12 or newer, and a seccomp profile of the container that allows the mount calls"
            }
            Self::Proc => {
                "the container masks parts of /proc: set `procMount: Unmasked` with `hostUsers: false` (Kubernetes), or \
                 `--security-opt systempaths=unconfined` (Docker)"
            }
            Self::IdMappedWorkspace => {
                "put the workspace on a file system that can map owners (ext4, xfs, btrfs; Linux 5.19 for overlays; not a \
                 container's own layer), or give it to the service uid"
            }
            Self::Workspace => {
                "the staging folder must be new, and on a local file system with user xattrs that overlays can write to \
                 (ext4, xfs, btrfs; Linux 5.11; not a container's own layer, not NFS)"
            }
            Self::ProcessLimit => "needs Linux 6.14 or newer; RLIMIT_NPROC is in force all the same",
            Self::Privileges | Self::Limits => "the container's seccomp profile must allow prctl, capset and prlimit",
            Self::Landlock => "needs Linux 5.13 or newer with `landlock` in the `lsm=` boot parameter",
            Self::Seccomp => "needs a kernel with CONFIG_SECCOMP_FILTER",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Three switches close user namespaces to ordinary users, and the call's error is the same for each: so ask them.
fn user_namespace_fix() -> &'static str {
    let is = |path: &str, value: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor strips unprivileged user namespaces here: install a profile for this binary with the rule `userns,`, or set \
         kernel.apparmor_restrict_unprivileged_userns=0"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "set kernel.unprivileged_userns_clone=1"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "set user.max_user_namespaces above 0"
    } else {
        "in a container, allow clone, unshare and mount: `hostUsers: false` with a Localhost seccomp profile (Kubernetes), or \
         `--security-opt seccomp=…` (Docker)"
    }
}
