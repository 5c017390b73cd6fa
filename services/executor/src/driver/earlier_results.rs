//! Earlier results of calls, in the newest executions of the same plan that the same principal has started: each may take the place of the result of the same call when that has failed, and the
//! plan says so (S4-29).
//!
//! Executions that work in directories that requests named have to work in the same one; all of those that work in folders made for them count as one place,
//! since each begins with an empty one.

use std::{collections::HashMap, sync::Arc, time::Duration};

use belay_execution::{CallIdentity, EarlierResult, Execution, Payload, Timestamp, Workspace};
use belay_journal::{AnyOf, Condition, ExecutionKey, ExecutionRow, Order, Query};
use serde_json::Value;
use tonic::Status;

use crate::{
    names::ExecutionName,
    store::{
        blobs::{Opener, owner},
        journal_reads::{JournalReads, unreadable},
        replayed_execution::ReplayedExecution,
        secrets::Secrets,
    },
};

/// How many executions are read, the newest first: each is folded from its events or its snapshot.
const MAX_EXECUTIONS: usize = 20;

/// How many rows are read at a time, and how often: as many are looked through for those of the same principal.
const PAGE: usize = 100;
const MAX_PAGES: usize = 5;

/// For how long what was found serves without looking again, so that a list whose 10,000 entries all fail reads no more executions than one step does.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How many bytes of results are kept at most; those of the newest executions come first.
const MAX_BYTES: u64 = 16 << 20;

/// Results that were found at one time.
pub(super) struct EarlierResults {
    found_at: Timestamp,
    by_call: HashMap<CallIdentity, ResultWithOrigin>,
}

/// A result with its origin.
#[derive(Clone)]
pub(super) struct ResultWithOrigin {
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
    /// The opener of its blobs; `None` when it has none.
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
    pub(super) fn get(&self, call: &CallIdentity) -> Option<ResultWithOrigin> {
        self.by_call.get(call).cloned()
    }

    /// Reads the newest executions of a plan, but for the one that asks and, where that is the execution of a step's plan, the others of its parent.
    ///
    /// # Errors
    /// Why the list of them cannot be read now, and perhaps later.
    pub(super) async fn find(
        reads: &JournalReads,
        name: &ExecutionName,
        (key, parent, execution): (ExecutionKey, Option<ExecutionKey>, &Execution),
        now: Timestamp,
    ) -> Result<Self, Status> {
        let mut query = Query {
            namespace: Some(name.namespace.clone()),
            filter: vec![AnyOf(vec![Condition::PlanId(true, execution.plan().id().to_owned())])],
            order: Order::NEWEST_FIRST,
            after: None,
            limit: PAGE,
        };
        let (mut by_call, mut bytes, mut looked_at) = (HashMap::new(), 0, 0);
        for _ in 0..MAX_PAGES {
            let page = reads.read(|reader| reader.list(&query)).await.map_err(|error| unreadable(&error))?;
            // What another principal's execution has returned is theirs; the executions of one list's entries have begun together.
            let is_candidate = |row: &&ExecutionRow| {
                let siblings = parent.is_some() && row.execution.parent.as_ref().map(|other| other.execution) == parent;
                row.key != key && row.execution.principal == execution.principal() && !siblings
            };
            for row in page.rows.iter().filter(is_candidate) {
                // One that was deleted meanwhile has no results, nor has one that cannot be read.
                let Ok(ReplayedExecution { execution: other, secrets, .. }) = reads.replay(row.key).await else {
                    continue;
                };
                looked_at += 1;
                let (namespace, id) = (row.execution.namespace.clone(), row.execution.id.clone());
                let name = ExecutionName { namespace, id };
                let origin = Arc::new(Origin { name, uid: other.created().uid.clone(), secrets });
                let of_same_place = if same_place(execution, &other) { latest(&other) } else { Vec::new() };
                for EarlierResult { call, result, completed_at } in of_same_place {
                    let held = result.inline().map_or(0, |json| json.as_str().len() as u64);
                    if bytes + held <= MAX_BYTES && !by_call.contains_key(call) {
                        bytes += held;
                        let (result, origin) = (result.clone(), Arc::clone(&origin));
                        by_call.insert(call.clone(), ResultWithOrigin { result, completed_at: *completed_at, origin });
                    }
                }
                if looked_at == MAX_EXECUTIONS {
                    return Ok(Self { found_at: now, by_call });
                }
            }
            let Some(next) = page.next else { break };
            query.after = Some(next);
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

/// Members of a context that identify a request, and not what is asked for.
const OF_A_REQUEST: [&str; 2] = ["traceId", "sessionId"];

/// Whether the same call means the same in both: programs read the workspace and the context.
fn same_place(one: &Execution, other: &Execution) -> bool {
    let same_workspace = match (&one.created().workspace, &other.created().workspace) {
        (Workspace::Directory(one), Workspace::Directory(other)) => one == other,
        (Workspace::MadeFolder(_), Workspace::MadeFolder(_)) => true,
        (Workspace::Directory(_), Workspace::MadeFolder(_)) | (Workspace::MadeFolder(_), Workspace::Directory(_)) => {
            false
        }
    };
    let context = |execution: &Execution| {
        let mut context = execution.context().map(|context| context.value());
        if let Some(members) = context.as_mut().and_then(Value::as_object_mut) {
            members.retain(|name, _| !OF_A_REQUEST.contains(&name.as_str()));
        }
        context
    };
    same_workspace && context(one) == context(other)
}
