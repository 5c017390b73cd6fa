//! Runs one command in a sandbox that the kernel enforces: namespaces, a root of its own, Landlock, seccomp, limits, no network.
//!
//! The command gets an argument vector, never a shell. It sees `/usr`, an `/etc` of ours, five devices, an empty `/tmp` and the
//! workspace at [`WORKSPACE`]; what it changes there lands in an upper folder the caller named, or nowhere. What the kernel does
//! not give is refused with the layer's name and what to do about it, never left out in silence.
//!
//! ```text
//! runner ──spec──▶ launcher (this binary executed again, one thread) ──clone──▶ init (pid 1, builds the sandbox) ──fork──▶ the command
//!    ▲                 └ watches the runner, clock, disks, init                  └ reaps, kills what is left, reports
//!    └──────────────────────── started · ended (status, usage) ─────────────────────────────────────┘
//! ```
//!
//! A program that launches anything must call [`take_over_if_asked`] on the first line of `main`.
//!
//! This crate decides nothing about policy, secrets or what becomes of the changes; it holds all `unsafe` code of the services.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("the sandbox is made of Linux system calls and knows their numbers for x86_64 and aarch64 only");

mod attacks;
mod budget;
mod command_table;
mod disk_watch;
mod environment;
mod error;
mod etc;
mod init;
mod launcher;
mod layer;
mod limits;
mod monitor;
mod mounts;
mod order;
mod output;
mod probe;
mod running;
mod scratch;
mod scratch_folder;
mod seccomp;
mod self_test;
mod settings;
mod sources;
mod spec;
mod sys;
mod take_over;
mod tool;
mod usage;
mod view;
mod walls;
mod wire;

pub use budget::{DiskLimit, Reserve, Unit, WriteBound, WriteBudget};
pub use error::LaunchError;
pub use launcher::{Launcher, NamespaceLauncher};
pub use layer::Layer;
pub use limits::Limits;
pub use mounts::{Mount, MountKind};
pub use output::{Kept, Output, OutputCaps};
pub use probe::{LayerReport, LayerState, Report, Tier, probe};
pub use running::{Enforced, KillHandle, Outcome, ProcessEnd, Running, Status, Usage};
pub use scratch::{Scratch, ScratchPlace};
pub use self_test::{AttackResult, SelfTestError, self_test};
pub use settings::Settings;
pub use spec::{Spec, WorkspaceMount, is_reserved, not_the_calls};
pub use take_over::take_over_if_asked;

/// Where the workspace stands in the command's view.
pub const WORKSPACE: &str = "/workspace";

/// The command's home directory.
pub const HOME: &str = "/home/belay";

/// The folder of [`WorkspaceMount::staging`] in which the command's changes are found afterwards (an overlay's upper folder).
pub const UPPER: &str = "upper";

/// The folder of [`WorkspaceMount::staging`] that the overlay uses for itself.
pub const WORK: &str = "work";

/// The user and group the command sees itself as. Not 0: an `exec` then drops every capability, and no tool takes itself for root.
pub const INNER_ID: u32 = 1000;
