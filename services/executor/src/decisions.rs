//! Decisions of the gate: the inbox delivers them to their executions, the outbox reports to the gate how they were used.
//!
//! A denial is acknowledged once it is stored. An approval is acknowledged only with its use: until then the gate sends it again with each
//! watch, so it reaches its final state even when an executor crashes. The execution's events record how it was used.

mod outcome;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_journal::{AnyOf, Condition, ExecutionKey, ExecutionRow, Order, Query, StoreError};
use belay_proto::{
    gate_v1::{self, watch_decisions_response::Content},
    v1::{self, approval::State},
};
use belay_service_kit::Shutdown;
use belay_telemetry::TraceContext;
use tokio::{sync::mpsc, task::AbortHandle};
use tonic::{Code, Status};

pub(crate) use self::outcome::notice_after;
use crate::{
    acknowledge::ended,
    driver::Command,
    gate::{Gate, GateError, not_understood},
    journal_reads::StoredEvents,
    names::ExecutionName,
    registry::ExecutionRegistry,
    wire,
};

/// The delay before retrying an unavailable gate: doubles from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A watch without a message for this long has lost its gate: three heartbeats.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45);

/// The inbox: receives every decision and delivers it to its execution, until the service stops.
pub(crate) async fn run_inbox(registry: Weak<ExecutionRegistry>, gate: Gate, shutdown: Shutdown) {
    tokio::select! {
        biased;
        () = shutdown.requested() => {}
        () = receive(registry, gate) => {}
    }
}

async fn receive(registry: Weak<ExecutionRegistry>, gate: Gate) {
    let (mut backoff, longest) = BACKOFF;
    loop {
        let is_available = match gate.watch().await {
            Ok(mut stream) => {
                if let Some(registry) = registry.upgrade() {
                    registry.availability.gate().set_available();
                }
                let withdrawing = tokio::spawn(withdraw_obsolete(registry.clone(), gate.clone()));
                let _withdrawing = AbortOnDrop(withdrawing.abort_handle());
                // The gate that replies now may have another store than before.
                let checking = tokio::spawn(recheck_approvals(registry.clone(), gate.clone()));
                let _checking = AbortOnDrop(checking.abort_handle());
                loop {
                    match tokio::time::timeout(WATCH_TIMEOUT, stream.message()).await {
                        Ok(Ok(Some(message))) => {
                            backoff = BACKOFF.0;
                            let Some(registry) = registry.upgrade() else { return };
                            if let Some(Content::Approval(approval)) = message.content
                                && !deliver(&registry, Delivery { approval, answer: message.answer }).await
                            {
                                // The next watch returns it again.
                                break true;
                            }
                        }
                        Ok(Ok(None)) => break true,
                        Ok(Err(_)) | Err(_) => break false,
                    }
                }
            }
            Err(status) => {
                tracing::debug!(%status, "The approval gate does not answer, asking again");
                false
            }
        };
        let Some(strong) = registry.upgrade() else { return };
        if !is_available {
            strong.availability.gate().set_unavailable(strong.now());
        }
        drop(strong);
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(longest);
    }
}

/// Aborts a task when it is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Withdraws approvals that are still pending for executions and calls that have ended: the gate was unavailable when they ended, and the
/// executor was restarted before it was back. The journal shows which. A failure is retried when the next watch begins.
async fn withdraw_obsolete(registry: Weak<ExecutionRegistry>, gate: Gate) {
    let mut page_token = String::new();
    loop {
        let page = match gate.open("namespaces/-", "", page_token).await {
            Ok(page) => page,
            Err(GateError::Unavailable(status) | GateError::Busy(status) | GateError::Refused(status)) => {
                return tracing::debug!(%status, "The approval gate does not return its pending approvals");
            }
        };
        for approval in page.approvals {
            let Some(registry) = registry.upgrade() else { return };
            match is_obsolete(&registry, &approval).await {
                Ok(true) => {
                    tracing::info!(approval = approval.name, "The subject of an approval has ended; it is cancelled");
                    registry.notify_gate(GateNotice::Cancel(approval.name));
                }
                Ok(false) => {}
                Err(status) => {
                    tracing::warn!(approval = approval.name, %status, "It cannot be determined whether an approval is still needed")
                }
            }
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return;
        }
    }
}

/// Whether the subject of an approval has ended. A parked execution still waits for its approvals, so its events are not read.
async fn is_obsolete(registry: &ExecutionRegistry, approval: &v1::Approval) -> Result<bool, Status> {
    let row = match registry.reads.find(&ExecutionName::parse("execution", &approval.execution)?).await {
        // It belongs to another executor.
        Err(status) if status.code() == Code::NotFound => return Ok(false),
        row => row?,
    };
    if row.summary.ended {
        return Ok(true);
    }
    if row.summary.parked {
        let is_form = approval.kind() == v1::approval_need::Kind::Form;
        // Its row says that it waits for a form, but not for which: if it is another one, this one stays until the execution goes on.
        return Ok(is_form && !row.summary.waits_for.contains(v1::waiting_reason::Kind::Form.into()));
    }
    let events = registry.reads.events(row.key).await?.events;
    Ok(!ended(&events, vec![approval.call.clone()]).is_empty())
}

/// Finds the executions that wait for an approval that the gate does not have, and makes them request it again: a gate whose store was
/// restored or lost does not know it.
async fn recheck_approvals(registry: Weak<ExecutionRegistry>, gate: Gate) {
    if is_planted(Defect::LostApprovalNotRecreated) {
        return;
    }
    let Some(registry) = registry.upgrade() else { return };
    if let Err(why) = recheck_all(&registry, &gate).await {
        // The next watch checks again.
        tracing::warn!(why, "It cannot be determined which approvals the gate lacks");
    }
}

async fn recheck_all(registry: &Arc<ExecutionRegistry>, gate: &Gate) -> Result<(), String> {
    let unreadable = |error: StoreError| format!("the store cannot be read: {error}");
    // What an execution in memory waits for may not be in its summary.
    let live = registry.live_keys();
    let read =
        registry.reads.read(move |reader| live.into_iter().map(|key| reader.get(key)).collect::<Result<Vec<_>, _>>());
    let mut live: HashMap<String, Vec<ExecutionRow>> = HashMap::new();
    for row in read.await.map_err(unreadable)?.into_iter().flatten().filter(|row| !row.summary.ended) {
        live.entry(row.execution.namespace.clone()).or_default().push(row);
    }
    let mut last = String::new();
    loop {
        let after = last.clone();
        let Some(namespace) =
            registry.reads.read(move |reader| reader.namespaces(&after, 1)).await.map_err(unreadable)?.pop()
        else {
            return Ok(());
        };
        last.clone_from(&namespace);
        let mut pending = None;
        // One in memory may have requested some of its approvals from the gate as it is now, and others before it lost them: that some are
        // pending says nothing about the others. The gate returns those that it has.
        for row in live.remove(&namespace).unwrap_or_default() {
            registry.send(row, Command::RecheckApprovals).await;
        }
        let mut query = waiting_for_approval(namespace);
        loop {
            let asked = query.clone();
            let page = registry.reads.read(move |reader| reader.list(&asked)).await.map_err(unreadable)?;
            let driven = page.rows.into_iter().filter(|row| registry.is_driven(row.key)).collect();
            recheck_rows(registry, gate, &mut pending, driven).await?;
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
    }
}

/// The parked executions of a namespace that wait for an approval or for the answer to a form.
fn waiting_for_approval(namespace: String) -> Query {
    use v1::waiting_reason::Kind;
    let waits_for = [Kind::Approval, Kind::Form].map(|kind| Condition::WaitsFor(true, kind.into()));
    let filter = vec![AnyOf(waits_for.into())];
    Query { namespace: Some(namespace), filter, order: Order::NEWEST_FIRST, after: None, limit: RECHECK_PAGE }
}

/// How many parked executions are read at a time.
const RECHECK_PAGE: usize = 256;

/// Makes those executions of one namespace request their approvals again that have none pending at the gate. `pending` are those that do,
/// once they are known.
async fn recheck_rows(
    registry: &Arc<ExecutionRegistry>,
    gate: &Gate,
    pending: &mut Option<HashSet<String>>,
    rows: Vec<ExecutionRow>,
) -> Result<(), String> {
    for row in rows {
        let ExecutionRow { execution, .. } = &row;
        let name = ExecutionName { namespace: execution.namespace.clone(), id: execution.id.clone() };
        let pending = match pending {
            Some(pending) => pending,
            None => match gate.executions_with_pending(&name.namespace).await {
                Ok(found) => pending.insert(found),
                Err(GateError::Unavailable(status) | GateError::Busy(status) | GateError::Refused(status)) => {
                    return Err(format!("the approval gate does not return its pending approvals: {status}"));
                }
            },
        };
        if !pending.contains(&name.to_string()) {
            registry.send(row, Command::RecheckApprovals).await;
        }
    }
    Ok(())
}

/// Makes sure that the gate has an approval, and delivers its decision if there is one.
pub(crate) async fn recheck_approval(
    registry: Weak<ExecutionRegistry>,
    asked: gate_v1::CreateApprovalRequest,
    trace: TraceContext,
) {
    let (mut backoff, longest) = BACKOFF;
    loop {
        let Some(registry) = registry.upgrade() else { return };
        match registry.gate.create(asked.clone(), &trace).await {
            Ok(approval) => {
                // The answer to a form comes with the decisions.
                deliver(&registry, Delivery { approval, answer: None }).await;
                return;
            }
            Err(GateError::Refused(status)) => {
                tracing::warn!(call = asked.call, %status, "The approval gate rejects the approval of a waiting call");
                return;
            }
            Err(GateError::Unavailable(status) | GateError::Busy(status)) => {
                tracing::debug!(%status, "The approval gate does not answer, asking again")
            }
        }
        drop(registry);
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(longest);
    }
}

/// What the gate delivers: a decision, or what became of a form.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) approval: v1::Approval,
    /// The answer to a form.
    pub(crate) answer: Option<v1::Payload>,
}

/// Delivers a decision to its execution, loading the execution if needed. When the execution has ended, reports to the gate how the decision
/// was used. Returns `false` when the store cannot be read now; the decision then stays undelivered.
pub(crate) async fn deliver(registry: &Arc<ExecutionRegistry>, delivery: Delivery) -> bool {
    let Delivery { approval, .. } = &delivery;
    let name = approval.name.clone();
    if let Err(problem) = wire::check_approval(approval) {
        // Not acknowledged, so the gate sends it to a newer executor.
        tracing::error!(approval = name, status = %not_understood(&problem), "A decision is left to the approval gate");
        return true;
    }
    if wire::is_pending(approval.state()) {
        return true;
    }
    let row = match ExecutionName::parse("execution", &approval.execution) {
        Ok(execution) => registry.reads.find(&execution).await,
        Err(status) => Err(status),
    };
    match row {
        Ok(row) if row.summary.ended => {
            return report_late_decision(registry, row.key, approval).await;
        }
        Ok(row) => {
            if let Some(Delivery { approval, answer }) = registry.unless_unowned(row.key, delivery) {
                registry.send(row, Command::Decided { approval: Box::new(approval), answer }).await;
            }
        }
        Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => {
            tracing::warn!(approval = name, "Dropped a decision for an execution that this journal does not have");
            GateNotice::dropped(approval).into_iter().for_each(|notice| registry.notify_gate(notice));
        }
        Err(status) => {
            tracing::error!(approval = name, %status, "A decision cannot be delivered now; it will be delivered again");
            return false;
        }
    }
    true
}

/// Reports to the gate how a decision that no call waits for was used. Returns `false` when the store cannot be read now; damaged events are
/// not read again before the next start.
pub(crate) async fn report_late_decision(
    registry: &ExecutionRegistry,
    key: ExecutionKey,
    approval: &v1::Approval,
) -> bool {
    match registry.reads.events(key).await {
        Ok(StoredEvents { events, .. }) => {
            let notices = outcome::notices_from(&events, approval);
            tracing::debug!(approval = approval.name, ?notices, "No call waits for this decision");
            notices.into_iter().for_each(|notice| registry.notify_gate(notice));
            true
        }
        Err(status) => {
            tracing::error!(approval = approval.name, %status, "The use of an approval cannot be read");
            status.code() != Code::Unavailable
        }
    }
}

/// Decisions about executions that another executor may own: they stay undelivered, and are kept in case this executor takes over the
/// execution.
#[derive(Default)]
pub(crate) struct UnownedDecisions {
    /// This executor drives every execution in the store.
    none: bool,
    /// By execution, then by the approval's name.
    kept: HashMap<ExecutionKey, BTreeMap<String, Delivery>>,
}

impl UnownedDecisions {
    /// Returns the decision when this executor drives its execution, else keeps it.
    pub(crate) fn keep(&mut self, key: ExecutionKey, driven: bool, delivery: Delivery) -> Option<Delivery> {
        if self.none || driven {
            return Some(delivery);
        }
        self.kept.entry(key).or_default().insert(delivery.approval.name.clone(), delivery);
        None
    }

    /// Removes and returns the decisions kept for an execution that this executor drives from now on.
    pub(crate) fn claim(&mut self, key: ExecutionKey) -> Vec<Delivery> {
        self.kept.remove(&key).unwrap_or_default().into_values().collect()
    }

    /// This executor drives every execution from now on: removes and returns all decisions kept.
    pub(crate) fn claim_all(&mut self) -> Vec<Delivery> {
        self.none = true;
        std::mem::take(&mut self.kept).into_values().flat_map(BTreeMap::into_values).collect()
    }
}

/// A message to the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GateNotice {
    /// The decision, which does not approve, is stored; or no call waits for it.
    Delivered(String),
    /// The grant was spent.
    Consumed(String),
    /// The grant can no longer be spent.
    Stale(String),
    /// No call waits for this decision any more.
    Cancel(String),
    /// No approval is needed for this call any more, and it is not known whether the gate has one.
    Withdraw { execution: String, call: String },
}

impl GateNotice {
    /// The notices about a decision that no call waits for: it was delivered, and an approval will not be used.
    fn dropped(approval: &v1::Approval) -> Vec<Self> {
        let unused = approval.state() == State::Approved;
        let stale = unused.then(|| Self::Stale(approval.name.clone()));
        [Self::Delivered(approval.name.clone())].into_iter().chain(stale).collect()
    }
}

/// The outbox: sends notices in order until the gate has accepted them.
pub(crate) async fn run_outbox(gate: Gate, mut notices: mpsc::UnboundedReceiver<GateNotice>) {
    let mut batch = Vec::new();
    while notices.recv_many(&mut batch, 1000).await > 0 {
        let mut acknowledged = gate_v1::AcknowledgeApprovalsRequest::default();
        for notice in batch.drain(..) {
            match notice {
                GateNotice::Delivered(name) => acknowledged.delivered.push(name),
                GateNotice::Consumed(name) => acknowledged.consumed.push(name),
                GateNotice::Stale(name) => acknowledged.stale.push(name),
                GateNotice::Cancel(name) => until_accepted(|| gate.cancel(name.clone())).await,
                GateNotice::Withdraw { execution, call } => until_accepted(|| withdraw(&gate, &execution, &call)).await,
            }
        }
        if acknowledged != gate_v1::AcknowledgeApprovalsRequest::default() {
            until_accepted(|| gate.acknowledge(acknowledged.clone())).await;
        }
    }
}

async fn withdraw(gate: &Gate, execution: &str, call: &str) -> Result<(), GateError> {
    for name in gate.pending_for_call(execution, call).await? {
        gate.cancel(name).await?;
    }
    Ok(())
}

async fn until_accepted<F: Future<Output = Result<(), GateError>>>(send: impl Fn() -> F) {
    let (mut backoff, longest) = BACKOFF;
    loop {
        match send().await {
            Ok(()) => return,
            Err(GateError::Refused(status)) => {
                tracing::warn!(%status, "The approval gate rejects a notice");
                return;
            }
            Err(GateError::Unavailable(status) | GateError::Busy(status)) => {
                tracing::debug!(%status, "The approval gate is not available; retrying a notice");
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(longest);
            }
        }
    }
}
