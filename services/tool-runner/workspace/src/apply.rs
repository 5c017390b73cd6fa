//! Applies a commit, and rolls it back.
//!
//! Both directions walk over the same list and can be restarted at any point: an operation whose slot shows that it was done is skipped.
//! There is no other recovery. A directory whose mode changes first gets all owner permissions, so that names in it can be moved, and gets
//! its final mode last.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::fstat;

use crate::{
    commit::{Commit, CommitError, Op, conflict_or, is_applied, may_have, slot_name, slots, with_current_inodes},
    conflict::{Fingerprint, Position},
    disk::{IoContext as _, IoFailure, Rename},
    inner::Inner,
    open::{DIRECTORY, open_entry, stat_entry},
    order::Order,
    path::RelPath,
    stat::Stat,
    workspace::Workspace,
};

/// The direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

impl Workspace {
    /// Applies a commit completely; does nothing if it was applied. It is durable when the next [`Workspace::stage`] or [`Workspace::sync`]
    /// has succeeded.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if a touched path has changed since the check: a replaced file is compared after the exchange, and
    /// exchanged back if it is not the expected one. [`CommitError::Altered`] if a slot shows as done what is not. Any error except
    /// [`CommitError::Stuck`] leaves the workspace, and the disk, as before the commit, apart from changes by others; the caller has to
    /// record that durably before it discards the commit.
    pub fn apply(&self, commit: &Commit) -> Result<(), CommitError> {
        self.forward(commit, false)
    }

    /// Applies a commit after a crash, from whatever state that left. Data of a replaced file that a power loss destroyed, and later
    /// changes to an applied file, are not conflicts.
    ///
    /// # Errors
    ///
    /// As [`Workspace::apply`].
    pub fn redo(&self, commit: &Commit) -> Result<(), CommitError> {
        self.forward(commit, true)
    }

    fn forward(&self, commit: &Commit, again: bool) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        let commit = &*with_current_inodes(&self.inner, commit, &slots)?;
        let _moving = self.inner.moving();
        let later = self.inner.disk.order() == Order::Kept;
        let walk = Move { inner: &self.inner, slots: &slots, commit, again, later };
        walk.all(Direction::Forward).or_else(|error| walk.revert(Direction::Back, error))?;
        Ok(self.inner.moved()?)
    }

    /// Rolls back a commit that was applied in whole or in part: the reverse of [`Workspace::apply`]; can be repeated.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if an applied file has changed since. Nothing is rolled back then.
    pub fn rollback(&self, commit: &Commit) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        let commit = &*with_current_inodes(&self.inner, commit, &slots)?;
        let _moving = self.inner.moving();
        let walk = Move { inner: &self.inner, slots: &slots, commit, again: false, later: false };
        walk.verify_applied()?;
        walk.all(Direction::Back).or_else(|error| walk.revert(Direction::Forward, error))?;
        Ok(self.inner.moved()?)
    }
}

struct Move<'a> {
    inner: &'a Inner,
    slots: &'a OwnedFd,
    commit: &'a Commit,
    /// Recovery after a crash.
    again: bool,
    /// The forward direction is not synced now.
    later: bool,
}

impl Move<'_> {
    /// Runs all operations in one direction. Forward it stops at the first error; back it does what it can.
    fn all(&self, direction: Direction) -> Result<(), CommitError> {
        let ops = &self.commit.ops;
        // Opened from the top down, so that each directory can be reached; modes are set from the bottom up.
        let mut opened = Vec::new();
        for op in ops {
            opened.extend(self.open_up(op, direction)?);
        }
        let mut touched = BTreeMap::new();
        let mut conflicts = Vec::new();
        let in_order: Vec<&Op> =
            if direction == Direction::Forward { ops.iter().collect() } else { ops.iter().rev().collect() };
        for op in in_order {
            match self.one(op, direction) {
                Ok(Some(folder)) => drop(touched.insert(op.path().parent(), folder)),
                Ok(None) => {}
                Err(CommitError::Conflict { paths }) if direction == Direction::Back => conflicts.extend(paths),
                Err(error) => return Err(error),
            }
        }
        let disk = &self.inner.disk;
        for (folder, mode, path) in opened.iter().rev() {
            disk.set_mode(folder, *mode).at("setting the mode of", path)?;
        }
        if direction == Direction::Back || !self.later {
            for folder in opened.iter().map(|(folder, ..)| folder).chain(touched.values()).chain([self.slots]) {
                disk.sync(folder).at("syncing the directories of commit", &self.commit.id)?;
            }
        }
        if conflicts.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths: conflicts }) }
    }

    /// Reverts everything after a failure.
    fn revert(&self, direction: Direction, error: CommitError) -> Result<(), CommitError> {
        match self.all(direction) {
            Ok(()) => Err(error),
            Err(back) => {
                let id = self.commit.id.clone();
                Err(CommitError::Stuck { id, forward: Box::new(error), back: Box::new(back) })
            }
        }
    }

    /// For a change of mode: gives the owner all permissions, and returns the directory and its final mode.
    fn open_up<'p>(
        &self,
        op: &'p Op,
        direction: Direction,
    ) -> Result<Option<(OwnedFd, u32, &'p RelPath)>, CommitError> {
        let Op::Meta { path, inode, old, new } = op else {
            return Ok(None);
        };
        // On the way back, a directory that was replaced has nothing to restore.
        let not_ours = || {
            if direction == Direction::Forward {
                Err(CommitError::Conflict { paths: vec![path.clone()] })
            } else {
                Ok(None)
            }
        };
        let folder = match self.inner.parent(path) {
            Ok(folder) => folder,
            Err(_) if direction == Direction::Back => return Ok(None),
            Err(error) => return Err(conflict_or(error, "opening the directory of", path)),
        };
        let name = path.name().expect("no operation touches the root");
        let Some(found) = stat_entry(&folder, name).at("inspecting", path)?.filter(|found| found.ino == *inode) else {
            return not_ours();
        };
        if !may_have(*old, *new).contains(&found.mode) {
            return not_ours();
        }
        let disk = &self.inner.disk;
        if found.mode & 0o700 != 0o700 {
            disk.set_mode_of(&folder, name, found.mode | 0o700).at("opening", path)?;
        }
        let opened = open_entry(&folder, name, DIRECTORY).map_err(|error| conflict_or(error, "opening", path))?;
        if Stat::from(fstat(&opened).at("inspecting", path)?).ino != *inode {
            return not_ours();
        }
        Ok(Some((opened, if direction == Direction::Forward { *new } else { *old }, path)))
    }

    /// Runs one operation; returns the directory that it changes.
    fn one(&self, op: &Op, direction: Direction) -> Result<Option<OwnedFd>, CommitError> {
        let Some(applied) = is_applied(op, self.slots)? else {
            return Ok(None);
        };
        let path = op.path();
        let done = applied == (direction == Direction::Forward);
        let folder = match self.inner.parent(path) {
            Ok(folder) => folder,
            // The directory was removed since: nothing is left to do in it.
            Err(_) if done => return Ok(None),
            Err(error) => return Err(conflict_or(error, "opening the directory of", path)),
        };
        if applied && !(self.again && direction == Direction::Forward) && is_as_before(op, &folder)? {
            // The slot was modified by someone else.
            return match direction {
                Direction::Forward => Err(CommitError::Altered { path: path.clone() }),
                Direction::Back => Ok(None),
            };
        }
        if !done {
            self.rename(op, &folder, direction)?;
        }
        if direction == Direction::Forward {
            self.verify_displaced(op)?;
        }
        Ok(Some(folder))
    }

    /// The rename of an operation.
    fn rename(&self, op: &Op, folder: &OwnedFd, direction: Direction) -> Result<(), CommitError> {
        let path = op.path();
        let name = path.name().expect("no operation touches the root");
        let (slot, how, to_slot) = match op {
            Op::Put { slot, base: Some(_), .. } => (*slot, Rename::Exchange, direction == Direction::Back),
            Op::Put { slot, base: None, .. } => (*slot, Rename::New, direction == Direction::Back),
            Op::Away { slot, .. } => (*slot, Rename::New, direction == Direction::Forward),
            Op::Meta { .. } => return Ok(()),
        };
        if let (Op::Put { inode, staged, .. }, Direction::Back) = (op, direction) {
            let ours = stat_entry(folder, name).at("inspecting", path)?.is_some_and(|found| found.ino == *inode)
                && staged.matches(&self.inner.disk, folder.as_fd(), name, path, Position::Moved)?;
            if !ours {
                // The applied file was replaced or changed: the change stays.
                return Err(CommitError::Conflict { paths: vec![path.clone()] });
            }
        }
        let slot = slot_name(slot);
        if let (Op::Put { staged, .. }, Direction::Forward) = (op, direction)
            && !self.is_as_staged(staged, &slot, path)?
        {
            return Err(CommitError::Altered { path: path.clone() });
        }
        let (place, slot) = ((folder, name), (self.slots, &*slot));
        let (from, to) = if to_slot { (place, slot) } else { (slot, place) };
        self.inner.disk.rename(from, to, how).map_err(|error| conflict_or(error, "moving", path))
    }

    /// Whether a slot still holds what was staged. The content of a directory is not inspected again.
    fn is_as_staged(&self, staged: &Fingerprint, slot: &OsStr, path: &RelPath) -> Result<bool, CommitError> {
        let top = stat_entry(self.slots, slot).at("inspecting the slot of", path)?;
        let untouched = top.is_some_and(|top| staged.is_top(&top));
        Ok(untouched || staged.matches(&self.inner.disk, self.slots.as_fd(), slot, path, Position::Moved)?)
    }

    /// Verifies that an operation replaced what it expected.
    fn verify_displaced(&self, op: &Op) -> Result<(), CommitError> {
        let (slot, base) = match op {
            Op::Put { slot, base: Some(base), .. } | Op::Away { slot, base, .. } => (*slot, base),
            Op::Put { base: None, .. } | Op::Meta { .. } => return Ok(()),
        };
        let path = op.path();
        let (disk, slots, slot) = (&self.inner.disk, self.slots.as_fd(), slot_name(slot));
        if base.matches(disk, slots, &slot, path, Position::Moved)?
            || self.again && base.matches_earlier_state(disk, slots, &slot, path)?
        {
            return Ok(());
        }
        Err(CommitError::Conflict { paths: vec![path.clone()] })
    }

    /// Verifies that everything that was applied is unchanged.
    fn verify_applied(&self) -> Result<(), CommitError> {
        let mut paths = Vec::new();
        for op in &self.commit.ops {
            if !self.is_as_left(op)? {
                paths.push(op.path().clone());
            }
        }
        if paths.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths }) }
    }

    fn is_as_left(&self, op: &Op) -> Result<bool, CommitError> {
        let applied = is_applied(op, self.slots)?;
        if applied == Some(false) {
            return Ok(true);
        }
        let path = op.path();
        let Ok(folder) = self.inner.parent(path) else {
            return Ok(false);
        };
        let name = path.name().expect("no operation touches the root");
        let found = || stat_entry(&folder, name).at("inspecting", path);
        Ok(match op {
            Op::Put { staged, .. } => staged.matches(&self.inner.disk, folder.as_fd(), name, path, Position::Moved)?,
            Op::Away { .. } => found()?.is_none(),
            Op::Meta { inode, old, new, .. } => {
                found()?.is_some_and(|found| found.ino == *inode && may_have(*old, *new).contains(&found.mode))
            }
        })
    }
}

/// Whether the target of an operation is in its original state, whatever the slot shows.
fn is_as_before(op: &Op, folder: &OwnedFd) -> Result<bool, IoFailure> {
    let path = op.path();
    let found = stat_entry(folder, path.name().expect("no operation touches the root")).at("inspecting", path)?;
    Ok(match op {
        Op::Put { base: Some(base), .. } | Op::Away { base, .. } => found.is_some_and(|found| found.ino == base.inode),
        Op::Put { base: None, .. } => found.is_none(),
        Op::Meta { .. } => false,
    })
}
