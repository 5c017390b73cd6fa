//! Operations on tool calls: the RPCs to the runner and the gate, with retries.

mod approval;
mod grant_reply;
mod handle;
mod update;

use grant_reply::GrantReply;
pub(crate) use handle::{OperationHandle, ReportFault};
pub(crate) use update::{Busy, Large, SealedResult, Update};

use std::{sync::Arc, time::Duration};

use belay_execution::{
    ApprovalMode, Json, OperationKey, PendingApproval, RecoveryClass, RequiredAction, ToolCallEnd, ToolCallRequest,
    Workspace,
};
use belay_proto::runner_v1::{self, SessionOperation, session_operation::Operation};
use belay_service_kit::{Retry, status};
use belay_telemetry::TraceContext;
use prost::Message as _;
use tokio::{sync::mpsc, task::AbortHandle};
use tracing::Span;

use crate::{
    owned::registry::ExecutionRegistry,
    runners::{
        call_reply::{
            CallReply, RunnerReply, UncopiedResult, acknowledged_end, is_unexpected, name_not_free, named_answer,
            refused, reply_of, reply_without_ledger,
        },
        copy::{self, MAX_FAILED_COPIES, NotCopied, ResultCopy},
        link::{First, Following, Operation as _},
        output::OutputForwarder,
        runner::wire_trace,
        session::{Report, Urgency},
    },
    upkeep::deletions::NAME_RESERVED,
    wire,
};

/// A call whose end is larger is understood by a task: that takes time, for which others must not wait.
const MAX_INLINE_END_BYTES: usize = 32 << 10;

/// How often a runner may report a call as held although it was given the grant: for about a minute.
const MAX_REHOLDS: u32 = 32;

/// An operation on one call, until it has a reply.
pub(crate) struct ToolCallOperation {
    pub(crate) registry: Arc<ExecutionRegistry>,
    /// The call.
    pub(crate) key: OperationKey,
    /// The call's name.
    pub(crate) name: String,
    /// The namespace's id.
    pub(crate) namespace: String,
    pub(crate) workspace: Workspace,
    /// The context in which the plan was asked for.
    pub(crate) context: Option<Json>,
    /// The call's span.
    pub(crate) trace: TraceContext,
    pub(crate) request: Arc<ToolCallRequest>,
    /// How to recover it when its outcome is not known.
    pub(crate) recovery: RecoveryClass,
    /// The arguments, also when the request has a reference to them; `None` for an operation that sends none.
    pub(crate) arguments: Option<Json>,
    /// No other call may commit in the workspace while it runs.
    pub(crate) exclusive: bool,
    /// The network profile of its command; `None` for its own loopback alone.
    pub(crate) network: Option<String>,
    pub(crate) pending_approval: Option<PendingApproval>,
    pub(crate) mode: ApprovalMode,
    /// The principal who started the execution.
    pub(crate) principal: String,
    /// Why the step makes the call.
    pub(crate) request_reason: String,
    pub(crate) fence: runner_v1::Fence,
    /// Whether an earlier operation may have sent the same request.
    pub(crate) maybe_sent: bool,
    pub(crate) updates: mpsc::UnboundedSender<Update>,
    /// Receives the tool's output.
    pub(crate) output: OutputForwarder,
    pub(crate) retry: Retry,
    /// Whether the driver knows that the call waits for a service at its limit.
    pub(crate) is_busy: bool,
    /// Whether the runner has returned a reference to the result.
    pub(crate) is_copied: bool,
    /// How often a result could not be copied because the runner does not have it as it promised.
    pub(crate) failed_copies: u32,
    /// How long the call has waited for the runner to forget an earlier call of its name.
    pub(crate) waited_for_name: Duration,
    /// Whether an unexpected answer of the runner was logged.
    pub(crate) has_warned: bool,
    /// The delay before the call is sent.
    pub(crate) delay: Duration,
    /// The span of log lines. Entered only for those, which are few.
    pub(crate) log_span: Span,
}

fn reply_to(end: Result<Box<runner_v1::ToolCall>, tonic::Status>) -> RunnerReply {
    end.map_or_else(|status| RunnerReply::Whole(refused(status)), |call| reply_of(*call))
}

/// The driver has ended because the service is stopping; the next driver starts the operation again.
struct DriverGone;

impl ToolCallOperation {
    pub(crate) fn start(self, required: RequiredAction) -> OperationHandle {
        let link = Arc::clone(self.registry.runner.link());
        // A call that nothing has to be asked for and that does not wait needs no task until something goes wrong.
        if required == RequiredAction::Dispatch
            && self.delay.is_zero()
            && self.approval().is_none()
            && link.is_session()
        {
            let (name, request) = (self.name.clone(), self.request_in_session(&self.request.ledger_id, None));
            let running = match link.add(name, request, Box::new(self)) {
                Ok(in_session) => handle::Running::InSession { _operation: in_session },
                Err(operation) => handle::Running::Task(operation.continue_with(First::Nothing)),
            };
            return OperationHandle { required, number: 0, _running: running };
        }
        OperationHandle::new(required, Box::new(self).spawn(move |operation| operation.run(required)))
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        self: Box<Self>,
        run: impl FnOnce(Box<Self>) -> F,
    ) -> AbortHandle {
        let fault = ReportFault::new(&self.updates, self.key);
        let run = run(self);
        let task = tokio::spawn(Box::pin(async move {
            let _fault = fault;
            run.await;
        }));
        task.abort_handle()
    }

    /// Tells the driver how the operation ended.
    fn report(&self, update: Update) {
        self.output.end(self.registry.now());
        // An error means that the driver has ended.
        drop(self.updates.send(update));
    }

    async fn run(mut self: Box<Self>, required: RequiredAction) {
        if required == RequiredAction::Dispatch && !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let update = match required {
            RequiredAction::Dispatch => self.dispatch().await,
            // Boxed: rare operations must not enlarge the future, which is moved for each call when its task starts.
            RequiredAction::Cancel | RequiredAction::Pause => Box::pin(self.cancel(false)).await,
            RequiredAction::Kill => Box::pin(self.cancel(true)).await,
            RequiredAction::RequestApproval => Box::pin(self.request_approval()).await,
            RequiredAction::Commit => Box::pin(self.commit()).await,
            RequiredAction::Discard => Box::pin(self.discard()).await,
        };
        match update {
            Ok(update) => self.report(update),
            Err(DriverGone) => self.output.end(self.registry.now()),
        }
    }

    async fn dispatch(&mut self) -> Result<Update, DriverGone> {
        let grant = match self.approval() {
            Some(approval) => match Box::pin(self.grant(approval)).await? {
                GrantReply::Granted(grant) => Some(grant),
                GrantReply::DecisionLost if self.maybe_sent => None,
                GrantReply::DecisionLost => return Ok(self.request_again()),
                GrantReply::Refused(why) => return Box::pin(self.fail_unusable_approval(why)).await,
            },
            None => None,
        };
        self.send(grant, None).await
    }

    /// Sends the call until it has ended or is held. Without a grant for a call whose decision the gate has lost: an earlier operation may
    /// have sent the grant, and then the runner knows how the call ended. It is asked before a person is asked again. `first`: the reply to the
    /// call as it was sent already.
    async fn send(
        &mut self,
        mut grant: Option<runner_v1::Grant>,
        mut first: Option<RunnerReply>,
    ) -> Result<Update, DriverGone> {
        let mut ledger_id = self.request.ledger_id.clone();
        let mut reholds = 0;
        loop {
            let reply = match first.take() {
                Some(reply) => reply,
                None => self.call(&ledger_id, grant.clone()).await,
            };
            match self.copied(reply).await? {
                CallReply::Ended(end) => return Ok(self.ended(end)),
                CallReply::Held(requirement) if grant.is_some() && self.is_held_for(&requirement) => {
                    // A runner that could not record the grant has not continued, and still holds the call.
                    reholds += 1;
                    if reholds == MAX_REHOLDS {
                        let why = "the runner requires approval again for the approved subject".to_owned();
                        return Box::pin(self.fail_unusable_approval(why)).await;
                    }
                    let status = tonic::Status::unavailable("the runner could not continue the call");
                    Box::pin(self.runner_unavailable(&status)).await?;
                }
                CallReply::Held(requirement) => return Ok(Update::Held(self.key, requirement)),
                CallReply::Fenced => return Ok(Update::Fenced),
                CallReply::GrantRefused(why) => return Box::pin(self.fail_unusable_approval(why)).await,
                CallReply::GrantNotValidNow(status) => match Box::pin(self.renew_grant(&status)).await? {
                    GrantReply::Granted(another) => grant = Some(another),
                    GrantReply::DecisionLost => return Ok(self.request_again()),
                    GrantReply::Refused(why) => return Box::pin(self.fail_unusable_approval(why)).await,
                },
                CallReply::LedgerChanged => match Box::pin(self.on_other_ledger(&mut ledger_id)).await {
                    Some(unknown) => return Ok(self.ended(unknown)),
                    None => continue,
                },
                CallReply::Acknowledged(status) => {
                    if let Some(end) = Box::pin(self.acknowledged(&status)).await? {
                        return Ok(self.ended(end));
                    }
                }
                CallReply::Unavailable(status) => Box::pin(self.runner_unavailable(&status)).await?,
                CallReply::Busy(status) => Box::pin(self.busy(Busy::Runner, &status)).await?,
                CallReply::NotFound => {
                    let status = tonic::Status::internal("the runner does not accept the call");
                    Box::pin(self.runner_unavailable(&status)).await?;
                }
            }
        }
    }

    /// With `kill`, its processes are not asked to end first.
    async fn cancel(&mut self, kill: bool) -> Result<Update, DriverGone> {
        let mut ledger_id = self.request.ledger_id.clone();
        loop {
            let (workspace, made_folder) = self.workspace();
            let message = runner_v1::CancelToolCallRequest {
                name: self.name.clone(),
                fence: Some(self.fence),
                kill,
                workspace,
                made_folder,
            };
            let reply = self.registry.runner.cancel(message, &ledger_id).await;
            match self.copied(reply).await? {
                CallReply::Ended(end) => return Ok(self.ended(end)),
                CallReply::Fenced => return Ok(Update::Fenced),
                CallReply::LedgerChanged => match self.on_other_ledger(&mut ledger_id).await {
                    Some(unknown) => return Ok(self.ended(unknown)),
                    None => continue,
                },
                CallReply::Acknowledged(_) => return Ok(self.ended(acknowledged_end())),
                CallReply::Unavailable(status) | CallReply::Busy(status) => self.runner_unavailable(&status).await?,
                CallReply::Held(_)
                | CallReply::NotFound
                | CallReply::GrantRefused(_)
                | CallReply::GrantNotValidNow(_) => {
                    self.runner_unavailable(&tonic::Status::internal("the runner does not stop the call")).await?;
                }
            }
        }
    }

    /// The workspace as the runner's requests have it: a directory's path, or a folder.
    fn workspace(&self) -> (String, Option<runner_v1::MadeFolder>) {
        match self.workspace.clone() {
            Workspace::Directory(path) => (path, None),
            Workspace::MadeFolder(id) => {
                (String::new(), Some(runner_v1::MadeFolder { namespace: self.namespace.clone(), id }))
            }
        }
    }

    /// The call as its method and the session carry it.
    fn message(&self, ledger_id: &str, grant: Option<runner_v1::Grant>) -> runner_v1::CallToolRequest {
        let arguments = self.arguments.as_ref().expect("the driver has got the arguments of a call that is sent");
        let (workspace, made_folder) = self.workspace();
        runner_v1::CallToolRequest {
            name: self.name.clone(),
            tool: self.request.tool.clone(),
            arguments: Some(wire::inline(arguments)),
            timeout: Some(belay_proto::duration(self.request.timeout)),
            fence: Some(self.fence),
            ledger_id: ledger_id.to_owned(),
            workspace,
            made_folder,
            exclusive: self.exclusive,
            network: self.network.clone().unwrap_or_default(),
            attempt: i32::try_from(self.key.attempt).unwrap_or(i32::MAX),
            grant,
            trace: Some(wire_trace(&self.trace)),
            context: self.context.as_ref().map(wire::inline),
            layers: self.request.layers.as_ref().map(wire::layers_to),
        }
    }

    fn request_in_session(&self, ledger_id: &str, grant: Option<runner_v1::Grant>) -> SessionOperation {
        let operation = Some(Operation::CallTool(self.message(ledger_id, grant)));
        SessionOperation { operation, ..SessionOperation::default() }
    }

    /// Sends a held call again, to learn what the runner has.
    async fn call_again(&mut self) -> Result<CallReply, DriverGone> {
        let reply = self.call(&self.request.ledger_id, None).await;
        self.copied(reply).await
    }

    /// The reply with the result of a call that has completed, copied from the runner.
    async fn copied(&mut self, reply: RunnerReply) -> Result<CallReply, DriverGone> {
        match reply {
            RunnerReply::Whole(reply) => Ok(reply),
            RunnerReply::Uncopied(uncopied) => Box::pin(self.copy(uncopied)).await,
            RunnerReply::WithSecrets(secrets, reply) => {
                self.updates.send(Update::SecretsFound(secrets)).map_err(|_| DriverGone)?;
                Box::pin(self.copied(*reply)).await
            }
        }
    }

    async fn copy(&mut self, UncopiedResult { reference, receipt }: UncopiedResult) -> Result<CallReply, DriverGone> {
        self.is_copied = true;
        let size = reference.size;
        if let Some(failure) = copy::too_large(size) {
            return Ok(CallReply::Ended(ToolCallEnd::Failed { failure, receipt: Box::new(receipt) }));
        }
        let mut copy = ResultCopy::new(reference);
        let why = loop {
            let before = copy.length();
            match copy.read(&self.registry.runner, &self.name).await {
                Ok(result) => {
                    return Ok(CallReply::Ended(ToolCallEnd::Completed {
                        result: result.into(),
                        receipt: Box::new(receipt),
                    }));
                }
                Err(NotCopied::Interrupted(status)) => {
                    if copy.length() > before {
                        self.retry.succeeded();
                    }
                    self.runner_unavailable(&status).await?;
                }
                Err(NotCopied::Lost(status)) => {
                    if copy::may_run_again(self.recovery, &receipt, &status) && self.may_copy_again() {
                        // Sent again, the call attaches or runs again.
                        return Ok(CallReply::Unavailable(status));
                    }
                    break status.message().to_owned();
                }
                Err(NotCopied::Wrong(why)) => {
                    if !self.may_copy_again() {
                        break why;
                    }
                    let message = format!("what the runner returned is not the result of the call: {why}");
                    self.runner_unavailable(&tonic::Status::internal(message)).await?;
                }
            }
        };
        let failure = copy::lost(size, &self.registry.reading.sealer.shown(why));
        let call = &self.name;
        self.log_span.in_scope(|| tracing::error!(call, why = failure.message, "The result of a call is lost"));
        Ok(CallReply::Ended(ToolCallEnd::Failed { failure, receipt: Box::new(receipt) }))
    }

    /// Whether a result that the runner did not return as promised is copied again.
    fn may_copy_again(&mut self) -> bool {
        self.failed_copies += 1;
        self.failed_copies < MAX_FAILED_COPIES
    }

    async fn call(&self, ledger_id: &str, grant: Option<runner_v1::Grant>) -> RunnerReply {
        let link = self.registry.runner.link();
        if link.is_session() {
            let request = self.request_in_session(ledger_id, grant.clone());
            match link.follow(self.name.clone(), request, Urgency::Usual) {
                Some(Ok(following)) => return self.until_reply(following).await,
                Some(Err(status)) => return RunnerReply::Whole(refused(status)),
                None => {}
            }
        }
        let on_output = |output| self.output.forward(self.registry.now(), output);
        let message = self.message(ledger_id, grant);
        let runner = &self.registry.runner;
        let on_asking = |questions| self.on_asking(questions);
        runner.call(message, || self.on_started(), on_output, |other| self.on_waiting(other), on_asking).await
    }

    /// Follows a call in the session until the runner has a reply about it.
    async fn until_reply(&self, mut following: Following) -> RunnerReply {
        while let Some(report) = following.next().await {
            match report {
                Report::Started => self.on_started(),
                Report::WaitingFor(other) => self.on_waiting(other),
                Report::Asking(questions) => self.on_asking(questions),
                Report::Output(output) => {
                    let length = output.text.len();
                    self.output.forward(self.registry.now(), output);
                    following.credit(length);
                }
                Report::Ended(end) => return reply_to(end),
            }
        }
        let status = tonic::Status::unavailable("the session ended before the call");
        RunnerReply::Whole(CallReply::Unavailable(status))
    }

    fn ended(&self, end: ToolCallEnd) -> Update {
        Update::Ended { operation: self.key, end, is_copied: self.is_copied }
    }

    /// Handles a runner with another ledger: returns an unknown outcome, or `None` when the call goes to the new ledger.
    async fn on_other_ledger(&mut self, ledger_id: &mut String) -> Option<ToolCallEnd> {
        // Read again, for the next intents.
        let catalogue = self.registry.runner.catalogue(true).await;
        if let Some(unknown) = reply_without_ledger(self.recovery).filter(|_| self.maybe_sent) {
            return Some(unknown);
        }
        // An empty ledger id would accept any ledger: if this one were lost too, the next would run the call again.
        match catalogue {
            Ok(catalogue) => ledger_id.clone_from(&catalogue.ledger_id),
            Err(_) => self.retry.pause(&self.registry.ids).await,
        }
        None
    }

    async fn runner_unavailable(&mut self, status: &tonic::Status) -> Result<(), DriverGone> {
        self.maybe_sent = true;
        if is_unexpected(status) && !std::mem::replace(&mut self.has_warned, true) {
            let call = &self.name;
            self.log_span.in_scope(|| {
                tracing::warn!(
                    call,
                    status = self.shown(status),
                    "The runner's answer about a call is not known here; retrying"
                );
            });
        } else {
            self.log(status, "The runner is not available; retrying");
        }
        self.wait(self.runner_answer(status)).await
    }

    /// The runner's answer, as readers see it.
    fn runner_answer(&self, status: &tonic::Status) -> Update {
        Update::RunnerUnavailable(named_answer(status).map(|answer| self.registry.reading.sealer.shown(answer)))
    }

    /// Handles a runner that remembers an acknowledged call of this name. A call that was never sent before is another one, of an execution whose
    /// name was used before: it waits until the runner has forgotten the earlier one, which by the executor's clock it has. Returns the end of a
    /// call that must not or cannot be sent again.
    async fn acknowledged(&mut self, status: &tonic::Status) -> Result<Option<ToolCallEnd>, DriverGone> {
        let is_new = !self.maybe_sent || !self.waited_for_name.is_zero();
        if !is_new && reply_without_ledger(self.recovery).is_some() {
            return Ok(Some(acknowledged_end()));
        }
        if self.waited_for_name > NAME_RESERVED {
            return Ok(Some(name_not_free()));
        }
        self.log(status, "The runner remembers an earlier call of this name; retrying");
        self.updates.send(self.runner_answer(status)).map_err(|_| DriverGone)?;
        self.retry.at_least(status::retry_after(status).unwrap_or_default());
        let delay = self.retry.delay(&self.registry.ids);
        self.waited_for_name += delay;
        tokio::time::sleep(delay).await;
        Ok(None)
    }

    async fn gate_unavailable(&mut self, status: &tonic::Status) -> Result<(), DriverGone> {
        self.log(status, "The approval gate is not available; retrying");
        self.wait(Update::GateUnavailable).await
    }

    /// Waits for the delay that the service names; it has not accepted the call.
    async fn busy(&mut self, service: Busy, status: &tonic::Status) -> Result<(), DriverGone> {
        self.log(status, "The service is at its limit; retrying");
        self.is_busy = true;
        self.retry.at_least(status::retry_after(status).unwrap_or_default());
        self.wait(Update::Busy(self.key, service)).await
    }

    fn log(&self, status: &tonic::Status, what: &'static str) {
        let call = &self.name;
        self.log_span.in_scope(|| tracing::debug!(call, status = self.shown(status), "{what}"));
    }

    /// A refusal as it is logged; its message may quote the call.
    fn shown(&self, status: &tonic::Status) -> String {
        self.registry.reading.sealer.shown(format!("{:?}: {}", status.code(), status.message()))
    }

    async fn wait(&mut self, update: Update) -> Result<(), DriverGone> {
        self.updates.send(update).map_err(|_| DriverGone)?;
        self.retry.pause(&self.registry.ids).await;
        Ok(())
    }
}

impl crate::runners::link::Operation for ToolCallOperation {
    fn on_started(&self) {
        if self.is_busy {
            // An error means that the driver has ended.
            drop(self.updates.send(Update::WaitingForCall(self.key, String::new())));
        }
    }

    fn on_waiting(&self, other: String) {
        // An error means that the driver has ended.
        drop(self.updates.send(Update::WaitingForCall(self.key, other)));
    }

    fn on_asking(&self, questions: Vec<runner_v1::ToolCallQuestion>) {
        // An error means that the driver has ended.
        drop(self.updates.send(Update::Asking(self.key, questions)));
    }

    fn end(
        self: Box<Self>,
        end: Result<Box<runner_v1::ToolCall>, tonic::Status>,
    ) -> Option<(Box<dyn crate::runners::link::Operation>, First)> {
        let _fault = ReportFault::new(&self.updates, self.key);
        if end.as_ref().is_ok_and(|call| call.encoded_len() > MAX_INLINE_END_BYTES) {
            return Some((self, First::End(end)));
        }
        let mut reply = reply_to(end);
        if let RunnerReply::WithSecrets(secrets, inner) = reply {
            // An error means that the driver has ended.
            drop(self.updates.send(Update::SecretsFound(secrets)));
            reply = *inner;
        }
        let update = match reply {
            RunnerReply::Whole(CallReply::Ended(end)) => self.ended(end),
            RunnerReply::Whole(CallReply::Held(requirement)) => Update::Held(self.key, requirement),
            RunnerReply::Whole(CallReply::Fenced) => Update::Fenced,
            other => return Some((self, First::Reply(other))),
        };
        self.report(update);
        None
    }

    fn continue_with(self: Box<Self>, first: First) -> AbortHandle {
        self.spawn(|mut operation| async move {
            let first = match first {
                First::Nothing => None,
                First::Reply(reply) => Some(reply),
                First::End(end) => Some(reply_to(end)),
                First::Following(following) => Some(operation.until_reply(following).await),
            };
            if let Ok(update) = operation.send(None, first).await {
                operation.report(update);
            }
        })
    }
}
