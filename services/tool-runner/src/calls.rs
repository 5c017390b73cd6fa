//! The calls this runner knows of, and the one way in which a call runs.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry as Slot},
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use belay_proto::v1::{self, ErrorClass, tool_call::State};
use belay_service_kit::{Clock, status};
use tokio::{sync::watch, time::Instant};
use tonic::{Code, Status};

use crate::{
    Invocation, Ledger, Parts, Recovery, Registry, ToolFailure, ToolResult,
    ledger::{Entry, Known},
    registry::Registered,
};

/// A call's outcome, once there is one.
pub(crate) type Outcome = watch::Receiver<Option<Arc<v1::ToolCall>>>;

/// The calls this runner knows of.
pub struct Calls {
    pub(crate) registry: Registry,
    ledger: Ledger,
    clock: Arc<dyn Clock>,
    fences: Mutex<HashMap<i32, i64>>,
    known: Mutex<HashMap<String, Call>>,
    forgotten: Mutex<Forgotten>,
}

#[derive(Clone)]
struct Call {
    /// The digest of what was asked; empty for a tombstone, which fits anything.
    digest: Arc<str>,
    outcome: Outcome,
    cancel: Arc<watch::Sender<bool>>,
    /// What is known while it runs.
    started: Arc<v1::ToolCall>,
}

/// A call to make, checked as far as it can be without the tool.
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) tool: Arc<Registered>,
    pub(crate) arguments: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) workspace: String,
}

impl Calls {
    /// The calls of a ledger, with what was running when it was last open settled by each call's recovery class.
    ///
    /// # Errors
    /// [`Status`] when that cannot be made durable.
    pub async fn recover(parts: Parts) -> Result<Arc<Self>, Status> {
        let Parts { registry, mut ledger, clock } = parts;
        let mut known = HashMap::new();
        for Known { digest, ended, mut call } in ledger.take_known() {
            if !ended && call.recovery() != v1::RecoveryClass::Manual {
                // It may run again, so it is as if it had never arrived.
                ledger.write(Entry::Forgotten { name: call.name }).await.map_err(not_durable)?;
                continue;
            }
            if !ended {
                let message = "The tool runner was lost while the call ran; what it did cannot be known.";
                call.set_state(State::OutcomeUnknown);
                call.failure = Some(failure(ErrorClass::OutcomeUnknown, "OUTCOME_UNKNOWN", message));
                ledger
                    .write(Entry::Call { digest: digest.clone(), ended: true, call: call.clone() })
                    .await
                    .map_err(not_durable)?;
            }
            known.insert(call.name.clone(), Call::ended(digest.into(), call));
        }
        let fences = Mutex::new(ledger.fences());
        Ok(Arc::new(Self { registry, ledger, clock, fences, known: Mutex::new(known), forgotten: Mutex::default() }))
    }

    pub(crate) fn ledger_id(&self) -> &str {
        self.ledger.id()
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
            return Err(status::error(Code::FailedPrecondition, "FENCED", message).with("newest", newest).into());
        }
        if token > newest {
            self.ledger.write(Entry::Fence { shard, token }).await.map_err(not_durable)?;
            let mut fences = lock(&self.fences);
            let highest = fences.entry(shard).or_insert(token);
            *highest = (*highest).max(token);
        }
        Ok(())
    }

    /// Runs a call, or attaches to the one of this name.
    pub(crate) fn call(self: &Arc<Self>, order: Order) -> Result<Outcome, Status> {
        let digest: Arc<str> = crate::service::digest(&order.tool.spec, &order.arguments).into();
        let mut known = self.known();
        let slot = match known.entry(order.name.clone()) {
            Slot::Occupied(call) => {
                let call = call.get();
                if !call.digest.is_empty() && call.digest != digest {
                    let message = format!("{} was asked for before with another tool or other arguments.", order.name);
                    return Err(status::error(Code::AlreadyExists, "CALL_EXISTS", message).into());
                }
                return Ok(call.outcome.clone());
            }
            Slot::Vacant(slot) => slot,
        };
        if lock(&self.forgotten).holds(&order.name) {
            let message = format!("{} has ended, and its outcome was acknowledged: this request was late.", order.name);
            return Err(status::error(Code::FailedPrecondition, "CALL_ACKNOWLEDGED", message).into());
        }
        let started = Arc::new(v1::ToolCall {
            name: order.name.clone(),
            tool: order.tool.spec.name.into(),
            state: State::Running.into(),
            arguments: Some(payload(order.arguments.clone())),
            arguments_digest: crate::service::arguments_digest(&order.arguments),
            recovery: order.tool.spec.recovery.to_proto().into(),
            start_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            ..v1::ToolCall::default()
        });
        let (answer, outcome) = watch::channel(None);
        let (cancel, cancelled) = watch::channel(false);
        let call = Call {
            digest: Arc::clone(&digest),
            outcome: outcome.clone(),
            cancel: Arc::new(cancel),
            started: Arc::clone(&started),
        };
        slot.insert(call);
        drop(known);

        let calls = Arc::clone(self);
        tokio::spawn(async move {
            let ended = calls.carry_out(&order, &digest, (*started).clone(), cancelled).await;
            if order.tool.spec.recovery == Recovery::ReadOnly {
                // Whoever waits holds the outcome; whoever asks later may have it run again.
                calls.known().remove(&order.name);
            }
            answer.send_replace(Some(Arc::new(ended)));
        });
        Ok(outcome)
    }

    async fn carry_out(
        &self,
        order: &Order,
        digest: &str,
        mut call: v1::ToolCall,
        cancelled: watch::Receiver<bool>,
    ) -> v1::ToolCall {
        let durable = order.tool.spec.recovery != Recovery::ReadOnly;
        if durable {
            let started = Entry::Call { digest: digest.to_owned(), ended: false, call: call.clone() };
            if let Err(error) = self.ledger.write(started).await {
                call.set_state(State::Failed);
                let message = format!("The call was not started, because the ledger cannot be written: {error}.");
                call.failure = Some(failure(ErrorClass::Transient, "LEDGER_UNAVAILABLE", message));
                self.known().remove(&order.name);
                return call;
            }
        }
        let began = Instant::now();
        let (state, result) = run(order, cancelled).await;
        call.set_state(state);
        match result {
            Ok(result) => call.result = Some(payload(result.to_string())),
            Err(ToolFailure { class, reason, message }) => call.failure = Some(failure(class, &reason, message)),
        }
        call.end_time = Some(belay_proto::timestamp(self.clock.now_micros()));
        call.receipt = Some(v1::Receipt {
            ledger_id: self.ledger.id().into(),
            duration: Some(belay_proto::duration(began.elapsed())),
            ..v1::Receipt::default()
        });
        if durable {
            let ended = Entry::Call { digest: digest.to_owned(), ended: true, call: call.clone() };
            if let Err(error) = self.ledger.write(ended).await {
                let message = format!("The call ran, but how it ended could not be written down: {error}.");
                let (state, class) = match order.tool.spec.recovery {
                    Recovery::Manual => (State::OutcomeUnknown, ErrorClass::OutcomeUnknown),
                    Recovery::ReadOnly | Recovery::Idempotent | Recovery::Transactional => (State::Failed, ErrorClass::Transient),
                };
                call.set_state(state);
                call.result = None;
                call.failure = Some(failure(class, "LEDGER_UNAVAILABLE", message));
            }
        }
        call
    }

    /// What is known of a call.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<v1::ToolCall>, Status> {
        let known = self.known();
        let call = known.get(name).ok_or_else(|| self.never_arrived(name))?;
        Ok(call.outcome.borrow().clone().unwrap_or_else(|| Arc::clone(&call.started)))
    }

    /// Follows a call.
    pub(crate) fn attach(&self, name: &str) -> Result<Outcome, Status> {
        self.known().get(name).map(|call| call.outcome.clone()).ok_or_else(|| self.never_arrived(name))
    }

    fn never_arrived(&self, name: &str) -> Status {
        let message = format!("No call {name} ever arrived here.");
        status::error(Code::NotFound, "CALL_NOT_FOUND", message).with("ledger_id", self.ledger.id()).into()
    }

    /// Stops a call and answers when it has ended. One that never arrived is forbidden.
    pub(crate) async fn cancel(&self, name: &str) -> Result<Arc<v1::ToolCall>, Status> {
        let running = self.known().get(name).cloned();
        if let Some(call) = running {
            call.cancel.send_replace(true);
            return ended(call.outcome).await;
        }
        let tombstone = v1::ToolCall {
            name: name.to_owned(),
            state: State::Cancelled.into(),
            failure: Some(failure(ErrorClass::Cancelled, "CANCELLED", "The call was cancelled before it arrived.")),
            end_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            receipt: Some(v1::Receipt { ledger_id: self.ledger.id().into(), duration: None, ..v1::Receipt::default() }),
            ..v1::ToolCall::default()
        };
        // In memory first, so that the call cannot slip in while the row is written; a row that fails takes it back.
        let call = Call::ended("".into(), tombstone.clone());
        if let Slot::Vacant(slot) = self.known().entry(name.to_owned()) {
            slot.insert(call.clone());
        } else {
            return Box::pin(self.cancel(name)).await;
        }
        if let Err(error) = self.ledger.write(Entry::Call { digest: String::new(), ended: true, call: tombstone }).await
        {
            self.known().remove(name);
            return Err(not_durable(error));
        }
        ended(call.outcome).await
    }

    /// Forgets calls whose outcome the executor has stored.
    pub(crate) async fn acknowledge(&self, names: Vec<String>) -> Result<(), Status> {
        let ended: Vec<String> = {
            let known = self.known();
            let has_ended = |name: &String| known.get(name).is_some_and(|call| call.outcome.borrow().is_some());
            names.into_iter().filter(has_ended).collect()
        };
        self.ledger.write(Entry::Acknowledged { names: ended.clone() }).await.map_err(not_durable)?;
        let mut known = self.known();
        let mut forgotten = lock(&self.forgotten);
        for name in ended {
            known.remove(&name);
            forgotten.add(name);
        }
        Ok(())
    }
}

/// The names of calls that were forgotten a short while ago. A request that was held up in the network comes too late to be meant, and
/// must not run the call again.
#[derive(Default)]
struct Forgotten {
    names: HashSet<String>,
    in_order: VecDeque<(Instant, String)>,
}

impl Forgotten {
    /// Longer than any network holds a request back.
    const KEPT: Duration = Duration::from_secs(600);
    const MOST: usize = 100_000;

    fn add(&mut self, name: String) {
        let now = Instant::now();
        self.names.insert(name.clone());
        self.in_order.push_back((now, name));
        while self.in_order.len() > Self::MOST || self.in_order.front().is_some_and(|(at, _)| now - *at > Self::KEPT) {
            if let Some((_, name)) = self.in_order.pop_front() {
                self.names.remove(&name);
            }
        }
    }

    fn holds(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Call {
    fn ended(digest: Arc<str>, call: v1::ToolCall) -> Self {
        let call = Arc::new(call);
        let (_, outcome) = watch::channel(Some(Arc::clone(&call)));
        Self { digest, outcome, cancel: Arc::new(watch::Sender::new(true)), started: call }
    }
}

/// Answers when the call has ended.
pub(crate) async fn ended(mut outcome: Outcome) -> Result<Arc<v1::ToolCall>, Status> {
    match outcome.wait_for(Option::is_some).await {
        Ok(call) => Ok(call.clone().expect("waited for")),
        Err(_) => Err(status::error(Code::Unavailable, "RUNNER_STOPPING", "The tool runner is stopping.").into()),
    }
}

/// The work itself, with its arguments and its result held to the schemas, within its time and until it is cancelled.
async fn run(order: &Order, mut cancelled: watch::Receiver<bool>) -> (State, ToolResult) {
    let Registered { spec, parameters, result: result_schema, tool } = &*order.tool;
    let failed = |class, reason: &str, message: String| (State::Failed, Err(ToolFailure::new(class, reason, message)));
    let arguments = match serde_json::from_str(&order.arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            return failed(ErrorClass::InvalidArguments, "INVALID_ARGUMENTS", format!("arguments: not JSON: {error}"));
        }
    };
    if let Some(violation) = parameters.violations(&arguments).first() {
        let message = format!("arguments{}: {}", violation.pointer, violation.message);
        return failed(ErrorClass::InvalidArguments, "INVALID_ARGUMENTS", message);
    }
    let limit = order.timeout.unwrap_or(spec.default_timeout);
    struct Nobody;
    impl crate::Output for Nobody {
        fn write(&self, _stream: v1::tool_call_output::Stream, _bytes: &[u8]) {}
    }
    let invocation = Invocation {
        name: order.name.clone(),
        attempt: order.attempt,
        arguments,
        view: None,
        output: Arc::new(Nobody),
        trace: v1::TraceContext::default(),
        limit,
    };
    let mut work = tool.call(invocation);
    let mut timer = pin!(tokio::time::sleep(limit));
    let mut stop = pin!(cancelled.wait_for(|cancel| *cancel));
    // A result that is there counts, even when the time is just over.
    let end = poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(End::Worked(result));
        }
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(End::Stopped);
        }
        timer.as_mut().poll(context).map(|()| End::OutOfTime)
    })
    .await;
    drop(work);
    match end {
        End::Worked(Ok(result)) => match result_schema.violations(&result).first() {
            None => (State::Completed, Ok(result)),
            Some(violation) => {
                let message = format!(
                    "The result of `{}` does not fit its schema: {}: {}",
                    spec.name, violation.pointer, violation.message
                );
                failed(ErrorClass::InvalidResult, "INVALID_RESULT", message)
            }
        },
        End::Worked(Err(failure)) => (State::Failed, Err(failure)),
        End::Stopped | End::OutOfTime if spec.recovery == Recovery::Manual => {
            let message = "The call was stopped while it reached out; what it did cannot be known.";
            (State::OutcomeUnknown, Err(ToolFailure::new(ErrorClass::OutcomeUnknown, "OUTCOME_UNKNOWN", message)))
        }
        End::Stopped => {
            (State::Cancelled, Err(ToolFailure::new(ErrorClass::Cancelled, "CANCELLED", "The call was cancelled.")))
        }
        End::OutOfTime => {
            let message = format!("The call took longer than its limit of {limit:?}.");
            (State::TimedOut, Err(ToolFailure::new(ErrorClass::Timeout, "TIMEOUT", message)))
        }
    }
}

enum End {
    Worked(ToolResult),
    Stopped,
    OutOfTime,
}

fn failure(class: ErrorClass, reason: &str, message: impl Into<String>) -> v1::Failure {
    let retryable = matches!(
        class,
        ErrorClass::Crash
            | ErrorClass::RateLimit
            | ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::InvalidResult
    );
    v1::Failure { error_class: class.into(), message: message.into(), reason: reason.into(), retryable }
}

fn payload(json: String) -> v1::Payload {
    v1::Payload { content: Some(v1::payload::Content::Json(json)) }
}

fn not_durable(error: impl std::fmt::Display) -> Status {
    status::error(Code::Unavailable, "LEDGER_UNAVAILABLE", format!("The ledger of calls cannot be written: {error}."))
        .into()
}

#[cfg(test)]
mod tests;
