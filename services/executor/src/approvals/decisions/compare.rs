//! Compares what executions ask with what the gate asks people, and reconciles the two.
//!
//! They differ after the gate's store was restored or replaced, and after a crash between a commit of the executor and its notice to the gate. The
//! row of a parked execution has a digest of what it asks, and the gate lists what is pending: an execution is loaded only when the two do not
//! match. Its driver then requests what the gate lacks, and withdraws what nothing waits for.

use std::{collections::HashMap, sync::Arc};

use belay_defects::{Defect, is_planted};
use belay_journal::{AnyOf, Condition, ExecutionRow, Order, Query, StoreError};
use belay_proto::{
    stores::{Position, Service},
    v1,
};
use belay_service_kit::Retry;
use tonic::Code;

use crate::{
    approvals::{asks, gate::GateError},
    names::ExecutionName,
    owned::{
        messages::{Command, GateNotice},
        registry::{COMPARISONS, ExecutionRegistry},
    },
};

/// How many parked executions are read at a time.
const PAGE: usize = 256;

/// The gate's store as one process has opened it: while it is the same, nothing is lost. `None` when the gate does not say.
pub(super) fn run_of_gate(registry: &ExecutionRegistry) -> Option<Position> {
    registry.stores.known(Service::Gate).map(|position| Position { commit: 0, ..position })
}

/// Compares until it has succeeded once.
pub(super) async fn run(registry: &Arc<ExecutionRegistry>) {
    if is_planted(Defect::LostApprovalNotRecreated) {
        return;
    }
    let mut retry = Retry::RPC;
    while let Err(why) = compare(registry).await {
        tracing::warn!(why, "It cannot be determined what the approval gate lacks; retrying");
        retry.pause(&registry.ids).await;
    }
}

async fn compare(registry: &Arc<ExecutionRegistry>) -> Result<(), String> {
    // By the number of the execution: the digest of what the gate asks about it.
    let mut at_gate: HashMap<u64, u64> = HashMap::new();
    let mut pages = Pages::of_all();
    while let Some(approvals) = pages.next(registry).await? {
        for approval in &approvals {
            let digest = at_gate.entry(asks::number_of(&approval.execution)).or_default();
            *digest = digest.wrapping_add(asks::of_approval(approval));
        }
    }
    // What an execution in memory asks may not be in its row.
    let mut live = registry.live_keys();
    live.sort_unstable();
    for key in live {
        let row = registry.reads.read(move |reader| reader.get(key)).await.map_err(unreadable)?;
        if let Some(row) = row.filter(|row| !row.summary.ended) {
            let is_asked = at_gate.remove(&number(&row)).is_some();
            reconcile(registry, row, is_asked).await?;
        }
    }
    let mut namespace = String::new();
    loop {
        let after = namespace.clone();
        let next = registry.reads.read(move |reader| reader.namespaces(&after, 1)).await.map_err(unreadable)?.pop();
        let Some(next) = next else { break };
        namespace.clone_from(&next);
        let mut query = waiting_for_people(next);
        loop {
            let asked = query.clone();
            let page = registry.reads.read(move |reader| reader.list(&asked)).await.map_err(unreadable)?;
            for row in page.rows {
                let found = at_gate.remove(&number(&row));
                if found.unwrap_or(0) != row.summary.asks && registry.is_driven(row.key) {
                    reconcile(registry, row, found.is_some()).await?;
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
    }
    withdraw_the_rest(registry, at_gate).await?;
    // Until everything that was found to be missing has been requested.
    drop(registry.comparisons.acquire_many(COMPARISONS).await);
    Ok(())
}

/// Withdraws what the gate asks about executions of which nothing waits for a person.
async fn withdraw_the_rest(registry: &Arc<ExecutionRegistry>, mut rest: HashMap<u64, u64>) -> Result<(), String> {
    let mut pages = Pages::of_all();
    while !rest.is_empty() {
        let Some(approvals) = pages.next(registry).await? else { break };
        for approval in approvals {
            if rest.remove(&asks::number_of(&approval.execution)).is_none() {
                continue;
            }
            let found = match ExecutionName::parse("execution", &approval.execution) {
                Ok(name) => registry.reads.find(&name).await,
                Err(status) => Err(status),
            };
            match found {
                Ok(row) if row.summary.ended => {
                    let mut pages = Pages::of(&row);
                    while let Some(approvals) = pages.next(registry).await? {
                        for approval in approvals {
                            tracing::info!(
                                approval = approval.name,
                                "The subject of an approval has ended; it is cancelled"
                            );
                            registry.notify_gate(GateNotice::Cancel(approval.name));
                        }
                    }
                }
                Ok(row) if registry.is_driven(row.key) => reconcile(registry, row, true).await?,
                Ok(_) => {}
                // It belongs to another executor.
                Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => {}
                Err(status) => {
                    tracing::warn!(approval = approval.name, %status, "It cannot be determined whether an approval is still needed");
                }
            }
        }
    }
    Ok(())
}

/// Lets the driver of an execution compare. `is_asked`: the gate has something of it.
async fn reconcile(registry: &Arc<ExecutionRegistry>, row: ExecutionRow, is_asked: bool) -> Result<(), String> {
    let turn = Arc::clone(&registry.comparisons).acquire_owned().await.map_err(|error| error.to_string())?;
    let mut pending = Vec::new();
    if is_asked {
        let mut pages = Pages::of(&row);
        while let Some(approvals) = pages.next(registry).await? {
            pending.extend(approvals);
        }
    }
    registry.send(row, Command::CompareApprovals { pending, turn: Arc::new(turn) }).await;
    Ok(())
}

/// The executions of a namespace that wait for an approval or for the answer to a form.
fn waiting_for_people(namespace: String) -> Query {
    use v1::waiting_reason::Kind;
    let waits_for = [Kind::Approval, Kind::Form].map(|kind| Condition::WaitsFor(true, kind.into()));
    let filter = vec![AnyOf(waits_for.into())];
    Query { namespace: Some(namespace), filter, order: Order::NEWEST_FIRST, after: None, limit: PAGE }
}

/// The gate's pending approvals, page by page.
struct Pages {
    parent: String,
    execution: String,
    /// `None` after the last page.
    token: Option<String>,
}

impl Pages {
    fn of_all() -> Self {
        Self { parent: "namespaces/-".into(), execution: String::new(), token: Some(String::new()) }
    }

    fn of(row: &ExecutionRow) -> Self {
        let parent = format!("namespaces/{}", row.execution.namespace);
        Self { parent, execution: name(row).to_string(), token: Some(String::new()) }
    }

    async fn next(&mut self, registry: &ExecutionRegistry) -> Result<Option<Vec<v1::Approval>>, String> {
        let Some(token) = self.token.take() else { return Ok(None) };
        let page = registry.gate.open(&self.parent, &self.execution, token).await.map_err(|error| {
            let (GateError::Unavailable(status) | GateError::Busy(status) | GateError::Refused(status)) = error;
            format!("the approval gate does not return its pending approvals: {status}")
        })?;
        self.token = Some(page.next_page_token).filter(|token| !token.is_empty());
        Ok(Some(page.approvals))
    }
}

fn name(row: &ExecutionRow) -> ExecutionName {
    ExecutionName { namespace: row.execution.namespace.clone(), id: row.execution.id.clone() }
}

fn number(row: &ExecutionRow) -> u64 {
    asks::number_of(&name(row).to_string())
}

fn unreadable(error: StoreError) -> String {
    format!("the store cannot be read: {error}")
}
