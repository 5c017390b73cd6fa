//! A commit as a value: the list of operations that the caller writes into its ledger, and the check that they still fit.
//!
//! The order of things is the caller's to keep:
//!
//! 1. [`Workspace::stage`]: what is to be put lies in its slots, on the disk for good. The workspace is untouched.
//! 2. [`Workspace::check`], if time has passed; then **one durable row in the caller's ledger with the [`Commit`] in it**. Before that
//!    row nothing happened: after a crash, [`Workspace::sweep`] or [`Workspace::discard`] removes what was staged. After it everything
//!    did: after a crash, apply again.
//! 3. [`Workspace::apply`], as often as it takes; [`Workspace::redo`] after a crash. What was applied can be lost with the power until
//!    the next [`Workspace::stage`] or [`Workspace::sync`] succeeds, and **so long the row has to stay**. Commits whose rows are left after a crash are redone in the order in which they were applied.
//! 4. [`Workspace::retire`], before the next commit is applied: it tells those that have to be redone from those that are done. Then
//!    [`Workspace::finish`] gives up what was displaced. Until then [`Workspace::rollback`] undoes the commit, if that is noted durably
//!    first and then done as often as it takes.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{
    fs::{Access, AtFlags, accessat, fstat},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};

use crate::{
    conflict::{Fingerprint, Place},
    disk::{At as _, IoFailure},
    effect::shown,
    open::{FOLDER, open_entry, stat_entry},
    path::RelPath,
    stat::{FileKind, Stat},
    tree::{Digest, TreeError},
    workspace::{Inner, Workspace},
};

/// What one commit does. To be kept in the ledger: with the folder that holds its slots it is all that recovery needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The view's id, and the name of the folder that holds its slots.
    pub id: String,
    /// Of the manifest that it carries out.
    pub manifest: Digest,
    /// What is done, by path.
    pub ops: Vec<Op>,
}

/// One step of a commit. Each one's state is read off its slot by inode: names in the workspace may have moved since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// What is in the slot changes place with what is at the path, or goes there if nothing is.
    Put {
        /// Where to.
        path: RelPath,
        /// Which slot.
        slot: u32,
        /// The inode that goes there.
        inode: u64,
        /// What is expected there; `None` for nothing.
        base: Option<Fingerprint>,
        /// What is put.
        staged: Fingerprint,
    },
    /// What is at the path goes into the slot.
    Away {
        /// Where from.
        path: RelPath,
        /// Which slot.
        slot: u32,
        /// What is expected there.
        base: Fingerprint,
    },
    /// A folder gets another mode.
    Meta {
        /// Which.
        path: RelPath,
        /// Its inode.
        inode: u64,
        /// Its permission bits before.
        old: u32,
        /// And after.
        new: u32,
    },
}

impl Op {
    /// Whose place it changes.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        match self {
            Self::Put { path, .. } | Self::Away { path, .. } | Self::Meta { path, .. } => path,
        }
    }
}

/// Why a commit was not staged, applied or undone.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Somebody else changed what it touches. The workspace is as if it had not been tried.
    #[error("changed by somebody else: {}; nothing was changed, run the call again on what is there now", shown(paths))]
    Conflict {
        /// Which paths.
        paths: Vec<RelPath>,
    },
    /// The view, or what was staged from it, is no longer what the manifest says.
    #[error(
        "what was to be put at `{path}` was altered after its effect was taken: see that nobody else writes there, and run the call again"
    )]
    Altered {
        /// Where.
        path: RelPath,
    },
    /// Whoever asked for the staging wants it no more.
    #[error("staging was stopped; nothing was changed")]
    Stopped,
    /// A name cannot be changed.
    #[error("`{path}` is in, or is, a directory that may not be written: give its owner the right to write")]
    ReadOnly {
        /// Where.
        path: RelPath,
    },
    /// A name cannot be moved there.
    #[error(
        "`{path}` is on another file system than the workspace: open the folder that is mounted there as a workspace of its own"
    )]
    OtherFileSystem {
        /// Where.
        path: RelPath,
    },
    /// There is nothing left to apply, undo or discard.
    #[error("commit `{id}` has no staged files: it was finished, discarded or never staged")]
    NotStaged {
        /// Which commit.
        id: String,
    },
    /// It is applied, in whole or in part, and its slots hold what was displaced.
    #[error("commit `{id}` is in place: undo it before it is discarded")]
    InPlace {
        /// Which commit.
        id: String,
    },
    /// It could go neither forward nor back.
    #[error(
        "commit `{id}` is only partly in place: {forward}; going back failed too: {back}; apply it again, or undo it, once the cause is gone"
    )]
    Stuck {
        /// Which commit.
        id: String,
        /// Why it could not go on.
        forward: Box<CommitError>,
        /// Why it could not go back.
        back: Box<CommitError>,
    },
    /// Something could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl Workspace {
    /// Whether every path that the commit touches still holds what it did: to be asked right before the row is written. No other commit
    /// to this workspace may be between its check and its [`Workspace::apply`]; seeing to that is the caller's.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] with all the paths that do not; [`CommitError::ReadOnly`], [`CommitError::OtherFileSystem`];
    /// [`CommitError::NotStaged`] if there is nothing that could be put in place, [`CommitError::Altered`] if it is something else.
    pub fn check(&self, commit: &Commit) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        check(&self.inner, &commit.ops)?;
        commit.ops.iter().try_for_each(|op| check_slot(&self.inner, op, &slots))
    }

    /// Gives up a commit of which no row was written. The workspace is untouched.
    ///
    /// # Errors
    ///
    /// [`CommitError::InPlace`] if it was applied after all.
    pub fn discard(&self, commit: &Commit) -> Result<(), CommitError> {
        match slots(&self.inner, commit) {
            Ok(slots) => {
                for op in &commit.ops {
                    if is_applied(op, &slots)? == Some(true) {
                        return Err(CommitError::InPlace { id: commit.id.clone() });
                    }
                }
            }
            Err(CommitError::NotStaged { .. }) => {}
            Err(error) => return Err(error),
        }
        self.retire(commit)?;
        let removed = self.inner.remove_trash(&retired_name(&commit.id));
        Ok(removed.at("removing the staged files of commit", &commit.id)?)
    }

    /// Puts what an applied commit displaced out of the way, at the end of its retention and in one step: it can no longer be undone, and
    /// whoever finds its row after a crash finds [`CommitError::NotStaged`].
    ///
    /// # Errors
    ///
    /// What the file system refuses.
    pub fn retire(&self, commit: &Commit) -> Result<(), CommitError> {
        let retired = self.inner.retire(&commit.id, &retired_name(&commit.id));
        Ok(retired.at("putting away the staged files of commit", &commit.id)?)
    }

    /// Gives up what an applied commit displaced, which may take a while: see [`Workspace::retire`]. What views may still look at that
    /// began before stays until they have ended: then [`Workspace::clear`] removes it.
    ///
    /// # Errors
    ///
    /// What the file system refuses.
    pub fn finish(&self, commit: &Commit) -> Result<(), CommitError> {
        self.retire(commit)?;
        self.inner.retention().displace(commit.id.clone());
        Ok(self.inner.clear()?)
    }
}

/// What the slots of a commit are called in the trash: nothing else there has such a name.
pub(crate) fn retired_name(id: &str) -> OsString {
    format!("commit-{id}").into()
}

/// The folder with the slots of a commit.
pub(crate) fn slots(inner: &Inner, commit: &Commit) -> Result<OwnedFd, CommitError> {
    match open_entry(&inner.commits, commit.id.as_ref(), FOLDER) {
        Err(Errno::NOENT) => Err(CommitError::NotStaged { id: commit.id.clone() }),
        opened => Ok(opened.at("opening the staged files of commit", &commit.id)?),
    }
}

/// The name of a slot.
pub(crate) fn slot_name(slot: u32) -> OsString {
    slot.to_string().into()
}

/// Whether an operation was done, read off its slot; `None` for a change of mode, which has none.
pub(crate) fn is_applied(op: &Op, slots: &OwnedFd) -> Result<Option<bool>, IoFailure> {
    let holds = |slot: u32, path| stat_entry(slots, &slot_name(slot)).at("looking at the slot of", path);
    match op {
        Op::Put { path, slot, inode, .. } => Ok(Some(holds(*slot, path)?.is_none_or(|found| found.ino != *inode))),
        Op::Away { path, slot, .. } => Ok(Some(holds(*slot, path)?.is_some())),
        Op::Meta { .. } => Ok(None),
    }
}

/// What a failed call says of the path's place: that somebody else changed it, or something unforeseen.
pub(crate) fn conflict_or(error: Errno, doing: &'static str, path: &RelPath) -> CommitError {
    match error {
        Errno::NOENT | Errno::EXIST | Errno::NOTDIR | Errno::LOOP => {
            CommitError::Conflict { paths: vec![path.clone()] }
        }
        Errno::XDEV | Errno::BUSY => CommitError::OtherFileSystem { path: path.clone() },
        Errno::ACCESS | Errno::PERM => CommitError::ReadOnly { path: path.clone() },
        other => IoFailure { doing, path: path.to_string(), source: other.into() }.into(),
    }
}

/// See [`Workspace::check`].
pub(crate) fn check(inner: &Inner, ops: &[Op]) -> Result<(), CommitError> {
    let opened: BTreeSet<&RelPath> = ops.iter().filter(|op| matches!(op, Op::Meta { .. })).map(Op::path).collect();
    let mut paths = Vec::new();
    for op in ops {
        match check_op(inner, op, &opened) {
            Err(CommitError::Conflict { paths: more }) => paths.extend(more),
            checked => checked?,
        }
    }
    if paths.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths }) }
}

/// Whether a slot holds what was staged, which may be days ago: a decision was about that, and about nothing that came there since.
fn check_slot(inner: &Inner, op: &Op, slots: &OwnedFd) -> Result<(), CommitError> {
    let as_staged = is_applied(op, slots)? != Some(true)
        && match op {
            Op::Put { path, slot, staged, .. } => {
                staged.matches(&inner.disk, slots.as_fd(), &slot_name(*slot), path, Place::Moved)?
            }
            Op::Away { .. } | Op::Meta { .. } => true,
        };
    if as_staged { Ok(()) } else { Err(CommitError::Altered { path: op.path().clone() }) }
}

fn check_op(inner: &Inner, op: &Op, opened: &BTreeSet<&RelPath>) -> Result<(), CommitError> {
    let path = op.path();
    let conflict = || CommitError::Conflict { paths: vec![path.clone()] };
    let folder = inner.parent(path).map_err(|error| conflict_or(error, "opening the folder of", path))?;
    let name = path.name().expect("the root is never touched");
    let found = stat_entry(&folder, name).at("looking at", path)?;
    let base = match op {
        Op::Put { base, .. } => base.as_ref(),
        Op::Away { base, .. } => Some(base),
        Op::Meta { inode, old, .. } => {
            let same = found.is_some_and(|found| found.is_directory() && found.ino == *inode && found.mode == *old);
            return if same { Ok(()) } else { Err(conflict()) };
        }
    };
    let device = |stat: Stat| stat.dev;
    let here = device(fstat(&inner.root).at("looking at", ".")?.into());
    let parent = device(fstat(&folder).at("looking at the folder of", path)?.into());
    if parent != here || found.is_some_and(|found| found.dev != here) {
        return Err(CommitError::OtherFileSystem { path: path.clone() });
    }
    let writable = accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    let will_be = path.parent().is_some_and(|parent| opened.contains(&parent));
    // A folder's parent is written in it, so only one that may be written can be moved.
    let fixed = found.is_some_and(|found| found.kind == FileKind::Directory && found.mode & 0o200 == 0);
    if !(writable || will_be) || fixed && !geteuid().is_root() {
        return Err(CommitError::ReadOnly { path: path.clone() });
    }
    let as_it_was = match base {
        None => found.is_none(),
        Some(base) => match base.matches(&inner.disk, folder.as_fd(), name, path, Place::Still) {
            // Something in it went while it was looked at.
            Err(TreeError::Io(failure)) if failure.is_gone() => false,
            matched => matched?,
        },
    };
    if as_it_was { Ok(()) } else { Err(conflict()) }
}
