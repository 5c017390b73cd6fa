//! The loop that drives one execution: receive what happened, decide, make it durable, then act on it.

mod act;
mod blob_context;
mod blobs;
mod blockers;
mod call_end;
mod child;
mod child_end;
mod earlier_results;
mod exit;
mod forms;
mod handlers;
pub(crate) mod life;
mod limit_turn;
mod limits;
mod log;
mod namespace_usage;
mod open_questions;
mod own_calls;
mod questions;
mod usage;

use std::{
    collections::{BTreeSet, HashMap},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_execution::{
    BlobRef, Body, Event, Execution, ExecutionEvent, LimitState, OperationId, OperationKey, Timestamp,
};
use belay_journal::{
    ExecutionKey, ExecutionRow, ExecutionSummary, InboxChanges, InboxContent, InboxMessage, OutboxMessage, Refused,
    StoreWrite, TakenMessage, Waits,
};
use belay_proto::v1;
use belay_reading::progress::{Fact, Progress};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use blob_context::NewBlobs;
use blockers::Blockers;
use earlier_results::EarlierResults;
use exit::Exit;
use limits::Limits;
use open_questions::OpenQuestions;
use usage::Usage;

use crate::{
    approvals::{asks, decisions::outcome},
    feeds::{EventFeed, LiveWaits, Push},
    names::ExecutionName,
    observe::trace::Trace,
    owned::{
        messages::{Command, EndedChild, GateNotice, Reply},
        registry::{ExecutionRegistry, unwritable},
        steps_in_memory::{Owner, StepShare},
    },
    runners::{
        in_doubt::InDoubt,
        operation::{OperationHandle, Update},
    },
    store::{
        commits::Write,
        journal_reads::unreadable,
        marks,
        replayed_execution::ReplayedExecution,
        secrets::{SealedEvents, Secrets},
        snapshots,
    },
    upkeep::webhooks::{self, About},
    wire,
};

pub(crate) use limits::claims_of;

pub(crate) struct Driver {
    /// How far the execution's time is ahead of the service's clock, in microseconds; see [`Self::now`].
    ahead: i64,
    registry: Arc<ExecutionRegistry>,
    key: ExecutionKey,
    name: ExecutionName,
    /// The execution's name, as text.
    execution_name: String,
    execution: Execution,
    trace: Trace,
    progress: Progress,
    feed: Arc<EventFeed>,
    updates: mpsc::UnboundedReceiver<Update>,
    update_sender: mpsc::UnboundedSender<Update>,
    /// The operation in flight for each call; at most one.
    operations: HashMap<OperationKey, OperationHandle>,
    /// Calls that an earlier driver may have sent or committed, counted, and its waits, which are not.
    in_doubt: HashMap<OperationKey, Option<InDoubt>>,
    /// Calls to acknowledge to the runner once their outcome is durable.
    unacknowledged: Vec<OperationId>,
    /// How many operations on children were started.
    child_operations: u64,
    /// The execution's secrets.
    secrets: Secrets,
    /// Notices to send to the gate once the events are durable.
    notices: Vec<GateNotice>,
    /// Decisions that no call in flight waits for; their use is reported to the gate once all earlier events are durable.
    late_decisions: Vec<v1::Approval>,
    summary: ExecutionSummary,
    /// The last event of the last snapshot; 0 when there is none.
    snapshot_at: u64,
    blockers: Blockers,
    /// The reasons for waiting, in no event, that readers see.
    shown_waits: LiveWaits,
    drained: Vec<oneshot::Sender<()>>,
    /// Requests approvals again that the gate has lost, with its number. The execution stays in memory meanwhile.
    requesting_again: Option<RequestingAgain>,
    /// Answers to forms that came while the gate was being asked for the form; see [`Self::is_asking`].
    early_answers: Vec<(Box<v1::Approval>, Option<v1::Payload>)>,
    ledger_id: Arc<str>,
    /// The execution whose step it carries out.
    parent: Option<ExecutionKey>,
    /// Ends of children that are not recorded yet.
    ended_children: Vec<EndedChild>,
    /// Ends of children may stand in the inbox.
    reviews_children: bool,
    /// The messages that the next transition takes out of the inbox.
    taken_messages: Vec<TakenMessage>,
    /// The messages that nothing waits for, as far as this driver knows.
    unawaited_messages: Vec<TakenMessage>,
    /// The execution's uid.
    uid: Arc<str>,
    /// The blobs that it made.
    made: NewBlobs,
    /// The questions of its calls.
    questions: OpenQuestions,
    /// Its steps in memory.
    steps: StepShare,
    /// Results that were found in other executions of its plan.
    earlier_results: Option<EarlierResults>,
    /// The share of its calls in the budget of its namespace.
    usage: Usage,
    /// Its limits over executions.
    limits: Limits,
}

/// Approvals and forms that the gate is asked for again.
struct RequestingAgain {
    /// Distinguishes it from the one that it replaced.
    number: u32,
    /// Requests that the gate has not answered yet.
    missing: BTreeSet<OperationKey>,
    /// Ends with this.
    _operation: OperationHandle,
}

/// An execution loaded from the store.
struct LoadedExecution {
    key: ExecutionKey,
    name: ExecutionName,
    execution: Execution,
    secrets: Secrets,
    trace: Trace,
    summary: ExecutionSummary,
    snapshot_at: u64,
    ledger_id: Arc<str>,
    parent: Option<ExecutionKey>,
    steps: StepShare,
}

impl Driver {
    async fn from_store(registry: &Arc<ExecutionRegistry>, row: ExecutionRow) -> Result<LoadedExecution, Status> {
        let ReplayedExecution { execution, secrets, snapshot_at, blobs, .. } = registry.reads.replay(row.key).await?;
        let parent = row.execution.parent.as_ref().map(|parent| parent.execution);
        let tree = tree_of(registry, &row).await?;
        let name = ExecutionName { namespace: row.execution.namespace, id: row.execution.id };
        let mut steps = registry.steps.enter(Owner::of(execution.principal(), tree, execution.plan()));
        steps.set(execution.steps().len());
        // Without a key it has no blobs, but perhaps one that a crash left before the key was stored: the next load removes it.
        if let Some(named) = blobs.filter(|_| secrets.own_key().is_some()) {
            remove_unnamed_blobs(registry, &name, named).await;
        }
        // When the runner is unavailable, expect the ledger of the last intent; a later mismatch is reported by the runner.
        let ledger_id = match registry.runner.catalogue(false).await {
            Ok(catalogue) => catalogue.ledger_id.as_str().into(),
            Err(_) => execution.ledger_id().into(),
        };
        let trace = Trace::of(&registry.reading.telemetry, &name, &execution);
        let (key, summary) = (row.key, row.summary);
        Ok(LoadedExecution { key, name, execution, secrets, trace, summary, snapshot_at, ledger_id, parent, steps })
    }

    fn new(registry: Arc<ExecutionRegistry>, taken: LoadedExecution) -> Self {
        let LoadedExecution { key, name, execution, secrets, trace, summary, snapshot_at, ledger_id, parent, steps } =
            taken;
        // Not bounded: each operation in flight reports a few times, and again only after a delay; a driver that has ended must not hold it up.
        let (update_sender, updates) = mpsc::unbounded_channel();
        // Not less than when it left memory: since its last event it has gone by the service's clock.
        let ahead = execution.last_time().as_micros().saturating_sub(registry.now().as_micros());
        let ahead = ahead.max(registry.ahead_of(key));
        let progress = Progress::of(&execution);
        let usage = Usage::of(&registry, &name.namespace, &execution);
        let limits = Limits::of(&execution);
        Self {
            ahead,
            feed: registry.feed(key),
            uid: execution.created().uid.as_str().into(),
            execution_name: name.to_string(),
            registry,
            key,
            name,
            execution,
            trace,
            progress,
            updates,
            update_sender,
            operations: HashMap::new(),
            in_doubt: HashMap::new(),
            unacknowledged: Vec::new(),
            child_operations: 0,
            secrets,
            notices: Vec::new(),
            late_decisions: Vec::new(),
            summary,
            snapshot_at,
            blockers: Blockers::default(),
            shown_waits: LiveWaits::default(),
            drained: Vec::new(),
            requesting_again: None,
            early_answers: Vec::new(),
            ledger_id,
            parent,
            ended_children: Vec::new(),
            reviews_children: false,
            taken_messages: Vec::new(),
            unawaited_messages: Vec::new(),
            made: NewBlobs::default(),
            questions: OpenQuestions::default(),
            steps,
            earlier_results: None,
            usage,
            limits,
        }
    }

    /// The execution's time. If the clock was set back between two runs of the service, it continues from the last event, so that no wait
    /// gets longer.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.registry.now().as_micros().saturating_add(self.ahead))
    }

    /// A time of the service's clock as a time of the execution.
    fn ahead_of_clock(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_micros(at.as_micros().saturating_add(self.ahead))
    }

    /// Drives the execution until it leaves memory, or something prevents that.
    async fn run(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Exit {
        match self.drive(commands).await {
            Ok(exit) | Err(exit) => exit,
        }
    }

    async fn drive(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Result<Exit, Exit> {
        let mut events = Vec::new();
        let mut replies = Vec::new();
        let shutdown = self.registry.reading.shutdown.clone();
        let mut stop = pin!(shutdown.requested());
        let in_doubt = self.execution.in_doubt();
        if !self.in_doubt.is_empty() && !in_doubt.is_empty() {
            let in_doubt = in_doubt.into_iter().map(|key| self.execution.operation_id(key)).collect();
            let recovered = ExecutionEvent::Recovered { in_doubt };
            events.extend(self.execution.record(self.now(), None, recovered).ok());
        }
        // Before its operations start: an execution whose calls cannot be sent can still be cancelled.
        self.take_commands(commands, &mut events, &mut replies);
        loop {
            let now = self.now();
            // The runner may have another ledger since the last intent.
            if let Some(ledger_id) = self.registry.runner.other_ledger(&self.ledger_id) {
                self.ledger_id = ledger_id;
            }
            for (approval, answer) in std::mem::take(&mut self.early_answers) {
                self.on_decided(approval, answer, &mut events);
            }
            if std::mem::take(&mut self.reviews_children) {
                self.review_children().await?;
            }
            self.take_ends(&mut events)?;
            if is_planted(Defect::UnstoredEndDropped) {
                self.drop_unawaited_messages();
            }
            self.watch_namespace();
            self.decide(now, &mut events).await?;
            if !events.is_empty() {
                self.withdraw_forms(&events);
                self.make_durable(std::mem::take(&mut events), now).await?;
                self.keep_snapshot();
            }
            self.drop_unawaited_messages();
            for notice in self.notices.drain(..) {
                self.registry.notify_gate(notice);
            }
            for approval in self.late_decisions.drain(..) {
                // A decision that could not be read stays undelivered, and the next watch returns it again.
                outcome::report_late_decision(&self.registry, self.key, &approval).await;
            }
            // A caller that has disconnected needs no reply.
            if !replies.is_empty() {
                let summary = self.summarize();
                replies.drain(..).for_each(|reply: Reply| drop(reply.send(Ok(summary.clone()))));
            }
            self.get_arguments().await?;
            let due = self.act();
            let mut wake_at = self.wake_beside_namespace(due);
            wake_at = wake_at.into_iter().chain(self.limits.wakes_at().map(|at| self.ahead_of_clock(at))).min();
            self.made.originals.clear();
            let leaves_at = self.leaves_quietly_at();
            if leaves_at.is_some_and(|at| at <= self.now()) {
                self.park_quietly().await?;
            } else {
                wake_at = wake_at.into_iter().chain(leaves_at).min();
            }
            self.publish_waits();
            if self.execution.is_parked() {
                for drained in self.drained.drain(..) {
                    // An error means that the caller has disconnected.
                    let _ = drained.send(());
                }
            }
            if self.summary.ended {
                self.requesting_again = None;
            }
            let stays = self.requesting_again.is_some() || self.waits_for_others();
            if !stays && (self.summary.parked || self.summary.ended) {
                if let Some(wake_at) = self.execution.wake_at().filter(|_| !self.summary.ended) {
                    self.registry.set_timer(wake_at.as_micros().saturating_sub(self.ahead), self.ahead, self.key);
                }
                if let Some(frees_at) = self.limits.wakes_at() {
                    self.registry.set_own_timer(frees_at.as_micros(), self.key);
                }
                self.registry.keep_ahead(self.key, if self.summary.ended { 0 } else { self.ahead });
                if self.registry.unload(self.key, self.summary.ended, commands) {
                    return Ok(if self.summary.ended { Exit::Ended } else { Exit::Parked });
                }
            }
            self.receive(wake_at, stop.as_mut(), commands, &mut events, &mut replies).await?;
        }
    }

    /// Waits for an input, then takes everything that has arrived.
    async fn receive(
        &mut self,
        wake_at: Option<Timestamp>,
        stop: Pin<&mut impl Future<Output = ()>>,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        events: &mut Vec<Event>,
        replies: &mut Vec<Reply>,
    ) -> Result<(), Exit> {
        let wait = wake_at.map(|at| at.since(self.now()).min(self.registry.reading.thresholds.longest_sleep));
        tokio::select! {
            biased;
            () = stop => return Err(Exit::Stopping),
            Some(update) = self.updates.recv() => self.on_update(update, events)?,
            Some(command) = commands.recv() => self.on_command(command, events, replies),
            () = self.steps.granted(), if self.blockers.is_without_room() => {}
            () = self.usage.changed(), if self.usage.is_waiting() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
        while let Ok(update) = self.updates.try_recv() {
            self.on_update(update, events)?;
        }
        self.take_commands(commands, events, replies);
        Ok(())
    }

    /// Takes the commands that have arrived, up to one that changes the plan: of a transition only one event has facts beside it.
    fn take_commands(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        events: &mut Vec<Event>,
        replies: &mut Vec<Reply>,
    ) {
        let changes_plan = |event: &Event| matches!(event.body, Body::Execution(ExecutionEvent::PlanUpdated(_)));
        while !events.iter().any(changes_plan)
            && let Ok(command) = commands.try_recv()
        {
            self.on_command(command, events, replies);
        }
    }

    /// Stores events; only then are they published, acknowledged and acted on.
    async fn make_durable(&mut self, events: Vec<Event>, now: Timestamp) -> Result<(), Exit> {
        // Shared with readers that follow.
        let events: Arc<[Event]> = events.into();
        let mut messages = messages_of(&events);
        if is_planted(Defect::UnorderedAppend) {
            let sequences: Vec<i64> = messages.iter().map(|message| message.sequence).collect();
            messages.reverse();
            messages.iter_mut().zip(sequences).for_each(|(message, sequence)| message.sequence = sequence);
        }
        let original = |blob: &BlobRef| self.made.originals.get(&blob.digest).cloned();
        let marked: Vec<String> =
            events.iter().flat_map(|event| marks::of_event(&self.execution, event, &original)).collect();
        self.secrets.mark(marked);
        self.write_blobs().await?;
        let random = || self.registry.ids.next_key();
        let SealedEvents { mut transition, new_key: seal_key } =
            self.registry.reading.sealer.seal(&mut self.secrets, &self.execution.created().uid, &mut messages, &random);
        transition.facts = wire::facts_beside(&events);
        let revision = transition.last_sequence();
        let summary = summary_of(
            &self.name,
            &self.execution,
            &self.secrets,
            now,
            self.registry.reading.thresholds.park_after,
            if self.waits_for_others() { Idleness::Busy } else { Idleness::Idle },
        );
        // One that is retried and ends again with one transition may look as before. It has a new end all the same.
        let ends = events.iter().any(is_end);
        let changed = (ends || self.summary.is_outdated_by(&summary)).then(|| summary.clone());
        let fence = self.registry.fence(self.execution.created().shard);
        let facts = self.progress.take(&self.execution, &events);
        let outbox = self.messages(&facts);
        let end = self.parent.filter(|_| ends);
        let inbox = InboxChanges {
            sent: end.into_iter().map(|to| InboxMessage { to, revision, content: InboxContent::ChildEnded }).collect(),
            taken: std::mem::take(&mut self.taken_messages),
        };
        let (changes, usage) = self.namespace_changes(&events);
        let limits = self.limits.changes(&self.execution, &events, self.registry.now());
        let limit_changes = limits.clone();
        let operation = StoreWrite::Append {
            key: self.key,
            transition,
            summary: changed,
            seal_key,
            outbox,
            inbox,
            usage,
            limits,
            fence,
        };
        let push = Push {
            feed: Some(Arc::clone(&self.feed)),
            events: self.feed.is_followed().then(|| (Arc::clone(&events), self.secrets.redactor().clone())),
            end: (summary.ended && self.feed.is_awaited()).then(|| Arc::from(self.summarize())),
            child: end.filter(|_| !is_planted(Defect::StaleView)).and_then(|_| {
                Some((self.name.id.clone(), child_end::end_of(&self.name, &self.execution, self.secrets.redactor())?))
            }),
        };
        match self.commit_with_usage(Write { operation, push: Some(push) }, &changes).await {
            Ok(Ok(_)) => {}
            Ok(Err(refused @ (Refused::OverBudget { .. } | Refused::LimitFull { .. }))) => {
                return Err(Exit::Outdated(refused.to_string()));
            }
            Ok(Err(refused)) => return Err(Exit::Lost(Status::aborted(refused.to_string()))),
            Err(error) => return Err(Exit::Lost(unwritable(&error))),
        }
        self.summary = summary;
        self.after_limit_changes(&limit_changes);
        self.registry.measures.record(&facts);
        self.log(&facts);
        self.trace.record(&self.execution, &events, self.secrets.redactor());
        for call in self.unacknowledged.drain(..) {
            let name = wire::call_name(&self.execution_name, &call);
            self.registry.acknowledge(self.execution.created().shard, name);
        }
        Ok(())
    }

    /// Whether it waits in memory for what other executions have, and decides again when that is free.
    fn waits_for_others(&self) -> bool {
        self.blockers.is_without_room() || self.usage.is_waiting()
    }

    /// When an execution that waits for other executions alone leaves memory: at once for its turn in its limits, and not at once for its children, since most
    /// of them end soon.
    fn leaves_quietly_at(&self) -> Option<Timestamp> {
        if self.summary.parked || self.waits_for_others() {
            return None;
        }
        let since = self.execution.last_time();
        if matches!(self.execution.limit_state(), LimitState::Waiting(_)) && self.execution.is_parked() {
            return Some(since);
        }
        let park_after = self.registry.reading.thresholds.park_after;
        self.execution.waits_for_children().then(|| since.saturating_add(park_after))
    }

    /// Records that the execution is parked, although nothing has happened: it waits for other executions.
    async fn park_quietly(&mut self) -> Result<(), Exit> {
        let park_after = self.registry.reading.thresholds.park_after;
        let parked = summary_of(&self.name, &self.execution, &self.secrets, self.now(), park_after, Idleness::Quiet);
        if !parked.parked {
            return Ok(());
        }
        let fence = self.registry.fence(self.execution.created().shard);
        let operation = StoreWrite::Summarize { key: self.key, summary: parked.clone(), fence };
        match self.registry.commit(operation).await {
            Ok(Ok(_)) => {
                self.summary = parked;
                Ok(())
            }
            Ok(Err(refused)) => Err(Exit::Lost(Status::aborted(refused.to_string()))),
            Err(error) => Err(Exit::Lost(unwritable(&error))),
        }
    }

    /// The messages for webhooks that a transition causes.
    fn messages(&self, facts: &[Fact<'_>]) -> Vec<OutboxMessage> {
        let (name, execution, secrets) = (&self.name, &self.execution, &self.secrets);
        let about = About { name, execution, secrets, facts, now: self.registry.now().as_micros() };
        webhooks::messages(&self.registry.webhooks, &about)
    }

    /// Stores a snapshot when that is worth it. Nothing waits for it, and nothing is lost without it.
    fn keep_snapshot(&mut self) {
        let (now, leaves_memory) = (self.execution.last_sequence(), self.summary.parked || self.summary.ended);
        if !snapshots::is_due(self.snapshot_at, now, leaves_memory, self.registry.reading.thresholds.snapshot_events) {
            return;
        }
        self.snapshot_at = now;
        let random = || self.registry.ids.next_key();
        let Some(snapshot) = self.registry.reading.sealer.snapshot(&self.secrets, &self.execution, random) else {
            return;
        };
        let fence = self.registry.fence(self.execution.created().shard);
        let keep = StoreWrite::KeepSnapshot { key: self.key, snapshot, fence };
        let (registry, name) = (Arc::clone(&self.registry), self.execution_name.clone());
        tokio::spawn(async move {
            // A store that fails is reported to all.
            if let Ok(Err(refused)) = registry.commit(keep).await {
                tracing::debug!(execution.name = name, %refused, "A snapshot is not kept");
            }
        });
    }
}

/// See [`Owner::tree`]. Of a parent that was deleted, nothing is known any more: its child begins the tree then.
async fn tree_of(registry: &ExecutionRegistry, row: &ExecutionRow) -> Result<Arc<str>, Status> {
    let (mut top, mut parent) = (row.execution.id.clone(), row.execution.parent.clone());
    while let Some(above) = parent {
        let key = above.execution;
        let row = registry.reads.read(move |reader| reader.get(key)).await.map_err(|error| unreadable(&error))?;
        parent = row.and_then(|row| row.execution.parent);
        top = above.execution_id;
    }
    Ok(ExecutionName { namespace: row.execution.namespace.clone(), id: top }.to_string().into())
}

/// Removes the blobs that a crash has left without an event.
async fn remove_unnamed_blobs(
    registry: &ExecutionRegistry,
    name: &ExecutionName,
    named: std::collections::HashSet<String>,
) {
    match registry
        .reading
        .blobs
        .remove_unnamed(crate::store::blobs::owner(name), named, registry.ownership.clone())
        .await
    {
        Ok(0) => {}
        Ok(files) => tracing::info!(execution.name = %name, files, "Removed blobs that a crash had left"),
        // They are not named, so that they disturb nothing.
        Err(error) => {
            tracing::warn!(execution.name = %name, %error, "Blobs that a crash may have left cannot be removed");
        }
    }
}

/// Events as messages, with secrets: they have to be sealed before they are stored or shown.
fn messages_of(events: &[Event]) -> Vec<v1::ExecutionEvent> {
    events.iter().map(wire::encode).collect()
}

/// Whether an execution that has nothing to do until `wake_at` leaves memory: not for a wait so short that it would be loaded at once.
fn leaves_memory(wake_at: Option<Timestamp>, now: Timestamp, park_after: Duration) -> bool {
    wake_at.is_none_or(|at| at.since(now) > park_after)
}

/// Whether the driver of an execution has something to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idleness {
    /// It has.
    Busy,
    /// Everything is decided that follows from the execution's events.
    Idle,
    /// Everything is decided, and nothing has happened for a while.
    Quiet,
}

/// The columns that the store can query without reading events. They change with the state, and when the execution is parked or woken.
fn summary_of(
    name: &ExecutionName,
    execution: &Execution,
    secrets: &Secrets,
    now: Timestamp,
    park_after: Duration,
    idleness: Idleness,
) -> ExecutionSummary {
    let ended = execution.state().is_terminal();
    let wake_at = execution.wake_at();
    let is_quiet = idleness == Idleness::Quiet || idleness == Idleness::Idle && !execution.waits_for_children();
    let parked = !ended && is_quiet && execution.is_parked() && leaves_memory(wake_at, now, park_after);
    let failure = if ended { execution.first_failure() } else { None };
    ExecutionSummary {
        state: wire::state_number(execution),
        ended,
        parked,
        // Only a parked execution is woken by the registry; a live one has its own timer.
        wake_at: wake_at.filter(|_| parked).map(Timestamp::as_micros),
        waits_for: if parked { wire::waits_for(execution) } else { Waits::default() },
        asks: if parked { asks::of_execution(&name.to_string(), execution) } else { 0 },
        updated_at: execution.last_time().as_micros(),
        ended_at: execution.ended_at().filter(|_| ended).map(Timestamp::as_micros),
        // A tool's failure reason may quote its arguments.
        failure_reason: failure.map(|failure| secrets.shown(failure.reason.clone())),
        steps: wire::step_counts(execution.totals()),
    }
}

/// Whether the execution has ended with this event.
fn is_end(event: &Event) -> bool {
    matches!(event.body, Body::Execution(ExecutionEvent::Finished(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_wait_is_spent_in_memory() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let leaves = |wake_at| leaves_memory(wake_at, at(100), Duration::from_secs(60));
        assert!(leaves(None), "a person may take days");
        assert_eq!([99, 100, 160, 161].map(|wake| leaves(Some(at(wake)))), [false, false, false, true]);
    }
}
