//! The calls this runner knows of.
//!
//! Here is what is asked about calls, and who may ask. How one runs stands in `run`, how it comes to wait for a decision in `ask`, what is
//! done about that in `holds`, how its effect is put in place in `commit`, and what is made of a ledger at the start in `recover`.

mod ask;
mod commit;
mod decide;
mod effect;
mod forgotten;
mod holds;
mod record;
mod recover;
mod run;
mod span;
mod work;

pub(crate) use decide::too_weak;
pub(crate) use record::{json_of, timed_out};

use std::{
    collections::{HashMap, hash_map::Entry as Slot},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use belay_policy::Revised;
use belay_proto::{
    stores::Stores,
    v1::{self, ErrorClass, tool_call::State},
};
use belay_reasons as reasons;
use belay_service_kit::{Clock, Limit, Taken, status};
use belay_sqlite::SqliteError;
use belay_telemetry::{RpcSpan, Telemetry, TraceContext};
use tokio::sync::watch;
use tonic::{Code, Status, metadata::MetadataMap};

use crate::{
    Ledger, LedgerFailure, PolicyHolder, Registry, ToolFailure,
    acknowledgements::Acknowledgements,
    lanes::Lanes,
    ledger::{Entry, Row, Written},
    output::Kept,
    registry::Registered,
    secrets::CallSecrets,
    workspace_locks::Rooms,
    workspaces::Chosen,
};
use forgotten::Forgotten;
use record::{failure, payload};

/// The calls this runner knows of.
pub struct Calls {
    pub(crate) registry: Registry,
    pub(crate) enforcement: v1::EnforcementReport,
    pub(crate) rooms: Arc<Rooms>,
    policy: Arc<PolicyHolder>,
    ledger: Arc<Ledger>,
    acknowledgements: Arc<Acknowledgements>,
    clock: Arc<dyn Clock>,
    telemetry: Telemetry,
    lanes: Lanes,
    /// How many calls may be under way at once.
    limit: Limit,
    fences: Mutex<HashMap<i32, i64>>,
    known: Mutex<HashMap<String, Call>>,
    forgotten: Mutex<Forgotten>,
}

/// How far a call is.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    /// It works.
    Running,
    /// What was decided about it is being done.
    Settling,
    /// It waits for a decision.
    Held(Arc<v1::ToolCall>),
    /// It has ended.
    Ended(Arc<v1::ToolCall>),
    /// Whether its row was written is not known: the next start of the runner finds it out.
    Unresolved,
}

impl Progress {
    /// Whether it goes on by itself.
    fn is_under_way(&self) -> bool {
        matches!(self, Self::Running | Self::Settling)
    }
}

/// One call, to be followed.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) name: String,
    pub(crate) progress: watch::Receiver<Progress>,
    /// The call that has the workspace to itself, while this one waits for its end.
    pub(crate) waits_for: watch::Receiver<Option<Arc<str>>>,
    pub(crate) output: Arc<Kept>,
}

#[derive(Clone)]
struct Call {
    /// The digest of what was asked; empty for a tombstone, which fits anything.
    digest: Arc<str>,
    progress: Arc<watch::Sender<Progress>>,
    cancel: Arc<watch::Sender<bool>>,
    /// The call that has the workspace to itself, while this one waits for its end.
    waits_for: Arc<watch::Sender<Option<Arc<str>>>>,
    output: Arc<Kept>,
    /// What is known while it runs.
    started: Arc<v1::ToolCall>,
    /// What hides its secrets in what is shown of it.
    secrets: Arc<CallSecrets>,
}

/// The policy under which a new call begins, and its place among those that may be under way.
type Beginning = (Arc<Revised>, Taken);

/// A call to make, checked as far as it can be without the tool.
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) tool: Arc<Registered>,
    pub(crate) arguments: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) workspace: Chosen,
    /// Nobody else is to commit in the workspace while it runs.
    pub(crate) exclusive: bool,
    pub(crate) grant: Option<v1::Grant>,
    /// The fencing token of the owner that asks.
    pub(crate) token: i64,
    /// Where it belongs, if its caller says so.
    pub(crate) trace: Option<TraceContext>,
}

impl Calls {
    /// How far the ledger has come, and what it remembers of other services' stores.
    pub fn stores(&self) -> &Arc<Stores> {
        self.ledger.stores()
    }

    pub(crate) fn ledger_id(&self) -> &str {
        self.ledger.id()
    }

    /// The policy that is enforced, to be offered newer ones.
    pub fn policy(&self) -> &Arc<PolicyHolder> {
        &self.policy
    }

    /// Begins to answer a request.
    pub(crate) fn answering(&self, method: &'static str, metadata: &MetadataMap) -> RpcSpan {
        RpcSpan::begin(&self.telemetry, method, TraceContext::of(metadata), self.clock.now_micros())
    }

    /// Has answered it.
    pub(crate) fn answered<T>(&self, request: RpcSpan, answer: &Result<T, Status>) {
        request.end(answer, self.clock.now_micros());
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Call>> {
        lock(&self.known)
    }

    /// Refuses an owner that was replaced, and remembers a newer one before anything is done for it.
    pub(crate) async fn admit(&self, fence: Option<v1::Fence>) -> Result<(), Status> {
        let v1::Fence { shard, token } = fence.unwrap_or_default();
        let newest = lock(&self.fences).get(&shard).copied().unwrap_or(0);
        if token < newest {
            let message = format!("Shard {shard} has another owner: fence {token} is older than {newest}.");
            return Err(status::error(Code::FailedPrecondition, reasons::FENCED, message)
                .with("newest", newest)
                .into());
        }
        if token > newest {
            self.ledger.write(Entry::Fence { shard, token }).await.map_err(not_durable)?;
            let mut fences = lock(&self.fences);
            let highest = fences.entry(shard).or_insert(token);
            *highest = (*highest).max(token);
        }
        Ok(())
    }

    /// Runs a call, or attaches to the one of this name. One that was held back before its work goes on if the order brings its grant.
    pub(crate) async fn call(self: &Arc<Self>, order: Order) -> Result<Followed, Status> {
        let digest: Arc<str> = crate::service::digest(&order).into();
        let (call, is_new) = self.find_or_begin(&order, &digest)?;
        if !call.digest.is_empty() && call.digest != digest {
            let message =
                format!("{} was asked for before with another tool, workspace or other arguments.", order.name);
            return Err(status::error(Code::AlreadyExists, reasons::CALL_EXISTS, message).into());
        }
        let followed = call.followed();
        match is_new {
            Some((policy, taken)) => self.spawn_run(call, order, policy, None, Some(taken)),
            None if order.grant.is_some() => self.resume(call, order).await?,
            None => {}
        }
        Ok(followed)
    }

    /// The call of this name; a new one with what it begins with.
    fn find_or_begin(&self, order: &Order, digest: &Arc<str>) -> Result<(Call, Option<Beginning>), Status> {
        let mut known = self.known();
        let slot = match known.entry(order.name.clone()) {
            Slot::Occupied(call) => return Ok((call.get().clone(), None)),
            Slot::Vacant(slot) => slot,
        };
        if lock(&self.forgotten).holds(&order.name, order.token) || self.acknowledgements.holds(&order.name) {
            let message = format!("{} has ended, and its outcome was acknowledged: this request was late.", order.name);
            return Err(status::error(Code::FailedPrecondition, reasons::CALL_ACKNOWLEDGED, message).into());
        }
        self.refuse_if_broken()?;
        let policy = self.policy_now()?;
        let taken = self.limit.take()?;
        let started = v1::ToolCall {
            name: order.name.clone(),
            tool: order.tool.spec.name.into(),
            state: State::Running.into(),
            arguments: Some(payload(order.arguments.clone())),
            arguments_digest: crate::service::arguments_digest(&order.arguments),
            recovery: order.tool.spec.recovery.to_proto().into(),
            start_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            ..v1::ToolCall::default()
        };
        let secrets = self.ledger.secrets_of(&started.tool, &order.arguments);
        let call = slot.insert(Call::new(Arc::clone(digest), Progress::Running, started, secrets)).clone();
        Ok((call, Some((policy, taken))))
    }

    fn policy_now(&self) -> Result<Arc<Revised>, Status> {
        self.policy.current().ok_or_else(|| {
            let message =
                "This runner has no policy yet: the approval gate must be reachable once before anything may run.";
            status::error(Code::Unavailable, reasons::POLICY_MISSING, message).into()
        })
    }

    /// What is known of a call.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<v1::ToolCall>, Status> {
        Ok(self.find(name)?.now())
    }

    /// Follows a call.
    pub(crate) fn attach(&self, name: &str) -> Result<Followed, Status> {
        Ok(self.find(name)?.followed())
    }

    /// Begins nothing more once the ledger cannot be written.
    fn refuse_if_broken(&self) -> Result<(), Status> {
        self.ledger.failure().map_or(Ok(()), |error| Err(not_durable(error)))
    }

    fn find(&self, name: &str) -> Result<Call, Status> {
        let known = self.known().get(name).cloned();
        if known.is_none() {
            // The row of a call that is not known here may have been written all the same.
            self.refuse_if_broken()?;
        }
        known.ok_or_else(|| {
            let message = format!("No call {name} ever arrived here.");
            status::error(Code::NotFound, reasons::CALL_NOT_FOUND, message).with("ledger_id", self.ledger.id()).into()
        })
    }

    /// Stops a call and answers when it has ended. One that never arrived is forbidden.
    pub(crate) async fn cancel(self: &Arc<Self>, name: &str) -> Result<Arc<v1::ToolCall>, Status> {
        loop {
            let known = self.known().get(name).cloned();
            let Some(call) = known else {
                if let Some(ended) = self.forbid(name).await? {
                    return Ok(ended);
                }
                continue;
            };
            call.cancel.send_replace(true);
            match call.settled().await? {
                Progress::Ended(ended) => return Ok(ended),
                // It came to be held before it heard.
                Progress::Held(_) | Progress::Running | Progress::Settling | Progress::Unresolved => {
                    self.give_up(&call, State::Cancelled, failure(record::cancelled())).await?;
                }
            }
        }
    }

    /// Leaves a tombstone for a call that never arrived; nothing when it arrived just now.
    async fn forbid(&self, name: &str) -> Result<Option<Arc<v1::ToolCall>>, Status> {
        let failed =
            ToolFailure::new(ErrorClass::Cancelled, reasons::CANCELLED, "The call was cancelled before it arrived.");
        let tombstone = v1::ToolCall {
            name: name.to_owned(),
            state: State::Cancelled.into(),
            failure: Some(failure(failed)),
            end_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            receipt: Some(v1::Receipt { ledger_id: self.ledger.id().into(), ..v1::Receipt::default() }),
            ..v1::ToolCall::default()
        };
        // In memory first, so that the call cannot slip in while the row is written; a row that fails takes it back. Nobody is told of
        // its end before the row is there.
        let secrets = self.ledger.secrets_of("", "");
        let call = Call::new("".into(), Progress::Running, tombstone.clone(), secrets);
        match self.known().entry(name.to_owned()) {
            Slot::Vacant(slot) => slot.insert(call.clone()),
            Slot::Occupied(_) => return Ok(None),
        };
        let row =
            Row { digest: String::new(), ended: true, call: tombstone.clone(), staged: None, held: None, spends: None };
        if let Err(error) = self.write(row).await {
            self.known().remove(name);
            return Err(not_durable(error));
        }
        let ended = Arc::new(tombstone);
        call.progress.send_replace(Progress::Ended(Arc::clone(&ended)));
        Ok(Some(ended))
    }

    /// The names of the calls that have ended and that nobody has acknowledged, sorted.
    pub(crate) fn unacknowledged(&self) -> Vec<String> {
        let known = self.known();
        let ended = known.iter().filter(|(_, call)| matches!(*call.progress.borrow(), Progress::Ended(_)));
        let mut names: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        drop(known);
        names.sort_unstable();
        names
    }

    /// Forgets calls whose outcome the executor has stored. `token`: its fencing token.
    pub(crate) fn acknowledge(&self, names: Vec<String>, token: i64) {
        let mut known = self.known();
        let has_ended = |call: &Call| matches!(*call.progress.borrow(), Progress::Ended(_));
        let ended: Vec<String> = names.into_iter().filter(|name| known.get(name).is_some_and(has_ended)).collect();
        // Before a call of the same name could begin anew.
        self.acknowledgements.acknowledged(ended.clone());
        let mut forgotten = lock(&self.forgotten);
        for name in ended {
            known.remove(&name);
            forgotten.add(name, token);
        }
    }

    /// Returns when the ledger cannot be written any more, with the reason: the process should stop, and what is unresolved is found out at
    /// the next start.
    pub async fn failed(&self) -> SqliteError {
        self.ledger.failed().await
    }

    /// Brings onto the disk what could wait, and lets the ledger forget what is done. To be called when no request is answered any more;
    /// whoever does not leaves the next start a little more to do.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub async fn close(&self) -> Result<(), LedgerFailure> {
        self.rooms.sync().await;
        self.acknowledgements.write().await
    }

    /// Writes a row.
    async fn write(&self, row: Row) -> Result<Written, crate::LedgerFailure> {
        self.ledger.write(Entry::Call(Box::new(row))).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Call {
    fn new(digest: Arc<str>, progress: Progress, started: v1::ToolCall, secrets: Arc<CallSecrets>) -> Self {
        Self {
            digest,
            progress: Arc::new(watch::Sender::new(progress)),
            cancel: Arc::new(watch::Sender::new(false)),
            waits_for: Arc::new(watch::Sender::new(None)),
            output: Arc::new(Kept::new(secrets.redactor())),
            started: Arc::new(started),
            secrets,
        }
    }

    fn followed(&self) -> Followed {
        Followed {
            name: self.started.name.clone(),
            progress: self.progress.subscribe(),
            waits_for: self.waits_for.subscribe(),
            output: Arc::clone(&self.output),
        }
    }

    fn now(&self) -> Arc<v1::ToolCall> {
        match &*self.progress.borrow() {
            Progress::Running | Progress::Settling | Progress::Unresolved => Arc::clone(&self.started),
            Progress::Held(call) | Progress::Ended(call) => Arc::clone(call),
        }
    }

    fn is_held(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::Held(_))
    }

    /// Answers when it neither works nor is being settled.
    async fn settled(&self) -> Result<Progress, Status> {
        settled(&mut self.progress.subscribe()).await
    }

    /// Takes a call that waits in hand, which is `next` from then on; nothing when it does not wait.
    fn take_in_hand(&self, next: Progress) -> Option<Arc<v1::ToolCall>> {
        let mut waited = None;
        self.progress.send_if_modified(|progress| {
            if let Progress::Held(call) = progress {
                waited = Some(Arc::clone(call));
                *progress = next;
            }
            waited.is_some()
        });
        waited
    }
}

/// Answers when a call neither works nor is being settled.
pub(crate) async fn settled(progress: &mut watch::Receiver<Progress>) -> Result<Progress, Status> {
    match progress.wait_for(|progress| !progress.is_under_way()).await.as_deref() {
        Ok(Progress::Unresolved) => Err(unresolved()),
        Ok(progress) => Ok(progress.clone()),
        Err(_) => {
            Err(status::error(Code::Unavailable, reasons::RUNNER_STOPPING, "The tool runner is stopping.").into())
        }
    }
}

/// Answers when a call is to stop.
async fn stop_asked(cancelled: &mut watch::Receiver<bool>) {
    if cancelled.wait_for(|cancel| *cancel).await.is_err() {
        // Nobody is left who could ask.
        std::future::pending().await
    }
}

/// The answer about a call of which it is not known whether its row was written.
pub(crate) fn unresolved() -> Status {
    let message = "The ledger of calls cannot be written, and whether it says what became of this call is found out when the runner has \
                   been restarted: ask again.";
    status::error(Code::Unavailable, reasons::LEDGER_UNAVAILABLE, message).into()
}

fn not_durable(error: impl std::fmt::Display) -> Status {
    status::error(
        Code::Unavailable,
        reasons::LEDGER_UNAVAILABLE,
        format!("The ledger of calls cannot be written: {error}."),
    )
    .into()
}
