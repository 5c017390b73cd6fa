//! How a staged effect gets its place: one commit of a workspace at a time, a last check, one durable row, and then the renames.

use std::{sync::Arc, time::Duration};

use belay_proto::v1::tool_call::State;
use belay_workspace::CommitError;
use tokio::sync::watch;

use super::{
    Call, Calls,
    effect::{not_committed, overlapping},
    record, stop_asked,
    work::Unfinished,
};
use crate::{
    LedgerFailure, Place, Staged,
    commit_log::Touched,
    ledger::{InPlace, Row, Written},
    subject::Did,
    workspace_locks::{Presence, Turn, Visit},
};

/// What is to be put in place.
pub(super) struct Commit<'a> {
    pub(super) staged: &'a Staged,
    /// The paths that it changes.
    pub(super) touched: Vec<Touched>,
    pub(super) call: &'a Call,
    /// Of a call that has just run; nothing of one that waited for a decision, whose paths are compared by what they hold alone.
    pub(super) running: Option<Running<'a>>,
}

/// A call that has run, and goes on to its commit.
pub(super) struct Running<'a> {
    pub(super) presence: &'a Presence,
    /// The turn, if the call had the folder to itself.
    pub(super) turn: Option<Turn>,
    pub(super) did: &'a Did,
}

/// What came of a commit.
pub(super) enum Committed {
    /// It is in place.
    Done,
    /// It cannot be put in place. No row was written, and the staged files are still there.
    Refused(Unfinished),
    /// The row was written, and then it could not be put in place: the ledger has to be told, before the staged files go.
    Undone(Unfinished),
    /// The grant was spent before. As for `Refused`.
    GrantSpent,
    /// The row is not known to be written: a disk may keep what it did not promise. Nothing is in place, and the staged files are there.
    NotWritten(LedgerFailure),
}

impl Calls {
    /// Puts an effect in place. `row` says how the call ends then; it is the commit point.
    pub(super) async fn commit(
        self: &Arc<Self>,
        visit: &Arc<Visit>,
        Commit { staged, touched, call, running }: Commit<'_>,
        mut row: Row,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Committed {
        let (presence, did, turn) = match running {
            Some(Running { presence, turn, did }) => (Some(presence), Some(did), turn),
            None => (None, None, None),
        };
        let turn = match turn {
            Some(turn) => turn,
            None => tokio::select! {
                biased;
                () = stop_asked(cancelled) => {
                    return Committed::Refused((State::Cancelled, record::cancelled()));
                }
                turn = visit.turn(&call.waits_for) => turn,
            },
        };
        if let Some(conflict) = presence.zip(did).and_then(|(presence, did)| overlapping(presence, did)) {
            return Committed::Refused(conflict);
        }
        if let Err(error) = self.on(visit, staged, |place, staged| place.check(staged)).await {
            return Committed::Refused(not_committed(&error, presence));
        }
        self.rooms.keep(&staged.id);
        row.staged = Some(InPlace { workspace: visit.path().to_owned(), staged: staged.clone() });
        let name = row.call.name.clone();
        match self.write(row).await {
            Ok(Written::Done) => self.acknowledgements.committed(&name),
            Ok(Written::GrantSpent) => return Committed::GrantSpent,
            Err(error) => return Committed::NotWritten(error),
        }
        if let Err(error) = self.apply(visit, staged).await {
            return Committed::Undone(not_committed(&error, presence));
        }
        visit.applied(name, staged, touched);
        drop(turn);
        self.finish_later(Arc::clone(visit), staged.clone());
        Committed::Done
    }

    /// Goes on until it stands wholly in place or not at all: half done it can be left to nobody.
    async fn apply(self: &Arc<Self>, visit: &Arc<Visit>, staged: &Staged) -> Result<(), CommitError> {
        const LONGEST: Duration = Duration::from_secs(60);
        let mut pause = Duration::from_secs(1);
        loop {
            match self.on(visit, staged, |place, staged| place.apply(staged)).await {
                Err(error @ CommitError::Stuck { .. }) => {
                    let workspace = visit.path().display();
                    tracing::error!(%workspace, %error, "A commit is half in place; it is tried again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST);
                }
                done => return done,
            }
        }
    }

    /// Gives up what an effect displaced, after its caller has the answer: it may be a large tree.
    fn finish_later(self: &Arc<Self>, visit: Arc<Visit>, staged: Staged) {
        let calls = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = calls.on(&visit, &staged, |place, staged| place.finish(staged)).await {
                tracing::warn!(%error, "What a commit displaced stays until the workspace is opened again");
            }
            if visit.has_much_to_sync() {
                calls.rooms.sync_room(&visit).await;
            }
        });
    }

    /// Removes what was displaced under views that have ended now, after their callers have the answer.
    pub(super) fn clear_later(self: &Arc<Self>, visit: &Arc<Visit>) {
        let place = visit.place();
        if !place.has_to_clear() {
            return;
        }
        let (lane, visit) = (self.lanes.effects.clone(), Arc::clone(visit));
        tokio::spawn(async move {
            if let Err(error) = lane.run(move || place.clear()).await {
                tracing::warn!(%error, "What commits displaced stays until the workspace is opened again");
            }
            drop(visit);
        });
    }

    /// Gives up an effect that is not in place.
    pub(super) async fn discard(self: &Arc<Self>, visit: &Arc<Visit>, staged: &Staged) {
        if let Err(error) = self.on(visit, staged, |place, staged| place.discard(staged)).await {
            tracing::warn!(%error, "What was staged stays until the workspace is opened again");
        }
        self.rooms.forget(&staged.id);
    }

    async fn on(
        &self,
        visit: &Arc<Visit>,
        staged: &Staged,
        work: impl FnOnce(&dyn Place, &Staged) -> Result<(), CommitError> + Send + 'static,
    ) -> Result<(), CommitError> {
        let (visit, staged) = (Arc::clone(visit), staged.clone());
        self.lanes.commits.run(move || work(&*visit.place(), &staged)).await
    }

    /// Tells the ledger that what it was told to be committed is not, and gives up the staged files. `row` says how the call ends
    /// instead.
    ///
    /// # Errors
    /// When the ledger does not take it: the effect is left to the next start, and nobody knows what that will find. The staged files
    /// stay, because a row that says it was committed has to find them.
    pub(super) async fn take_back(
        self: &Arc<Self>,
        visit: &Arc<Visit>,
        staged: &Staged,
        row: Row,
    ) -> Result<(), LedgerFailure> {
        let name = row.call.name.clone();
        self.write(row).await?;
        self.acknowledgements.settled(vec![name]);
        self.discard(visit, staged).await;
        Ok(())
    }
}
