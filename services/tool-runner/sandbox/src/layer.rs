//! The layers of the sandbox, and how to fix a missing one.

use std::fmt;

use crate::wire::wire_enum;

/// A layer of the sandbox, or a precondition of the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Executing this binary again as the launcher.
    Launcher,
    /// Switching to the service user first, if the runner is root.
    ServiceUser,
    /// A user namespace with one id in it.
    UserNamespace,
    /// Namespaces for mounts, processes, network, System V IPC, host name and cgroups.
    Namespaces,
    /// The command's own root: a tmpfs with read-only mounts.
    View,
    /// The sockets of a command with a network, on the loopback interface of its namespace.
    Network,
    /// A new `/proc` with only the processes of the command.
    Proc,
    /// The workspace mount with its owner mapped to the service user (only if the runner is root).
    IdMappedWorkspace,
    /// The workspace mount: an overlay, or a read-only mount.
    Workspace,
    /// The process limit of the pid namespace (Linux 6.14 or newer). Without it only RLIMIT_NPROC applies.
    ProcessLimit,
    /// No capabilities, and no way to gain any.
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
    13 = Network,
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
            Self::Network => "network sockets",
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

    /// How an operator can fix the missing layer on this machine.
    #[must_use]
    pub fn fix(self) -> &'static str {
        match self {
            Self::Launcher => {
                "make sure that the file of this program can be executed, and that nothing kills the processes that it starts"
            }
            Self::ServiceUser => {
                "run as root with CAP_SETUID and CAP_SETGID, or as an ordinary user; choose a service uid that this user \
                 namespace maps (`cat /proc/self/uid_map`)"
            }
            Self::UserNamespace | Self::Namespaces => user_namespace_fix(),
            Self::View => "use Linux 5.12 or newer, and a container seccomp profile that allows the mount calls",
            Self::Network => {
                "allow a new network namespace to bring up its loopback interface and to listen on it (a container's seccomp profile \
                 or a security module may forbid it; an IPv6 address needs a kernel with IPv6)"
            }
            Self::Proc => {
                "the container masks parts of /proc: set `procMount: Unmasked` with `hostUsers: false` (Kubernetes), or \
                 `--security-opt systempaths=unconfined` (Docker)"
            }
            Self::IdMappedWorkspace => {
                "put the workspace on a file system with id-mapped mounts (ext4, xfs, btrfs; Linux 5.19 for overlays; not a \
                 container's own layer), or change its owner to the service uid"
            }
            Self::Workspace => {
                "use a new staging directory on a local file system that supports user xattrs and overlay upper layers \
                 (ext4, xfs, btrfs; Linux 5.11; not a container's own layer, not NFS)"
            }
            Self::ProcessLimit => "use Linux 6.14 or newer; RLIMIT_NPROC applies in any case",
            Self::Privileges | Self::Limits => "use a container seccomp profile that allows prctl, capset and prlimit",
            Self::Landlock => "use Linux 5.13 or newer with `landlock` in the `lsm=` boot parameter",
            Self::Seccomp => "use a kernel with CONFIG_SECCOMP_FILTER",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Three settings disable unprivileged user namespaces with the same error, so read them.
fn user_namespace_fix() -> &'static str {
    let is = |path: &str, value: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor restricts unprivileged user namespaces here: install a profile for this binary with the rule `userns,`, or set \
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
