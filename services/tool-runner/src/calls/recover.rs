//! Restores calls from the ledger at startup. No call stays half done.

use std::{
    collections::HashMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_grant::digest_of;
use belay_proto::{
    runner_v1,
    v1::{self, ErrorClass, tool_call::State},
};
use belay_reasons as reasons;
use belay_service_kit::Limit;
use belay_workspace::{CommitError, OpenError};
use tokio::sync::oneshot;
use tonic::Status;

use super::{
    Call, Calls, Progress,
    call::restore,
    effect::not_committed,
    ended::EndedCall,
    known::KnownCalls,
    not_durable,
    record::{self, failure},
};
use crate::{
    Parts, PolicyHolder, StagedEffect, ToolFailure,
    acknowledgements::Acknowledgements,
    lanes::Lanes,
    ledger::{Entry, HeldCall, Row, WorkspaceEffect},
    workspace_locks::{WorkspaceLocks, WorkspaceUnavailable},
};

/// How long the nonce of a spent grant is kept after the grant expired, in seconds: longer than a clock is ever set back.
const SPENT_GRANT_RETENTION_SECS: i64 = 7 * 24 * 3600;

/// A committed effect that may not have been applied before the crash.
struct PendingCommit {
    call: Call,
    row: Row,
    staged: StagedEffect,
    done: oneshot::Receiver<Result<(), CommitError>>,
}

impl Calls {
    /// Restores the calls of a ledger. Committed effects are applied before anything else touches their workspaces, calls that wait for
    /// approval keep waiting, and calls that were running end by their recovery class.
    ///
    /// # Errors
    /// [`Status`] when the ledger cannot be written.
    pub async fn recover(parts: Parts) -> Result<Arc<Self>, Status> {
        let Parts {
            registry,
            mut ledger,
            clock,
            keys,
            workspaces,
            directories,
            enforcement,
            telemetry,
            threads,
            limits,
            thresholds,
        } = parts;
        let contents = ledger.take_contents();
        let max_inline = thresholds.max_inline;
        let ledger = Arc::new(ledger);
        let tag = digest_of(ledger.file_id().as_bytes())["sha256:".len()..][..8].to_owned();
        let acknowledgements = Acknowledgements::new(Arc::clone(&ledger), thresholds.max_waiting_rows);
        let lanes = Lanes::new(threads);
        let workspaces =
            WorkspaceLocks::new(workspaces, directories, lanes.clone(), tag, Arc::clone(&acknowledgements), thresholds);
        let now = clock.now_micros().div_euclid(1_000_000);
        ledger
            .write(Entry::Expired { before: now.saturating_sub(SPENT_GRANT_RETENTION_SECS) })
            .await
            .map_err(not_durable)?;

        contents.layer_sets.into_iter().for_each(|set| workspaces.keep_layers(set));
        let mut known = KnownCalls::default();
        for HeldCall { name, staged } in contents.held {
            if let Some(staged) = staged {
                workspaces.keep_staged(&staged);
            }
            known.add_held(&name);
        }
        let mut commits_by_workspace = HashMap::<PathBuf, Vec<PendingCommit>>::new();
        for row in contents.calls {
            let name = row.call.name.clone();
            match classify(row) {
                RowRecovery::Deleted => {
                    // It may run again, so the ledger forgets it.
                    ledger.write(Entry::Delete { name }).await.map_err(not_durable)?;
                }
                RowRecovery::OutcomeUnknown(row) => {
                    ledger.write(Entry::Call(Box::new(row.clone()))).await.map_err(not_durable)?;
                    known.calls.insert(
                        name,
                        restore(&ledger, &row, Progress::Ended(EndedCall::new(row.call.clone(), max_inline))),
                    );
                }
                RowRecovery::Ended(row) => {
                    known.calls.insert(
                        name,
                        restore(&ledger, &row, Progress::Ended(EndedCall::new(row.call.clone(), max_inline))),
                    );
                }
                RowRecovery::Committed(row, WorkspaceEffect { workspace, staged }) => {
                    let call = restore(&ledger, &row, Progress::Running);
                    known.calls.insert(name, call.clone());
                    let done = workspaces.redo(workspace.clone(), staged.clone());
                    commits_by_workspace.entry(workspace).or_default().push(PendingCommit { call, row, staged, done });
                }
            }
        }
        let policy = Arc::new(PolicyHolder::new(keys, Arc::clone(&ledger), contents.policy));
        let calls = Arc::new(Self {
            registry,
            enforcement,
            workspaces,
            policy,
            ledger,
            acknowledgements,
            clock,
            telemetry,
            lanes,
            limit: Limit::new("services.runner.calls", "calls under way", limits.calls.value),
            fences: Mutex::new(contents.fences),
            known: Mutex::new(known),
            loading: tokio::sync::Mutex::default(),
            recent: Mutex::default(),
            kept: Mutex::default(),
            max_inline,
            max_kept_bytes: thresholds.max_kept_bytes,
        });
        for (workspace, commits) in commits_by_workspace {
            if let Some(commits) = calls.apply_commits(&workspace, commits).await {
                tokio::spawn(Arc::clone(&calls).retry_commits(workspace, commits));
            }
        }
        Ok(calls)
    }

    /// Applies the commits of a workspace; returns them if the workspace cannot be opened now.
    async fn apply_commits(
        self: &Arc<Self>,
        workspace: &Path,
        commits: Vec<PendingCommit>,
    ) -> Option<Vec<PendingCommit>> {
        let guard = match self.workspaces.open(self.workspaces.known(workspace.to_owned())).await {
            Ok(guard) => Arc::new(guard),
            Err(unavailable) if is_deleted(&unavailable) => {
                for commit in commits {
                    commit.call.progress.send_replace(Progress::Ended(self.ended_call(commit.row.call)));
                }
                return None;
            }
            Err(unavailable) => {
                let workspace = workspace.display();
                tracing::error!(%workspace, %unavailable, "Cannot open the workspace to apply its commits; retrying");
                return Some(commits);
            }
        };
        for PendingCommit { call, row, staged, done } in commits {
            let end = match done.await {
                Ok(Ok(())) => Ok(row),
                Ok(Err(error)) => {
                    let recorded = self.record_failed_commit(row, &error).await;
                    if recorded.is_ok() {
                        self.discard(&guard, &staged).await;
                    }
                    recorded
                }
                Err(_) => continue,
            };
            match end {
                Ok(row) => drop(call.progress.send_replace(Progress::Ended(self.ended_call(row.call)))),
                Err(status) => {
                    tracing::error!(%status, call = call.started.name, "Cannot record the outcome of a commit")
                }
            }
        }
        drop(guard);
        None
    }

    /// Records that a commit could not be applied.
    async fn record_failed_commit(&self, row: Row, error: &CommitError) -> Result<Row, Status> {
        let row = failed_commit(row, error);
        self.write(row.clone()).await.map_err(not_durable)?;
        Ok(row)
    }

    async fn retry_commits(self: Arc<Self>, workspace: PathBuf, mut commits: Vec<PendingCommit>) {
        const MAX_BACKOFF: Duration = Duration::from_secs(60);
        let mut backoff = Duration::from_secs(1);
        loop {
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
            match self.apply_commits(&workspace, commits).await {
                None => return,
                Some(left) => commits = left,
            }
        }
    }
}

/// The result of the recovery of a row.
enum RowRecovery {
    Deleted,
    OutcomeUnknown(Row),
    Ended(Row),
    Committed(Row, WorkspaceEffect),
}

fn classify(mut row: Row) -> RowRecovery {
    if row.ended {
        return match row.staged.take() {
            None => RowRecovery::Ended(row),
            Some(staged) => RowRecovery::Committed(row, staged),
        };
    }
    if row.call.recovery() != v1::RecoveryClass::Manual {
        return RowRecovery::Deleted;
    }
    let message = "The tool runner crashed while the call ran; its outcome is unknown.";
    row.call.set_state(State::OutcomeUnknown);
    row.call.failure = Some(failure(ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message)));
    row.ended = true;
    RowRecovery::OutcomeUnknown(row)
}

/// Whether the workspace was deleted, with everything staged in it.
fn is_deleted(unavailable: &WorkspaceUnavailable) -> bool {
    matches!(unavailable, WorkspaceUnavailable::Open(OpenError::Unreachable { source, .. }) if source.kind() == ErrorKind::NotFound)
}

/// The row of a call whose effect could not be put in place: nothing of the effect is left.
fn failed_commit(row: Row, error: &CommitError) -> Row {
    let is_manual = row.call.recovery() == v1::RecoveryClass::Manual;
    let (state, failed) = record::not_committed(not_committed(error, None), is_manual);
    let receipt = row.call.receipt.map(|mut receipt| {
        receipt.effect_digest.clear();
        (receipt.effect, receipt.files, receipt.unlisted_file_count) = (None, Vec::new(), 0);
        receipt
    });
    let failure = Some(failure(failed));
    let call = runner_v1::ToolCall { state: state.into(), result: None, failure, receipt, ..row.call };
    Row { call, staged: None, ..row }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A committed call with everything that a call can have.
    fn row() -> Row {
        let call = runner_v1::ToolCall {
            name: "the call".into(),
            state: State::Completed.into(),
            tool: "write_file".into(),
            result: Some(v1::Payload::of_json("7")),
            failure: Some(v1::Failure::default()),
            end_time: Some(belay_proto::timestamp(9_000_000)),
            receipt: Some(Box::new(v1::Receipt {
                ledger_id: "ledger".into(),
                effect_digest: "digest".into(),
                effect: Some(v1::EffectSummary::default()),
                files: vec![v1::CommittedFile::default()],
                unlisted_file_count: 3,
                ..v1::Receipt::default()
            })),
            approval_need: Some(v1::ApprovalNeed::default()),
            ..runner_v1::ToolCall::default()
        };
        let staged = StagedEffect { id: "1".into(), plan: "plan".into() };
        let staged = Some(WorkspaceEffect { workspace: "/w".into(), staged });
        Row { digest: "request".into(), ended: true, call, staged, pending: None, spends: None, removes: None }
    }

    #[test]
    fn a_commit_that_fails_leaves_nothing_of_the_effect_and_says_why() {
        let altered = CommitError::Altered { path: belay_workspace::RelPath::parse("a").unwrap() };
        for error in [CommitError::Conflict { paths: vec![] }, altered] {
            let Row { digest, ended, call, staged, .. } = failed_commit(row(), &error);
            assert_eq!((digest.as_str(), ended, staged), ("request", true, None));
            assert_eq!((call.name.as_str(), call.state(), call.result), ("the call", State::Cancelled, None));
            assert_eq!(call.failure.unwrap().reason, reasons::CONFLICT);
            let receipt = v1::Receipt { ledger_id: "ledger".into(), ..v1::Receipt::default() };
            assert_eq!(call.receipt, Some(Box::new(receipt)));
        }
    }

    // A command that had a network, or that is declared as MANUAL, does not run again.
    #[test]
    fn a_commit_that_fails_ends_a_manual_call_as_unknown() {
        let mut manual = row();
        manual.call.recovery = v1::RecoveryClass::Manual.into();
        let Row { call, .. } = failed_commit(manual, &CommitError::Conflict { paths: vec![] });
        assert_eq!(
            (call.state(), call.failure.unwrap().reason),
            (State::OutcomeUnknown, reasons::OUTCOME_UNKNOWN.to_owned())
        );
    }

    #[test]
    fn only_a_workspace_that_does_not_exist_counts_as_deleted() {
        let unreachable = |kind: ErrorKind| {
            let (path, source) = ("/w".into(), kind.into());
            WorkspaceUnavailable::Open(OpenError::Unreachable { path, source })
        };
        assert!(is_deleted(&unreachable(ErrorKind::NotFound)));
        assert!(!is_deleted(&unreachable(ErrorKind::PermissionDenied)), "its effects are put in place later");
    }
}
