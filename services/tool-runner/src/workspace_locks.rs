//! The open workspaces of a runner: who uses each, who may commit in it, and what recovery has to do when one is opened.
//!
//! Calls run concurrently: neither views nor readers wait. Only commits are serialised, first come first served, and each is short; an
//! exclusive call holds the commit lock until it has ended. A workspace stays open while calls use it and for `Thresholds::linger` after
//! that, so that other processes can open it when it is idle; before it is closed, its applied effects are synced to disk.

mod unavailable;

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use belay_proto::runner_v1::MadeFolder;
use belay_workspace::{CommitError, OpenError};
use tokio::sync::{OnceCell, OwnedMutexGuard, oneshot, watch};

pub(crate) use self::unavailable::WorkspaceUnavailable;
use crate::{
    StagedEffect, Thresholds, WorkspaceDirectories, WorkspaceDirectory,
    acknowledgements::Acknowledgements,
    commit_log::{ChangedPath, CommitLog, ConcurrentCommits, Overlap},
    disk_errors::may_pass,
    lanes::Lanes,
    ledger::LayerSet,
    lock::lock,
    workspaces::{ChosenWorkspace, WorkspaceRefusal, Workspaces},
};

type Result<T, E = WorkspaceUnavailable> = std::result::Result<T, E>;

/// The open workspaces, and the commits that recovery has to apply in closed ones.
pub(crate) struct WorkspaceLocks {
    settings: Workspaces,
    directories: Arc<dyn WorkspaceDirectories>,
    lanes: Lanes,
    /// The prefix of this ledger's staged effects, so that two ledgers do not sweep each other's.
    tag: String,
    acknowledgements: Arc<Acknowledgements>,
    thresholds: Thresholds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<PathBuf, Entry>,
    /// Commits from the ledger to apply when the workspace is opened, by workspace.
    redo: HashMap<PathBuf, Vec<Redo>>,
    /// Staged effects that a sweep must keep: they wait for approval or are being applied.
    kept: HashSet<Box<str>>,
    /// Sets of layers that a sweep must keep, by name.
    layer_sets: HashMap<String, LayerSet>,
    views: u64,
}

impl State {
    /// The workspace, if it has no users and none has come since `generation`.
    fn idle(&self, path: &Path, generation: u64) -> Option<&Arc<OpenWorkspace>> {
        let entry = self.open.get(path)?;
        (entry.users == 0 && entry.generation == generation).then_some(&entry.workspace)
    }
}

struct Entry {
    workspace: Arc<OpenWorkspace>,
    users: usize,
    /// Incremented by every new user.
    generation: u64,
}

struct OpenWorkspace {
    directory: OnceCell<Arc<dyn WorkspaceDirectory>>,
    /// Serialises commits.
    commit_lock: Arc<tokio::sync::Mutex<()>>,
    /// The exclusive call, which holds the commit lock.
    exclusive: watch::Sender<Option<Arc<str>>>,
    /// The commits made while calls run here.
    log: Mutex<CommitLog>,
    /// The applied effects that may not be synced to disk.
    applied: Mutex<UnsyncedEffects>,
}

#[derive(Default)]
struct UnsyncedEffects {
    /// How many effects were applied since the workspace was opened.
    count: u64,
    effects: Vec<AppliedEffect>,
}

/// An applied effect.
struct AppliedEffect {
    call: String,
    staged: String,
    /// Its number in [`UnsyncedEffects::count`].
    number: u64,
}

impl OpenWorkspace {
    fn new() -> Self {
        Self {
            directory: OnceCell::new(),
            commit_lock: Arc::default(),
            exclusive: watch::Sender::new(None),
            log: Mutex::default(),
            applied: Mutex::default(),
        }
    }

    fn applied(&self) -> MutexGuard<'_, UnsyncedEffects> {
        lock(&self.applied)
    }

    fn log(&self) -> MutexGuard<'_, CommitLog> {
        lock(&self.log)
    }
}

/// The right to commit in a workspace; only one exists at a time.
pub(crate) struct CommitLock {
    /// The workspace, if an exclusive call holds the lock.
    exclusive_in: Option<Arc<OpenWorkspace>>,
    _guard: OwnedMutexGuard<()>,
}

impl Drop for CommitLock {
    fn drop(&mut self) {
        if let Some(workspace) = &self.exclusive_in {
            workspace.exclusive.send_replace(None);
        }
    }
}

/// The commits in a workspace since a call began, recorded until this is dropped.
pub(crate) struct CommitWindow {
    workspace: Arc<OpenWorkspace>,
    since: u64,
}

impl Drop for CommitWindow {
    fn drop(&mut self) {
        self.workspace.log().end(self.since);
    }
}

impl CommitWindow {
    /// The commits since the call began.
    pub(crate) fn concurrent(&self) -> ConcurrentCommits {
        self.workspace.log().concurrent(self.since)
    }

    /// The paths of `touched` that another call's commit has touched since the call began.
    pub(crate) fn overlap(&self, touched: &[ChangedPath]) -> Option<Overlap> {
        self.workspace.log().overlap(self.since, touched)
    }

    /// The calls whose commits touched one of these paths since the call began.
    pub(crate) fn committers(&self, paths: &[String]) -> Vec<String> {
        self.workspace.log().committers(self.since, paths)
    }
}

struct Redo {
    staged: StagedEffect,
    done: oneshot::Sender<Result<(), CommitError>>,
}

impl WorkspaceLocks {
    pub(crate) fn new(
        settings: Workspaces,
        directories: Arc<dyn WorkspaceDirectories>,
        lanes: Lanes,
        tag: String,
        acknowledgements: Arc<Acknowledgements>,
        thresholds: Thresholds,
    ) -> Arc<Self> {
        Arc::new(Self { settings, directories, lanes, tag, acknowledgements, thresholds, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A directory that a request names as a workspace. Checks names only, not the disk.
    pub(crate) fn named(&self, directory: &str) -> Result<ChosenWorkspace, WorkspaceRefusal> {
        self.settings.named(directory)
    }

    /// A folder of the runner's own. Checks names only, not the disk.
    pub(crate) fn made(&self, folder: &MadeFolder) -> Result<ChosenWorkspace, WorkspaceRefusal> {
        self.settings.made(folder)
    }

    /// A workspace from the ledger.
    pub(crate) fn known(&self, path: PathBuf) -> ChosenWorkspace {
        self.settings.known(path)
    }

    /// The canonical path of a workspace, if it is allowed. Creates the runner's own.
    pub(crate) async fn resolve(self: &Arc<Self>, chosen: ChosenWorkspace) -> Result<PathBuf> {
        let locks = Arc::clone(self);
        self.lanes.quick.run(move || locks.resolve_now(&chosen)).await
    }

    fn resolve_now(&self, chosen: &ChosenWorkspace) -> Result<PathBuf> {
        let directories = &self.directories;
        if chosen.own {
            directories.make(&chosen.path)?;
            return Ok(directories.resolve(&chosen.path)?);
        }
        let path = directories.resolve(&chosen.path)?;
        self.settings.allow(&path)?;
        match directories.enclosing_state_directory(&path) {
            Some(forbidden) => Err(OpenError::Forbidden { path, forbidden }.into()),
            None => Ok(path),
        }
    }

    /// Lets go of an open workspace whose directory was removed or replaced, so that the next user opens the one that is there now. Calls that
    /// run in the old one end as they can.
    fn forget_replaced(&self, path: &Path) {
        let open = |state: &State| state.open.get(path).map(|entry| Arc::clone(&entry.workspace));
        let Some(workspace) = open(&self.state()) else { return };
        if !workspace.directory.get().is_some_and(|directory| directory.is_replaced()) {
            return;
        }
        let mut state = self.state();
        if open(&state).is_some_and(|now| Arc::ptr_eq(&now, &workspace)) {
            drop(state.open.remove(path));
        }
        drop(state);
        tracing::info!(path = %path.display(), "The directory of a workspace was replaced; it is opened again");
        // They are gone with the directory: there is nothing left to sync.
        let applied = std::mem::take(&mut workspace.applied().effects);
        self.synced(applied);
    }

    /// Opens a workspace, or joins its users if it is open.
    pub(crate) async fn open(self: &Arc<Self>, chosen: ChosenWorkspace) -> Result<WorkspaceGuard> {
        let own = chosen.own;
        let locks = Arc::clone(self);
        let resolve = move || {
            let path = locks.resolve_now(&chosen)?;
            locks.forget_replaced(&path);
            Ok::<_, WorkspaceUnavailable>(path)
        };
        let path = self.lanes.quick.run(resolve).await?;
        let guard = {
            let mut state = self.state();
            let entry = state.open.entry(path.clone()).or_insert_with(|| Entry {
                workspace: Arc::new(OpenWorkspace::new()),
                users: 0,
                generation: 0,
            });
            entry.users += 1;
            entry.generation += 1;
            WorkspaceGuard {
                locks: Arc::clone(self),
                workspace: Arc::clone(&entry.workspace),
                path: path.clone(),
                live: !own,
            }
        };
        let open = || {
            let locks = Arc::clone(self);
            self.lanes.opens.run(move || locks.open_directory(path, own))
        };
        guard.workspace.directory.get_or_try_init(open).await?;
        Ok(guard)
    }

    /// Removes the views that a process before this one has left in a workspace: opening it does. A workspace that does not exist has none.
    pub(crate) async fn sweep(self: &Arc<Self>, chosen: ChosenWorkspace) -> Result<()> {
        let (directories, path) = (Arc::clone(&self.directories), chosen.path.clone());
        match self.lanes.quick.run(move || canonical(&*directories, &path)).await? {
            None => Ok(()),
            Some(_) => self.open(chosen).await.map(drop),
        }
    }

    /// Opens a directory, removes what a crashed runner left there, and applies its commits.
    fn open_directory(&self, path: PathBuf, own: bool) -> Result<Arc<dyn WorkspaceDirectory>> {
        let forbidden = if own { &[][..] } else { &self.settings.forbidden };
        let directory = self.directories.open(&path, forbidden)?;
        if !own {
            self.settings.allow(directory.path())?;
        }
        directory.sweep(&|id| !id.starts_with(&self.tag) || self.state().kept.contains(id))?;
        directory.sweep_layers(&|set| !set.starts_with(&self.tag) || self.has_layers(set))?;
        let redo = self.state().redo.remove(&path).unwrap_or_default();
        match self.redo_all(&*directory, &redo) {
            Ok(results) => redo.into_iter().zip(results).for_each(|(redo, result)| drop(redo.done.send(result))),
            Err(unavailable) => {
                self.state().redo.insert(path, redo);
                return Err(unavailable);
            }
        }
        Ok(directory)
    }

    /// Applies commits in order and returns the result of each. The files of failed ones stay staged.
    fn redo_all(&self, directory: &dyn WorkspaceDirectory, redo: &[Redo]) -> Result<Vec<Result<(), CommitError>>> {
        let mut results = Vec::new();
        for Redo { staged, .. } in redo {
            results.push(match directory.redo(staged) {
                // Staged files are removed below, once every commit is applied and synced.
                Ok(()) | Err(CommitError::NotStaged { .. }) => Ok(()),
                Err(error @ CommitError::Stuck { .. }) => return Err(error.into()),
                // The executor may have stored that the call completed: its effect waits until the disk takes it, and is not given up.
                Err(error) if may_pass(&error) => return Err(error.into()),
                Err(error) => Err(error),
            });
        }
        if !redo.is_empty() {
            directory.sync()?;
        }
        for (Redo { staged, .. }, _) in redo.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            if let Err(error) = directory.finish(staged) {
                tracing::warn!(%error, "Cannot remove files that a commit replaced; they stay until the workspace is next opened");
            }
            self.release_staged(&staged.id);
        }
        Ok(results)
    }

    /// Syncs the applied effects of all open workspaces.
    pub(crate) async fn sync(&self) {
        let open: Vec<_> = self.state().open.values().map(|entry| Arc::clone(&entry.workspace)).collect();
        for workspace in open {
            self.sync_workspace(&workspace).await;
        }
    }

    async fn sync_workspace(&self, workspace: &OpenWorkspace) {
        let applied = std::mem::take(&mut workspace.applied().effects);
        let Some(directory) = workspace.directory.get().filter(|_| !applied.is_empty()).cloned() else { return };
        match self.lanes.opens.run(move || directory.sync()).await {
            Ok(()) => self.synced(applied),
            // The rows stay in the ledger, so the next start applies the effects again.
            Err(error) => {
                tracing::error!(%error, "Cannot sync applied effects to disk; the next start applies them again")
            }
        }
    }

    fn synced(&self, applied: Vec<AppliedEffect>) {
        applied.iter().for_each(|applied| self.release_staged(&applied.staged));
        self.acknowledgements.synced(applied.into_iter().map(|applied| applied.call).collect());
    }

    /// Queues a commit that may not have been applied before a crash. The next opening of the workspace applies it and sends the result.
    pub(crate) fn redo(&self, path: PathBuf, staged: StagedEffect) -> oneshot::Receiver<Result<(), CommitError>> {
        let (done, result) = oneshot::channel();
        self.keep_staged(&staged.id);
        self.state().redo.entry(path).or_default().push(Redo { staged, done });
        result
    }

    /// Protects staged files from the sweep at the next opening of the workspace.
    pub(crate) fn keep_staged(&self, id: &str) {
        self.state().kept.insert(id.into());
    }

    /// Lets the next opening of the workspace sweep staged files.
    pub(crate) fn release_staged(&self, id: &str) {
        self.state().kept.remove(id);
    }

    /// The prefix of the names of this runner's views, commits and sets of layers.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// Protects a set of layers from the sweep at the next opening of its workspace.
    pub(crate) fn keep_layers(&self, set: LayerSet) {
        self.state().layer_sets.insert(set.name.clone(), set);
    }

    /// Whether a set of layers is in use.
    pub(crate) fn has_layers(&self, set: &str) -> bool {
        self.state().layer_sets.contains_key(set)
    }

    /// The sets of layers in use that meet a condition.
    pub(crate) fn layer_sets(&self, is_wanted: impl Fn(&LayerSet) -> bool) -> Vec<LayerSet> {
        self.state().layer_sets.values().filter(|set| is_wanted(set)).cloned().collect()
    }

    /// Lets the next opening of the workspace sweep a set of layers.
    pub(crate) fn release_layers(&self, set: &str) {
        self.state().layer_sets.remove(set);
    }

    /// Removes a folder of the runner's own, if there is one. No call may come any more that names it.
    pub(crate) async fn remove_made(self: &Arc<Self>, folder: &MadeFolder) -> Result<()> {
        let chosen = self.settings.made(folder)?;
        let locks = Arc::clone(self);
        let remove = move || {
            let Some(path) = canonical(&*locks.directories, &chosen.path)? else { return Ok(()) };
            // Compared by its canonical path: a link in its place must not lead to the directory of a person.
            if path != locks.directories.resolve(&locks.settings.own)?.join(chosen.below(&locks.settings)) {
                return Err(OpenError::Forbidden { path, forbidden: chosen.path.clone() }.into());
            }
            {
                let mut state = locks.state();
                if state.open.get(&path).is_some_and(|entry| entry.users > 0) {
                    return Err(OpenError::InUse { path }.into());
                }
                // Dropped while the state is locked, as in `close_idle`.
                drop(state.open.remove(&path));
                state.redo.remove(&path);
            }
            Ok(locks.directories.remove(&path)?)
        };
        self.lanes.opens.run(remove).await
    }

    fn leave(self: &Arc<Self>, path: &Path, workspace: &Arc<OpenWorkspace>) {
        let generation = {
            let mut state = self.state();
            // Another one has taken its place if its directory was replaced.
            let entry = state.open.get_mut(path).filter(|entry| Arc::ptr_eq(&entry.workspace, workspace));
            let Some(entry) = entry else { return };
            entry.users -= 1;
            if entry.users > 0 {
                return;
            }
            entry.generation
        };
        let (locks, path) = (Arc::clone(self), path.to_owned());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.close_idle(&path, generation);
        };
        runtime.spawn(async move {
            tokio::time::sleep(locks.thresholds.linger).await;
            let Some(workspace) = locks.state().idle(&path, generation).cloned() else { return };
            locks.sync_workspace(&workspace).await;
            drop(workspace);
            locks.close_idle(&path, generation);
        });
    }

    fn close_idle(&self, path: &Path, generation: u64) {
        let mut state = self.state();
        if state.idle(path, generation).is_some() {
            // Dropped while the state is locked: the next user must find the directory closed.
            drop(state.open.remove(path));
        }
    }
}

/// The canonical path of a directory; `None` if it does not exist.
fn canonical(directories: &dyn WorkspaceDirectories, path: &Path) -> Result<Option<PathBuf>, OpenError> {
    match directories.resolve(path) {
        Ok(path) => Ok(Some(path)),
        Err(OpenError::Unreachable { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A user of a workspace, which stays open until this is dropped.
pub(crate) struct WorkspaceGuard {
    locks: Arc<WorkspaceLocks>,
    workspace: Arc<OpenWorkspace>,
    path: PathBuf,
    /// Whether people work in the directory too.
    pub(crate) live: bool,
}

impl Drop for WorkspaceGuard {
    fn drop(&mut self) {
        self.locks.leave(&self.path, &self.workspace);
    }
}

impl WorkspaceGuard {
    pub(crate) fn directory(&self) -> Arc<dyn WorkspaceDirectory> {
        Arc::clone(self.workspace.directory.get().expect("open() has opened the directory of every guard"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Records the commits of other calls from now on.
    pub(crate) fn commit_window(&self) -> CommitWindow {
        CommitWindow { since: self.workspace.log().begin(), workspace: Arc::clone(&self.workspace) }
    }

    /// Waits for the commit lock. While an exclusive call holds it, `waits_for` names that call.
    pub(crate) async fn commit_lock(&self, waits_for: &watch::Sender<Option<Arc<str>>>) -> CommitLock {
        let mut exclusive = self.workspace.exclusive.subscribe();
        exclusive.mark_changed();
        let mut lock = pin!(Arc::clone(&self.workspace.commit_lock).lock_owned());
        let publish = |holder: Option<Arc<str>>| {
            waits_for.send_if_modified(|current| std::mem::replace(current, holder.clone()) != holder);
        };
        let guard = loop {
            tokio::select! {
                biased;
                guard = &mut lock => break guard,
                // Never an error: `self.workspace` holds the sender.
                _ = exclusive.changed() => publish(exclusive.borrow_and_update().clone()),
            }
        };
        publish(None);
        CommitLock { exclusive_in: None, _guard: guard }
    }

    /// Waits for the commit lock and publishes `call` as its exclusive holder.
    pub(crate) async fn exclusive_lock(&self, call: &str, waits_for: &watch::Sender<Option<Arc<str>>>) -> CommitLock {
        let mut lock = self.commit_lock(waits_for).await;
        self.workspace.exclusive.send_replace(Some(call.into()));
        lock.exclusive_in = Some(Arc::clone(&self.workspace));
        lock
    }

    /// Records an applied effect.
    pub(crate) fn applied(&self, call: String, staged: &StagedEffect, touched: Vec<ChangedPath>) {
        self.workspace.log().committed(&call, touched);
        let mut applied = self.workspace.applied();
        applied.count += 1;
        let number = applied.count;
        applied.effects.push(AppliedEffect { call, staged: staged.id.clone(), number });
    }

    /// How many effects have been applied so far. A staging that begins now syncs all of them.
    pub(crate) fn applied_count(&self) -> u64 {
        self.workspace.applied().count
    }

    /// An effect was staged, which synced the first `count` applied effects.
    pub(crate) fn staged_after(&self, count: u64) {
        let synced = self.workspace.applied().effects.extract_if(.., |applied| applied.number <= count).collect();
        self.locks.synced(synced);
    }

    /// Syncs the applied effects if many have accumulated.
    pub(crate) async fn sync_if_due(&self) {
        if self.workspace.applied().effects.len() >= self.locks.thresholds.max_waiting_rows {
            self.locks.sync_workspace(&self.workspace).await;
        }
    }

    /// A new id for a view, unique for this ledger: it contains the time, so that a restarted runner does not reuse one.
    pub(crate) fn view_id(&self, now_micros: i64) -> String {
        let mut state = self.locks.state();
        state.views += 1;
        format!("{}-{now_micros:x}-{:x}", self.locks.tag, state.views)
    }
}
