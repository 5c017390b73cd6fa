//! Carrying a commit out, and back.
//!
//! Both ways are one walk over the same list, and both can be begun again at any point: an operation whose slot shows that it was done is
//! not done again. There is no other recovery. A folder whose mode changes is first given to its owner in full, so that the names in it
//! can be moved, and gets its mode last.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::fstat;

use crate::{
    commit::{Commit, CommitError, Op, conflict_or, is_applied, slot_name, slots},
    conflict::{Fingerprint, Place},
    disk::{At as _, IoFailure, Rename},
    open::{FOLDER, open_entry, stat_entry},
    order::Order,
    path::RelPath,
    stat::Stat,
    workspace::{Inner, Workspace},
};

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Back,
}

impl Workspace {
    /// Puts a commit in place, all of it; if it was done, nothing happens. It is on the disk for good when the next
    /// [`Workspace::stage`] or [`Workspace::sync`] has succeeded.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if somebody else changed a touched path since the check: what was displaced is compared after it was
    /// exchanged, and exchanged back if it is not what was expected. [`CommitError::Altered`] if a slot shows as done what is not. Any
    /// error but [`CommitError::Stuck`] leaves the workspace as it was before the commit, on the disk too, but for what somebody else
    /// did to it; the caller notes that durably before it discards the commit.
    pub fn apply(&self, commit: &Commit) -> Result<(), CommitError> {
        self.forward(commit, false)
    }

    /// The same after a crash, from whatever that left. What the power took from a displaced file, and what somebody did to one that was
    /// put in place, is no conflict.
    ///
    /// # Errors
    ///
    /// As [`Workspace::apply`].
    pub fn redo(&self, commit: &Commit) -> Result<(), CommitError> {
        self.forward(commit, true)
    }

    fn forward(&self, commit: &Commit, again: bool) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        let _moving = self.inner.moving();
        let later = self.inner.disk.order() == Order::Kept;
        let walk = Move { inner: &self.inner, slots: &slots, commit, again, later };
        walk.all(Way::Forward).or_else(|error| walk.turn_round(Way::Back, error))?;
        Ok(self.inner.moved()?)
    }

    /// Takes a commit back that was applied, wholly or in part: the reverse of [`Workspace::apply`], and as often as it takes.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if what the commit put in place was changed since. Nothing is undone then.
    pub fn rollback(&self, commit: &Commit) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        let _moving = self.inner.moving();
        let walk = Move { inner: &self.inner, slots: &slots, commit, again: false, later: false };
        walk.still_ours()?;
        walk.all(Way::Back).or_else(|error| walk.turn_round(Way::Forward, error))?;
        Ok(self.inner.moved()?)
    }
}

struct Move<'a> {
    inner: &'a Inner,
    slots: &'a OwnedFd,
    commit: &'a Commit,
    /// A crash came in between.
    again: bool,
    /// The way forward is not synced.
    later: bool,
}

impl Move<'_> {
    /// All operations, one way. Forward it stops at the first that cannot be done; back it does what it can.
    fn all(&self, way: Way) -> Result<(), CommitError> {
        let ops = &self.commit.ops;
        // From the top down, so that each folder can be reached; and afterwards from the bottom up.
        let mut opened = Vec::new();
        for op in ops {
            opened.extend(self.open_up(op, way)?);
        }
        let mut touched = BTreeMap::new();
        let mut conflicts = Vec::new();
        let in_order: Vec<&Op> = if way == Way::Forward { ops.iter().collect() } else { ops.iter().rev().collect() };
        for op in in_order {
            match self.one(op, way) {
                Ok(Some(folder)) => drop(touched.insert(op.path().parent(), folder)),
                Ok(None) => {}
                Err(CommitError::Conflict { paths }) if way == Way::Back => conflicts.extend(paths),
                Err(error) => return Err(error),
            }
        }
        let disk = &self.inner.disk;
        for (folder, mode, path) in opened.iter().rev() {
            disk.set_mode(folder, *mode).at("setting the mode of", path)?;
        }
        if way == Way::Back || !self.later {
            for folder in opened.iter().map(|(folder, ..)| folder).chain(touched.values()).chain([self.slots]) {
                disk.sync(folder).at("syncing the folders of commit", &self.commit.id)?;
            }
        }
        if conflicts.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths: conflicts }) }
    }

    /// After a failure: everything the other way.
    fn turn_round(&self, way: Way, error: CommitError) -> Result<(), CommitError> {
        match self.all(way) {
            Ok(()) => Err(error),
            Err(back) => {
                let id = self.commit.id.clone();
                Err(CommitError::Stuck { id, forward: Box::new(error), back: Box::new(back) })
            }
        }
    }

    /// For a change of mode: the folder, in which its owner may now do everything, with the mode that it gets in the end.
    fn open_up<'p>(&self, op: &'p Op, way: Way) -> Result<Option<(OwnedFd, u32, &'p RelPath)>, CommitError> {
        let Op::Meta { path, inode, old, new } = op else {
            return Ok(None);
        };
        // Back, a folder that is no longer ours has nothing that could be taken back.
        let not_ours =
            || if way == Way::Forward { Err(CommitError::Conflict { paths: vec![path.clone()] }) } else { Ok(None) };
        let folder = match self.inner.parent(path) {
            Ok(folder) => folder,
            Err(_) if way == Way::Back => return Ok(None),
            Err(error) => return Err(conflict_or(error, "opening the folder of", path)),
        };
        let name = path.name().expect("the root is never touched");
        let Some(found) = stat_entry(&folder, name).at("looking at", path)?.filter(|found| found.ino == *inode) else {
            return not_ours();
        };
        if !may_have(*old, *new).contains(&found.mode) {
            return not_ours();
        }
        let disk = &self.inner.disk;
        if found.mode & 0o700 != 0o700 {
            disk.set_mode_of(&folder, name, found.mode | 0o700).at("opening", path)?;
        }
        let opened = open_entry(&folder, name, FOLDER).map_err(|error| conflict_or(error, "opening", path))?;
        if Stat::from(fstat(&opened).at("looking at", path)?).ino != *inode {
            return not_ours();
        }
        Ok(Some((opened, if way == Way::Forward { *new } else { *old }, path)))
    }

    /// One operation; with it the folder that it changes.
    fn one(&self, op: &Op, way: Way) -> Result<Option<OwnedFd>, CommitError> {
        let Some(applied) = is_applied(op, self.slots)? else {
            return Ok(None);
        };
        let path = op.path();
        let done = applied == (way == Way::Forward);
        let folder = match self.inner.parent(path) {
            Ok(folder) => folder,
            // The folder went since: nothing is left to do in it.
            Err(_) if done => return Ok(None),
            Err(error) => return Err(conflict_or(error, "opening the folder of", path)),
        };
        if applied && !(self.again && way == Way::Forward) && is_as_before(op, &folder)? {
            // Somebody was at the slot.
            return match way {
                Way::Forward => Err(CommitError::Altered { path: path.clone() }),
                Way::Back => Ok(None),
            };
        }
        if !done {
            self.shift(op, &folder, way)?;
        }
        if way == Way::Forward {
            self.verify_displaced(op)?;
        }
        Ok(Some(folder))
    }

    /// The one rename of an operation.
    fn shift(&self, op: &Op, folder: &OwnedFd, way: Way) -> Result<(), CommitError> {
        let path = op.path();
        let name = path.name().expect("the root is never touched");
        let (slot, how, to_slot) = match op {
            Op::Put { slot, base: Some(_), .. } => (*slot, Rename::Exchange, way == Way::Back),
            Op::Put { slot, base: None, .. } => (*slot, Rename::New, way == Way::Back),
            Op::Away { slot, .. } => (*slot, Rename::New, way == Way::Forward),
            Op::Meta { .. } => return Ok(()),
        };
        if let (Op::Put { inode, staged, .. }, Way::Back) = (op, way) {
            let ours = stat_entry(folder, name).at("looking at", path)?.is_some_and(|found| found.ino == *inode)
                && staged.matches(&self.inner.disk, folder.as_fd(), name, path, Place::Moved)?;
            if !ours {
                // Somebody replaced or changed what we put there: theirs stays.
                return Err(CommitError::Conflict { paths: vec![path.clone()] });
            }
        }
        let slot = slot_name(slot);
        if let (Op::Put { staged, .. }, Way::Forward) = (op, way)
            && !self.is_as_staged(staged, &slot, path)?
        {
            return Err(CommitError::Altered { path: path.clone() });
        }
        let (place, slot) = ((folder, name), (self.slots, &*slot));
        let (from, to) = if to_slot { (place, slot) } else { (slot, place) };
        self.inner.disk.rename(from, to, how).map_err(|error| conflict_or(error, "moving", path))
    }

    /// Whether a slot still holds what was staged; of a folder, what is in it is not looked at again.
    fn is_as_staged(&self, staged: &Fingerprint, slot: &OsStr, path: &RelPath) -> Result<bool, CommitError> {
        let top = stat_entry(self.slots, slot).at("looking at the slot of", path)?;
        let untouched = top.is_some_and(|top| {
            (top.ino, top.mode, top.size, top.modified) == (staged.inode, staged.mode, staged.size, staged.modified)
        });
        Ok(untouched || staged.matches(&self.inner.disk, self.slots.as_fd(), slot, path, Place::Moved)?)
    }

    /// Whether what an operation displaced is what it meant to.
    fn verify_displaced(&self, op: &Op) -> Result<(), CommitError> {
        let (slot, base) = match op {
            Op::Put { slot, base: Some(base), .. } | Op::Away { slot, base, .. } => (*slot, base),
            Op::Put { base: None, .. } | Op::Meta { .. } => return Ok(()),
        };
        let path = op.path();
        let (disk, slots, slot) = (&self.inner.disk, self.slots.as_fd(), slot_name(slot));
        if base.matches(disk, slots, &slot, path, Place::Moved)?
            || self.again && base.matches_what_was_before(disk, slots, &slot, path)?
        {
            return Ok(());
        }
        Err(CommitError::Conflict { paths: vec![path.clone()] })
    }

    /// Whether everything that was applied is as the commit left it.
    fn still_ours(&self) -> Result<(), CommitError> {
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
        let name = path.name().expect("the root is never touched");
        let found = || stat_entry(&folder, name).at("looking at", path);
        Ok(match op {
            Op::Put { staged, .. } => staged.matches(&self.inner.disk, folder.as_fd(), name, path, Place::Moved)?,
            Op::Away { .. } => found()?.is_none(),
            Op::Meta { inode, old, new, .. } => {
                found()?.is_some_and(|found| found.ino == *inode && may_have(*old, *new).contains(&found.mode))
            }
        })
    }
}

/// Whether the place of an operation was never touched, whatever its slot says: what is to go is there, or nothing is where nothing was.
fn is_as_before(op: &Op, folder: &OwnedFd) -> Result<bool, IoFailure> {
    let path = op.path();
    let found = stat_entry(folder, path.name().expect("the root is never touched")).at("looking at", path)?;
    Ok(match op {
        Op::Put { base: Some(base), .. } | Op::Away { base, .. } => found.is_some_and(|found| found.ino == base.inode),
        Op::Put { base: None, .. } => found.is_none(),
        Op::Meta { .. } => false,
    })
}

/// The modes that a folder can have while its mode is being changed.
fn may_have(old: u32, new: u32) -> [u32; 4] {
    [old, new, old | 0o700, new | 0o700]
}
