//! Workspaces: what a call sees, what it changed, and how that becomes real, wholly or not at all.
//!
//! A call runs in a [`View`], a copy-on-write picture of its [`Workspace`]. What it changed is an effect, taken down in a [`Manifest`],
//! which people and policy read and approvals are bound to by digest. A [`Commit`] puts an effect in place: it is staged, the caller
//! writes one durable row, and it is applied. Before that row nothing happened, after it everything did.
//!
//! ```no_run
//! # use belay_workspace::{Limits, RelPath, Workspace};
//! # fn write_the_row(_: &belay_workspace::Commit) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let workspace = Workspace::open("/home/ada/project".as_ref(), &["/home/ada/.local/state/belay".as_ref()])?;
//! workspace.sweep(|id| id == "a-commit-the-ledger-knows")?;
//!
//! let mut view = workspace.view("call-1")?;
//! view.write(&RelPath::parse("notes/today.md")?, b"all quiet\n", None)?;
//! let manifest = view.effect(Limits::default())?;
//!
//! let commit = workspace.stage(view, &manifest)?;
//! write_the_row(&commit); // the commit point: durable, and the caller's
//! workspace.apply(&commit)?;
//! workspace.retire(&commit)?; // before the next one
//! workspace.sync()?; // now the row may go
//! # Ok(())
//! # }
//! ```
//!
//! What a view does not keep: files that several names share. A later call that writes to one of them gives it a file of its own, as any
//! overlay does. And a folder of the workspace cannot be renamed in a mounted view (`EXDEV`): `mv` copies it instead.
//!
//! This crate is synchronous, reads no clock (files are compared by the times that the file system gave them) and keeps no ledger. Every
//! call that changes the disk goes through one seam ([`Seam`]), so that a test can kill the process before any of them.

mod apply;
mod commit;
mod conflict;
mod disk;
mod effect;
mod lookup;
mod manifest;
mod open;
mod order;
mod overlay_format;
mod path;
mod remove;
mod retention;
mod stage;
mod stat;
mod stores;
mod tree;
mod view;
mod workspace;

pub use commit::{Commit, CommitError, Op};
pub use conflict::Fingerprint;
pub use disk::{Call, IoFailure, Seam, Undisturbed};
pub use effect::EffectError;
pub use manifest::{Act, Change, Flag, Flagged, Manifest};
pub use order::Order;
pub use path::{OWN, PathError, RelPath};
pub use stat::{FileKind, FileTime};
pub use stores::enclosing_state_directory;
pub use tree::{Content, Digest, LeftOut, Limits, Node, Stop, TreeError};
pub use view::{Metadata, UPPER, View, ViewError, WORK};
pub use workspace::{OpenError, Workspace};
