//! The stream of a session: reads messages, carries out operations, and sends what became of them.

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use belay_proto::{
    runner_v1::{
        self, SessionOperation, SessionResponse, ToolCallStarted, ToolCallWaiting, session_operation::Operation,
        session_reply::Reply,
    },
    session::{ReceivedPositions, ReceivedRequest, SentPositions},
    v1,
};
use belay_service_kit::{Shutdown, rephrased_status, stores};
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::BoxFuture,
    stream::{self, AbortHandle, Abortable, BoxStream, SelectAll},
};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::{Code, Status, Streaming};

use super::{
    acknowledge_tool_calls::acknowledge_tool_calls,
    call_tool::call_tool,
    cancel_tool_call::cancel_tool_call,
    commit_effect::commit_effect,
    discard_effect::discard_effect,
    follow::{CallUpdate, stopping, updates},
};
use crate::{
    Calls,
    output::{Allowance, Position},
    session,
};

/// There is at least one message in twice this time.
const HEARTBEAT: Duration = Duration::from_millis(7500);
/// The number of names per message.
const NAMES_PER_MESSAGE: usize = 1000;

/// The result of an operation.
type Update = Result<Reply, Status>;

/// A session, as the stream of its responses.
pub(super) struct Session {
    calls: Arc<Calls>,
    shutdown: Shutdown,
    stopped: BoxFuture<'static, ()>,
    /// The executor's messages; `None` once the session has ended.
    received: Option<Streaming<ReceivedRequest>>,
    rules: session::Session,
    /// Operations of the last message that have not begun: what is to be sent has no room for their ends.
    waiting: VecDeque<SessionOperation>,
    /// Operations that have not ended, each with its id.
    running: SelectAll<Abortable<BoxStream<'static, (i64, Update)>>>,
    first: Option<SessionResponse>,
    unacknowledged: VecDeque<String>,
    sent_positions: SentPositions,
    received_positions: ReceivedPositions,
    heartbeat: Interval,
    /// Whether a message was sent since the last tick.
    sent_since_tick: bool,
}

impl Session {
    pub(super) fn new(calls: Arc<Calls>, received: Streaming<ReceivedRequest>, shutdown: Shutdown) -> Self {
        let stopped = {
            let shutdown = shutdown.clone();
            async move { shutdown.requested().await }.boxed()
        };
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            calls,
            shutdown,
            stopped,
            received: Some(received),
            rules: session::Session::default(),
            waiting: VecDeque::new(),
            running: SelectAll::new(),
            first: None,
            unacknowledged: VecDeque::new(),
            sent_positions: SentPositions::default(),
            received_positions: ReceivedPositions::default(),
            heartbeat,
            sent_since_tick: true,
        }
    }

    fn on_message(&mut self, message: ReceivedRequest) -> Result<(), Status> {
        let session::SessionInput { is_first, stores, operations } = self.rules.receive(message)?;
        if let Some(received) = stores {
            self.received_positions.observe(self.calls.stores(), received).map_err(|behind| {
                tracing::error!(%behind, "A store is behind");
                stores::refusal(&behind)
            })?;
        }
        if is_first {
            self.first = Some(session::first_response(self.calls.ledger_id()));
            self.unacknowledged = self.calls.unacknowledged().into();
        }
        self.waiting.extend(operations);
        Ok(())
    }

    /// Begins an operation. Most have an end at once.
    fn begin(&mut self, operation: SessionOperation, context: &mut Context<'_>) {
        let id = operation.id;
        let allowance = self.rules.allowance(id);
        let mut updates = carry_out(Arc::clone(&self.calls), operation, self.shutdown.clone(), allowance);
        loop {
            match updates.as_mut().poll_next(context) {
                Poll::Ready(Some(update)) => self.on_update(id, update),
                Poll::Ready(None) => return,
                Poll::Pending => break,
            }
        }
        let (abort, registration) = AbortHandle::new_pair();
        self.rules.follow(id, abort);
        let updates = updates.map(move |update| (id, update)).boxed();
        self.running.push(Abortable::new(updates, registration));
    }

    fn on_update(&mut self, id: i64, update: Update) {
        match update {
            Ok(reply) => self.rules.reply(id, reply),
            Err(status) => self.rules.refuse(id, &status),
        }
    }

    /// The next message, if there is anything to send.
    fn next(&mut self) -> Option<SessionResponse> {
        let first = self.first.take();
        let replies = self.rules.take_replies();
        // A message with replies has room for nothing else.
        let names = if replies.is_empty() { self.unacknowledged.len().min(NAMES_PER_MESSAGE) } else { 0 };
        if first.is_none() && replies.is_empty() && names == 0 {
            return None;
        }
        let unacknowledged = self.unacknowledged.drain(..names).collect();
        Some(self.with_positions(SessionResponse { replies, unacknowledged, ..first.unwrap_or_default() }))
    }

    /// The message with the positions of the stores, if they have changed.
    fn with_positions(&mut self, message: SessionResponse) -> SessionResponse {
        self.sent_since_tick = true;
        let stores = self.sent_positions.next(self.calls.stores());
        SessionResponse { stores, ..message }
    }
}

impl Stream for Session {
    type Item = Result<SessionResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let Some(received) = &mut this.received else { return Poll::Ready(None) };
            if this.stopped.poll_unpin(context).is_ready() {
                this.received = None;
                return Poll::Ready(Some(Err(stopping())));
            }
            // One message at a time, so that what an executor sends without a pause keeps no end from being sent.
            let read = match this.waiting.is_empty() {
                true => received.poll_next_unpin(context),
                false => Poll::Pending,
            };
            let has_read = read.is_ready();
            let taken = match read {
                Poll::Ready(Some(Ok(message))) => this.on_message(message),
                Poll::Ready(Some(Err(status))) => Err(rephrased_status(&status).unwrap_or(status)),
                // The executor has ended the session; calls go on.
                Poll::Ready(None) => {
                    this.received = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => Ok(()),
            };
            if let Err(status) = taken {
                this.received = None;
                return Poll::Ready(Some(Err(status)));
            }
            while !this.rules.is_full()
                && let Some(operation) = this.waiting.pop_front()
            {
                this.begin(operation, context);
            }
            while !this.rules.is_full()
                && let Poll::Ready(Some((id, update))) = this.running.poll_next_unpin(context)
            {
                this.on_update(id, update);
            }
            if let Some(message) = this.next() {
                return Poll::Ready(Some(Ok(message)));
            }
            if has_read {
                continue;
            }
            if this.heartbeat.poll_tick(context).is_pending() {
                return Poll::Pending;
            }
            if !std::mem::replace(&mut this.sent_since_tick, false) {
                let heartbeat = this.with_positions(SessionResponse::default());
                return Poll::Ready(Some(Ok(heartbeat)));
            }
        }
    }
}

/// Carries out an operation as the method of its name does.
fn carry_out(
    calls: Arc<Calls>,
    operation: SessionOperation,
    shutdown: Shutdown,
    allowance: Arc<Allowance>,
) -> BoxStream<'static, Update> {
    let SessionOperation { id: _, deadline, trace, operation } = operation;
    let deadline = match deadline.as_ref().map(belay_proto::to_duration) {
        None => None,
        Some(Some(deadline)) => Some(deadline),
        Some(None) => {
            let refused = belay_service_kit::status::invalid("operations.deadline", "must not be negative");
            return stream::iter([Err(refused.into())]).boxed();
        }
    };
    let updates = match operation {
        Some(Operation::CallTool(request)) => {
            let updates = async move {
                match call_tool(&calls, request).await {
                    Ok(subscription) => updates(subscription, Position::default(), shutdown, allowance).left_stream(),
                    Err(status) => stream::iter([Err(status)]).right_stream(),
                }
            };
            updates.flatten_stream().map(|update| update.map(reply)).boxed()
        }
        Some(other) => async move { ended(&calls, other, trace).await }.into_stream().boxed(),
        // The check of the message refuses it before.
        None => stream::iter([Err(Status::invalid_argument("the operation asks for nothing"))]).boxed(),
    };
    match deadline {
        None => updates,
        Some(deadline) => until(deadline, updates),
    }
}

/// The updates, and DEADLINE_EXCEEDED if there is no end in time.
fn until(deadline: Duration, mut updates: BoxStream<'static, Update>) -> BoxStream<'static, Update> {
    Box::pin(async_stream::stream! {
        let mut passed = pin!(tokio::time::sleep(deadline));
        loop {
            tokio::select! {
                biased;
                update = updates.next() => match update {
                    Some(update) => yield update,
                    None => return,
                },
                () = &mut passed => {
                    yield Err(Status::new(Code::DeadlineExceeded, "the operation's deadline passed before its end"));
                    return;
                }
            }
        }
    })
}

async fn ended(calls: &Arc<Calls>, operation: Operation, trace: Option<v1::TraceContext>) -> Update {
    let (method, traced) = match &operation {
        Operation::CommitEffect(_) => ("belay.runner.v1.ToolRunnerService/CommitEffect", true),
        Operation::DiscardEffect(_) => ("belay.runner.v1.ToolRunnerService/DiscardEffect", true),
        Operation::CallTool(_) | Operation::CancelToolCall(_) | Operation::AcknowledgeToolCalls(_) => ("", false),
    };
    let span = traced.then(|| calls.start_operation_span(method, trace));
    let call = match operation {
        Operation::CancelToolCall(request) => cancel_tool_call(calls, request).await,
        Operation::CommitEffect(request) => commit_effect(calls, request).await,
        Operation::DiscardEffect(request) => discard_effect(calls, request).await,
        Operation::AcknowledgeToolCalls(request) => {
            return acknowledge_tool_calls(calls, request).await.map(Reply::Acknowledged);
        }
        Operation::CallTool(_) => Err(Status::internal("calls are followed")),
    };
    if let Some(span) = span {
        calls.end_span(span, &call);
    }
    Ok(Reply::Result(known_part(&call?)))
}

fn reply(update: CallUpdate) -> Reply {
    match update {
        CallUpdate::Started(name) => Reply::Started(ToolCallStarted { name }),
        CallUpdate::Output(output) => Reply::Output(output),
        CallUpdate::WaitingFor(exclusive_call) => Reply::Waiting(ToolCallWaiting { exclusive_call }),
        CallUpdate::Asking(questions) => Reply::Asking(runner_v1::ToolCallAsking { questions: questions.to_vec() }),
        CallUpdate::AwaitingApproval(call) => Reply::Held(known_part(&call)),
        CallUpdate::Ended(call) => Reply::Result(known_part(&call)),
    }
}

/// The part of a call that the executor does not know: without the arguments, which it has sent.
fn known_part(call: &runner_v1::ToolCall) -> runner_v1::ToolCall {
    runner_v1::ToolCall {
        name: call.name.clone(),
        state: call.state,
        result: call.result.clone(),
        failure: call.failure.clone(),
        receipt: call.receipt.clone(),
        approval_need: call.approval_need.clone(),
        ..runner_v1::ToolCall::default()
    }
}
