//! The launcher's report on a command: the layers that are active, its end, and what it used.

use std::{ops::AddAssign, time::Duration};

use crate::{
    budget::DiskLimit,
    layer::Layer,
    wire::{wire_enum, wire_struct},
};

/// The optional parts of the sandbox that are active for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnforcedParts {
    /// The Landlock ABI.
    pub landlock_abi: u8,
    /// Whether the pid namespace limits processes. If not, only RLIMIT_NPROC does.
    pub process_limit: bool,
    /// Whether the loopback interface of the command is up. If not, it can open local sockets only.
    pub loopback: bool,
}

wire_struct!(EnforcedParts { landlock_abi, process_limit, loopback });

impl EnforcedParts {
    /// The active layers, in the order of their setup. Nothing is launched without the mandatory ones. `as_root`: the runner is root and
    /// drops its privileges first.
    pub(crate) fn layers(self, as_root: bool) -> Vec<Layer> {
        let all = [
            (Layer::ServiceUser, as_root),
            (Layer::IdMappedWorkspace, as_root),
            (Layer::UserNamespace, true),
            (Layer::Namespaces, true),
            (Layer::View, true),
            (Layer::Proc, true),
            (Layer::Workspace, true),
            (Layer::ProcessLimit, self.process_limit),
            (Layer::Privileges, true),
            (Layer::Limits, true),
            (Layer::Landlock, true),
            (Layer::Seccomp, true),
        ];
        all.into_iter().filter(|(_, active)| *active).map(|(layer, _)| layer).collect()
    }
}

/// The resource usage of all processes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The peak memory of the largest process, in bytes.
    pub max_resident_bytes: u64,
}

wire_struct!(Usage { user, system, max_resident_bytes });

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
        self.max_resident_bytes = self.max_resident_bytes.max(other.max_resident_bytes);
    }
}

/// The end of a command, as the launcher reports it.
#[derive(Debug)]
pub(crate) struct CommandEnd {
    pub(crate) end: End,
    pub(crate) usage: Usage,
}

wire_struct!(CommandEnd { end, usage });

#[derive(Debug)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    DiskLimit(DiskLimit),
    Lost,
}

wire_enum!(End { 0 = Exited(code), 1 = Signalled(signal), 2 = TimedOut, 3 = Lost, 4 = DiskLimit(limit) });

impl End {
    /// The end in a raw wait status.
    pub(crate) fn of(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signalled(libc::WTERMSIG(status))
        } else {
            Self::Exited(libc::WEXITSTATUS(status))
        }
    }
}
