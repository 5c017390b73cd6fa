//! Layers: what calls changed whose effects are committed together, each kept beside the workspace until that happens.
//!
//! The calls of a set are made by their caller to have one effect. What each of them changed is staged like a commit, and kept as a layer instead of
//! being applied. A later call of the set begins with the layers that its caller names, in their order, copied into the upper directory of its view:
//! so it sees what they changed, its effect is measured against the workspace, and nothing but copies depends on how deep the kernel can stack
//! overlays (it refuses a lower layer inside of another one, and more than two overlays). The effect of a view that begins with all layers is the
//! effect of the set.
//!
//! A layer has only what its own call changed beyond the layers that it began with. Two layers of a set that touched one path, neither of which
//! began with the other, are a conflict, as two commits would be.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    sync::Arc,
};

use rustix::{
    fs::{OFlags, readlinkat, symlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{
    commit::{self, Commit, CommitError, Op, slot_name},
    conflict::Position,
    disk::{At as _, Disk, IoFailure, Rename},
    effect::EffectError,
    inner::Inner,
    manifest::{Act, Change, Manifest},
    open::{DIRECTORY, names, open_beneath, open_entry, open_file, stat_entry},
    overlay_format::{mark_copied_up, mark_opaque},
    path::RelPath,
    remove::remove_tree,
    stat::FileKind,
    tree::{Digest, Limits, Stop},
    view::{View, is_plain},
    view_error::ViewError,
    workspace::Workspace,
};

/// The file of a layer with everything about it but its files.
const DESCRIPTION: &str = "layer.json";

/// Where a layer is kept: 1 to 64 letters, digits, `-` and `_` each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerPlace {
    /// The set of layers that are committed together.
    pub set: String,
    /// Whose layer it is. A later layer of the same entry replaces an earlier one.
    pub entry: String,
}

/// What one call of a set changed. Its id is that of its commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its place.
    pub place: LayerPlace,
    /// The staged changes.
    pub commit: Commit,
    /// What it undid of the layers that it began with.
    pub undone: Vec<Undone>,
    /// The references of the layers that it began with.
    pub over: Vec<String>,
    /// What its caller wants to know of it when the set is committed.
    pub note: String,
}

/// A path that is as it is in the workspace again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// The path.
    pub path: RelPath,
    /// Whether it is a directory of which the mode alone had changed.
    pub is_mode: bool,
}

/// What a call changed beyond the layers that it began with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChanges {
    /// The changes, as changes of the workspace.
    pub manifest: Manifest,
    /// What is as it is in the workspace again.
    pub undone: Vec<Undone>,
}

impl OwnChanges {
    /// Whether the call changed nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.manifest.is_empty() && self.undone.is_empty()
    }

    /// The changes that a view has now beyond those that it had: see [`View::own_changes`].
    #[must_use]
    pub fn between(before: &Manifest, now: &Manifest) -> Self {
        let at = |manifest: &Manifest, path: &RelPath| {
            manifest.changes.binary_search_by(|change| change.path.cmp(path)).ok()
        };
        let is_new =
            |change: &&Change| at(before, &change.path).is_none_or(|index| !is_same(&before.changes[index], change));
        let changes: Vec<Change> = now.changes.iter().filter(is_new).cloned().collect();
        // A path inside of a directory that is put there or removed as a whole is part of that.
        let is_within = |path: &RelPath| {
            changes.iter().any(|change| !matches!(change.act, Act::Meta { .. }) && path.is_inside(&change.path))
        };
        let undone = before.changes.iter().filter(|change| at(now, &change.path).is_none() && !is_within(&change.path));
        let undone = undone
            .map(|change| Undone { path: change.path.clone(), is_mode: matches!(change.act, Act::Meta { .. }) })
            .collect();
        Self { manifest: Manifest { changes, left_out: now.left_out.clone() }, undone }
    }
}

/// Whether two changes of one path come to the same.
fn is_same(one: &Change, other: &Change) -> bool {
    match (one.act, other.act) {
        (Act::Put { .. }, Act::Put { .. }) => one.before == other.before && one.after == other.after,
        (Act::Away { .. }, Act::Away { .. }) => true,
        (Act::Meta { new, .. }, Act::Meta { new: other, .. }) => new == other,
        _ => false,
    }
}

impl Layer {
    /// What a later view names it by: its id and a digest of all that describes it, joined by a full stop. Who keeps the reference elsewhere than in the
    /// workspace finds out when the layer was tampered with there.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}.{}", self.commit.id, Digest::of(&self.description()))
    }

    fn description(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts, numbers and lists are always JSON")
    }

    /// The paths that it touches, each with whether everything inside is touched too.
    fn touched(&self) -> impl Iterator<Item = (&RelPath, bool)> {
        let changed = self.commit.ops.iter().map(|op| (op.path(), !matches!(op, Op::Meta { .. })));
        changed.chain(self.undone.iter().map(|undone| (&undone.path, !undone.is_mode)))
    }

    /// The paths that it touches and another one too.
    fn overlap(&self, other: &Self) -> Vec<RelPath> {
        let touches = |(path, whole): (&RelPath, bool)| {
            other
                .touched()
                .any(|(its, its_whole)| path == its || whole && its.is_inside(path) || its_whole && path.is_inside(its))
        };
        self.touched().filter(|touched| touches(*touched)).map(|(path, _)| path.clone()).collect()
    }
}

impl View {
    /// Of its changes, those beyond the layers that it began with.
    #[must_use]
    pub fn own_changes(&self, manifest: &Manifest) -> OwnChanges {
        OwnChanges::between(&self.before, manifest)
    }
}

impl Workspace {
    /// Creates a view, as [`Workspace::view`] does, that begins with layers of a set, named by their references, in their order.
    ///
    /// # Errors
    ///
    /// [`ViewError::LayerGone`] when a layer is not there, or is not what was kept; [`ViewError::LayerConflict`] when the workspace has changed since
    /// at a path that a layer touches; otherwise as [`Workspace::view`].
    pub fn view_over(&self, id: &str, set: &str, layers: &[String]) -> Result<View, ViewError> {
        let mut view = View::begin(Arc::clone(&self.inner), id)?;
        for layer in layers {
            let (slots, layer) = find(&self.inner, set, layer)?;
            Fill { inner: &self.inner, view: &view, slots: &slots }.run(&layer)?;
        }
        if !layers.is_empty() {
            view.before = view.effect(Limits::default()).map_err(|error| match error {
                EffectError::Conflict { paths } => ViewError::LayerConflict { paths },
                other => ViewError::Layers { why: other.to_string() },
            })?;
        }
        Ok(view)
    }

    /// What their callers noted about layers.
    ///
    /// # Errors
    ///
    /// [`ViewError::LayerGone`].
    pub fn layer_notes(&self, set: &str, layers: &[String]) -> Result<Vec<String>, ViewError> {
        layers.iter().map(|id| find(&self.inner, set, id).map(|(_, layer)| layer.note)).collect()
    }

    /// Stages what the call of a view changed as a layer, and consumes the view. The caller writes a durable row with the layer, and then calls
    /// [`Workspace::keep_layer`]; without a row, [`Workspace::discard`] removes it, or a sweep.
    ///
    /// # Errors
    ///
    /// As [`Workspace::stage_until`].
    pub fn stage_layer(
        &self,
        view: View,
        own: OwnChanges,
        (place, over, note): (LayerPlace, Vec<String>, String),
        stop: Stop<'_>,
    ) -> Result<Layer, CommitError> {
        let id = view.id().to_owned();
        let commit = self.stage_until(view, &own.manifest, stop)?;
        let layer = Layer { place, commit, undone: own.undone, over, note };
        let slots = commit::slots(&self.inner, &layer.commit)?;
        let Inner { disk, commits, .. } = &*self.inner;
        let text = layer.description();
        let describe = || {
            let file = disk.create(&slots, DESCRIPTION.as_ref())?;
            disk.write_all(&file, &text)?;
            disk.sync(&file)?;
            disk.sync(&slots)?;
            disk.sync(commits)
        };
        describe().at("describing layer", id)?;
        Ok(layer)
    }

    /// Checks that no other layer of the set touches a path of this one. The caller makes sure that no other one is kept between this and
    /// [`Workspace::keep_layer`].
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`]; [`CommitError::NotStaged`].
    pub fn check_layer(&self, layer: &Layer) -> Result<(), CommitError> {
        commit::slots(&self.inner, &layer.commit)?;
        let mut paths = Vec::new();
        for (entry, id) in kept(&self.inner, &layer.place.set)? {
            if entry == layer.place.entry || layer.over.iter().any(|over| id_of(over) == id) {
                continue;
            }
            match read(&self.inner, &layer.place.set, &format!("{entry}.{id}")) {
                Ok(Some((_, other, _))) => paths.extend(layer.overlap(&other)),
                // Nobody can begin with it either.
                Ok(None) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        paths.sort();
        paths.dedup();
        if paths.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths }) }
    }

    /// Keeps a layer whose row is written, durably, in the place of an earlier one of its entry. Again after a crash, whatever that left.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotStaged`] when it is kept already, or was removed since.
    pub fn keep_layer(&self, layer: &Layer) -> Result<(), CommitError> {
        let Inner { disk, layers, commits, .. } = &*self.inner;
        let LayerPlace { set, entry } = &layer.place;
        let id = &layer.commit.id;
        commit::slots(&self.inner, &layer.commit)?;
        match disk.create_directory(layers, set.as_ref(), 0o700) {
            Ok(()) => disk.sync(layers).at("syncing the set of layers", set)?,
            Err(Errno::EXIST) => {}
            Err(error) => Err(error).at("creating the set of layers", set)?,
        }
        let folder = open_entry(layers, set.as_ref(), DIRECTORY).at("opening the set of layers", set)?;
        let name = format!("{entry}.{id}");
        disk.rename((commits, id.as_ref()), (&folder, name.as_ref()), Rename::New).at("keeping layer", id)?;
        disk.sync(&folder).and_then(|()| disk.sync(commits)).at("syncing the set of layers", set)?;
        for (other, earlier) in kept(&self.inner, set)? {
            if other == *entry && earlier != *id {
                let earlier = format!("{other}.{earlier}");
                self.inner.discard(&folder, earlier.as_ref()).at("removing the replaced layer", earlier)?;
            }
        }
        Ok(())
    }

    /// Removes every set of layers that `keep` rejects. Call it as [`Workspace::sweep`], with the sets in the ledger.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn sweep_layers(&self, keep: impl Fn(&str) -> bool) -> Result<(), IoFailure> {
        let Inner { layers, .. } = &*self.inner;
        for set in names(layers).at("listing the sets of layers in", self.inner.path.display())? {
            if !set.to_str().is_some_and(&keep) {
                self.inner.discard(layers, &set).at("removing the set of layers", set.display())?;
            }
        }
        Ok(())
    }

    /// Removes a set with its layers. Does nothing when there is none.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn remove_layers(&self, set: &str) -> Result<(), IoFailure> {
        self.inner.discard(&self.inner.layers, set.as_ref()).at("removing the set of layers", set)
    }
}

/// The layers of a set: the entry and the id of each.
fn kept(inner: &Inner, set: &str) -> Result<Vec<(String, String)>, IoFailure> {
    let folder = match open_entry(&inner.layers, set.as_ref(), DIRECTORY) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened.at("opening the set of layers", set)?,
    };
    let split = |name: &OsString| {
        let (entry, id) = name.to_str()?.split_once('.')?;
        Some((entry.to_owned(), id.to_owned()))
    };
    Ok(names(&folder).at("listing the set of layers", set)?.iter().filter_map(split).collect())
}

fn id_of(reference: &str) -> &str {
    reference.split_once('.').map_or(reference, |(id, _)| id)
}

/// The layer that a reference names, and the directory of its files.
fn find(inner: &Inner, set: &str, reference: &str) -> Result<(OwnedFd, Layer), ViewError> {
    let id = id_of(reference);
    let gone = || ViewError::LayerGone { layer: belay_text::visible_bytes(id.as_bytes()) };
    if !is_plain(set) || !is_plain(id) {
        return Err(gone());
    }
    let (entry, id) = kept(inner, set)?.into_iter().find(|(_, other)| other == id).ok_or_else(gone)?;
    let (slots, layer, digest) = read(inner, set, &format!("{entry}.{id}"))?.ok_or_else(gone)?;
    if format!("{id}.{digest}") == reference { Ok((slots, layer)) } else { Err(gone()) }
}

/// A layer by its name in the set, with the digest of its description; `None` when there is none that can be read.
fn read(inner: &Inner, set: &str, name: &str) -> Result<Option<(OwnedFd, Layer, Digest)>, IoFailure> {
    let opened = open_entry(&inner.layers, set.as_ref(), DIRECTORY)
        .and_then(|folder| open_entry(folder, name.as_ref(), DIRECTORY));
    let slots = match opened {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.at("opening layer", name)?,
    };
    let described = open_entry(&slots, DESCRIPTION.as_ref(), OFlags::RDONLY).map_err(io::Error::from);
    let text = described.and_then(|file| io::read_to_string(File::from(file)));
    let layer = text.ok().and_then(|text| Some((serde_json::from_str(&text).ok()?, Digest::of(text.as_bytes()))));
    Ok(layer.map(|(layer, digest)| (slots, layer, digest)))
}

/// Copies a layer into the upper directory of a view.
struct Fill<'a> {
    inner: &'a Inner,
    view: &'a View,
    slots: &'a OwnedFd,
}

impl Fill<'_> {
    fn run(&self, layer: &Layer) -> Result<(), ViewError> {
        // Compared with the workspace, as it was when the call ended: it may have changed since, and the copy would hide that.
        commit::check(self.inner, &layer.commit.ops).map_err(|error| match error {
            CommitError::Conflict { paths } => ViewError::LayerConflict { paths },
            CommitError::Io(failure) => failure.into(),
            other => ViewError::Layers { why: other.to_string() },
        })?;
        for Undone { path, is_mode } in &layer.undone {
            self.undo(path, *is_mode).at("undoing a change of", path)?;
        }
        for op in &layer.commit.ops {
            match op {
                Op::Put { path, slot, staged, .. } => {
                    let slot = slot_name(*slot);
                    let disk = &self.inner.disk;
                    let is_as_kept = staged.matches(disk, self.slots.as_fd(), &slot, path, Position::Moved);
                    if !is_as_kept.unwrap_or(false) {
                        return Err(ViewError::LayerGone { layer: layer.commit.id.clone() });
                    }
                    self.put(path, &slot)?;
                }
                Op::Away { path, .. } => {
                    let (folder, name) = self.place(path)?;
                    let upper = folder.upper();
                    remove_tree(&self.inner.disk, upper, name).at("removing", path)?;
                    if folder.below(name).at("inspecting", path)?.is_some() {
                        self.inner.disk.make_whiteout(upper, name).at("marking as removed", path)?;
                        if let Some(owner) = self.inner.owner {
                            // A command cannot put anything in the place of what has an owner that it does not see.
                            self.inner.disk.set_owner(upper, name, owner).at("changing the owner of", path)?;
                        }
                    }
                }
                Op::Meta { path, new, .. } => {
                    let folder = self.view.create_directories(self.view.writable_root()?, path)?;
                    self.inner.disk.set_mode(folder.upper(), *new).at("setting the mode of", path)?;
                }
            }
        }
        Ok(())
    }

    /// The directory of a path in the view, copied up, and its name there.
    fn place<'p>(&self, path: &'p RelPath) -> Result<(crate::lookup::Merged<'_>, &'p OsStr), ViewError> {
        let (parent, name) = path.parent().zip(path.name()).ok_or(ViewError::Root)?;
        Ok((self.view.create_directories(self.view.writable_root()?, &parent)?, name))
    }

    fn put(&self, path: &RelPath, slot: &OsStr) -> Result<(), ViewError> {
        let disk = &self.inner.disk;
        let (folder, name) = self.place(path)?;
        let upper = folder.upper();
        remove_tree(disk, upper, name).at("replacing", path)?;
        let copied = Copy { disk, is_root: self.inner.owner.is_some() };
        copied.tree(self.slots.as_fd(), slot, upper, name).map_err(|source| IoFailure {
            doing: "copying from a layer",
            path: path.to_string(),
            source,
        })?;
        let Some(below) = folder.below(name).at("inspecting", path)? else { return Ok(()) };
        let made = stat_entry(upper, name).and_then(|made| made.ok_or(Errno::NOENT)).at("inspecting", path)?;
        // Only who may write to it can mark it.
        let opened = |mark: &dyn Fn(OwnedFd) -> Result<(), Errno>, flags| {
            disk.set_mode_of(upper, name, made.mode | 0o700)?;
            mark(open_entry(upper, name, flags)?)?;
            disk.set_mode_of(upper, name, made.mode)
        };
        let marked = match made.kind {
            FileKind::Directory => opened(&|folder| mark_opaque(disk, folder), DIRECTORY),
            FileKind::File if below.is_file() => opened(&|file| mark_copied_up(disk, file), OFlags::RDONLY),
            _ => Ok(()),
        };
        Ok(marked.at("marking", path)?)
    }

    /// Lets the view have at a path what the workspace has.
    fn undo(&self, path: &RelPath, is_mode: bool) -> Result<(), Errno> {
        let disk = &self.inner.disk;
        let Some(upper) = self.view.upper().map_err(|_| Errno::IO)? else { return Ok(()) };
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else { return Ok(()) };
        let folder = match open_beneath(&upper, &parent, DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            opened => opened?,
        };
        if !is_mode {
            return remove_tree(disk, &folder, name);
        }
        let below = self.inner.parent(path).and_then(|folder| stat_entry(&folder, name));
        match (below, stat_entry(&folder, name)?) {
            (Ok(Some(below)), Some(_)) => disk.set_mode_of(&folder, name, below.mode),
            _ => Ok(()),
        }
    }
}

/// Copies trees that nobody else changes.
struct Copy<'a> {
    disk: &'a Disk,
    /// Whether the copies get the owners of what they are made of.
    is_root: bool,
}

impl Copy<'_> {
    fn tree(
        &self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        into: BorrowedFd<'_>,
        new_name: &OsStr,
    ) -> Result<(), io::Error> {
        let disk = self.disk;
        let found = stat_entry(from, name)?.ok_or(Errno::NOENT)?;
        match found.kind {
            FileKind::Symlink => {
                let target = readlinkat(from, name, Vec::new())?;
                symlinkat(OsStr::from_bytes(target.as_bytes()), into, new_name)?;
            }
            FileKind::Directory => {
                disk.create_directory(into, new_name, 0o700)?;
                let (within, mode) = crate::overlay_format::open_for_reading(disk, from, name, &found)?;
                let copy = open_entry(into, new_name, DIRECTORY)?;
                for child in names(&within)? {
                    self.tree(within.as_fd(), &child, copy.as_fd(), &child)?;
                }
                mode.map_or(Ok(()), |mode| disk.set_mode(&within, mode))?;
            }
            FileKind::File => {
                let (file, mode) = match open_file(from, name) {
                    Ok((file, _)) => (file, None),
                    Err(_) => crate::overlay_format::open_for_reading(disk, from, name, &found)?,
                };
                io::copy(&mut File::from(file), &mut File::from(disk.create(into, new_name)?))?;
                mode.map_or(Ok(()), |mode| disk.set_mode_of(from, name, mode))?;
            }
            FileKind::Fifo | FileKind::Socket | FileKind::Device => return Ok(()),
        }
        if self.is_root {
            disk.set_owner(into, new_name, found.owner)?;
        }
        if found.kind != FileKind::Symlink {
            disk.set_mode_of(into, new_name, found.mode)?;
        }
        Ok(())
    }
}
