//! The calls of this runner, running, waiting and ended.
//!
//! This file has the entry points. `call` is one call, `known` says which are in memory, `run` executes a call, `require_approval` suspends it for
//! approval, `approvals` resumes or discards it, `commit` applies its effect, and `recover` restores calls from the ledger at startup.

mod approvals;
mod caches;
mod call;
mod commit;
mod decide;
mod effect;
mod ended;
mod foresee;
mod forget;
mod job;
mod judge;
mod kept_results;
mod known;
mod layers;
mod recent_acknowledgements;
mod record;
mod recover;
mod require_approval;
mod run;
mod span;
mod step_layers;
mod stoppable;
mod work;

pub(crate) use call::{Progress, Subscription, unresolved};
pub(crate) use foresee::foresee;
pub(crate) use record::timed_out;
pub(crate) use step_layers::StepLayers;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_network::Profile;
use belay_proto::{
    runner_v1::{self, answer_tool_call_request::Reply},
    stores::Stores,
    v1::{self, ErrorClass, tool_call::State},
};
use belay_reasons as reasons;
use belay_service_kit::{Clock, Limit, Permit, status};
use belay_sqlite::SqliteError;
use belay_telemetry::{RpcSpan, Telemetry, TraceContext};
use tonic::{Code, Status, metadata::MetadataMap};

use crate::{
    Enforcement, Ledger, LedgerFailure, NetworkProblem, PolicyHolder, Recovery, Registry, ToolFailure,
    acknowledgements::Acknowledgements,
    digests::{arguments_digest, request_digest},
    lanes::Lanes,
    ledger::{Entry, Row, WriteOutcome},
    lock::lock,
    policy::CallPolicy,
    questions::Questions,
    registry::RegisteredTool,
    stop::Stop,
    workspace_locks::WorkspaceLocks,
    workspaces::ChosenWorkspace,
};
use call::{Call, cancel_requested, restore};
use ended::{Blob, EndedCall};
use kept_results::KeptResults;
use known::{CallLookup, KnownCalls};
use recent_acknowledgements::RecentAcknowledgements;
use record::{failure, payload};

/// The calls of this runner, running, waiting and ended.
pub struct Calls {
    pub(crate) registry: Registry,
    pub(crate) enforcement: Enforcement,
    pub(crate) workspaces: Arc<WorkspaceLocks>,
    policy: Arc<PolicyHolder>,
    ledger: Arc<Ledger>,
    acknowledgements: Arc<Acknowledgements>,
    clock: Arc<dyn Clock>,
    telemetry: Telemetry,
    lanes: Lanes,
    /// Bounds the calls that run at once.
    limit: Limit,
    fences: Mutex<HashMap<i32, i64>>,
    known: Mutex<KnownCalls>,
    /// Held while a call is read from the ledger, so that no caller gets it as it was before.
    loading: tokio::sync::Mutex<()>,
    recent: Mutex<RecentAcknowledgements>,
    kept: Mutex<KeptResults>,
    /// Results of more bytes than this are blobs.
    max_inline: usize,
    /// How many bytes of results are kept of calls that only read.
    max_kept_bytes: usize,
}

/// The policy that a new call runs under, and its slot in the limit of running calls.
type NewCall = (CallPolicy, Permit);

/// A validated `CallTool` request. Its arguments are checked against the tool's schema when it runs.
#[derive(Clone)]
pub(crate) struct CallRequest {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) tool: Arc<RegisteredTool>,
    pub(crate) arguments: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) workspace: ChosenWorkspace,
    /// No other call may commit in the workspace while this one runs.
    pub(crate) exclusive: bool,
    /// Its place among the calls of a step that have one effect.
    pub(crate) layers: Option<StepLayers>,
    pub(crate) grant: Option<runner_v1::Grant>,
    /// The fencing token of the executor that sent the request.
    pub(crate) token: i64,
    /// The trace context of the caller.
    pub(crate) trace: Option<TraceContext>,
    /// The context in which the plan was asked for, as JSON.
    pub(crate) context: Option<String>,
    /// The network profile that it asks for by name; empty for the default of its tool. Its identity has this name, whatever the settings say of it.
    pub(crate) asked_network: String,
    /// How to recover it.
    pub(crate) recovery: Recovery,
    /// The network profile of its command; `None` for its own loopback alone. With a problem it does not run, and is told only how an earlier request with its
    /// name ended.
    pub(crate) network: Result<Option<Arc<Profile>>, NetworkProblem>,
}

/// Refuses a request that cannot have its network, before anything of it runs.
fn check_network(request: &CallRequest) -> Result<(), Status> {
    match &request.network {
        Err(problem) => Err(status::invalid("network", problem.message()).into()),
        Ok(_) => Ok(()),
    }
}

impl CallRequest {
    /// How to recover the call.
    pub(crate) fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// The network profile of its command; `None` for its own loopback alone.
    pub(crate) fn network(&self) -> Option<&Profile> {
        self.network.as_ref().ok()?.as_deref()
    }
}

impl Calls {
    /// The ledger's position, and the positions of other services' stores that it remembers.
    pub fn stores(&self) -> &Arc<Stores> {
        self.ledger.stores()
    }

    pub(crate) fn ledger_id(&self) -> &str {
        self.ledger.id()
    }

    /// The policy that this runner enforces; [`PolicyHolder::offer`] replaces it.
    pub fn policy(&self) -> &Arc<PolicyHolder> {
        &self.policy
    }

    /// Starts the span of a request.
    pub(crate) fn start_span(&self, method: &'static str, metadata: &MetadataMap) -> RpcSpan {
        RpcSpan::begin(&self.telemetry, method, TraceContext::of(metadata), self.clock.now_micros())
    }

    /// Starts the span of an operation of a session.
    pub(crate) fn start_operation_span(&self, method: &'static str, trace: Option<v1::TraceContext>) -> RpcSpan {
        // An invalid trace context is ignored.
        let parent = trace.and_then(|trace| TraceContext::parse(&trace.traceparent, &trace.tracestate).ok());
        RpcSpan::begin(&self.telemetry, method, parent, self.clock.now_micros())
    }

    /// Ends the span of a request.
    pub(crate) fn end_span<T>(&self, span: RpcSpan, result: &Result<T, Status>) {
        span.end(result, self.clock.now_micros());
    }

    fn known(&self) -> MutexGuard<'_, KnownCalls> {
        lock(&self.known)
    }

    /// Rejects a request whose fencing token is older than the newest seen, and makes a newer token durable before the request is served.
    pub(crate) async fn admit(&self, fence: Option<runner_v1::Fence>) -> Result<(), Status> {
        let runner_v1::Fence { shard, token } = fence.unwrap_or_default();
        let newest = lock(&self.fences).get(&shard).copied().unwrap_or(0);
        if token < newest {
            let message =
                format!("Another executor owns shard {shard} now: fencing token {token} is older than {newest}.");
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

    /// Starts a call, or attaches to the existing call of this name. A call that waits for approval before its work resumes when the
    /// request carries its grant.
    pub(crate) async fn call(self: &Arc<Self>, request: CallRequest) -> Result<Subscription, Status> {
        let workspace = Some(request.workspace.path.as_path()).filter(|_| !request.workspace.own);
        let layers = request.layers.as_ref().map(StepLayers::identity).unwrap_or_default();
        let identity = (layers.as_str(), request.asked_network.as_str());
        let digest: Arc<str> = request_digest(request.tool.spec.name, workspace, &request.arguments, identity).into();
        let (call, is_new) = loop {
            match self.find_or_register(&request, &digest)? {
                Some(found) => break found,
                None => drop(self.look_up(&request.name).await?),
            }
        };
        let name = is_new.is_none().then(|| request.name.clone());
        let called = self.start_or_resume(call, request, &digest, is_new).await;
        if let Some(name) = name {
            self.unload(&name);
        }
        called
    }

    async fn start_or_resume(
        self: &Arc<Self>,
        call: Call,
        request: CallRequest,
        digest: &Arc<str>,
        is_new: Option<NewCall>,
    ) -> Result<Subscription, Status> {
        if !call.digest.is_empty() && call.digest != *digest {
            let message =
                format!("{} already exists with a different tool, workspace, network or arguments.", request.name);
            return Err(status::error(Code::AlreadyExists, reasons::CALL_EXISTS, message).into());
        }
        let subscription = call.subscription();
        match is_new {
            Some((policy, taken)) => self.spawn_run(call, request, policy, None, Some(taken)),
            None if request.grant.is_some() => self.resume(call, request).await?,
            None => {}
        }
        Ok(subscription)
    }

    /// Returns the call of this name, or registers a new one; `None` if it has to be read from the ledger before.
    fn find_or_register(
        &self,
        request: &CallRequest,
        digest: &Arc<str>,
    ) -> Result<Option<(Call, Option<NewCall>)>, Status> {
        let mut known = self.known();
        match known.look_up(&request.name) {
            CallLookup::InMemory(call) => return Ok(Some((call, None))),
            CallLookup::InLedger => return Ok(None),
            CallLookup::Nowhere => {}
        }
        let rejected_for = lock(&self.recent).rejects_for(&request.name, request.token);
        if rejected_for.is_some() || self.acknowledgements.is_waiting_for_sync(&request.name) {
            let message =
                format!("{} has ended and its outcome was acknowledged; this request arrived too late.", request.name);
            let refused = status::error(Code::FailedPrecondition, reasons::CALL_ACKNOWLEDGED, message);
            return Err(refused.retry_after(rejected_for.unwrap_or_default()).into());
        }
        self.check_ledger()?;
        check_network(request)?;
        let policy = self.policy_of(&request.name)?;
        let taken = self.limit.take()?;
        let started = runner_v1::ToolCall {
            name: request.name.clone(),
            tool: request.tool.spec.name.into(),
            state: State::Running.into(),
            arguments: Some(payload(request.arguments.clone())),
            arguments_digest: arguments_digest(&request.arguments),
            recovery: request.recovery().to_proto().into(),
            start_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            secrets: self.ledger.secrets_in_context(request.context.as_deref()),
            ..runner_v1::ToolCall::default()
        };
        let secrets = self.ledger.secrets_of_call(&started);
        let questions = self.questions_of(&request.tool, request.network().is_some_and(Profile::asks));
        let call = Call { questions, ..Call::new(Arc::clone(digest), Progress::Running, started, secrets) };
        known.calls.insert(request.name.clone(), call.clone());
        Ok(Some((call, Some((policy, taken)))))
    }

    /// The questions that a call of a tool asks in its next run; `None` for one that does not ask. `asks_about_hosts`: whether its network may.
    fn questions_of(&self, tool: &RegisteredTool, asks_about_hosts: bool) -> Option<Questions> {
        // Whenever it runs, it begins at another time.
        let run = if is_planted(Defect::QuestionOfAnotherRun) { 0 } else { self.clock.now_micros() };
        (tool.tool.asks() || asks_about_hosts).then(|| Questions::new(format!("{run:x}")))
    }

    fn policy_of(&self, call: &str) -> Result<CallPolicy, Status> {
        self.policy.of_call(call).ok_or_else(|| {
            let message =
                "This runner has no policy yet. It must reach the approval gate once before it can run calls.";
            status::error(Code::Unavailable, reasons::POLICY_MISSING, message).into()
        })
    }

    /// Tells a call that runs what became of a question; one that has ended does not need it.
    pub(crate) async fn answer(&self, name: &str, question: &str, reply: Reply) -> Result<(), Status> {
        let call = self.find(name).await?;
        if let Some(questions) = &call.questions {
            questions.answer(question, reply);
        }
        drop(call);
        self.unload(name);
        Ok(())
    }

    /// The current state of a call.
    pub(crate) async fn get(&self, name: &str) -> Result<Arc<runner_v1::ToolCall>, Status> {
        let now = self.find(name).await?.now();
        self.unload(name);
        Ok(now)
    }

    /// The result of a call that has a reference with this digest to it.
    pub(crate) fn blob(&self, name: &str, digest: &str) -> Result<Arc<Blob>, Status> {
        let found = self.known().look_up(name);
        let why = match found {
            CallLookup::Nowhere => return Err(self.unknown(name)),
            CallLookup::InLedger => "it has not ended",
            CallLookup::InMemory(call) => match &*call.progress.borrow() {
                Progress::Ended(ended) => match ended.blob() {
                    Some(blob) if blob.digest == digest => return Ok(Arc::clone(blob)),
                    Some(_) => "its result has another digest",
                    None => "it has no result, or one that is inline",
                },
                Progress::Running | Progress::Resolving | Progress::AwaitingApproval(_) => "it has not ended",
                Progress::Unresolved => return Err(unresolved()),
            },
        };
        let message = format!("Call {name} has no blob of this digest: {why}.");
        Err(status::error(Code::NotFound, reasons::BLOB_NOT_FOUND, message).with("name", name).into())
    }

    /// A call that ends.
    fn ended_call(&self, call: runner_v1::ToolCall) -> EndedCall {
        EndedCall::new(call, self.max_inline)
    }

    /// Drops a call that only reads and has ended: subscribers hold the outcome already, and it may run again for later requests. One whose result
    /// is a blob stays until it is acknowledged, since subscribers have yet to read that.
    fn drop_unless_read_later(&self, name: &str, ended: &EndedCall) {
        let mut known = self.known();
        let Some(blob) = ended.blob() else {
            known.calls.remove(name);
            return;
        };
        let is_kept = |name: &str| known.calls.get(name).is_some_and(Call::has_ended);
        let outdated = lock(&self.kept).add(name, blob.bytes().len(), self.max_kept_bytes, is_kept);
        for name in outdated {
            known.calls.remove(&name);
        }
    }

    /// Subscribes to a call.
    pub(crate) async fn attach(&self, name: &str) -> Result<Subscription, Status> {
        let subscription = self.find(name).await?.subscription();
        self.unload(name);
        Ok(subscription)
    }

    /// Whether the call is known here.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.known().contains(name)
    }

    /// Rejects the request once a write to the ledger has failed.
    fn check_ledger(&self) -> Result<(), Status> {
        self.ledger.failure().map_or(Ok(()), |error| Err(not_durable(error)))
    }

    async fn find(&self, name: &str) -> Result<Call, Status> {
        self.look_up(name).await?.ok_or_else(|| self.unknown(name))
    }

    /// The call of this name, from memory or from the ledger.
    async fn look_up(&self, name: &str) -> Result<Option<Call>, Status> {
        match self.known().look_up(name) {
            CallLookup::InMemory(call) => return Ok(Some(call)),
            CallLookup::InLedger => {}
            CallLookup::Nowhere => return Ok(None),
        }
        let _loading = self.loading.lock().await;
        match self.known().look_up(name) {
            CallLookup::InMemory(call) => return Ok(Some(call)),
            CallLookup::InLedger => {}
            CallLookup::Nowhere => return Ok(None),
        }
        let row = self.ledger.held_call(name).await.map_err(|error| {
            let message = format!("The row of {name}, which waits for approval, cannot be read: {error}.");
            Status::from(status::error(Code::DataLoss, reasons::STORE_CORRUPT, message))
        })?;
        if row.call.state() != State::AwaitingApproval {
            // The write of its end was reported as failed.
            return Err(unresolved());
        }
        // It runs when it is approved, and may ask then. Which network it has, its request says, which comes later.
        let tool = self.registry.find(&row.call.tool);
        let questions = tool.and_then(|tool| self.questions_of(&tool, tool.tool.may_ask_about_hosts()));
        let held = restore(&self.ledger, &row, Progress::AwaitingApproval(Arc::new(row.call.clone())));
        let call = Call { questions, ..held };
        self.known().load(name, call.clone());
        Ok(Some(call))
    }

    /// Leaves a call that waits for approval to the ledger, unless another caller asks about it.
    fn unload(&self, name: &str) {
        self.known().unload(name);
    }

    /// The error for a call that is not known.
    fn unknown(&self, name: &str) -> Status {
        // The row of an unknown call may still have been written.
        if let Err(failed) = self.check_ledger() {
            return failed;
        }
        let message = format!("Call {name} not found: this runner never received it.");
        status::error(Code::NotFound, reasons::CALL_NOT_FOUND, message).with("ledger_id", self.ledger.id()).into()
    }

    /// Removes the view of a call that is to be cancelled, if a process before this one has left it. An unreachable workspace is reported, so that the
    /// caller asks again; a call that is to end at once does not wait for that.
    pub(crate) async fn remove_lost_view(
        self: &Arc<Self>,
        name: &str,
        workspace: ChosenWorkspace,
        stop: Stop,
    ) -> Result<(), Status> {
        let may_have_left_a_view = match self.look_up(name).await? {
            None => true,
            Some(call) => call.now().state() == State::OutcomeUnknown,
        };
        self.unload(name);
        if !may_have_left_a_view {
            return Ok(());
        }
        let path = workspace.path.clone();
        // In a task of its own, so that a caller that disconnects does not cancel the opening halfway.
        let workspaces = Arc::clone(&self.workspaces);
        let swept = tokio::spawn(async move { workspaces.sweep(workspace).await });
        match swept.await.map_err(|error| Status::internal(error.to_string()))? {
            Ok(()) => Ok(()),
            Err(unavailable) if unavailable.may_keep_views() && stop < Stop::AtOnce => Err(unavailable.into_status()),
            Err(unavailable) => {
                if unavailable.may_keep_views() {
                    let workspace = path.display();
                    tracing::warn!(call = name, %workspace, error = %unavailable, "A killed call may have left files in `.belay/views`; the next call in this workspace removes them");
                }
                Ok(())
            }
        }
    }

    /// Cancels a call and returns when it has ended. For an unknown call it leaves a tombstone, so that the call cannot start later.
    pub(crate) async fn cancel(self: &Arc<Self>, name: &str, stop: Stop) -> Result<Arc<runner_v1::ToolCall>, Status> {
        let cancelled = self.cancel_known(name, stop).await;
        self.unload(name);
        cancelled
    }

    async fn cancel_known(self: &Arc<Self>, name: &str, stop: Stop) -> Result<Arc<runner_v1::ToolCall>, Status> {
        loop {
            let Some(call) = self.look_up(name).await? else {
                self.add_tombstone(name);
                continue;
            };
            call.cancel.send_if_modified(|asked| std::mem::replace(asked, stop.max(*asked)) < stop);
            match call.wait_until_idle().await? {
                Progress::Ended(ended) => return Ok(ended.call),
                // It began to wait for approval before it saw the cancellation.
                Progress::AwaitingApproval(_) | Progress::Running | Progress::Resolving | Progress::Unresolved => {
                    self.end_pending(&call, State::Cancelled, failure(record::cancelled())).await?;
                }
            }
        }
    }

    /// Adds a tombstone for a call that is unknown, unless that has arrived meanwhile. It ends as cancelled once its row is durable.
    fn add_tombstone(self: &Arc<Self>, name: &str) {
        let failed =
            ToolFailure::new(ErrorClass::Cancelled, reasons::CANCELLED, "The call was cancelled before it started.");
        let tombstone = runner_v1::ToolCall {
            name: name.to_owned(),
            state: State::Cancelled.into(),
            failure: Some(failure(failed)),
            end_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            receipt: Some(Box::new(v1::Receipt { ledger_id: self.ledger.id().into(), ..v1::Receipt::default() })),
            ..runner_v1::ToolCall::default()
        };
        // In memory first, so that the call cannot start while the row is written.
        let secrets = self.ledger.secrets_of("", "");
        let call = Call::new("".into(), Progress::Running, tombstone.clone(), secrets);
        if !self.known().add_new(name, &call) {
            return;
        }
        let row = Row {
            digest: String::new(),
            ended: true,
            call: tombstone.clone(),
            staged: None,
            pending: None,
            spends: None,
            removes: None,
        };
        let calls = Arc::clone(self);
        // In a task of its own: the caller may disconnect, and the next one waits for the end of what it finds.
        tokio::spawn(async move {
            call.progress.send_replace(match calls.write(row).await {
                Ok(_) => Progress::Ended(EndedCall::without_result(tombstone)),
                Err(_) => Progress::Unresolved,
            });
        });
    }

    /// The names of ended calls that the executor has not acknowledged, sorted.
    pub(crate) fn unacknowledged(&self) -> Vec<String> {
        let known = self.known();
        let ended = known.calls.iter().filter(|(_, call)| call.has_ended());
        let mut names: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        drop(known);
        names.sort_unstable();
        names
    }

    /// Drops calls whose outcome the executor has stored. `token`: its fencing token.
    pub(crate) fn acknowledge(&self, names: Vec<String>, token: i64) {
        let mut known = self.known();
        let ended: Vec<String> =
            names.into_iter().filter(|name| known.calls.get(name).is_some_and(Call::has_ended)).collect();
        // While `known` is locked: otherwise a call of the same name could start first.
        self.acknowledgements.acknowledge(ended.clone());
        let mut recent = lock(&self.recent);
        for name in ended {
            known.calls.remove(&name);
            recent.add(name, token);
        }
    }

    /// Returns with the cause when a write to the ledger has failed. The process should exit then: the next start finds out from the ledger
    /// what is durable.
    pub async fn failed(&self) -> SqliteError {
        self.ledger.failed().await
    }

    /// Syncs applied effects to disk and deletes acknowledged rows. Call it once no requests are served any more; skipping it only leaves
    /// that work to the next start.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub async fn close(&self) -> Result<(), LedgerFailure> {
        self.workspaces.sync().await;
        self.acknowledgements.flush().await
    }

    async fn write(&self, row: Row) -> Result<WriteOutcome, crate::LedgerFailure> {
        self.ledger.write(Entry::Call(Box::new(row))).await
    }
}

fn not_durable(error: impl std::fmt::Display) -> Status {
    status::error(
        Code::Unavailable,
        reasons::LEDGER_UNAVAILABLE,
        format!("The call ledger cannot be written: {error}."),
    )
    .into()
}
