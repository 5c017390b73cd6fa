//! Workspaces on the simulated disk: a model of the guarantees of `belay_workspace`, without overlay and renames.
//!
//! Files are in one folder and contain text. The model covers: commits are applied under open views, and a view shows others' commits since its
//! beginning in paths that it has not looked up yet; a touched path that another commit has changed since then is a conflict; a staged effect
//! survives a power loss, with the workspace unchanged; an interrupted commit is partly applied until it is applied again, which completes it
//! without repeating anything; a power loss removes the latest commits, in order, down to the last staging or sync.

mod files;
mod layers;
mod support;
mod view;

use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use belay_tool_runner::{StagedEffect, View, WorkspaceDirectories, WorkspaceDirectory};
use belay_workspace::{
    CommitError, Digest, EffectError, IoFailure, LayerOwner, LayerPlace, Manifest, OpenError, OwnChanges, RelPath,
    Stop, ViewError,
};

pub(super) use self::files::{Change, contents};
use self::files::{Files, Op};
use self::layers::Layer;
use self::support::{conflict, failed, lock};
pub(super) use self::view::ModelView;
use super::outside::Outside;
use crate::{disk, machine, trace};

/// A planted bug of the workspaces. None by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Flaw {
    #[default]
    None,
    /// Staged effects are applied at once, before the ledger has their row.
    AppliesBeforeTheRow,
    /// Staged effects are not synced.
    StagesWithoutSync,
    /// Applied effects are never synced.
    NeverSyncs,
}

/// The workspaces of one run of the runner.
pub(super) struct ModelDirectories {
    flaw: Flaw,
    outside: Outside,
    open: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl ModelDirectories {
    pub(super) fn new(flaw: Flaw, outside: &Outside) -> Self {
        Self { flaw, outside: outside.clone(), open: Arc::default() }
    }
}

impl WorkspaceDirectories for ModelDirectories {
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError> {
        match disk::exists(path) {
            Ok(true) => Ok(path.to_owned()),
            Ok(false) => Err(OpenError::Unreachable { path: path.to_owned(), source: io::ErrorKind::NotFound.into() }),
            Err(failure) => Err(OpenError::Unreachable { path: path.to_owned(), source: failure.into() }),
        }
    }

    /// No store lies in a workspace of the simulation.
    fn enclosing_state_directory(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn make(&self, path: &Path) -> Result<(), OpenError> {
        disk::make_folder(path)
            .map_err(|failure| OpenError::Unreachable { path: path.to_owned(), source: failure.into() })
    }

    fn remove(&self, path: &Path) -> Result<(), OpenError> {
        if lock(&self.open).contains(path) {
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        Files::remove(path).map_err(|source| OpenError::Unreachable { path: path.to_owned(), source })
    }

    fn open(&self, path: &Path, _forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        if !lock(&self.open).insert(path.to_owned()) {
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        // Removes the entry when dropped, whatever happens from here on.
        let held = WorkspaceEntry { path: path.to_owned(), open: Arc::clone(&self.open) };
        self.outside.workspace(path);
        let files = Files::open(path).map_err(|source| failed("opening the log of", path, source))?;
        trace::detail(format_args!("workspace {} opens with {} changes", path.display(), files.changes().len()));
        let (files, outside) = (Arc::new(Mutex::new(files)), self.outside.clone());
        Ok(Arc::new(Workspace { held, flaw: self.flaw, files, outside }))
    }
}

/// All applied changes of a workspace, read from the disk of the executing machine. For checkers.
pub(super) fn changes(path: &Path) -> io::Result<Vec<Change>> {
    machine::without_faults(|| match disk::exists(path) {
        Ok(true) => Ok(Files::open(path)?.changes().to_vec()),
        // The power failed while it was made, before any call had a view of it.
        Ok(false) => Ok(Vec::new()),
        Err(failure) => Err(failure.into()),
    })
}

/// An entry in the list of open workspaces.
struct WorkspaceEntry {
    path: PathBuf,
    open: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Drop for WorkspaceEntry {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.path);
    }
}

struct Workspace {
    held: WorkspaceEntry,
    flaw: Flaw,
    files: Arc<Mutex<Files>>,
    outside: Outside,
}

/// The part of a staged effect that the ledger stores.
type Plan = Vec<(String, Option<Digest>)>;

fn plan(staged: &StagedEffect) -> Result<Plan, CommitError> {
    let unreadable = |error: serde_json::Error| failed("reading the plan of commit", &staged.id, error.into());
    Ok(serde_json::from_str(&staged.plan).map_err(unreadable)?)
}

impl Workspace {
    fn bring_onto_the_disk(&self, files: &mut Files) -> io::Result<()> {
        if self.flaw != Flaw::NeverSyncs {
            files.sync()?;
            self.outside.synced(files.changes().iter().map(|change| change.commit.as_str()));
        }
        Ok(())
    }

    /// The paths whose content is no longer the expected one.
    fn changed(files: &Files, staged: &StagedEffect, plan: &Plan) -> Vec<RelPath> {
        let is_changed = |(path, base): &&(String, Option<Digest>)| {
            let now = files.content(path).map(|content| Digest::of(content.as_bytes()));
            !files.has_put(&staged.id, path) && now != *base
        };
        conflict(plan.iter().filter(is_changed).map(|(path, _)| path.as_str()))
    }

    fn put(files: &mut Files, staged: &StagedEffect) -> Result<(), CommitError> {
        let at = |source| failed("applying commit", &staged.id, source);
        let plan = plan(staged)?;
        let ops = files.read_staged(&staged.id, plan.len()).map_err(at)?;
        let ops = ops.ok_or_else(|| CommitError::NotStaged { id: staged.id.clone() })?;
        let paths = Self::changed(files, staged, &plan);
        if !paths.is_empty() {
            return Err(CommitError::Conflict { paths });
        }
        let due = ops.into_iter().filter(|op| !files.has_put(&staged.id, &op.path));
        let due = due.map(|op| Change { commit: staged.id.clone(), path: op.path, content: op.content }).collect();
        let before = files.changes().len();
        files.put(due).map_err(|forward| {
            let forward = CommitError::from(at(forward));
            match files.take_back(before) {
                Ok(()) => forward,
                Err(back) => {
                    let (forward, back) = (Box::new(forward), Box::new(at(back).into()));
                    CommitError::Stuck { id: staged.id.clone(), forward, back }
                }
            }
        })
    }
}

impl WorkspaceDirectory for Workspace {
    fn path(&self) -> &Path {
        &self.held.path
    }

    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        let files = lock(&self.files);
        let at = |source| failed("sweeping", self.path(), source);
        for id in files.all_staged().map_err(at)? {
            if !keep(&id) {
                files.remove_staged(&id).map_err(at)?;
            }
        }
        Ok(())
    }

    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError> {
        let files = lock(&self.files);
        if files.is_staged(id).map_err(|source| failed("looking for the commit", id, source))? {
            return Err(ViewError::Id {
                id: id.to_owned(),
                why: "is already used by a commit: use a new id for each call",
            });
        }
        Ok(Box::new(ModelView::new(id, self.path(), files.changes().len(), Arc::clone(&self.files))))
    }

    fn view_over(&self, id: &str, set: &str, layers: &[String], _stop: Stop<'_>) -> Result<Box<dyn View>, ViewError> {
        let mut view = ModelView::new(id, self.path(), lock(&self.files).changes().len(), Arc::clone(&self.files));
        layers::fill(&lock(&self.files), set, layers, &mut view, false)?;
        Ok(Box::new(view))
    }

    fn view_without_conflicts(
        &self,
        id: &str,
        set: &str,
        layers: &[String],
        owner: LayerOwner,
        _stop: Stop<'_>,
    ) -> Result<Box<dyn View>, ViewError> {
        let mut view = ModelView::new(id, self.path(), lock(&self.files).changes().len(), Arc::clone(&self.files));
        layers::fill(&lock(&self.files), set, layers, &mut view, true)?;
        if owner == LayerOwner::View {
            view.own_everything();
        }
        Ok(Box::new(view))
    }

    fn own_changes(&self, view: &dyn View, manifest: &Manifest) -> OwnChanges {
        let view: &dyn Any = view;
        view.downcast_ref::<ModelView>().expect("the view is of this model").own_changes(manifest)
    }

    fn stage_layer(
        &self,
        view: Box<dyn View>,
        own: OwnChanges,
        (place, over, note): (LayerPlace, Vec<String>, String),
        _stop: Stop<'_>,
    ) -> Result<(StagedEffect, String), CommitError> {
        let view: Box<dyn Any> = view;
        let view = view.downcast::<ModelView>().expect("the view is of this model");
        let layer = Layer::of(&view, &own, place, over, note);
        let staged = StagedEffect { id: view.id().to_owned(), plan: layer.written() };
        let mut files = lock(&self.files);
        let is_synced = self.flaw != Flaw::StagesWithoutSync;
        let before = self.bring_onto_the_disk(&mut files);
        if let Err(error) = before.and_then(|()| files.stage(&staged.id, layer.ops(), is_synced)) {
            drop(files.remove_staged(&staged.id));
            return Err(failed("staging layer", &staged.id, error).into());
        }
        trace::count("layers staged");
        Ok((staged, layer.reference()))
    }

    fn layer_notes(&self, set: &str, layers: &[String]) -> Result<Vec<String>, ViewError> {
        layers::notes(&lock(&self.files), set, layers)
    }

    fn remove_layers(&self, set: &str) -> Result<(), IoFailure> {
        layers::remove(&lock(&self.files), &|other| other != set)
    }

    fn sweep_layers(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        layers::remove(&lock(&self.files), keep)
    }

    fn effect(&self, view: &dyn View, _stop: Stop<'_>) -> Result<Manifest, EffectError> {
        let view: &dyn Any = view;
        let view = view.downcast_ref::<ModelView>().expect("the view is of this model");
        let files = lock(&self.files);
        let since: BTreeSet<&str> = files.changes()[view.began()..].iter().map(|change| change.path.as_str()).collect();
        let manifest = view.manifest();
        let touched: Vec<String> = manifest.changes.iter().map(|change| change.path.to_string()).collect();
        let paths = conflict(touched.iter().map(String::as_str).filter(|path| since.contains(path)));
        if paths.is_empty() { Ok(manifest) } else { Err(EffectError::Conflict { paths }) }
    }

    fn stage(&self, view: Box<dyn View>, manifest: &Manifest, _stop: Stop<'_>) -> Result<StagedEffect, CommitError> {
        let view: Box<dyn Any> = view;
        let view = view.downcast::<ModelView>().expect("the view is of this model");
        let mut files = lock(&self.files);
        let ops: Vec<Op> = view.ops();
        assert_eq!(ops.len(), manifest.changes.len(), "the manifest is of this view");
        let plan: Plan = ops.iter().map(|op| (op.path.clone(), op.base)).collect();
        let plan = serde_json::to_string(&plan).expect("texts are always JSON");
        let staged = StagedEffect { id: view.id().to_owned(), plan };
        let is_synced = self.flaw != Flaw::StagesWithoutSync;
        let before = self.bring_onto_the_disk(&mut files);
        if let Err(error) = before.and_then(|()| files.stage(&staged.id, &ops, is_synced)) {
            // What cannot be removed stays until the next sweep.
            drop(files.remove_staged(&staged.id));
            return Err(failed("staging commit", &staged.id, error).into());
        }
        if self.flaw == Flaw::AppliesBeforeTheRow {
            Self::put(&mut files, &staged)?;
        }
        Ok(staged)
    }

    fn check(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        let files = lock(&self.files);
        if let Some(layer) = Layer::staged(staged) {
            return layer.check(&files);
        }
        let plan = plan(staged)?;
        let at = |source| failed("checking commit", &staged.id, source);
        if !files.is_staged(&staged.id).map_err(at)? {
            return Err(CommitError::NotStaged { id: staged.id.clone() });
        }
        let paths = Self::changed(&files, staged, &plan);
        if paths.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths }) }
    }

    fn apply(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        if let Some(layer) = Layer::staged(staged) {
            return layer.keep(&lock(&self.files));
        }
        Self::put(&mut lock(&self.files), staged)?;
        self.outside.applied(&staged.id);
        Ok(())
    }

    fn redo(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        let mut files = lock(&self.files);
        if let Some(layer) = Layer::staged(staged) {
            return layer.keep(&files);
        }
        let before = files.changes().len();
        Self::put(&mut files, staged)?;
        if files.changes().len() > before {
            trace::count("effects put in place again");
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), IoFailure> {
        self.bring_onto_the_disk(&mut lock(&self.files)).map_err(|source| failed("syncing", self.path(), source))
    }

    fn discard(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        let files = lock(&self.files);
        if Layer::staged(staged).is_some() {
            return Ok(files
                .remove_staged(&staged.id)
                .map_err(|source| failed("discarding layer", &staged.id, source))?);
        }
        let is_in_place = plan(staged)?.iter().any(|(path, _)| files.has_put(&staged.id, path));
        let at = |source| failed("discarding commit", &staged.id, source);
        if is_in_place && files.is_staged(&staged.id).map_err(at)? && self.flaw != Flaw::AppliesBeforeTheRow {
            return Err(CommitError::InPlace { id: staged.id.clone() });
        }
        Ok(files.remove_staged(&staged.id).map_err(at)?)
    }

    fn finish(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        if Layer::staged(staged).is_some() {
            return Ok(());
        }
        let finished = lock(&self.files).finish(&staged.id);
        Ok(finished.map_err(|source| failed("finishing commit", &staged.id, source))?)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::pending;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::fault::Conditions;
    use crate::world::World;

    const HOST: &str = "host";
    const FOLDER: &str = "/work";
    const MAX_DURATION: Duration = Duration::from_secs(10);

    fn open(flaw: Flaw) -> Arc<dyn WorkspaceDirectory> {
        disk::make_folder(Path::new(FOLDER)).unwrap();
        ModelDirectories::new(flaw, &Outside::default()).open(Path::new(FOLDER), &[]).unwrap()
    }

    /// Stages two files.
    fn stage(place: &dyn WorkspaceDirectory) -> StagedEffect {
        let mut view = place.view("one").unwrap();
        for path in ["a", "b"] {
            view.write(&RelPath::parse(path).unwrap(), path.as_bytes(), None).unwrap();
        }
        let manifest = place.effect(&*view, &|| false).unwrap();
        place.stage(view, &manifest, &|| false).unwrap()
    }

    /// Applies a staged effect with a power loss after `changes` changes of the disk; returns what is found when it is applied twice more.
    fn apply_across_a_power_loss(flaw: Flaw, changes: u32) -> (Vec<bool>, Vec<Change>) {
        let conditions =
            Conditions { max_latency: Duration::from_millis(1), spontaneous_sync: 0.0, torn_block: Some(512) };
        let mut world = World::new(changes.into(), &conditions, MAX_DURATION);
        let (staged, found) = (Rc::new(RefCell::new(None)), Rc::new(RefCell::new(None)));
        let runs = Rc::new(Cell::new(0));
        let (kept, seen, counted) = (Rc::clone(&staged), Rc::clone(&found), Rc::clone(&runs));
        world.host(HOST, move || {
            let place = open(flaw);
            counted.set(counted.get() + 1);
            if counted.get() == 1 {
                let staged = kept.borrow_mut().insert(stage(&*place)).clone();
                machine::fail_power_after(HOST, changes);
                // The machine is dead, or was done before.
                drop(place.apply(&staged));
            } else if let Some(staged) = &*kept.borrow() {
                let applied = (0..2).map(|_| place.apply(staged).is_ok()).collect();
                *seen.borrow_mut() = Some((applied, super::changes(Path::new(FOLDER)).unwrap()));
            }
            pending()
        });
        world.run_until(MAX_DURATION, || runs.get() > 0).unwrap();
        world.power_cycle(HOST);
        world.run_until(MAX_DURATION, || found.borrow().is_some()).unwrap();
        found.take().expect("the host came up again")
    }

    /// B-06: applying an interrupted commit again completes it, and repeats nothing.
    #[test]
    fn an_interrupted_commit_is_finished_once() {
        for changes in 0..6 {
            let (applied, found) = apply_across_a_power_loss(Flaw::None, changes);
            assert_eq!(applied, [true, true], "{changes}");
            let paths: Vec<_> = found.iter().map(|change| (&*change.path, change.content.as_deref())).collect();
            assert_eq!(paths, [("a", Some("a")), ("b", Some("b"))], "{changes}");
        }
    }

    #[test]
    fn what_was_staged_without_a_sync_is_gone_with_the_power() {
        let (applied, found) = apply_across_a_power_loss(Flaw::StagesWithoutSync, 0);
        assert_eq!((applied, found), (vec![false, false], Vec::new()));
    }
}
