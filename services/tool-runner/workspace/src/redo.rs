//! Putting a commit in place again that needs no order: see [`Commit::kept`].
//!
//! After a loss of power its slots and the folders of its paths may each be in any state between, and no slot says what was done. But
//! what was staged has its second name, and by its inode it is known wherever it is. So each path is looked at: what was put there stays,
//! and what lies there of before is displaced, which may be an older state of what was displaced first, or nothing. What came later than
//! the commit stays too: what a later commit put, which is known by its own second name, and what somebody else did, as if that had come
//! after all of the commit. So the way is always forward.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};

use rustix::io::Errno;

use crate::{
    commit::{Commit, CommitError, KEPT, Op, kept_name, slot_name, slots},
    conflict::{BOUNDLESS, Fingerprint, Place},
    disk::{At as _, IoFailure, Rename},
    open::{FOLDER, names, open_entry, stat_entry},
    path::RelPath,
    stat::{FileTime, Stat},
    tree::{TreeError, Walk},
    workspace::{Inner, Workspace},
};

impl Workspace {
    /// See [`Workspace::redo`].
    pub(crate) fn restore(&self, commit: &Commit) -> Result<(), CommitError> {
        let inner = &*self.inner;
        let slots = slots(inner, commit)?;
        let mut last = inner.moving();
        let restore = Restore { inner, slots: &slots, commit };
        restore.check()?;
        for op in &commit.ops {
            restore
                .one(op)
                .map_err(|error| CommitError::Unfinished { id: commit.id.clone(), source: Box::new(error) })?;
        }
        *last = Some(inner.disk.now(&inner.own).at("reading the time of", inner.path.display())?);
        inner.waiting().add(&commit.id);
        Ok(())
    }
}

struct Restore<'a> {
    inner: &'a Inner,
    slots: &'a OwnedFd,
    commit: &'a Commit,
}

impl Restore<'_> {
    /// Whether all that was staged is there, before anything moves.
    fn check(&self) -> Result<(), CommitError> {
        for op in &self.commit.ops {
            if let Op::Put { path, slot, inode, .. } = op
                && self.slot(&kept_name(*slot), path)?.is_none_or(|kept| kept.ino != *inode)
            {
                return Err(CommitError::Altered { path: path.clone() });
            }
        }
        Ok(())
    }

    fn slot(&self, name: &OsStr, path: &RelPath) -> Result<Option<Stat>, IoFailure> {
        stat_entry(self.slots, name).at("looking at the slot of", path)
    }

    fn one(&self, op: &Op) -> Result<(), CommitError> {
        let path = op.path();
        let name = path.name().expect("the root is never touched");
        let folder = match self.inner.parent(path) {
            Err(Errno::NOENT) if matches!(op, Op::Put { .. }) => self.folder_again(path),
            opened => opened,
        };
        let folder = match folder {
            // Somebody else's doing.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            opened => opened.at("opening the folder of", path)?,
        };
        let found = stat_entry(&folder, name).at("looking at", path)?;
        match op {
            Op::Put { slot, inode, base, staged, .. } => {
                let to_do = match found {
                    None => true,
                    Some(found) => {
                        found.ino != *inode && self.is_of_before(&folder, path, found, base.as_ref(), staged.seen)?
                    }
                };
                if to_do { Ok(self.put(&folder, path, *slot, *inode, found)?) } else { Ok(()) }
            }
            Op::Away { slot, base, .. } => match found {
                Some(found) if self.is_of_before(&folder, path, found, Some(base), base.seen)? => {
                    Ok(self.away(&folder, path, *slot, found)?)
                }
                _ => Ok(()),
            },
            Op::Meta { .. } => Ok(()),
        }
    }

    /// The folder of a path, made again: whoever made it did not live to see it on the disk, but what was put in it is to be there.
    fn folder_again(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let Inner { disk, root, owner, .. } = self.inner;
        let mut at = root.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        for name in path.parent().iter().flat_map(RelPath::names) {
            match disk.make_folder(&at, name, 0o755) {
                Ok(()) => owner.map_or(Ok(()), |owner| disk.set_owner(&at, name, owner))?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            at = open_entry(&at, name, FOLDER)?;
        }
        Ok(at)
    }

    /// Whether what is at a path was there before the commit, and not put there since.
    fn is_of_before(
        &self,
        folder: &OwnedFd,
        path: &RelPath,
        found: Stat,
        base: Option<&Fingerprint>,
        seen: FileTime,
    ) -> Result<bool, CommitError> {
        if let Some(other) = self.commit_that_put(found.ino)? {
            // In the order of commits: one that was not redone yet came later.
            return Ok(self.inner.waiting().was_applied(&other));
        }
        let (disk, place, name) = (&self.inner.disk, folder.as_fd(), path.name().expect("the root is never touched"));
        if let Some(base) = base
            && (base.matches(disk, place, name, path, Place::Still)?
                || base.matches_what_was_before(disk, place, name, path)?)
        {
            return Ok(true);
        }
        // Something older, which had gone before the commit: its going was lost.
        match Walk::of_times(disk, BOUNDLESS).tree(place, name, path) {
            Ok(tree) => Ok(tree.is_some_and(|tree| tree.newest().max(tree.top.modified) < seen)),
            Err(TreeError::Limit { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whose second name a file has, if it is another commit's.
    fn commit_that_put(&self, inode: u64) -> Result<Option<String>, CommitError> {
        let commits = &self.inner.commits;
        for id in names(commits).at("listing", "the commits")? {
            if id == *self.commit.id {
                continue;
            }
            let slots = open_entry(commits, &id, FOLDER).at("opening the staged files of commit", id.display())?;
            for name in names(&slots).at("listing the staged files of commit", id.display())? {
                if name.as_bytes().ends_with(KEPT.as_bytes())
                    && stat_entry(&slots, &name).at("looking at", id.display())?.is_some_and(|kept| kept.ino == inode)
                {
                    return Ok(Some(id.to_string_lossy().into_owned()));
                }
            }
        }
        Ok(None)
    }

    fn put(
        &self,
        folder: &OwnedFd,
        path: &RelPath,
        slot: u32,
        inode: u64,
        found: Option<Stat>,
    ) -> Result<(), IoFailure> {
        let disk = &self.inner.disk;
        let name = path.name().expect("the root is never touched");
        let in_slot = slot_name(slot);
        if self.slot(&in_slot, path)?.is_none_or(|held| held.ino != inode) {
            self.clear(&in_slot, path)?;
            disk.link(self.slots, &kept_name(slot), &in_slot).at("staging", path)?;
        }
        let (from, to) = ((self.slots, &*in_slot), (folder, name));
        let Some(found) = found else {
            return match disk.rename(from, to, Rename::New) {
                // Somebody's save slipped in.
                Err(Errno::EXIST) => Ok(()),
                moved => moved.at("moving", path),
            };
        };
        match disk.rename(from, to, Rename::Exchange) {
            // It went this very moment.
            Err(Errno::NOENT) => return Ok(()),
            moved => moved.at("moving", path)?,
        }
        if self.slot(&in_slot, path)?.is_some_and(|displaced| displaced.ino != found.ino) {
            disk.rename(from, to, Rename::Exchange).at("moving back", path)?;
        }
        Ok(())
    }

    fn away(&self, folder: &OwnedFd, path: &RelPath, slot: u32, found: Stat) -> Result<(), IoFailure> {
        let disk = &self.inner.disk;
        let name = path.name().expect("the root is never touched");
        let in_slot = slot_name(slot);
        self.clear(&in_slot, path)?;
        let (from, to) = ((folder, name), (self.slots, &*in_slot));
        match disk.rename(from, to, Rename::New) {
            Err(Errno::NOENT) => return Ok(()),
            moved => moved.at("moving", path)?,
        }
        if self.slot(&in_slot, path)?.is_some_and(|taken| taken.ino != found.ino) {
            match disk.rename(to, from, Rename::New) {
                Err(Errno::EXIST) => {}
                moved => moved.at("moving back", path)?,
            }
        }
        Ok(())
    }

    /// Puts aside what a slot holds, without giving it up: it may be what is at a path as well.
    fn clear(&self, slot: &OsStr, path: &RelPath) -> Result<(), IoFailure> {
        if self.slot(slot, path)?.is_none() {
            return Ok(());
        }
        let mut aside = OsString::from(slot);
        aside.push(".old");
        while self.slot(&aside, path)?.is_some() {
            aside.push("er");
        }
        self.inner.disk.rename((self.slots, slot), (self.slots, &aside), Rename::New).at("clearing the slot of", path)
    }
}
