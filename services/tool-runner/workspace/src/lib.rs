//! Workspaces: what a call sees, what it changed, and how the changes are committed as a whole or not at all.
//!
//! A call runs in a [`View`], a copy-on-write view of its [`Workspace`]. Its changes are an effect, recorded in a [`Manifest`], which
//! people and policy read and whose digest approvals are bound to. A [`Commit`] applies an effect: it is staged, the caller writes one
//! durable row, and it is applied. Before that row nothing has happened, after it everything has.
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
//! workspace.sync()?; // now the row may be deleted
//! # Ok(())
//! # }
//! ```
//!
//! Limits of a view: hard links are not preserved, because a call that writes to one gets its own copy, as in any overlay. And a directory
//! of the workspace cannot be renamed in a mounted view (`EXDEV`): `mv` copies it instead.
//!
//! This crate is synchronous, reads no clock (files are compared by the times of the file system) and keeps no ledger. Every call that
//! changes the disk goes through one seam ([`Seam`]), so that a test can kill the process before any of them.

mod apply;
mod attributes;
mod caches;
mod commit;
mod conflict;
mod disk;
mod drop_conflicts;
mod dropped;
mod effect;
mod fill;
mod folder;
mod inner;
mod kept_cache;
mod kept_layers;
mod layer;
mod layers;
mod lookup;
mod manifest;
mod open;
mod open_error;
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
mod view_error;
mod workspace;

pub use caches::CacheChanges;
pub use commit::{Commit, CommitError, Op};
pub use conflict::Fingerprint;
pub use disk::{Call, IoFailure, QuietSeam, Seam};
pub use dropped::{DroppedChange, DroppedContent, RevertedPath};
pub use effect::EffectError;
pub use folder::{Folder, FolderEntry};
pub use kept_cache::prepare_cache;
pub use layer::{Layer, LayerPlace, OwnChanges};
pub use layers::LayerOwner;
pub use manifest::{Act, Change, Flag, FlaggedPath, Manifest};
pub use open_error::OpenError;
pub use order::Order;
pub use path::{OWN, PathError, RelPath, is_own};
pub use remove::remove_workspace;
pub use stat::{FileKind, FileTime};
pub use stores::{STATE_KEYS, STATE_STORES, contained_state_directory, enclosing_state_directory};
pub use tree::{Content, Digest, Limits, Node, SpecialFile, Stop, TreeError};
pub use view::{CACHES, Metadata, UPPER, View, WORK, is_plain};
pub use view_error::ViewError;
pub use workspace::Workspace;
