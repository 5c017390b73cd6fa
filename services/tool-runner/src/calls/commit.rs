//! Commits a staged effect: one commit per workspace at a time, a last conflict check, one durable row (the commit point), then the
//! renames.

use std::{sync::Arc, time::Duration};

use belay_proto::v1::tool_call::State;
use belay_workspace::CommitError;
use tokio::sync::watch;

use super::{
    Call, Calls, cancel_requested,
    effect::{not_committed, overlapping},
    record::{self, Unsuccessful},
};
use crate::{
    LedgerFailure, StagedEffect, WorkspaceDirectory,
    commit_log::ChangedPath,
    ledger::{Row, WorkspaceEffect, WriteOutcome},
    stop::Stop,
    subject::ObservedEffect,
    workspace_locks::{CommitLock, CommitWindow, WorkspaceGuard},
};

/// The input of a commit.
pub(super) struct Commit<'a> {
    pub(super) staged: &'a StagedEffect,
    pub(super) touched: Vec<ChangedPath>,
    pub(super) call: &'a Call,
    /// Set for a call that has just run. `None` for a call that waited for approval: no commit log covers the wait, so conflicts are found
    /// by comparing files alone.
    pub(super) running: Option<DirectCommit<'a>>,
}

/// A call that has run and commits without approval.
pub(super) struct DirectCommit<'a> {
    pub(super) window: &'a CommitWindow,
    /// The commit lock, if the call is exclusive and holds it already.
    pub(super) lock: Option<CommitLock>,
    pub(super) observed: &'a ObservedEffect,
}

/// The outcome of a commit.
pub(super) enum CommitOutcome {
    /// The effect is applied.
    Done,
    /// The effect cannot be applied. No row was written, and the staged files are still there.
    Refused(Unsuccessful),
    /// The row was written, but the effect could not be applied: the caller has to write another row before it discards the staged files.
    NotApplied(Unsuccessful),
    /// The grant was already spent. Otherwise as `Refused`.
    GrantSpent,
    /// The write of the row failed, and the disk may hold the row all the same. The effect is not applied, and the staged files are still
    /// there.
    NotWritten(LedgerFailure),
}

impl Calls {
    /// Commits an effect. `row` is the ended call; writing it is the commit point.
    pub(super) async fn commit(
        self: &Arc<Self>,
        guard: &Arc<WorkspaceGuard>,
        Commit { staged, touched, call, running }: Commit<'_>,
        mut row: Row,
        cancelled: &mut watch::Receiver<Stop>,
    ) -> CommitOutcome {
        let (window, observed, lock) = match running {
            Some(DirectCommit { window, lock, observed }) => (Some(window), Some(observed), lock),
            None => (None, None, None),
        };
        let lock = match lock {
            Some(lock) => lock,
            None => tokio::select! {
                biased;
                () = cancel_requested(cancelled) => {
                    return CommitOutcome::Refused((State::Cancelled, record::cancelled()));
                }
                lock = guard.commit_lock(&call.waits_for) => lock,
            },
        };
        if let Some(conflict) = window.zip(observed).and_then(|(window, observed)| overlapping(window, observed)) {
            return CommitOutcome::Refused(conflict);
        }
        if let Err(error) = self.on(guard, staged, |directory, staged| directory.check(staged)).await {
            return CommitOutcome::Refused(not_committed(&error, window));
        }
        self.workspaces.keep_staged(&staged.id);
        row.staged = Some(WorkspaceEffect { workspace: guard.path().to_owned(), staged: staged.clone() });
        let name = row.call.name.clone();
        let is_layer = row.call.receipt.as_ref().is_some_and(|receipt| !receipt.layer.is_empty());
        let tool = self.registry.find(&row.call.tool);
        match self.write(row).await {
            Ok(WriteOutcome::Done) => self.acknowledgements.committed(&name),
            Ok(WriteOutcome::GrantSpent) => return CommitOutcome::GrantSpent,
            Err(error) => return CommitOutcome::NotWritten(error),
        }
        if let Err(error) = self.apply(guard, staged).await {
            return CommitOutcome::NotApplied(not_committed(&error, window));
        }
        // What a call of a step has left in caches may come from files that are never committed.
        let tool = tool.filter(|_| !is_layer);
        let caches = tool.map(|tool| Self::kept_caches(&tool, &name, guard)).unwrap_or_default();
        guard.applied(name, staged, touched);
        drop(lock);
        self.merge_caches(guard, staged.id.clone(), caches).await;
        self.finish_later(Arc::clone(guard), staged.clone());
        CommitOutcome::Done
    }

    /// Retries until the effect is applied as a whole or not at all.
    async fn apply(self: &Arc<Self>, guard: &Arc<WorkspaceGuard>, staged: &StagedEffect) -> Result<(), CommitError> {
        const MAX_BACKOFF: Duration = Duration::from_secs(60);
        let mut backoff = Duration::from_secs(1);
        loop {
            match self.on(guard, staged, |directory, staged| directory.apply(staged)).await {
                Err(error @ CommitError::Stuck { .. }) => {
                    let workspace = guard.path().display();
                    tracing::error!(%workspace, %error, "A commit is applied in part; retrying");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                done => return done,
            }
        }
    }

    /// Removes the files that an effect replaced, in the background: it may be a large tree.
    fn finish_later(self: &Arc<Self>, guard: Arc<WorkspaceGuard>, staged: StagedEffect) {
        let calls = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = calls.on(&guard, &staged, |directory, staged| directory.finish(staged)).await {
                tracing::warn!(%error, "Cannot remove files that a commit replaced; they stay until the workspace is next opened");
            }
            guard.sync_if_due().await;
        });
    }

    /// Removes replaced files that the last view has released, in the background.
    pub(super) fn clear_later(self: &Arc<Self>, guard: &Arc<WorkspaceGuard>) {
        let directory = guard.directory();
        if !directory.has_to_clear() {
            return;
        }
        let (lane, guard) = (self.lanes.effects.clone(), Arc::clone(guard));
        tokio::spawn(async move {
            if let Err(error) = lane.run(move || directory.clear()).await {
                tracing::warn!(%error, "Cannot remove files that commits replaced; they stay until the workspace is next opened");
            }
            drop(guard);
        });
    }

    /// Discards a staged effect.
    pub(super) async fn discard(self: &Arc<Self>, guard: &Arc<WorkspaceGuard>, staged: &StagedEffect) {
        if let Err(error) = self.on(guard, staged, |directory, staged| directory.discard(staged)).await {
            tracing::warn!(%error, "Cannot remove staged files; they stay until the workspace is next opened");
        }
        self.workspaces.release_staged(&staged.id);
    }

    async fn on(
        &self,
        guard: &Arc<WorkspaceGuard>,
        staged: &StagedEffect,
        work: impl FnOnce(&dyn WorkspaceDirectory, &StagedEffect) -> Result<(), CommitError> + Send + 'static,
    ) -> Result<(), CommitError> {
        let (guard, staged) = (Arc::clone(guard), staged.clone());
        self.lanes.commits.run(move || work(&*guard.directory(), &staged)).await
    }

    /// Replaces the row of a commit that could not be applied, then discards the staged files. `row` is the ended call without its effect. `removed`: the set
    /// of layers that the replaced row has removed.
    ///
    /// # Errors
    /// When the write fails. The staged files stay, because recovery may find the row that committed them and has to redo it.
    pub(super) async fn revert(
        self: &Arc<Self>,
        guard: &Arc<WorkspaceGuard>,
        staged: &StagedEffect,
        row: Row,
        removed: Option<&str>,
    ) -> Result<(), LedgerFailure> {
        self.keep_layer_set(removed).await?;
        let name = row.call.name.clone();
        self.write(row).await?;
        self.acknowledgements.synced(vec![name]);
        self.discard(guard, staged).await;
        Ok(())
    }
}
