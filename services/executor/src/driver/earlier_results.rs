//! Earlier results of calls, in the newest executions of the same plan that the same principal has started: each may take the place of the result of the same call when that has failed, and the
//! plan says so (S4-29).
//!
//! Executions that work in directories that requests named have to work in the same one; all of those that work in folders made for them count as one place,
//! since each begins with an empty one.

use std::{collections::HashMap, sync::Arc, time::Duration};

use belay_execution::{CallIdentity, EarlierResult, Execution, Payload, Timestamp, Workspace};
use belay_journal::{AnyOf, Condition, ExecutionKey, ExecutionRow, Order, Query};
use tonic::{Code, Status};

use crate::{
    blobs::{Opener, owner},
    journal_reads::{JournalReads, unreadable},
    names::ExecutionName,
    replayed::Replayed,
    secrets::Secrets,
};

/// How many executions are looked at, the newest first. Reading the largest takes some hundred milliseconds.
const MAX_EXECUTIONS: usize = 20;

/// For how long what was found serves without looking again, so that a list whose 10,000 entries all fail reads no more executions than one step does.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How many bytes of results are kept at most; those of the newest executions come first.
const MAX_BYTES: u64 = 16 << 20;

/// What was found at a time.
pub(super) struct EarlierResults {
    found_at: Timestamp,
    by_call: HashMap<CallIdentity, Found>,
}

/// A result, and where it is from.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) result: Payload,
    pub(super) completed_at: Timestamp,
    pub(super) origin: Arc<Origin>,
}

/// An execution that has returned results.
pub(super) struct Origin {
    pub(super) name: ExecutionName,
    uid: String,
    pub(super) secrets: Secrets,
}

impl Origin {
    /// What opens its blobs; `None` when it has none.
    pub(super) fn opener(&self) -> Option<Opener> {
        let key = self.secrets.own_key()?.clone();
        Some(Opener { owner: owner(&self.name), uid: self.uid.as_str().into(), key })
    }
}

impl EarlierResults {
    /// Whether it serves without looking again.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        now.since(self.found_at) < KEPT_FOR
    }

    /// The last result of the same call.
    pub(super) fn get(&self, call: &CallIdentity) -> Option<Found> {
        self.by_call.get(call).cloned()
    }

    /// Reads the newest executions of a plan, but for the one with this name, which asks.
    ///
    /// # Errors
    /// Why one of them, or the list of them, cannot be read now, and perhaps later.
    pub(super) async fn find(
        reads: &JournalReads,
        name: &ExecutionName,
        (key, execution): (ExecutionKey, &Execution),
        now: Timestamp,
    ) -> Result<Self, Status> {
        let query = Query {
            namespace: Some(name.namespace.clone()),
            filter: vec![AnyOf(vec![Condition::PlanId(true, execution.plan().id().to_owned())])],
            order: Order::NEWEST_FIRST,
            after: None,
            // This one is among them.
            limit: MAX_EXECUTIONS + 1,
        };
        let page = reads.read(|reader| reader.list(&query)).await.map_err(|error| unreadable(&error))?;
        let (mut by_call, mut bytes) = (HashMap::new(), 0);
        // What another principal's execution has returned is theirs.
        let is_other = |row: &ExecutionRow| row.key != key && row.execution.principal == execution.principal();
        for row in page.rows.into_iter().filter(is_other) {
            let ExecutionRow { key, execution: row, .. } = row;
            let Replayed { execution: other, secrets, .. } = match reads.replay(key).await {
                Ok(replayed) => replayed,
                Err(status) if status.code() == Code::Unavailable => return Err(status),
                // It was deleted meanwhile, or cannot be read, which is for those to mend who read it.
                Err(_) => continue,
            };
            if !same_place(execution, &other) {
                continue;
            }
            let name = ExecutionName { namespace: row.namespace, id: row.id };
            let origin = Arc::new(Origin { name, uid: other.created().uid.clone(), secrets });
            for EarlierResult { call, result, completed_at } in latest(&other) {
                let held = result.inline().map_or(0, |json| json.as_str().len() as u64);
                if bytes + held <= MAX_BYTES && !by_call.contains_key(call) {
                    bytes += held;
                    let (result, origin) = (result.clone(), Arc::clone(&origin));
                    by_call.insert(call.clone(), Found { result, completed_at: *completed_at, origin });
                }
            }
        }
        Ok(Self { found_at: now, by_call })
    }
}

/// The results of an execution, the last to be returned first.
fn latest(execution: &Execution) -> Vec<&EarlierResult> {
    let mut results: Vec<&EarlierResult> = execution.earlier_results().collect();
    results.sort_by_key(|result| std::cmp::Reverse(result.completed_at));
    results
}

/// Whether the same call means the same in both.
fn same_place(one: &Execution, other: &Execution) -> bool {
    match (&one.created().workspace, &other.created().workspace) {
        (Workspace::Directory(one), Workspace::Directory(other)) => one == other,
        (Workspace::MadeFolder(_), Workspace::MadeFolder(_)) => true,
        (Workspace::Directory(_), Workspace::MadeFolder(_)) | (Workspace::MadeFolder(_), Workspace::Directory(_)) => {
            false
        }
    }
}
