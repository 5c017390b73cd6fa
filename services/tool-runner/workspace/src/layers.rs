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

use std::sync::Arc;

use rustix::io::Errno;

use crate::{
    commit::{self, CommitError, Op},
    disk::{IoContext as _, IoFailure, Rename},
    drop_conflicts::{drop_conflicts, not_compared},
    dropped::Dropped,
    effect::EffectError,
    fill::Fill,
    inner::Inner,
    kept_layers::{DESCRIPTION, find, id_of, kept, read, slots_of},
    layer::{Layer, LayerPlace, OwnChanges, in_force},
    manifest::Manifest,
    open::{DIRECTORY, names, open_entry},
    tree::{Limits, Stop, TreeError},
    view::View,
    view_error::ViewError,
    workspace::Workspace,
};

/// Whose the changes of the layers are that a view begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerOwner {
    /// Those of the calls that have left them: [`View::own_changes`] has what is changed beyond them.
    Calls,
    /// The view's own: the layers are those of another set, and what comes of the view stands without them.
    View,
}

/// Compares the operations of layers with the workspace, and takes some of them out.
type Compare<'a> = &'a dyn Fn(&[Layer], &mut [Vec<&Op>]) -> Result<Dropped, ViewError>;

impl View {
    /// The changes beyond the layers that the view began with.
    #[must_use]
    pub fn own_changes(&self, manifest: &Manifest) -> OwnChanges {
        let mut own = OwnChanges::between(&self.before, manifest);
        own.undone.extend_from_slice(&self.dropped.paths);
        own
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
        // The copies would hide what has changed in the workspace since the calls of the layers ended.
        self.begin_over(id, (set, layers), stop, &|_, ops| {
            let compared = ops.iter().try_for_each(|ops| commit::check(&self.inner, ops.iter().copied()));
            compared.map(|()| Dropped::default()).map_err(not_compared)
        })
    }

    /// The same, but without the changes of the layers at whose paths the workspace has changed since: there the view begins with what the workspace has now.
    /// [`View::dropped_changes`] has them, and a layer that is made of the view reverts them for those who begin with it.
    ///
    /// # Errors
    ///
    /// As [`Workspace::view_over`]; [`ViewError::LayerConflict`] when the workspace changes while the view is made.
    pub fn view_without_conflicts(
        &self,
        id: &str,
        set: &str,
        layers: &[String],
        owner: LayerOwner,
        stop: Stop<'_>,
    ) -> Result<View, ViewError> {
        let dropping = |layers: &[Layer], ops: &mut [Vec<&Op>]| drop_conflicts(&self.inner, layers, ops, stop);
        let mut view = self.begin_over(id, (set, layers), stop, &dropping)?;
        if owner == LayerOwner::View {
            view.before = Manifest::default();
        }
        Ok(view)
    }

    /// Creates a view that begins with layers, without those of their changes that `compared` takes out.
    fn begin_over(
        &self,
        id: &str,
        (set, layers): (&str, &[String]),
        stop: Stop<'_>,
        compared: Compare<'_>,
    ) -> Result<View, ViewError> {
        let mut view = View::begin(Arc::clone(&self.inner), id)?;
        let layers: Vec<Layer> = layers.iter().map(|layer| find(&self.inner, set, layer)).collect::<Result<_, _>>()?;
        let mut ops = in_force(&layers);
        view.dropped = compared(&layers, &mut ops)?;
        let mut fill = Fill::new(&self.inner, &view, stop);
        for (layer, ops) in layers.iter().zip(&ops) {
            fill.add(&slots_of(&self.inner, layer)?, layer, ops)?;
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
        layers.iter().map(|id| find(&self.inner, set, id).map(|layer| layer.note)).collect()
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
                Ok(Some((other, _))) => paths.extend(layer.overlap(&other)),
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
