//! Carrying a commit out, and back.
//!
//! Both ways are one walk over the same list, and both can be begun again at any point: an operation whose slot shows that it was done is
//! not done again. There is no other recovery. A folder whose mode changes is first given to its owner in full, so that the names in it
//! can be moved, and gets its mode last.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::fstat;

use crate::{
    commit::{Commit, CommitError, Op, conflict_or, is_applied, slot_name, slots},
    conflict::Place,
    disk::{At as _, Rename},
    open::{FOLDER, open_entry, stat_entry},
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
    /// Puts a commit in place, all of it, and onto the disk. After a crash, from whatever it left; if it was done, nothing happens.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if somebody else changed a touched path since the check: what was displaced is compared after it was
    /// exchanged, and exchanged back if it is not what was expected. Any error but [`CommitError::Stuck`] leaves the workspace as it was
    /// before the commit, but for what somebody else did to it; the caller notes that durably before it discards the commit.
    pub fn apply(&self, commit: &Commit) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        let mut last = self.inner.moving();
        let walk = Move { inner: &self.inner, slots: &slots, commit };
        walk.all(Way::Forward).or_else(|error| walk.turn_round(Way::Back, error))?;
        *last = Some(self.inner.disk.now(&self.inner.own).at("reading the time of", self.inner.path.display())?);
        Ok(())
    }

    /// Takes a commit back that was applied, wholly or in part: the reverse of [`Workspace::apply`], and as often as it takes.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if what the commit put in place was changed since. Nothing is undone then.
    pub fn rollback(&self, commit: &Commit) -> Result<(), CommitError> {
        let slots = slots(&self.inner, commit)?;
        let mut last = self.inner.moving();
        let walk = Move { inner: &self.inner, slots: &slots, commit };
        walk.still_ours()?;
        walk.all(Way::Back).or_else(|error| walk.turn_round(Way::Forward, error))?;
        *last = Some(self.inner.disk.now(&self.inner.own).at("reading the time of", self.inner.path.display())?);
        Ok(())
    }
}

struct Move<'a> {
    inner: &'a Inner,
    slots: &'a OwnedFd,
    commit: &'a Commit,
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
            disk.sync(folder).at("syncing", path)?;
        }
        for folder in touched.values() {
            disk.sync(folder).at("syncing the folders of commit", &self.commit.id)?;
        }
        disk.sync(self.slots).at("syncing the slots of commit", &self.commit.id)?;
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
        let (place, slot) = ((folder, name), (self.slots, &*slot));
        let (from, to) = if to_slot { (place, slot) } else { (slot, place) };
        self.inner.disk.rename(from, to, how).map_err(|error| conflict_or(error, "moving", path))
    }

    /// Whether what an operation displaced is what it meant to.
    fn verify_displaced(&self, op: &Op) -> Result<(), CommitError> {
        let (slot, base) = match op {
            Op::Put { slot, base: Some(base), .. } | Op::Away { slot, base, .. } => (*slot, base),
            Op::Put { base: None, .. } | Op::Meta { .. } => return Ok(()),
        };
        let path = op.path();
        if base.matches(&self.inner.disk, self.slots.as_fd(), &slot_name(slot), path, Place::Moved)? {
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

/// The modes that a folder can have while its mode is being changed.
fn may_have(old: u32, new: u32) -> [u32; 4] {
    [old, new, old | 0o700, new | 0o700]
}
