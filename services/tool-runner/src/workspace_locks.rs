//! The workspaces that are open: who may be in them, who may change them, and what has to be done when one is opened.
//!
//! Calls run side by side: neither views nor readers wait for anybody. Only commits come one after the other, first come first served, and
//! each is short; a call that is to have the folder to itself holds off all of them until it has ended. A workspace is open while somebody
//! is in it and a short while longer, so that another process may have it when nobody is; before it is closed, all that was put in place
//! there is brought onto the disk.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_workspace::{CommitError, IoFailure, OpenError};
use rustix::io::Errno;
use thiserror::Error;
use tokio::sync::{OnceCell, OwnedMutexGuard, oneshot, watch};
use tonic::{Code, Status};

use crate::{
    Place, Places, Staged, Thresholds, ToolFailure,
    acknowledgements::Acknowledgements,
    commit_log::{Beside, CommitLog, Overlap, Touched},
    lanes::Lanes,
    room::is_full,
    workspaces::{Chosen, NotAllowed, Workspaces},
};

/// Why nobody can work in a folder.
#[derive(Debug, Error)]
pub(crate) enum Closed {
    /// It may not be a workspace here.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// It cannot be one.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What was left in it cannot be removed.
    #[error(transparent)]
    Sweep(#[from] IoFailure),
    /// A commit of before is half in place, and can go neither forward nor back.
    #[error(transparent)]
    Stuck(#[from] CommitError),
}

/// The workspaces that are open, and what is known of others.
pub(crate) struct Rooms {
    settings: Workspaces,
    places: Arc<dyn Places>,
    lanes: Lanes,
    /// The staged effects of this ledger begin with this, so that two ledgers do not sweep each other's.
    tag: String,
    acknowledgements: Arc<Acknowledgements>,
    thresholds: Thresholds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<PathBuf, Open>,
    /// What a ledger says was committed when the runner was lost, by workspace.
    redo: HashMap<PathBuf, Vec<Redo>>,
    /// Staged effects that are held or being put in place.
    kept: HashSet<String>,
    views: u64,
}

struct Open {
    room: Arc<Room>,
    users: usize,
    /// Rises when somebody enters.
    visits: u64,
}

struct Room {
    place: OnceCell<Arc<dyn Place>>,
    /// Held by whoever commits.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The call that has the folder to itself, and the turn with it.
    alone: watch::Sender<Option<Arc<str>>>,
    /// The commits that were made here beside the calls that run.
    log: Mutex<CommitLog>,
    /// What was put in place here and may not be on the disk.
    applied: Mutex<Unsynced>,
}

/// What was put in place and may not be on the disk, and how much was put in place ever.
#[derive(Default)]
struct Unsynced {
    count: u64,
    list: Vec<Applied>,
}

/// A call whose effect was put in place, under what name that was staged, and as which one.
struct Applied {
    call: String,
    staged: String,
    number: u64,
}

impl Room {
    fn new() -> Self {
        Self {
            place: OnceCell::new(),
            turn: Arc::default(),
            alone: watch::Sender::new(None),
            log: Mutex::default(),
            applied: Mutex::default(),
        }
    }

    fn applied(&self) -> MutexGuard<'_, Unsynced> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, CommitLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to commit in a workspace: nobody else does while this is held.
pub(crate) struct Turn {
    /// The workspace, where nobody else is to commit until the call has ended.
    alone_in: Option<Arc<Room>>,
    _held: OwnedMutexGuard<()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(room) = &self.alone_in {
            room.alone.send_replace(None);
        }
    }
}

/// A call runs in a workspace. What others commit there meanwhile is remembered until this is dropped.
pub(crate) struct Presence {
    room: Arc<Room>,
    since: u64,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.room.log().end(self.since);
    }
}

impl Presence {
    /// The commits since the call began.
    pub(crate) fn beside(&self) -> Beside {
        self.room.log().beside(self.since)
    }

    /// What of `touched` another call's commit has touched since the call began.
    pub(crate) fn overlap(&self, touched: &[Touched]) -> Option<Overlap> {
        self.room.log().overlap(self.since, touched)
    }

    /// Whose commits touched one of these paths since the call began.
    pub(crate) fn committers(&self, paths: &[String]) -> Vec<String> {
        self.room.log().committers(self.since, paths)
    }
}

struct Redo {
    staged: Staged,
    done: oneshot::Sender<Result<(), CommitError>>,
}

impl Rooms {
    pub(crate) fn new(
        settings: Workspaces,
        places: Arc<dyn Places>,
        lanes: Lanes,
        tag: String,
        acknowledgements: Arc<Acknowledgements>,
        thresholds: Thresholds,
    ) -> Arc<Self> {
        Arc::new(Self { settings, places, lanes, tag, acknowledgements, thresholds, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder for a call, as far as names say.
    pub(crate) fn choose(&self, workspace: &str, execution: &str) -> Result<Chosen, NotAllowed> {
        self.settings.choose(workspace, execution)
    }

    /// A folder that the ledger knows.
    pub(crate) fn known(&self, path: PathBuf) -> Chosen {
        self.settings.known(path)
    }

    /// The folder's one name, if it may be a workspace. The runner's own is made.
    pub(crate) async fn resolve(&self, chosen: Chosen) -> Result<PathBuf, Closed> {
        let (places, settings) = (Arc::clone(&self.places), self.settings.clone());
        self.lanes
            .quick
            .run(move || {
                if chosen.own {
                    places.make(&chosen.path)?;
                    return Ok(places.resolve(&chosen.path)?);
                }
                let path = places.resolve(&chosen.path)?;
                settings.allow(&path)?;
                match places.stores_around(&path) {
                    Some(forbidden) => Err(OpenError::Forbidden { path, forbidden }.into()),
                    None => Ok(path),
                }
            })
            .await
    }

    /// Enters a workspace, opening it if nobody is in it.
    pub(crate) async fn enter(self: &Arc<Self>, chosen: Chosen) -> Result<Visit, Closed> {
        let own = chosen.own;
        let path = self.resolve(chosen).await?;
        let visit = {
            let mut state = self.state();
            let open = state.open.entry(path.clone()).or_insert_with(|| Open {
                room: Arc::new(Room::new()),
                users: 0,
                visits: 0,
            });
            open.users += 1;
            open.visits += 1;
            Visit { rooms: Arc::clone(self), room: Arc::clone(&open.room), path: path.clone(), live: !own }
        };
        visit.room.place.get_or_try_init(|| self.open(path, own)).await?;
        Ok(visit)
    }

    async fn open(self: &Arc<Self>, path: PathBuf, own: bool) -> Result<Arc<dyn Place>, Closed> {
        let rooms = Arc::clone(self);
        self.lanes.opens.run(move || rooms.open_now(path, own)).await
    }

    /// Opens a workspace and puts right what a lost runner left there, before anybody is let in.
    fn open_now(&self, path: PathBuf, own: bool) -> Result<Arc<dyn Place>, Closed> {
        let forbidden = if own { &[][..] } else { &self.settings.forbidden };
        let place = self.places.open(&path, forbidden)?;
        if !own {
            self.settings.allow(place.path())?;
        }
        let kept = self.state().kept.clone();
        place.sweep(&|id| !id.starts_with(&self.tag) || kept.contains(id))?;
        let redo = self.state().redo.remove(&path).unwrap_or_default();
        match self.redo_all(&*place, &redo) {
            Ok(ends) => redo.into_iter().zip(ends).for_each(|(redo, end)| drop(redo.done.send(end))),
            Err(closed) => {
                self.state().redo.insert(path, redo);
                return Err(closed);
            }
        }
        Ok(place)
    }

    /// Carries out what a ledger says was committed, in that order; how each ended. Those that failed are still staged.
    fn redo_all(&self, place: &dyn Place, redo: &[Redo]) -> Result<Vec<Result<(), CommitError>>, Closed> {
        let mut ends = Vec::new();
        for Redo { staged, .. } in redo {
            ends.push(match place.redo(staged) {
                // Its files are put away when all is done.
                Ok(()) | Err(CommitError::NotStaged { .. }) => Ok(()),
                Err(error @ CommitError::Stuck { .. }) => return Err(error.into()),
                Err(error) => Err(error),
            });
        }
        if !redo.is_empty() {
            place.sync()?;
        }
        for (Redo { staged, .. }, _) in redo.iter().zip(&ends).filter(|(_, end)| end.is_ok()) {
            if let Err(error) = place.finish(staged) {
                tracing::warn!(%error, "What a commit displaced stays until the workspace is opened again");
            }
            self.forget(&staged.id);
        }
        Ok(ends)
    }

    /// Brings onto the disk what was put in place in a workspace.
    pub(crate) async fn sync_room(&self, visit: &Visit) {
        self.sync_applied(&visit.room).await;
    }

    /// The same for all workspaces that are open.
    pub(crate) async fn sync(&self) {
        let rooms: Vec<Arc<Room>> = self.state().open.values().map(|open| Arc::clone(&open.room)).collect();
        for room in rooms {
            self.sync_applied(&room).await;
        }
    }

    async fn sync_applied(&self, room: &Arc<Room>) {
        let applied = std::mem::take(&mut room.applied().list);
        let Some(place) = room.place.get().filter(|_| !applied.is_empty()).cloned() else { return };
        match self.lanes.opens.run(move || place.sync()).await {
            Ok(()) => self.settled(applied),
            // Their rows stay, and the next start does again what the disk may not have.
            Err(error) => tracing::error!(%error, "What was put in place may not be on the disk"),
        }
    }

    fn settled(&self, applied: Vec<Applied>) {
        applied.iter().for_each(|applied| self.forget(&applied.staged));
        self.acknowledgements.settled(applied.into_iter().map(|applied| applied.call).collect());
    }

    /// Has a commit carried out, or out again, as soon as its workspace is opened. Answers when that is done.
    pub(crate) fn redo(&self, path: PathBuf, staged: Staged) -> oneshot::Receiver<Result<(), CommitError>> {
        let (done, answer) = oneshot::channel();
        self.keep(&staged.id);
        self.state().redo.entry(path).or_default().push(Redo { staged, done });
        answer
    }

    /// Keeps staged files that a process finds when it opens the workspace.
    pub(crate) fn keep(&self, id: &str) {
        self.state().kept.insert(id.to_owned());
    }

    /// Lets the next one who opens the workspace remove staged files.
    pub(crate) fn forget(&self, id: &str) {
        self.state().kept.remove(id);
    }

    fn leave(self: &Arc<Self>, path: &Path) {
        let visits = {
            let mut state = self.state();
            let Some(open) = state.open.get_mut(path) else { return };
            open.users -= 1;
            if open.users > 0 {
                return;
            }
            open.visits
        };
        let (rooms, path) = (Arc::clone(self), path.to_owned());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(rooms.thresholds.linger).await;
                let Some(room) = rooms.left(&path, visits) else { return };
                rooms.sync_applied(&room).await;
                drop(room);
                rooms.close(&path, visits);
            })),
            Err(_) => self.close(&path, visits),
        }
    }

    /// The workspace, if nobody has entered it since so many visits.
    fn left(&self, path: &Path, visits: u64) -> Option<Arc<Room>> {
        let state = self.state();
        let open = state.open.get(path).filter(|open| open.users == 0 && open.visits == visits);
        open.map(|open| Arc::clone(&open.room))
    }

    fn close(&self, path: &Path, visits: u64) {
        let mut state = self.state();
        if state.open.get(path).is_some_and(|open| open.users == 0 && open.visits == visits) {
            // Under the lock: whoever opens it next must find it closed.
            drop(state.open.remove(path));
        }
    }
}

/// Somebody is in a workspace. It stays open until this is dropped.
pub(crate) struct Visit {
    rooms: Arc<Rooms>,
    room: Arc<Room>,
    path: PathBuf,
    /// It is a folder that people work in too.
    pub(crate) live: bool,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.rooms.leave(&self.path);
    }
}

impl Visit {
    pub(crate) fn place(&self) -> Arc<dyn Place> {
        Arc::clone(self.room.place.get().expect("whoever is in has opened it"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A call begins to run here.
    pub(crate) fn begin(&self) -> Presence {
        Presence { since: self.room.log().begin(), room: Arc::clone(&self.room) }
    }

    /// Waits for the turn to commit. `waits_for` is told which call has the folder to itself, as long as one has.
    pub(crate) async fn turn(&self, waits_for: &watch::Sender<Option<Arc<str>>>) -> Turn {
        let mut alone = self.room.alone.subscribe();
        alone.mark_changed();
        let mut lock = pin!(Arc::clone(&self.room.turn).lock_owned());
        let tell = |holder: Option<Arc<str>>| {
            waits_for.send_if_modified(|told| std::mem::replace(told, holder.clone()) != holder);
        };
        let held = loop {
            tokio::select! {
                biased;
                held = &mut lock => break held,
                // Never an error: the room, which holds the sender, is here.
                _ = alone.changed() => tell(alone.borrow_and_update().clone()),
            }
        };
        tell(None);
        Turn { alone_in: None, _held: held }
    }

    /// Waits for the folder to itself, for this call: until the turn is dropped nobody else commits here.
    pub(crate) async fn turn_alone(&self, call: &str, waits_for: &watch::Sender<Option<Arc<str>>>) -> Turn {
        let mut turn = self.turn(waits_for).await;
        self.room.alone.send_replace(Some(call.into()));
        turn.alone_in = Some(Arc::clone(&self.room));
        turn
    }

    /// An effect was put in place here.
    pub(crate) fn applied(&self, call: String, staged: &Staged, touched: Vec<Touched>) {
        self.room.log().committed(&call, touched);
        let mut applied = self.room.applied();
        applied.count += 1;
        let number = applied.count;
        applied.list.push(Applied { call, staged: staged.id.clone(), number });
    }

    /// How many effects have been put in place by now. A staging that begins now brings them onto the disk.
    pub(crate) fn applied_by_now(&self) -> u64 {
        self.room.applied().count
    }

    /// An effect was staged; before that began, so many had been put in place.
    pub(crate) fn was_staged(&self, applied: u64) {
        let brought = self.room.applied().list.extract_if(.., |each| each.number <= applied).collect();
        self.rooms.settled(brought);
    }

    pub(crate) fn has_much_to_sync(&self) -> bool {
        self.room.applied().list.len() >= self.rooms.thresholds.max_waiting_rows
    }

    /// A name for a view, never given before: not by another process for this ledger either, because `now` is in it.
    pub(crate) fn view_id(&self, now_micros: i64) -> String {
        let mut state = self.rooms.state();
        state.views += 1;
        format!("{}-{now_micros:x}-{:x}", self.rooms.tag, state.views)
    }
}

impl From<Closed> for ToolFailure {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::NotAllowed(_) => {
                Self::new(ErrorClass::SandboxViolation, reasons::WORKSPACE_NOT_ALLOWED, format!("{closed}."))
            }
            Closed::Open(OpenError::Io(ref failure)) | Closed::Sweep(ref failure) if is_full(failure) => {
                Self::new(ErrorClass::Transient, reasons::WORKSPACE_FULL, format!("{closed}."))
            }
            Closed::Open(OpenError::InUse { .. } | OpenError::Io(_)) | Closed::Sweep(_) | Closed::Stuck(_) => {
                Self::new(ErrorClass::Transient, reasons::WORKSPACE_FAILED, format!("{closed}."))
            }
            Closed::Open(OpenError::Unreachable { ref source, .. }) if may_pass(source) => {
                Self::new(ErrorClass::Transient, reasons::WORKSPACE_FAILED, format!("{closed}."))
            }
            Closed::Open(_) => {
                Self::new(ErrorClass::SandboxViolation, reasons::WORKSPACE_INVALID, format!("{closed}."))
            }
        }
    }
}

/// Whether it is the machine that fails, and not the folder that is wrong.
fn may_pass(source: &io::Error) -> bool {
    match Errno::from_io_error(source) {
        Some(error) => matches!(error, Errno::IO | Errno::NOMEM | Errno::MFILE | Errno::NFILE),
        None => source.kind() == io::ErrorKind::Other,
    }
}

impl Closed {
    /// As the answer to somebody who named the folder.
    pub(crate) fn into_status(self) -> Status {
        let ToolFailure { class, reason, message } = self.into();
        let code = if class == ErrorClass::Transient { Code::Unavailable } else { Code::InvalidArgument };
        status::error(code, &reason, message.clone()).field("workspace", message).into()
    }
}
