//! Decisions on their way from the gate to the executions that wait for them, and what the gate is told in return.
//!
//! A no has been heard once it is stored. A yes has been heard only with what became of it: until then the gate brings it again with each
//! watch, so none is left without its last state, whenever an executor dies. What that is, the execution's events say.

mod outcome;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};

use belay_journal::{ExecutionKey, ExecutionRow};
use belay_proto::v1::{self, approval::State, watch_approvals_response::Content};
use belay_service_kit::Shutdown;
use belay_telemetry::TraceContext;
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
};
use tonic::{Code, Status};

pub(crate) use self::outcome::used;
use crate::{
    acknowledge::ended,
    core::Executions,
    driver::Command,
    gate::{Gate, NoAnswer},
    names::ExecutionName,
    wire,
};

/// How long to wait before a gate that is away is asked again: doubles from the first to the last.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A watch that says nothing for so long has lost its gate: three heartbeats.
const SILENCE: Duration = Duration::from_secs(45);

/// Hears every decision, and hands it to its execution, for as long as there are executions.
pub(crate) async fn hear(executions: Weak<Executions>, gate: Gate, shutdown: Shutdown) {
    tokio::select! {
        biased;
        () = shutdown.requested() => {}
        () = listen(executions, gate) => {}
    }
}

async fn listen(executions: Weak<Executions>, gate: Gate) {
    let (mut patience, longest) = PATIENCE;
    loop {
        match gate.watch().await {
            Ok(mut stream) => {
                let withdrawing = tokio::spawn(withdraw_unneeded(executions.clone(), gate.clone()));
                let _withdrawing = AbortOnDrop(withdrawing.abort_handle());
                // Whoever answers now may have another store than whoever answered before.
                let checking = tokio::spawn(check_questions(executions.clone(), gate.clone()));
                let _checking = AbortOnDrop(checking.abort_handle());
                while let Ok(Ok(Some(message))) = tokio::time::timeout(SILENCE, stream.message()).await {
                    patience = PATIENCE.0;
                    let Some(executions) = executions.upgrade() else { return };
                    if let Some(Content::Approval(approval)) = message.content
                        && !deliver(&executions, approval).await
                    {
                        // The next watch brings it again.
                        break;
                    }
                }
            }
            Err(status) => tracing::debug!(%status, "The approval gate does not answer, asking again"),
        }
        tokio::time::sleep(patience).await;
        patience = (patience * 2).min(longest);
    }
}

/// Ends a task when it is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Withdraws the questions that were left open about executions and calls that have ended: because the gate was away when they ended, and
/// the executor was restarted before it was back. Which ones those are is in the journal. What does not succeed now is done when the next
/// watch begins.
async fn withdraw_unneeded(executions: Weak<Executions>, gate: Gate) {
    let mut page_token = String::new();
    loop {
        let page = match gate.open("namespaces/-", "", page_token).await {
            Ok(page) => page,
            Err(NoAnswer::Away(status) | NoAnswer::Busy(status) | NoAnswer::Refused(status)) => {
                return tracing::debug!(%status, "The approval gate does not say which questions are open");
            }
        };
        for approval in page.approvals {
            let Some(executions) = executions.upgrade() else { return };
            match is_unneeded(&executions, &approval).await {
                Ok(true) => {
                    tracing::info!(approval = approval.name, "What a question is about has ended; it is withdrawn");
                    executions.tell_gate(Note::Cancel(approval.name));
                }
                Ok(false) => {}
                Err(status) => {
                    tracing::warn!(approval = approval.name, %status, "Whether a question is still needed cannot be read")
                }
            }
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return;
        }
    }
}

/// Whether what a question is about has ended. A parked execution waits for its answers, and is not read for this.
async fn is_unneeded(executions: &Executions, approval: &v1::Approval) -> Result<bool, Status> {
    let row = match executions.find(&ExecutionName::parse("execution", &approval.execution)?).await {
        // Another executor's.
        Err(status) if status.code() == Code::NotFound => return Ok(false),
        row => row?,
    };
    if row.standing.ended || row.standing.parked {
        return Ok(row.standing.ended);
    }
    let (events, _) = executions.events(row.key).await?;
    Ok(!ended(&events, vec![approval.call.clone()]).is_empty())
}

/// Finds the executions that wait for a decision about which the gate has no question, and has them ask again: a gate whose store was
/// restored or lost does not know what it was asked.
async fn check_questions(executions: Weak<Executions>, gate: Gate) {
    let Some(executions) = executions.upgrade() else { return };
    let rows = match executions.waiting().await {
        Ok(rows) => rows,
        Err(error) => return tracing::error!(%error, "What waits for a decision cannot be read"),
    };
    let mut by_namespace: BTreeMap<String, Vec<ExecutionRow>> = BTreeMap::new();
    for row in rows {
        by_namespace.entry(row.execution.namespace.clone()).or_default().push(row);
    }
    for (namespace, rows) in by_namespace {
        let asking = match gate.asking(&namespace).await {
            Ok(asking) => asking,
            // The next watch looks again.
            Err(NoAnswer::Away(status) | NoAnswer::Busy(status) | NoAnswer::Refused(status)) => {
                return tracing::debug!(%status, "The approval gate cannot be asked what it knows");
            }
        };
        for row in rows {
            let name = ExecutionName { namespace: namespace.clone(), id: row.execution.id.clone() };
            if !asking.contains(&name.to_string()) {
                executions.send(row, Command::CheckQuestions).await;
            }
        }
    }
}

/// Makes sure that the gate has a question. What it says to it that was decided meanwhile is handed on.
pub(crate) async fn check_question(
    executions: Weak<Executions>,
    asked: v1::CreateApprovalRequest,
    trace: TraceContext,
) {
    let (mut patience, longest) = PATIENCE;
    loop {
        let Some(executions) = executions.upgrade() else { return };
        match executions.gate.create(asked.clone(), &trace).await {
            Ok(approval) => {
                deliver(&executions, approval).await;
                return;
            }
            Err(NoAnswer::Refused(status)) => {
                tracing::warn!(call = asked.call, %status, "The approval gate does not ask again about a call that waits");
                return;
            }
            Err(NoAnswer::Away(status) | NoAnswer::Busy(status)) => {
                tracing::debug!(%status, "The approval gate does not answer, asking again")
            }
        }
        drop(executions);
        tokio::time::sleep(patience).await;
        patience = (patience * 2).min(longest);
    }
}

/// Hands a decision to its execution, taking that into memory if need be. About one that nobody waits for any more, the gate is told what
/// became of it. Whether that was done: where the store cannot be read now, it stays undelivered.
pub(crate) async fn deliver(executions: &Arc<Executions>, approval: v1::Approval) -> bool {
    if wire::decision_from(approval.state()).is_none() {
        return true;
    }
    let name = approval.name.clone();
    let row = match ExecutionName::parse("execution", &approval.execution) {
        Ok(execution) => executions.find(&execution).await,
        Err(status) => Err(status),
    };
    match row {
        Ok(row) if row.standing.ended => {
            return close(executions, row.key, &approval).await;
        }
        Ok(row) => {
            if let Some(approval) = executions.unless_foreign(row.key, approval) {
                executions.send(row, Command::Decided { approval: Box::new(approval) }).await;
            }
        }
        Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => {
            tracing::warn!(approval = name, "A decision came for an execution that is not here; it is dropped");
            Note::dropped(&approval).into_iter().for_each(|note| executions.tell_gate(note));
        }
        Err(status) => {
            tracing::error!(approval = name, %status, "A decision cannot be delivered now");
            return false;
        }
    }
    true
}

/// Tells the gate what became of a decision that nobody waits for now. Whether its events could be read: what is damaged is not read again
/// before the next start.
pub(crate) async fn close(executions: &Executions, key: ExecutionKey, approval: &v1::Approval) -> bool {
    match executions.events(key).await {
        Ok((events, _)) => {
            let notes = outcome::in_hindsight(&events, approval);
            tracing::debug!(approval = approval.name, ?notes, "Nobody waits for this decision now");
            notes.into_iter().for_each(|note| executions.tell_gate(note));
            true
        }
        Err(status) => {
            tracing::error!(approval = approval.name, %status, "What became of an approval cannot be read");
            status.code() != Code::Unavailable
        }
    }
}

/// Decisions about executions that another executor may have to carry out: they stay undelivered, and are kept for the case that their
/// execution is taken up here later.
#[derive(Default)]
pub(crate) struct Foreign {
    /// Everything in the store is driven here: nothing is foreign.
    none: bool,
    /// By the approval's name.
    kept: HashMap<ExecutionKey, BTreeMap<String, v1::Approval>>,
}

impl Foreign {
    /// Gives the decision back when it is for an execution that is driven here, else keeps it.
    pub(crate) fn keep(&mut self, key: ExecutionKey, driven: bool, approval: v1::Approval) -> Option<v1::Approval> {
        if self.none || driven {
            return Some(approval);
        }
        self.kept.entry(key).or_default().insert(approval.name.clone(), approval);
        None
    }

    /// Whether everything in the store is driven here.
    pub(crate) fn drives_all(&self) -> bool {
        self.none
    }

    /// What was kept for an execution that is driven here from now on.
    pub(crate) fn welcome(&mut self, key: ExecutionKey) -> Vec<v1::Approval> {
        self.kept.remove(&key).unwrap_or_default().into_values().collect()
    }

    /// From now on everything is driven here: what was kept.
    pub(crate) fn welcome_all(&mut self) -> Vec<v1::Approval> {
        self.none = true;
        std::mem::take(&mut self.kept).into_values().flat_map(BTreeMap::into_values).collect()
    }
}

/// Something that the gate is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The decision, no yes, is stored; or nobody waits for it.
    Delivered(String),
    /// The grant was spent.
    Consumed(String),
    /// The grant can no longer be spent.
    Stale(String),
    /// Nobody waits for this decision any more.
    Cancel(String),
    /// Nobody waits for a decision about this call any more, and whether the gate was asked about it is not known.
    Withdraw { execution: String, call: String },
}

impl Note {
    /// What the gate is told about a decision that nobody waits for: it was heard, and a yes will not be used.
    fn dropped(approval: &v1::Approval) -> Vec<Self> {
        let unused = approval.state() == State::Approved;
        let stale = unused.then(|| Self::Stale(approval.name.clone()));
        [Self::Delivered(approval.name.clone())].into_iter().chain(stale).collect()
    }
}

/// Tells the gate, in order, until it has heard.
/// `untold` counts what it has not.
pub(crate) async fn tell(gate: Gate, mut notes: mpsc::UnboundedReceiver<Note>, untold: watch::Sender<usize>) {
    let mut batch = Vec::new();
    while notes.recv_many(&mut batch, 1000).await > 0 {
        let told = batch.len();
        let mut acknowledged = v1::AcknowledgeApprovalsRequest::default();
        for note in batch.drain(..) {
            match note {
                Note::Delivered(name) => acknowledged.delivered.push(name),
                Note::Consumed(name) => acknowledged.consumed.push(name),
                Note::Stale(name) => acknowledged.stale.push(name),
                Note::Cancel(name) => until_heard(|| gate.cancel(name.clone())).await,
                Note::Withdraw { execution, call } => until_heard(|| withdraw(&gate, &execution, &call)).await,
            }
        }
        if acknowledged != v1::AcknowledgeApprovalsRequest::default() {
            until_heard(|| gate.acknowledge(acknowledged.clone())).await;
        }
        untold.send_modify(|untold| *untold -= told);
    }
}

async fn withdraw(gate: &Gate, execution: &str, call: &str) -> Result<(), NoAnswer> {
    for name in gate.open_about(execution, call).await? {
        gate.cancel(name).await?;
    }
    Ok(())
}

async fn until_heard<F: Future<Output = Result<(), NoAnswer>>>(say: impl Fn() -> F) {
    let (mut patience, longest) = PATIENCE;
    loop {
        match say().await {
            Ok(()) => return,
            Err(NoAnswer::Refused(status)) => {
                tracing::warn!(%status, "The approval gate does not take what it is told");
                return;
            }
            Err(NoAnswer::Away(status) | NoAnswer::Busy(status)) => {
                tracing::debug!(%status, "The approval gate does not answer, telling it again");
                tokio::time::sleep(patience).await;
                patience = (patience * 2).min(longest);
            }
        }
    }
}
