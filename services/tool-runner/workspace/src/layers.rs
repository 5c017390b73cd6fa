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

use std::{ffi::OsString, fs::File, io, os::fd::OwnedFd, sync::Arc};

use rustix::{fs::OFlags, io::Errno};

use crate::{
    commit::{self, CommitError},
    disk::{IoContext as _, IoFailure, Rename},
    effect::EffectError,
    fill::Fill,
    inner::Inner,
    layer::{Layer, LayerPlace, OwnChanges},
    manifest::Manifest,
    open::{DIRECTORY, names, open_entry},
    tree::{Digest, Limits, Stop, TreeError},
    view::{View, is_plain},
    view_error::ViewError,
    workspace::Workspace,
};

/// The file of a layer with everything about it but its files.
const DESCRIPTION: &str = "layer.json";

impl View {
    /// The changes beyond the layers that the view began with.
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
    /// at a path that a layer touches; [`ViewError::Stopped`] once `stop`, which is polled between files and their parts, has returned true; otherwise
    /// as [`Workspace::view`].
    pub fn view_over(&self, id: &str, set: &str, layers: &[String], stop: Stop<'_>) -> Result<View, ViewError> {
        let mut view = View::begin(Arc::clone(&self.inner), id)?;
        let mut fill = Fill::new(&self.inner, &view, stop);
        for layer in layers {
            let (slots, layer) = find(&self.inner, set, layer)?;
            fill.add(&slots, &layer)?;
        }
        fill.finish()?;
        if !layers.is_empty() {
            view.before = view.effect_until(Limits::default(), stop).map_err(|error| match error {
                EffectError::Conflict { paths } => ViewError::LayerConflict { paths },
                EffectError::Tree(TreeError::Stopped) => ViewError::Stopped,
                other => ViewError::Layers { why: other.to_string() },
            })?;
        }
        Ok(view)
    }

    /// The notes of their callers about layers.
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
