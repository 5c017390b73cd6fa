//! A commit as a value: the operations that the caller stores in its ledger, and the check that they still apply.
//!
//! The caller has to keep this order:
//!
//! 1. [`Workspace::stage`]: the new files are durable in their slots. The workspace is unchanged.
//! 2. [`Workspace::check`], if time has passed; then **one durable row in the caller's ledger with the [`Commit`] in it**. Before that row
//!    nothing has happened: after a crash, [`Workspace::sweep`] or [`Workspace::discard`] removes the staged files. After it everything
//!    has: after a crash, apply again.
//! 3. [`Workspace::apply`], repeated as needed; [`Workspace::redo`] after a crash. A power loss can undo an applied commit until the next
//!    [`Workspace::stage`] or [`Workspace::sync`] succeeds, and **the row has to stay until then**. Commits whose rows are left after a
//!    crash are redone in the order in which they were applied.
//! 4. [`Workspace::retire`], before the next commit is applied: it distinguishes finished commits from those to redo. Then
//!    [`Workspace::finish`] removes the replaced files. Until then [`Workspace::rollback`] undoes the commit, if that is recorded durably
//!    first and then repeated as needed.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Access, AtFlags, accessat, fstat},
    io::Errno,
    process::geteuid,
};
use serde::{Deserialize, Serialize};

use crate::{
    conflict::{Fingerprint, Position},
    disk::{IoContext as _, IoFailure},
    inner::{Inner, retired_name},
    open::{DIRECTORY, open_entry, stat_entry},
    path::{RelPath, shown},
    stat::{FileKind, Stat},
    tree::{Digest, TreeError},
    workspace::Workspace,
};

/// The operations of one commit. Stored in the ledger: together with the directory of its slots it is all that recovery needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The id of the view, which is also the name of the directory of slots.
    pub id: String,
    /// The digest of the manifest that it applies.
    pub manifest: Digest,
    /// The operations, by path.
    pub ops: Vec<Op>,
}

/// An operation of a commit. Its state is read from its slot by inode: names in the workspace may have moved since. Copies of the files, as a
/// restored backup has them, have other inodes; [`with_current_inodes`] finds them by their content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Exchanges the slot with the path, or moves the slot there if nothing is there.
    Put {
        /// The target.
        path: RelPath,
        /// The slot.
        slot: u32,
        /// The inode of the new entry.
        inode: u64,
        /// The expected entry; `None` for none.
        base: Option<Fingerprint>,
        /// The new entry.
        staged: Fingerprint,
    },
    /// Moves the path into the slot.
    Away {
        /// The source.
        path: RelPath,
        /// The slot.
        slot: u32,
        /// The expected entry.
        base: Fingerprint,
    },
    /// Changes the mode of a directory.
    Meta {
        /// The directory.
        path: RelPath,
        /// Its inode.
        inode: u64,
        /// The old permission bits.
        old: u32,
        /// The new permission bits.
        new: u32,
    },
}

impl Op {
    /// The path that it changes.
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
    /// A touched path was changed by someone else. The workspace is unchanged.
    #[error(
        "changed by someone else meanwhile: {}; nothing was committed; run the call again on the current files",
        shown(paths)
    )]
    Conflict {
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// The view, or what was staged from it, no longer matches the manifest.
    #[error(
        "the staged content of `{path}` is not what was recorded: make sure that nothing else writes to `.belay`, and run the call again"
    )]
    Altered {
        /// The path.
        path: RelPath,
    },
    /// The caller stopped it.
    #[error("staging was stopped; nothing was changed")]
    Stopped,
    /// An entry cannot be changed.
    #[error("`{path}` is, or is in, a directory that is not writable: give its owner write permission")]
    ReadOnly {
        /// The path.
        path: RelPath,
    },
    /// An entry cannot be moved there.
    #[error(
        "`{path}` is on another file system than the workspace: open the directory that is mounted there as its own workspace"
    )]
    OtherFileSystem {
        /// The path.
        path: RelPath,
    },
    /// There is nothing left to apply, undo or discard.
    #[error("commit `{id}` has no staged files: it was finished, discarded or never staged")]
    NotStaged {
        /// The commit.
        id: String,
    },
    /// It is applied, in whole or in part: its slots hold the replaced files.
    #[error("commit `{id}` is applied: roll it back before discarding it")]
    InPlace {
        /// The commit.
        id: String,
    },
    /// It could be neither completed nor reverted.
    #[error(
        "commit `{id}` is applied in part: {forward}; reverting it failed too: {back}; apply it again or roll it back once the cause is fixed"
    )]
    Stuck {
        /// The commit.
        id: String,
        /// Why it could not be completed.
        forward: Box<CommitError>,
        /// Why it could not be reverted.
        back: Box<CommitError>,
    },
    /// The staged files could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl Workspace {
    /// Checks that every path that the commit touches is unchanged. Call it right before the row is written. The caller has to make sure
    /// that no other commit to this workspace runs between the check and [`Workspace::apply`].
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] with all changed paths; [`CommitError::ReadOnly`], [`CommitError::OtherFileSystem`];
    /// [`CommitError::NotStaged`] if nothing is staged, [`CommitError::Altered`] if the staged files were modified.
    pub fn check(&self, commit: &Commit) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        let commit = with_current_inodes(&self.inner, commit, &slots)?;
        check(&self.inner, &commit.ops)?;
        commit.ops.iter().try_for_each(|op| check_slot(&self.inner, op, &slots))
    }

    /// Discards a commit without a row. The workspace is unchanged.
    ///
    /// # Errors
    ///
    /// [`CommitError::InPlace`] if it was applied after all.
    pub fn discard(&self, commit: &Commit) -> Result<(), CommitError> {
        match slots(&self.inner, commit) {
            Ok(slots) => {
                for op in &with_current_inodes(&self.inner, commit, &slots)?.ops {
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

    /// Moves the files that an applied commit replaced to the trash, in one step: it can no longer be rolled back, and recovery gets
    /// [`CommitError::NotStaged`] for its row.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn retire(&self, commit: &Commit) -> Result<(), CommitError> {
        let retired = self.inner.retire(&commit.id, &retired_name(&commit.id));
        Ok(retired.at("retiring the staged files of commit", &commit.id)?)
    }

    /// Removes the files that an applied commit replaced, which may take a while: see [`Workspace::retire`]. Files that older views may
    /// still use stay until those views end: then [`Workspace::clear`] removes them.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn finish(&self, commit: &Commit) -> Result<(), CommitError> {
        self.retire(commit)?;
        self.inner.retention().displace(commit.id.clone());
        Ok(self.inner.clear()?)
    }
}

/// The directory of the slots of a commit.
pub(crate) fn slots(inner: &Inner, commit: &Commit) -> Result<OwnedFd, CommitError> {
    match open_entry(&inner.commits, commit.id.as_ref(), DIRECTORY) {
        Err(Errno::NOENT) => Err(CommitError::NotStaged { id: commit.id.clone() }),
        opened => Ok(opened.at("opening the staged files of commit", &commit.id)?),
    }
}

/// The name of a slot.
pub(crate) fn slot_name(slot: u32) -> OsString {
    slot.to_string().into()
}

/// The commit with the inodes that its files have now. They differ after the workspace was copied, as when it is restored from a backup: then what
/// was staged is recognized by its content, in its slot or at its path.
pub(crate) fn with_current_inodes<'c>(
    inner: &Inner,
    commit: &'c Commit,
    slots: &OwnedFd,
) -> Result<Cow<'c, Commit>, CommitError> {
    let mut current = Cow::Borrowed(commit);
    for (index, op) in commit.ops.iter().enumerate() {
        if let Some(op) = with_current_inode(inner, op, slots)? {
            current.to_mut().ops[index] = op;
        }
    }
    Ok(current)
}

/// The operation with the inode that its file has now; `None` if that is the same.
fn with_current_inode(inner: &Inner, op: &Op, slots: &OwnedFd) -> Result<Option<Op>, CommitError> {
    let at_path = |path: &RelPath| -> Result<Option<(OwnedFd, Stat)>, CommitError> {
        let Ok(folder) = inner.parent(path) else { return Ok(None) };
        let found = stat_entry(&folder, path.name().expect("no operation touches the root")).at("inspecting", path)?;
        Ok(found.map(|found| (folder, found)))
    };
    match op {
        Op::Put { path, slot, inode, base, staged } => {
            let matches =
                |folder: BorrowedFd<'_>, name: &OsStr| staged.matches(&inner.disk, folder, name, path, Position::Moved);
            let found_at = |inode| Op::Put {
                path: path.clone(),
                slot: *slot,
                inode,
                base: *base,
                staged: Fingerprint { inode, ..*staged },
            };
            let name = slot_name(*slot);
            if let Some(found) = stat_entry(slots, &name).at("inspecting the slot of", path)? {
                let is_as_it_was = staged.is_top(&found) || base.is_some_and(|base| base.is_top(&found));
                if is_as_it_was {
                    return Ok(None);
                }
                if matches(slots.as_fd(), &name)? {
                    return Ok((found.ino != *inode).then(|| found_at(found.ino)));
                }
                if found.ino == *inode && base.is_none() {
                    // It was modified in its slot.
                    return Ok(None);
                }
                if let Some(base) = base
                    && found.ino != *inode
                    && is_base_in_place(inner, base, path)?
                    && !base.matches(&inner.disk, slots.as_fd(), &name, path, Position::Moved)?
                {
                    // It was modified in its slot and copied: what it was to replace is in neither place but its own. The fingerprint keeps
                    // its inode, so that the content is compared.
                    return Ok(Some(Op::Put {
                        path: path.clone(),
                        slot: *slot,
                        inode: found.ino,
                        base: Some(*base),
                        staged: *staged,
                    }));
                }
            }
            // It is applied.
            let name = path.name().expect("no operation touches the root");
            match at_path(path)? {
                Some((folder, found)) if found.ino != *inode && matches(folder.as_fd(), name)? => {
                    Ok(Some(found_at(found.ino)))
                }
                _ => Ok(None),
            }
        }
        Op::Away { .. } => Ok(None),
        Op::Meta { path, inode, old, new } => Ok(at_path(path)?
            .filter(|(_, found)| {
                found.is_directory() && found.ino != *inode && may_have(*old, *new).contains(&found.mode)
            })
            .map(|(_, found)| Op::Meta { path: path.clone(), inode: found.ino, old: *old, new: *new })),
    }
}

/// Whether a path has the content that was to be replaced there.
fn is_base_in_place(inner: &Inner, base: &Fingerprint, path: &RelPath) -> Result<bool, CommitError> {
    let Ok(folder) = inner.parent(path) else { return Ok(false) };
    let name = path.name().expect("no operation touches the root");
    match base.matches(&inner.disk, folder.as_fd(), name, path, Position::InPlace) {
        Err(TreeError::Io(failure)) if failure.is_gone() => Ok(false),
        matched => Ok(matched?),
    }
}

/// The modes that a directory can have while its mode is being changed.
pub(crate) fn may_have(old: u32, new: u32) -> [u32; 4] {
    [old, new, old | 0o700, new | 0o700]
}

/// Whether an operation was done, read from its slot; `None` for a change of mode, which has no slot.
pub(crate) fn is_applied(op: &Op, slots: &OwnedFd) -> Result<Option<bool>, IoFailure> {
    let holds = |slot: u32, path| stat_entry(slots, &slot_name(slot)).at("inspecting the slot of", path);
    match op {
        Op::Put { path, slot, base: None, .. } => Ok(Some(holds(*slot, path)?.is_none())),
        Op::Put { path, slot, inode, .. } => Ok(Some(holds(*slot, path)?.is_none_or(|found| found.ino != *inode))),
        Op::Away { path, slot, .. } => Ok(Some(holds(*slot, path)?.is_some())),
        Op::Meta { .. } => Ok(None),
    }
}

/// Maps the error of a call: to a conflict, or to an unexpected failure.
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
pub(crate) fn check<'a>(inner: &Inner, ops: impl IntoIterator<Item = &'a Op> + Clone) -> Result<(), CommitError> {
    let conflicting = conflicting(inner, ops)?;
    let paths: Vec<RelPath> = conflicting.into_iter().map(|op| op.path().clone()).collect();
    if paths.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths }) }
}

/// The operations at whose paths the workspace has changed since.
pub(crate) fn conflicting<'a>(
    inner: &Inner,
    ops: impl IntoIterator<Item = &'a Op> + Clone,
) -> Result<Vec<&'a Op>, CommitError> {
    let opened = ops.clone().into_iter().filter(|op| matches!(op, Op::Meta { .. })).map(Op::path).collect();
    let mut found = Vec::new();
    for op in ops {
        match check_op(inner, op, &opened) {
            Err(CommitError::Conflict { .. }) => found.push(op),
            checked => checked?,
        }
    }
    Ok(found)
}

/// Checks that a slot holds what was staged, which may be days ago: the approval was for that, and for nothing written there since.
fn check_slot(inner: &Inner, op: &Op, slots: &OwnedFd) -> Result<(), CommitError> {
    let as_staged = is_applied(op, slots)? != Some(true)
        && match op {
            Op::Put { path, slot, staged, .. } => {
                staged.matches(&inner.disk, slots.as_fd(), &slot_name(*slot), path, Position::Moved)?
            }
            Op::Away { .. } | Op::Meta { .. } => true,
        };
    if as_staged { Ok(()) } else { Err(CommitError::Altered { path: op.path().clone() }) }
}

fn check_op(inner: &Inner, op: &Op, opened: &BTreeSet<&RelPath>) -> Result<(), CommitError> {
    let path = op.path();
    let conflict = || CommitError::Conflict { paths: vec![path.clone()] };
    let folder = inner.parent(path).map_err(|error| conflict_or(error, "opening the directory of", path))?;
    let name = path.name().expect("no operation touches the root");
    let found = stat_entry(&folder, name).at("inspecting", path)?;
    let base = match op {
        Op::Put { base, .. } => base.as_ref(),
        Op::Away { base, .. } => Some(base),
        Op::Meta { inode, old, .. } => {
            let same = found.is_some_and(|found| found.is_directory() && found.ino == *inode && found.mode == *old);
            return if same { Ok(()) } else { Err(conflict()) };
        }
    };
    let device = |stat: Stat| stat.dev;
    let here = device(fstat(&inner.root).at("inspecting", ".")?.into());
    let parent = device(fstat(&folder).at("inspecting the directory of", path)?.into());
    if parent != here || found.is_some_and(|found| found.dev != here) {
        return Err(CommitError::OtherFileSystem { path: path.clone() });
    }
    let writable = match accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Err(error @ Errno::ROFS) => Err(error).at("checking the permissions of the directory of", path)?,
        checked => checked.is_ok(),
    };
    let will_be = path.parent().is_some_and(|parent| opened.contains(&parent));
    // Moving a directory writes its `..` entry, so it has to be writable.
    let fixed = found.is_some_and(|found| found.kind == FileKind::Directory && found.mode & 0o200 == 0);
    if !(writable || will_be) || fixed && !geteuid().is_root() {
        return Err(CommitError::ReadOnly { path: path.clone() });
    }
    let as_it_was = match base {
        None => found.is_none(),
        Some(base) => match base.matches(&inner.disk, folder.as_fd(), name, path, Position::InPlace) {
            // An entry in it was removed meanwhile.
            Err(TreeError::Io(failure)) if failure.is_gone() => false,
            matched => matched?,
        },
    };
    if as_it_was { Ok(()) } else { Err(conflict()) }
}
