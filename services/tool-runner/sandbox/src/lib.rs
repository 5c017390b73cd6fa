//! Runs a command in a sandbox that the kernel enforces: namespaces, its own root, Landlock, seccomp, limits, no network beyond its own
//! loopback interface.
//!
//! The command is an argument vector; there is no shell. It sees `/usr`, a generated `/etc`, a few devices, an empty `/tmp` and the
//! workspace at [`WORKSPACE`]; its changes go to an upper directory that the caller names, or nowhere. A layer that the kernel does not
//! support is an error with its name and a fix, never silently skipped.
//!
//! ```text
//! runner ──▶ fork server (this binary executed again, one thread) ──fork──▶ launcher
//! runner ──spec──▶ launcher ──clone──▶ init (pid 1, builds the sandbox) ──fork──▶ the command
//!    ▲                 └ watches the runner, clock, disks, init └ reaps, kills what is left, reports
//!    └──────────────────────── started · ended (status, usage) ──────────────────────┘
//! ```
//!
//! A program that launches commands must call [`take_over_if_asked`] first in `main`.
//!
//! This crate knows nothing of policy, secrets or what happens to the changes. It holds all `unsafe` code of the services.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("the sandbox supports Linux on x86_64 and aarch64 only");

mod arming;
mod attacks;
mod budget;
mod command_process;
mod command_table;
mod confinement;
mod connection;
mod disk_watch;
mod ended;
mod environment;
mod error;
mod etc;
mod fork_server;
mod freshness;
mod handover;
mod host_ids;
mod init;
mod launcher;
mod layer;
mod limits;
mod monitor;
mod mounts;
mod network;
mod output;
mod pool;
mod probe;
mod probe_layers;
mod protocol;
mod reserved;
mod role;
mod running;
mod scratch;
mod scratch_directory;
mod seccomp;
mod self_test;
mod settings;
mod slot;
mod socket_receipt;
mod sockets;
mod sources;
mod spec;
mod sys;
mod take_over;
mod usage;
mod view;
mod wire;

pub use budget::{DiskLimit, Reserve, Unit, WriteBound, WriteBudget};
pub use ended::{EnforcedParts, Usage};
pub use error::LaunchError;
pub use launcher::{Launcher, NamespaceLauncher};
pub use layer::Layer;
pub use limits::Limits;
pub use mounts::{Mount, MountKind};
pub use network::{CommandNetwork, NetworkSockets};
pub use output::{Output, OutputCaps, RetainedOutput};
pub use probe::{LayerReport, LayerState, Report, Tier, probe};
pub use reserved::{RESERVED_VARIABLES, ReservedVariables, is_reserved, reserved_variable_problem};
pub use running::{KillHandle, Outcome, ProcessEnd, RunningCommand, Status, Timer};
pub use scratch::{Scratch, ScratchPlace};
pub use self_test::{AttackResult, SelfTestError, self_test};
pub use settings::Settings;
pub use spec::{ASK_VARIABLE, Dialogue, OUTPUT_VARIABLE, Spec, WorkspaceMount};
pub use take_over::take_over_if_asked;

/// The path of the workspace in the view of the command.
pub const WORKSPACE: &str = "/workspace";

/// The command's home directory.
pub const HOME: &str = "/home/belay";

/// The directory of [`WorkspaceMount::staging`] that receives the changes (the upper directory of the overlay).
pub const UPPER: &str = "upper";

/// The directory of a staging directory for the changes of [`MountKind::Staged`] mounts: for each a directory named as its source, with [`UPPER`] and
/// [`WORK`].
pub const CACHES: &str = "caches";

/// The directory of [`WorkspaceMount::staging`] that the overlay uses internally.
pub const WORK: &str = "work";

/// The user and group id in the sandbox. Not 0, so that `exec` drops all capabilities and no tool assumes that it is root.
pub const INNER_ID: u32 = 1000;
