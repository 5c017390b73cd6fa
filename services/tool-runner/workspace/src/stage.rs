//! Stages a view and its manifest as a commit that waits for its row.
//!
//! The new files get their final form (owner, mode, attributes), are synced to disk and moved into the slots of the commit, all inside
//! Belay's own directory.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    sync::Arc,
};

use rustix::{fs::fstat, io::Errno, process::geteuid};

use crate::{
    attributes::{self, attributes},
    commit::{Commit, CommitError, Op, check, slot_name},
    conflict::{BOUNDLESS, Fingerprint, Position},
    disk::{Disk, IoContext as _, IoFailure, Rename},
    inner::Inner,
    manifest::{Act, Change, Manifest},
    open::{DIRECTORY, names, open_entry, open_file, stat_entry},
    order::Order,
    overlay_format::{is_whiteout, open_for_reading},
    path::RelPath,
    stat::{FileKind, Stat},
    tree::{self, Content, Node, Side, Stop, Walk},
    view::View,
    workspace::Workspace,
};

/// Above this number of files, one sync of the whole file system is cheaper than one per file.
const SYNC_ONE_BY_ONE: usize = 64;

impl Workspace {
    /// Stages the changes of a view, and consumes it. The workspace is unchanged. Every commit applied before is durable afterwards.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] if a touched path no longer is what the manifest says; [`CommitError::Altered`] if the view does not match
    /// it. The view is discarded in any case.
    pub fn stage(&self, view: View, manifest: &Manifest) -> Result<Commit, CommitError> {
        self.stage_until(view, manifest, &|| false)
    }

    /// As [`Workspace::stage`], until `stop` returns true; it is polled between changes.
    ///
    /// # Errors
    ///
    /// As for [`Workspace::stage`], and [`CommitError::Stopped`].
    pub fn stage_until(&self, view: View, manifest: &Manifest, stop: Stop<'_>) -> Result<Commit, CommitError> {
        assert!(Arc::ptr_eq(&self.inner, &view.workspace), "the view belongs to this workspace");
        if let Some(change) = manifest.changes.iter().find(|change| !is_consistent(change)) {
            return Err(CommitError::Altered { path: change.path.clone() });
        }
        let one_by_one = files(manifest) <= SYNC_ONE_BY_ONE;
        let commit = Commit { id: view.id().to_owned(), manifest: manifest.digest(), ops: ops(manifest) };
        check(&self.inner, &commit.ops)?;
        let mut stage = Stage { inner: &self.inner, unsynced: one_by_one.then(Vec::new), last_is_file: false, stop };
        stage.run(&view, manifest, &commit)?;
        Ok(commit)
    }
}

/// Whether the nodes of a change match its fingerprints: the manifest may come from a store.
fn is_consistent(change: &Change) -> bool {
    let matches_nodes = |fingerprint: &Fingerprint, nodes: &[Node]| fingerprint.digest == tree::digest(nodes);
    match &change.act {
        Act::Put { base, staged } => {
            matches_nodes(staged, &change.after)
                && base.as_ref().map_or(change.before.is_empty(), |base| matches_nodes(base, &change.before))
        }
        Act::Away { base } => change.after.is_empty() && matches_nodes(base, &change.before),
        Act::Meta { .. } => change.before.is_empty() && change.after.is_empty(),
    }
}

fn files(manifest: &Manifest) -> usize {
    manifest.changes.iter().map(|change| change.after.len()).sum()
}

/// The operations of a manifest, each with a slot.
fn ops(manifest: &Manifest) -> Vec<Op> {
    let op = |(slot, change): (u32, &Change)| {
        let path = change.path.clone();
        match change.act {
            Act::Put { base, staged } => Op::Put { path, slot, inode: staged.inode, base, staged },
            Act::Away { base } => Op::Away { path, slot, base },
            Act::Meta { inode, old, new } => Op::Meta { path, inode, old, new },
        }
    };
    (0..).zip(&manifest.changes).map(op).collect()
}

struct Stage<'a> {
    inner: &'a Inner,
    /// The staged files and directories to be synced one by one; `None` if there are too many.
    unsynced: Option<Vec<OwnedFd>>,
    /// Whether the entry moved last into its slot is a file, and the last of `unsynced`.
    last_is_file: bool,
    stop: Stop<'a>,
}

impl Stage<'_> {
    fn run(&mut self, view: &View, manifest: &Manifest, commit: &Commit) -> Result<(), CommitError> {
        let Inner { disk, commits, .. } = self.inner;
        disk.create_directory(commits, commit.id.as_ref(), 0o700).at("creating the slots of commit", &commit.id)?;
        let slots = open_entry(commits, commit.id.as_ref(), DIRECTORY).at("opening the slots of commit", &commit.id)?;
        if let Some(upper) = view.upper()? {
            for (op, change) in commit.ops.iter().zip(&manifest.changes) {
                if (self.stop)() {
                    return Err(CommitError::Stopped);
                }
                if let Op::Put { slot, .. } = op {
                    self.put(&upper, &slots, *slot, change)?;
                }
            }
        } else if let Some(change) = manifest.changes.first() {
            return Err(CommitError::Altered { path: change.path.clone() });
        }
        Ok(self.sync(&slots).at("syncing the files of commit", &commit.id)?)
    }

    /// Syncs the staged files, after the last rename.
    fn sync(&self, slots: &OwnedFd) -> Result<(), Errno> {
        let Inner { disk, commits, root, .. } = self.inner;
        match &self.unsynced {
            Some(files) => files.iter().try_for_each(|file| disk.sync(file))?,
            None => return disk.sync_all(root),
        }
        match disk.order() {
            // The sync of the last changed file covered everything.
            Order::Kept if self.last_is_file => Ok(()),
            Order::Kept => disk.sync(slots),
            Order::Unknown => {
                disk.sync(slots)?;
                disk.sync(commits)
            }
        }
    }

    /// Moves one change into its slot.
    fn put(&mut self, upper: &OwnedFd, slots: &OwnedFd, slot: u32, change: &Change) -> Result<(), CommitError> {
        let Act::Put { staged, .. } = &change.act else {
            return Ok(());
        };
        let path = &change.path;
        let disk = &self.inner.disk;
        let folder = open_writable_path(disk, upper, &path.parent().expect("no change replaces the root"))?;
        let name = path.name().expect("no change replaces the root");
        // A directory that denies listing is read with more permissions.
        let untouched = staged.is_untouched(disk, folder.as_fd(), name, path, Position::InPlace).unwrap_or(false);
        let unmodified = untouched || {
            let now = Walk::new(disk, BOUNDLESS, Side::Upper).until(self.stop).tree(folder.as_fd(), name, path)?;
            now.is_some_and(|mut now| {
                // The only permission that the manifest may have added.
                now.nodes[0].mode |= change.after[0].mode & 0o200;
                now.top.ino == staged.inode && tree::digest(&now.nodes) == staged.digest
            })
        };
        if !unmodified {
            return Err(CommitError::Altered { path: path.clone() });
        }
        let original = self.inner.parent(path).ok().and_then(|below| self.original(&below, name));
        let form = Form {
            nodes: &change.after,
            owner: self.inner.owner.map(|root| original.as_ref().map_or(root, |(_, stat)| stat.owner)),
            attributes: original.as_ref().map(|(file, _)| file.as_fd()),
        };
        self.finalize(folder.as_fd(), name, path, form)?;
        let target = (slots, &*slot_name(slot));
        disk.rename((&folder, name), target, Rename::New).at("staging", path)?;
        self.last_is_file = matches!(change.after[0].content, Content::File { .. });
        Ok(())
    }

    /// The file that is replaced, whose owner and attributes the new one inherits.
    fn original(&self, below: &OwnedFd, name: &OsStr) -> Option<(OwnedFd, Stat)> {
        open_file(below, name).ok()
    }

    /// Gives a staged tree its final form, from the leaves to the top.
    fn finalize(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        form: Form<'_>,
    ) -> Result<(), CommitError> {
        let disk = &self.inner.disk;
        let found = stat_entry(folder, name).and_then(|found| found.ok_or(Errno::NOENT)).at("inspecting", path)?;
        if is_whiteout(disk, folder, name, &found).at("inspecting", path)? {
            // A whiteout in an opaque directory has no meaning.
            disk.unlink(folder, name).at("removing the whiteout", path)?;
            return Ok(());
        }
        if found.is_special() {
            // The manifest lists it as left out.
            disk.unlink(folder, name).at("removing the special file", path)?;
            return Ok(());
        }
        let node = form.node(path).ok_or_else(|| CommitError::Altered { path: path.clone() })?;
        if found.kind != FileKind::Symlink {
            let (opened, _) = open_for_reading(disk, folder, name, &found).at("opening", path)?;
            if found.is_directory() {
                let inside = Form { owner: self.inner.owner, attributes: None, ..form };
                for child in names(&opened).at("listing", path)? {
                    self.finalize(opened.as_fd(), &child, &path.join(&child), inside)?;
                }
            }
            self.strip(&opened, &found, path, form.attributes)?;
            // Before the mode, because a change of owner clears bits of it.
            if let Some(owner) = form.owner.filter(|owner| *owner != found.owner) {
                disk.set_owner(folder, name, owner).at("changing the owner of", path)?;
            }
            if Stat::from(fstat(&opened).at("inspecting", path)?).mode != node.mode {
                disk.set_mode(&opened, node.mode).at("setting the mode of", path)?;
            }
            if let Some(unsynced) = &mut self.unsynced
                && (found.is_file() || disk.order() != Order::Kept)
            {
                unsynced.push(opened);
            }
        } else if let Some(owner) = form.owner.filter(|owner| *owner != found.owner) {
            disk.set_owner(folder, name, owner).at("changing the owner of", path)?;
        }
        Ok(())
    }

    /// Removes every extended attribute that the replaced file does not have with the same value: the manifest does not show them, so no
    /// one approved them. They include file capabilities, access lists, and the attributes of the overlay.
    fn strip(
        &self,
        file: &OwnedFd,
        found: &Stat,
        path: &RelPath,
        original: Option<BorrowedFd<'_>>,
    ) -> Result<(), CommitError> {
        let disk = &self.inner.disk;
        let mut unlocked = geteuid().is_root() || found.mode & 0o200 != 0;
        for name in attributes(file.as_fd()).at("listing the attributes of", path)? {
            let ours = name.as_bytes().starts_with(b"user.overlay.") || name.as_bytes() == b"security.capability";
            let inherited = || {
                Ok::<_, Errno>(
                    attributes::value(original, &name)?.is_some()
                        && attributes::value(original, &name)? == attributes::value(Some(file.as_fd()), &name)?,
                )
            };
            if !ours && inherited().at("reading the attributes of", path)? {
                continue;
            }
            if !unlocked {
                disk.set_mode(file, found.mode | 0o600).at("opening", path)?;
                unlocked = true;
            }
            match disk.remove_attribute(file, &name) {
                // The security module labels every new file, and keeps the label.
                Err(Errno::ACCESS | Errno::PERM | Errno::NOTSUP)
                    if name.as_bytes().starts_with(b"security.") && !ours => {}
                removed => removed.at("removing an attribute of", path)?,
            }
        }
        Ok(())
    }
}

/// The final form of staged files.
#[derive(Clone, Copy)]
struct Form<'a> {
    /// Their nodes in the manifest, by path.
    nodes: &'a [Node],
    /// Their owner, if the runner can set one.
    owner: Option<(u32, u32)>,
    /// The file whose attributes they keep.
    attributes: Option<BorrowedFd<'a>>,
}

impl<'a> Form<'a> {
    fn node(&self, path: &RelPath) -> Option<&'a Node> {
        self.nodes.binary_search_by(|node| node.path.cmp(path)).ok().map(|found| &self.nodes[found])
    }
}

/// Opens a directory of the upper layer, giving its owner all permissions to it and its parents, which are not needed any more.
fn open_writable_path(disk: &Disk, upper: &OwnedFd, path: &RelPath) -> Result<OwnedFd, IoFailure> {
    let mut at = upper.try_clone().map_err(|source| IoFailure { doing: "opening", path: path.to_string(), source })?;
    for name in path.names() {
        let mode = stat_entry(&at, name).at("inspecting", path)?.map_or(0o700, |found| found.mode);
        if mode & 0o700 != 0o700 {
            disk.set_mode_of(&at, name, 0o700).at("opening", path)?;
        }
        at = open_entry(&at, name, DIRECTORY).at("opening", path)?;
    }
    Ok(at)
}
