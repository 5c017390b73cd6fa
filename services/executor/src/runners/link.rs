//! The session with the runner, as those use it who have something for the runner: operations, acknowledgements.
//!
//! Operations are handed over without a task of their own. Those that are added while a connection is being made are sent once there is one; when
//! that fails, or the session ends, every waiter is notified, and sends the operation again.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use belay_proto::{
    runner_v1::{self, AcknowledgeToolCallsRequest, Fence, SessionOperation, SessionRequest, SessionResponse},
    session::SentPositions,
    stores::Stores,
};
use futures::Stream;
use tokio::{
    sync::{Notify, mpsc},
    task::AbortHandle,
};
use tonic::Status;

use crate::runners::{
    call_reply::{RunnerReply, is_permanent},
    session::{AcknowledgementReply, Delivery, Report, Session, Urgency},
};

/// The delay before an acknowledgement is sent again that the runner could not take.
const ACKNOWLEDGE_AGAIN: Duration = Duration::from_millis(200);

/// An operation on a call that needs no task until something goes wrong.
pub(crate) trait Operation: Send {
    /// Its tool has started.
    fn on_started(&self);

    /// It waits for an exclusive call; an empty name: it no longer does.
    fn on_waiting(&self, other: String);

    /// These questions of it are open.
    fn on_asking(&self, questions: Vec<runner_v1::ToolCallQuestion>);

    /// Its end. If that is not all, returns the operation and what a task has to continue with.
    fn end(self: Box<Self>, end: Result<Box<runner_v1::ToolCall>, Status>) -> Option<(Box<dyn Operation>, First)>;

    /// Starts a task that continues it.
    fn continue_with(self: Box<Self>, first: First) -> AbortHandle;
}

/// The starting point of a task that continues an operation.
pub(crate) enum First {
    /// The call has to be sent.
    Nothing,
    /// The runner's reply.
    Reply(RunnerReply),
    /// The same, to be understood first.
    End(Result<Box<runner_v1::ToolCall>, Status>),
    /// The call was sent and has output.
    Following(Following),
}

/// The party that waits for an operation.
enum Waiter {
    /// An operation without a task: it is given its end.
    Operation(Box<dyn Operation>),
    /// A task that reads every report.
    Task(mpsc::UnboundedSender<Report>),
}

/// How operations reach the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    /// By a method each: no session is wanted, or the runner has none.
    Methods,
    /// By the session, or the next one.
    Session,
}

struct State {
    transport: Transport,
    session: Session<Waiter>,
    /// The operations that began without a task and are still wanted, each with the task that it has by now.
    wanted: HashMap<i64, Option<AbortHandle>>,
    /// Increases with each session; a stream of an earlier one ends.
    generation: u64,
    /// Wakes the stream of requests.
    waker: Option<Waker>,
}

/// The session with the runner, for all executions.
pub(crate) struct Link {
    state: Mutex<State>,
    /// An operation was added.
    pub(crate) added: Notify,
}

impl Default for Link {
    fn default() -> Self {
        let state = State {
            transport: Transport::Methods,
            session: Session::default(),
            wanted: HashMap::new(),
            generation: 0,
            waker: None,
        };
        Self { state: Mutex::new(state), added: Notify::new() }
    }
}

/// Receives the reports about an operation for a task; dropping it forgets the operation.
pub(crate) struct Following {
    link: Arc<Link>,
    id: i64,
    reports: mpsc::UnboundedReceiver<Report>,
    /// Whether dropping this forgets the operation.
    is_owner: bool,
}

impl Following {
    /// The next report; `None` when there will be no end.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        self.reports.recv().await
    }

    /// As much output was read.
    pub(crate) fn credit(&self, bytes: usize) {
        let mut state = self.link.state();
        state.session.credit(self.id, bytes);
        wake(state);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.is_owner {
            self.link.forget(self.id);
        }
    }
}

/// An operation in the session; dropping it forgets the operation.
pub(crate) struct InSession {
    link: Arc<Link>,
    id: i64,
}

impl Drop for InSession {
    fn drop(&mut self) {
        self.link.forget(self.id);
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether operations go over a session.
    pub(crate) fn is_session(&self) -> bool {
        self.state().transport == Transport::Session
    }

    /// From now on operations go over a session, which [`crate::runners::connection::run`] connects.
    pub(crate) fn start(&self) {
        self.state().transport = Transport::Session;
    }

    /// Adds an operation whose waiter needs no task. It is returned when there is no session, or its request is too large for one.
    pub(crate) fn add(
        self: &Arc<Self>,
        name: String,
        operation: SessionOperation,
        waiter: Box<dyn Operation>,
    ) -> Result<InSession, Box<dyn Operation>> {
        match self.add_waiter(name, operation, Urgency::Usual, Waiter::Operation(waiter)) {
            Ok(id) => Ok(InSession { link: Arc::clone(self), id }),
            Err((_, Waiter::Operation(waiter))) => Err(waiter),
            Err((_, Waiter::Task(_))) => unreachable!("it was an operation"),
        }
    }

    /// Adds an operation whose reports a task reads. `None`: there is no session.
    pub(crate) fn follow(
        self: &Arc<Self>,
        name: String,
        operation: SessionOperation,
        urgency: Urgency,
    ) -> Option<Result<Following, Status>> {
        let (sender, reports) = mpsc::unbounded_channel();
        match self.add_waiter(name, operation, urgency, Waiter::Task(sender)) {
            Ok(id) => Some(Ok(Following { link: Arc::clone(self), id, reports, is_owner: true })),
            Err((Some(status), _)) => Some(Err(status)),
            Err((None, _)) => None,
        }
    }

    fn add_waiter(
        &self,
        name: String,
        operation: SessionOperation,
        urgency: Urgency,
        waiter: Waiter,
    ) -> Result<i64, (Option<Status>, Waiter)> {
        let mut state = self.state();
        if state.transport == Transport::Methods {
            return Err((None, waiter));
        }
        let has_task = matches!(waiter, Waiter::Task(_));
        let id =
            state.session.add(name, operation, urgency, waiter).map_err(|(status, waiter)| (Some(status), waiter))?;
        if !has_task {
            state.wanted.insert(id, None);
        }
        let is_connected = state.waker.is_some();
        wake(state);
        if !is_connected {
            self.added.notify_one();
        }
        Ok(id)
    }

    /// The end of an operation whose only report that is of interest is that. `None`: there is no session.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        name: String,
        operation: SessionOperation,
        urgency: Urgency,
    ) -> Option<Result<runner_v1::ToolCall, Status>> {
        let mut following = match self.follow(name, operation, urgency)? {
            Ok(following) => following,
            Err(status) => return Some(Err(status)),
        };
        while let Some(report) = following.next().await {
            if let Report::Ended(end) = report {
                return Some(end.map(|call| *call));
            }
        }
        // The session was given up in favour of methods.
        None
    }

    /// Acknowledges a call. Returns the name when there is no session, or too many acknowledgements wait for one.
    pub(crate) fn acknowledge(&self, fence: Fence, name: String) -> Result<(), String> {
        let mut state = self.state();
        if state.transport == Transport::Methods {
            return Err(name);
        }
        state.session.acknowledge(fence, name)?;
        wake(state);
        Ok(())
    }

    /// Acknowledges calls again that the runner could not take, unless it never will.
    fn acknowledge_later(self: &Arc<Self>, request: AcknowledgeToolCallsRequest, status: &Status) {
        if is_permanent(status) {
            tracing::warn!(%status, "The runner rejects an acknowledgement");
            return;
        }
        tracing::debug!(%status, "The runner does not take an acknowledgement now; retrying");
        let link = Arc::clone(self);
        let fence = request.fence.unwrap_or_default();
        tokio::spawn(async move {
            tokio::time::sleep(ACKNOWLEDGE_AGAIN).await;
            for name in request.names {
                // If there is no room or no session, the runner lists the call when the next session begins.
                drop(link.acknowledge(fence, name));
            }
        });
    }

    fn forget(&self, id: i64) {
        let mut state = self.state();
        state.session.forget(id);
        let task = state.wanted.remove(&id);
        wake(state);
        if let Some(Some(task)) = task {
            task.abort();
        }
    }

    /// The stream of requests of a new session.
    pub(crate) fn open(self: &Arc<Self>, stores: Option<Arc<Stores>>) -> Requests {
        let mut state = self.state();
        state.generation += 1;
        Requests {
            link: Arc::clone(self),
            generation: state.generation,
            stores,
            sent: SentPositions::default(),
            has_yielded: false,
        }
    }

    /// Ends the session: every waiter gets the reason. The next operations wait for another one, if one is wanted.
    pub(crate) fn end(self: &Arc<Self>, status: &Status, wants_session: bool) {
        let mut state = self.state();
        state.transport = if wants_session { Transport::Session } else { Transport::Methods };
        state.generation += 1;
        let waiting = state.session.end();
        wake(state);
        for (id, waiter) in waiting {
            // Whatever ended the session says nothing about the calls.
            let gone = Status::unavailable(format!("the session with the runner has ended: {}", status.message()));
            self.report(id, Report::Ended(Err(gone)), waiter);
        }
    }

    /// Ends what an earlier task left.
    pub(crate) fn end_if_begun(self: &Arc<Self>, wants_session: bool) {
        if self.state().generation > 0 {
            self.end(&Status::unavailable("its task has failed"), wants_session);
        }
    }

    /// There is no session with this runner. The waiters use the methods.
    pub(crate) fn use_methods(self: &Arc<Self>) {
        let mut state = self.state();
        state.transport = Transport::Methods;
        state.generation += 1;
        let waiting = state.session.end();
        wake(state);
        for (id, waiter) in waiting {
            match waiter {
                Waiter::Operation(operation) => self.keep_task(id, || operation.continue_with(First::Nothing)),
                // The end of the channel says so.
                Waiter::Task(_) => {}
            }
        }
    }

    /// The runner's hello has arrived.
    ///
    /// # Errors
    /// When it is the second one.
    pub(crate) fn on_hello(&self) -> Result<(), Status> {
        self.state().session.on_hello()
    }

    /// Whether the runner's hello has arrived.
    pub(crate) fn has_received_hello(&self) -> bool {
        self.state().session.has_received_hello()
    }

    /// Delivers the replies of a message.
    pub(crate) fn deliver(self: &Arc<Self>, message: SessionResponse) {
        for reply in message.replies {
            let mut state = self.state();
            match state.session.confirm(&reply) {
                Some(AcknowledgementReply::Taken) => continue,
                Some(AcknowledgementReply::Refused(request, status)) => {
                    drop(state);
                    self.acknowledge_later(request, &status);
                    continue;
                }
                None => {}
            }
            let delivery = state.session.deliver(reply);
            drop(state);
            let Some(Delivery { id, report, waiter }) = delivery else { continue };
            // A fault in one operation is its driver's, and must not end everyone's session.
            let delivered = catch_unwind(AssertUnwindSafe(|| self.report(id, report, waiter)));
            if delivered.is_err() {
                tracing::error!("A reply of the runner could not be handled; this is a bug in Belay");
            }
        }
    }

    /// Delivers a report to its waiter, and keeps the waiter unless that was the end.
    fn report(self: &Arc<Self>, id: i64, report: Report, waiter: Waiter) {
        let kept = match (waiter, report) {
            (Waiter::Operation(operation), Report::Ended(end)) => {
                if let Some((operation, first)) = operation.end(end) {
                    self.keep_task(id, || operation.continue_with(first));
                }
                return;
            }
            (Waiter::Operation(operation), Report::Started) => {
                operation.on_started();
                Waiter::Operation(operation)
            }
            (Waiter::Operation(operation), Report::WaitingFor(other)) => {
                operation.on_waiting(other);
                Waiter::Operation(operation)
            }
            (Waiter::Operation(operation), Report::Asking(questions)) => {
                operation.on_asking(questions);
                Waiter::Operation(operation)
            }
            (Waiter::Operation(operation), report @ Report::Output(_)) => {
                // Output takes time to redact, which others must not wait for.
                let (sender, reports) = mpsc::unbounded_channel();
                drop(sender.send(report));
                let following = Following { link: Arc::clone(self), id, reports, is_owner: false };
                self.keep_task(id, || operation.continue_with(First::Following(following)));
                Waiter::Task(sender)
            }
            (Waiter::Task(sender), report) => {
                let is_end = matches!(report, Report::Ended(_));
                // An error means that the task has ended, and forgets the operation.
                drop(sender.send(report));
                if is_end {
                    return;
                }
                Waiter::Task(sender)
            }
        };
        let unwanted = self.state().session.give_back(id, kept);
        drop(unwanted);
    }

    /// Starts the task of an operation that is still wanted, and keeps it, so that forgetting the operation aborts it.
    fn keep_task(&self, id: i64, start: impl FnOnce() -> AbortHandle) {
        if !self.state().wanted.contains_key(&id) {
            return;
        }
        let task = start();
        match self.state().wanted.get_mut(&id) {
            Some(kept) => *kept = Some(task),
            None => task.abort(),
        }
    }
}

/// The requests of one session.
pub(crate) struct Requests {
    link: Arc<Link>,
    generation: u64,
    stores: Option<Arc<Stores>>,
    sent: SentPositions,
    has_yielded: bool,
}

impl Stream for Requests {
    type Item = SessionRequest;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SessionRequest>> {
        let this = self.get_mut();
        let link = Arc::clone(&this.link);
        let mut state = link.state();
        if state.generation != this.generation {
            return Poll::Ready(None);
        }
        if !state.session.is_ready() {
            this.has_yielded = false;
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        if !std::mem::replace(&mut this.has_yielded, true) {
            // Others that are about to add something do so first: one message has room for all.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.has_yielded = false;
        let message = state.session.next();
        drop(state);
        let stores = this.stores.as_deref().and_then(|stores| this.sent.next(stores));
        Poll::Ready(Some(SessionRequest { stores, ..message }))
    }
}
