//! What is made of the ledger when a runner starts: nothing that had begun is left in between.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_grant::digest_of;
use belay_proto::v1::{self, ErrorClass, tool_call::State};
use belay_reasons as reasons;
use belay_service_kit::Limit;
use belay_workspace::{CommitError, OpenError};
use tokio::sync::oneshot;
use tonic::Status;

use super::{
    Call, Calls, Progress,
    effect::not_committed,
    not_durable,
    record::{failure, json_of},
};
use crate::{
    Ledger, Parts, PolicyHolder, Staged, ToolFailure,
    acknowledgements::Acknowledgements,
    lanes::Lanes,
    ledger::{Entry, InPlace, Row},
    workspace_locks::{Closed, Rooms},
};

/// How long a spent grant is remembered after it has expired: longer than a clock is ever set back by.
const REMEMBERED: i64 = 7 * 24 * 3600;

/// A commit of which the ledger knows, and not whether it was carried out.
struct Unsettled {
    call: Call,
    row: Row,
    staged: Staged,
    done: oneshot::Receiver<Result<(), CommitError>>,
}

impl Calls {
    /// The calls of a ledger, with what was under way when it was last open settled: what was committed is carried out before anything
    /// else touches its workspace, what waits goes on waiting, and what ran is settled by its recovery class.
    ///
    /// # Errors
    /// [`Status`] when that cannot be made durable.
    pub async fn recover(parts: Parts) -> Result<Arc<Self>, Status> {
        let Parts {
            registry,
            mut ledger,
            clock,
            keys,
            workspaces,
            places,
            enforcement,
            telemetry,
            threads,
            limits,
            thresholds,
        } = parts;
        let contents = ledger.take_contents();
        let ledger = Arc::new(ledger);
        let tag = digest_of(ledger.file_id().as_bytes())["sha256:".len()..][..8].to_owned();
        let acknowledgements = Acknowledgements::new(Arc::clone(&ledger), thresholds.max_waiting_rows);
        let lanes = Lanes::new(threads);
        let rooms = Rooms::new(workspaces, places, lanes.clone(), tag, Arc::clone(&acknowledgements), thresholds);
        let now = clock.now_micros().div_euclid(1_000_000);
        ledger.write(Entry::Expired { before: now.saturating_sub(REMEMBERED) }).await.map_err(not_durable)?;

        let mut known = HashMap::new();
        let mut unsettled = HashMap::<PathBuf, Vec<Unsettled>>::new();
        for row in contents.calls {
            let name = row.call.name.clone();
            match settle(row) {
                Settled::Forgotten => {
                    // It may run again, so it is as if it had never arrived.
                    ledger.write(Entry::Forgotten { name }).await.map_err(not_durable)?;
                }
                Settled::Unknown(row) => {
                    ledger.write(Entry::Call(Box::new(row.clone()))).await.map_err(not_durable)?;
                    known.insert(name, as_known(&ledger, &row, Progress::Ended(Arc::new(row.call.clone()))));
                }
                Settled::Ended(row) => {
                    known.insert(name, as_known(&ledger, &row, Progress::Ended(Arc::new(row.call.clone()))));
                }
                Settled::Held(row) => {
                    if let Some(InPlace { staged, .. }) = &row.staged {
                        rooms.keep(&staged.id);
                    }
                    known.insert(name, as_known(&ledger, &row, Progress::Held(Arc::new(row.call.clone()))));
                }
                Settled::Committed(row, InPlace { workspace, staged }) => {
                    let call = as_known(&ledger, &row, Progress::Running);
                    known.insert(name, call.clone());
                    let done = rooms.redo(workspace.clone(), staged.clone());
                    unsettled.entry(workspace).or_default().push(Unsettled { call, row, staged, done });
                }
            }
        }
        let policy = Arc::new(PolicyHolder::new(keys, Arc::clone(&ledger), contents.policy));
        let calls = Arc::new(Self {
            registry,
            enforcement,
            rooms,
            policy,
            ledger,
            acknowledgements,
            clock,
            telemetry,
            lanes,
            limit: Limit::new("services.runner.calls", "calls under way", limits.calls.value),
            fences: Mutex::new(contents.fences),
            known: Mutex::new(known),
            forgotten: Mutex::default(),
        });
        for (workspace, commits) in unsettled {
            if let Some(commits) = calls.carry_on(&workspace, commits).await {
                tokio::spawn(Arc::clone(&calls).keep_trying(workspace, commits));
            }
        }
        Ok(calls)
    }

    /// Carries the commits of a workspace out; gives them back if it cannot be opened now.
    async fn carry_on(self: &Arc<Self>, workspace: &Path, commits: Vec<Unsettled>) -> Option<Vec<Unsettled>> {
        let visit = match self.rooms.enter(self.rooms.known(workspace.to_owned())).await {
            Ok(visit) => Arc::new(visit),
            Err(Closed::Open(OpenError::Unreachable { source, .. }))
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                // It has gone with all that was staged in it.
                for commit in commits {
                    commit.call.progress.send_replace(Progress::Ended(Arc::new(commit.row.call)));
                }
                return None;
            }
            Err(closed) => {
                let workspace = workspace.display();
                tracing::error!(%workspace, %closed, "Commits of before wait for their workspace to be opened");
                return Some(commits);
            }
        };
        for Unsettled { call, row, staged, done } in commits {
            let end = match done.await {
                Ok(Ok(())) => Ok(row),
                Ok(Err(error)) => {
                    let noted = self.note(row, &error).await;
                    if noted.is_ok() {
                        self.discard(&visit, &staged).await;
                    }
                    noted
                }
                Err(_) => continue,
            };
            match end {
                Ok(row) => drop(call.progress.send_replace(Progress::Ended(Arc::new(row.call)))),
                Err(status) => tracing::error!(%status, call = call.started.name, "How a commit ended was not kept"),
            }
        }
        drop(visit);
        None
    }

    /// Writes down that a commit could not be carried out.
    async fn note(&self, row: Row, error: &CommitError) -> Result<Row, Status> {
        let (state, failed) = not_committed(error, None);
        let receipt = row.call.receipt.clone().map(|receipt| v1::Receipt {
            effect_digest: String::new(),
            effect: None,
            ..receipt
        });
        let call =
            v1::ToolCall { state: state.into(), result: None, failure: Some(failure(failed)), receipt, ..row.call };
        let row = Row { call, staged: None, ..row };
        self.write(row.clone()).await.map_err(not_durable)?;
        Ok(row)
    }

    async fn keep_trying(self: Arc<Self>, workspace: PathBuf, mut commits: Vec<Unsettled>) {
        const LONGEST: Duration = Duration::from_secs(60);
        let mut pause = Duration::from_secs(1);
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            match self.carry_on(&workspace, commits).await {
                None => return,
                Some(left) => commits = left,
            }
        }
    }
}

/// What a row of before comes to.
enum Settled {
    Forgotten,
    Unknown(Row),
    Ended(Row),
    Held(Row),
    Committed(Row, InPlace),
}

fn settle(mut row: Row) -> Settled {
    if row.call.state() == State::AwaitingApproval {
        return Settled::Held(row);
    }
    if row.ended {
        return match row.staged.take() {
            None => Settled::Ended(row),
            Some(staged) => Settled::Committed(row, staged),
        };
    }
    if row.call.recovery() != v1::RecoveryClass::Manual {
        return Settled::Forgotten;
    }
    let message = "The tool runner was lost while the call ran; what it did cannot be known.";
    row.call.set_state(State::OutcomeUnknown);
    row.call.failure = Some(failure(ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message)));
    row.ended = true;
    Settled::Unknown(row)
}

fn as_known(ledger: &Ledger, row: &Row, progress: Progress) -> Call {
    let started = v1::ToolCall {
        state: State::Running.into(),
        result: None,
        failure: None,
        end_time: None,
        receipt: None,
        approval_need: None,
        ..row.call.clone()
    };
    let secrets = ledger.secrets_of(&started.tool, &json_of(started.arguments.as_ref()));
    Call::new(row.digest.as_str().into(), progress, started, secrets)
}
