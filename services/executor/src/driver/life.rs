//! The life of a driver: it is loaded from the journal, drives its execution until that parks or ends, and is loaded again after a fault.
//!
//! A fault is a panic in the driver or in one of its operations. What it held in memory is dropped; the journal has everything that was shown
//! or acted on, so the next driver continues as after the loss of the process. An execution whose drivers fail again and again is set aside,
//! so that it takes nothing from the others: the next start of the executor, perhaps of a version without the fault, takes it up again.

use std::{cell::Cell, panic::AssertUnwindSafe, sync::Arc};

use belay_execution::{
    Actor, Admission, Amounts, BlobRef, BlobValue, Blobs, Body, ConditionResult, DecideContext, Event, Execution,
    ExecutionEvent, Json, LimitRoom, LimitState, NoBlobs, Payload, Room, StepEvent, limit_moves,
};
use belay_group_commit::CommitError;
use belay_journal::{
    ExecutionKey, ExecutionRow, Folder, InboxChanges, InboxContent, InboxMessage, NewExecution, Refused, StoreWrite,
    StoreWriteOutcome,
};
use belay_plan::{CheckPlace, Condition, ConditionValues, WhenFull};
use belay_proto::v1;
use belay_reading::progress::Progress;
use belay_reasons as reasons;
use belay_service_kit::{Retry, status, words};
use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tonic::{Code, Status};
use tracing::Instrument as _;

use super::{Driver, Idleness, LoadedExecution, child_end::end_of, exit::Exit, limits, messages_of, summary_of};
use crate::{
    feeds::Push,
    names::ExecutionName,
    observe::trace::Trace,
    owned::{
        messages::Command,
        registry::{ExecutionRegistry, unwritable},
        steps_in_memory::StepShare,
    },
    store::{
        blobs::{NewBlob, owner, unwritten},
        commits::Write,
        journal_reads::unreadable,
        marks,
        secrets::SealedEvents,
    },
    upkeep::webhooks::{self, About},
    wire,
};

/// How many faults there may be while an execution is in memory. One that comes from its state comes back at once; one that has another cause
/// is over after the first.
const MAX_FAULTS: u32 = 3;

/// With what the life of a driver begins.
enum First {
    /// The driver of an execution that was just created.
    Driver(Box<Driver>),
    /// An execution in the journal.
    Stored,
}

/// The events with which an execution begins.
#[derive(Clone)]
pub(crate) struct FirstEvents {
    /// Its acceptance.
    pub(crate) created: Event,
    /// Those that follow at once.
    pub(crate) then: Vec<(Actor, Body)>,
    /// Values in them that are known to be secrets, though no schema in this execution says so: another execution has found that out.
    pub(crate) secrets: Vec<String>,
}

impl From<(Event, Vec<(Actor, Body)>)> for FirstEvents {
    fn from((created, then): (Event, Vec<(Actor, Body)>)) -> Self {
        Self { created, then, secrets: Vec::new() }
    }
}

impl Driver {
    /// Creates an execution: stores it with its first events, and starts its driver. `folder`: the folder of its workspace, if that is one; `steps`: the room
    /// for its steps in memory.
    pub(crate) async fn create(
        registry: Arc<ExecutionRegistry>,
        mut row: NewExecution,
        folder: Option<Folder>,
        begin: FirstEvents,
        ledger_id: Arc<str>,
        mut steps: StepShare,
    ) -> Result<Result<Box<v1::Execution>, Refused>, Status> {
        let illegal = |error| Status::internal(format!("a new execution cannot begin: {error}"));
        let FirstEvents { created, then, secrets: known } = begin;
        let mut execution = Execution::create(created.clone()).map_err(illegal)?;
        let mut events = vec![created];
        let now = registry.now();
        let mut secrets = registry.reading.sealer.secrets();
        secrets.mark(known);
        secrets.mark(marks::of_created(execution.created()));
        let (mut blobs, uid) = (Vec::new(), execution.created().uid.clone());
        for (actor, mut body) in then {
            if let Body::Step { event: StepEvent::ConversationCarriedOver { conversation, .. }, .. } = &mut body
                && let Some(json) =
                    conversation.inline().filter(|json| json.as_str().len() > registry.reading.thresholds.max_inline)
            {
                let blob = secrets.blob(&uid, json, &|| registry.ids.next_key());
                *conversation = Payload::Blob(blob.reference.clone());
                blobs.push(blob);
            }
            events.push(execution.record(now, Some(actor), body).map_err(illegal)?);
        }
        // What templates make of inputs may be large, which is the driver's.
        let mut is_decided = execution.paused_by().is_some() || execution.created().start_at.is_some();
        let claims = limits::claims_of(&execution);
        if !is_decided && has_refusing_limit(&execution) {
            let standings = limits::standings(&registry.reads, &row.namespace, None, &claims, now).await?;
            let asks = match limits::room(&execution.created().limits, &standings) {
                LimitRoom::Full { refused: Some(full) } => {
                    return Ok(Err(Refused::LimitFull { key: claims[full].key.clone() }));
                }
                // The store refuses it when others were faster.
                LimitRoom::Free => vec![ExecutionEvent::LimitsRequested, ExecutionEvent::LimitsAcquired],
                LimitRoom::Full { refused: None } | LimitRoom::Wanted => vec![ExecutionEvent::LimitsRequested],
            };
            for event in asks {
                events.push(execution.record(now, None, event).map_err(illegal)?);
            }
        }
        // So may what a conversation adds to the next turn be.
        if execution.plan().inputs().is_empty() && !has_conversation(&execution) {
            let conditions = UnevaluatedBlobs {
                has_budget: registry.budgets.of(&row.namespace).is_some(),
                ..UnevaluatedBlobs::default()
            };
            events.extend(execution.advance_with(DecideContext { now, ledger_id: &ledger_id }, &conditions));
            is_decided = !conditions.is_asked.get();
        }
        steps.set(execution.steps().len());
        let name = ExecutionName { namespace: row.namespace.clone(), id: row.id.clone() };
        let trace = Trace::of(&registry.reading.telemetry, &name, &execution);
        let mut messages = messages_of(&events);
        events.iter().for_each(|event| secrets.mark(marks::of_event(&execution, event, &|_| None)));
        let SealedEvents { mut transition, new_key: seal_key } =
            registry
                .reading
                .sealer
                .seal(&mut secrets, &execution.created().uid, &mut messages, &|| registry.ids.next_key());
        transition.facts = wire::facts_beside(&events);
        row.labels = registry.reading.sealer.labels(row.labels);
        let idleness = if is_decided { Idleness::Idle } else { Idleness::Busy };
        let summary = summary_of(&name, &execution, &secrets, now, registry.reading.thresholds.park_after, idleness);
        let fence = registry.fence(row.shard);
        let described = Box::new(secrets.summarize(&name, &execution));
        let reserved = registry.reserve_name(&name);
        let mut progress = Progress::of(&execution);
        let facts = progress.take(&execution, &events);
        let about = About {
            name: &name,
            execution: &execution,
            secrets: &secrets,
            facts: &facts,
            now: registry.now().as_micros(),
        };
        let outbox = webhooks::messages(&registry.webhooks, &about);
        let parent = row.parent.as_ref().map(|parent| parent.execution);
        // It has nothing to do.
        let end = parent.filter(|_| summary.ended);
        let child = end.and_then(|_| Some((name.id.clone(), end_of(&name, &execution, secrets.redactor())?)));
        let (revision, content) = (transition.last_sequence(), InboxContent::ChildEnded);
        let sent = end.into_iter().map(|to| InboxMessage { to, revision, content }).collect();
        let inbox = InboxChanges { sent, taken: Vec::new() };
        let limit_changes = limits::changes_of(&claims, &limit_moves(LimitState::None, &events), registry.now());
        let limited = limits::gives_turns(&limit_changes).then(|| claims.into_iter().map(|claim| claim.key));
        let namespace = name.namespace.clone();
        let written: Vec<String> = blobs.iter().flat_map(NewBlob::names).collect();
        if !blobs.is_empty() {
            let stored = registry.reading.blobs.write(owner(&name), blobs).await;
            stored.map_err(|error| unwritable(&CommitError::Failed(Arc::new(unwritten(&error)))))?;
        }
        let create = StoreWrite::Create {
            execution: row,
            transition,
            summary: summary.clone(),
            seal_key,
            outbox,
            inbox,
            folder,
            limits: limit_changes,
            fence,
        };
        let push = Push { feed: None, events: None, end: None, child };
        let write = Write { operation: create, push: Some(push) };
        let key = match registry.commit(write).await.map_err(|error| unwritable(&error))? {
            Ok(StoreWriteOutcome::Created(key)) => key,
            Ok(_) => return Err(Status::internal("the store returned a mismatched reply")),
            Err(refused) => {
                if !written.is_empty()
                    && let Err(error) = registry.reading.blobs.remove_files(owner(&name), written).await
                {
                    tracing::warn!(%error, "A conversation of an execution that was not started stays on the disk");
                }
                return Ok(Err(refused));
            }
        };
        if let Some(limited) = limited {
            registry.limit_turns.review(&namespace, limited);
        }
        let Some(commands) = registry.register(key) else {
            // It was found in the journal meanwhile, and is driven.
            return Ok(Ok(described));
        };
        drop(reserved);
        let snapshot_at = 0;
        let taken =
            LoadedExecution { key, name, execution, secrets, trace, summary, snapshot_at, ledger_id, parent, steps };
        let mut driver = Self::new(Arc::clone(&registry), taken);
        driver.trace.record(&driver.execution, &events, driver.secrets.redactor());
        driver.registry.measures.record(&facts);
        let log_span = driver.trace.log_span();
        log_span.in_scope(|| {
            driver.log_accepted();
            driver.log(&facts);
        });
        let name = driver.name.clone();
        tokio::spawn(supervise(registry, key, name, First::Driver(Box::new(driver)), commands));
        Ok(Ok(described))
    }

    /// Loads an execution from the store, and drives it.
    pub(crate) fn spawn_from_store(
        registry: Arc<ExecutionRegistry>,
        row: ExecutionRow,
        commands: mpsc::UnboundedReceiver<Command>,
    ) {
        let name = ExecutionName { namespace: row.execution.namespace.clone(), id: row.execution.id.clone() };
        tokio::spawn(supervise(registry, row.key, name, First::Stored, commands));
    }
}

/// Whether a step begins with a conversation of another execution.
fn has_conversation(execution: &Execution) -> bool {
    execution.steps().any(|step| step.carried_turns() > 0)
}

/// Whether an execution is not to be started when one of its limits is full.
fn has_refusing_limit(execution: &Execution) -> bool {
    execution.created().limits.iter().any(|limit| limit.when_full == WhenFull::Refuse)
}

/// Drives an execution until it leaves memory.
async fn supervise(
    registry: Arc<ExecutionRegistry>,
    key: ExecutionKey,
    name: ExecutionName,
    first: First,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let (mut first, mut faults, mut retry) = (Some(first), 0, Retry::RPC);
    loop {
        let life = run_once(&registry, key, first.take(), &mut commands);
        let fault = match AssertUnwindSafe(life).catch_unwind().await {
            Ok(Exit::Parked | Exit::Ended) => return,
            Ok(Exit::Stopping) => return registry.evict(key),
            Ok(Exit::Lost(status)) => {
                tracing::error!(execution.name = %name, %status, "An execution is stopped until the next start of the executor");
                registry.evict(key);
                return refuse_all(commands, &status);
            }
            Ok(Exit::Unreadable(status)) => {
                tracing::warn!(execution.name = %name, %status, "An execution needs a value that cannot be read now; retrying");
                registry.notices.review_now();
                tokio::select! {
                    biased;
                    () = registry.reading.shutdown.requested() => return registry.evict(key),
                    () = retry.pause(&registry.ids) => continue,
                }
            }
            Ok(Exit::Outdated(why)) => {
                tracing::info!(execution.name = %name, why, "A decision does not hold any more; the execution continues from its journal");
                registry.notices.review_now();
                retry.pause(&registry.ids).await;
                continue;
            }
            Ok(Exit::Fault(what)) => what,
            Err(panic) => words(panic.as_ref()),
        };
        faults += 1;
        // It may quote what the driver had in memory.
        let fault = registry.reading.sealer.shown(fault);
        if faults == MAX_FAULTS {
            tracing::error!(execution.name = %name, fault, "The driver of an execution failed again; the execution is set aside until the next start of the executor");
            let status = set_aside(&name);
            registry.set_aside(key, status.clone());
            return refuse_all(commands, &status);
        }
        tracing::error!(execution.name = %name, fault, "The driver of an execution failed; the execution continues from its journal");
        // The driver may have received a decision that it did not record: the gate sends it again.
        registry.notices.review_now();
        retry.pause(&registry.ids).await;
    }
}

/// Runs one driver, from what the life begins with or, after a fault, from the journal.
async fn run_once(
    registry: &Arc<ExecutionRegistry>,
    key: ExecutionKey,
    first: Option<First>,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) -> Exit {
    match first {
        Some(First::Driver(mut driver)) => {
            let log_span = driver.trace.log_span();
            return driver.run(commands).instrument(log_span).await;
        }
        Some(First::Stored) | None => {}
    }
    let mut driver = match load(registry, key).await {
        Ok(loaded) => Driver::new(Arc::clone(registry), loaded),
        Err(exit) => return exit,
    };
    // A call whose approval is still pending has not been sent again since it was held.
    let sent = driver
        .execution
        .operations()
        .filter(|operation| operation.pending_approval.as_ref().is_none_or(|pending| pending.decided.is_some()));
    let counted = sent.map(|operation| {
        let is_call = operation.tool_call().is_some();
        (operation.key, is_call.then(|| registry.calls_in_doubt.add()))
    });
    driver.in_doubt = counted.collect();
    driver.reviews_children = true;
    let log_span = driver.trace.log_span();
    driver.run(commands).instrument(log_span).await
}

/// Reads an execution from the journal. Its row as well: the one by which it was found may be older than the end of the driver before.
async fn load(registry: &Arc<ExecutionRegistry>, key: ExecutionKey) -> Result<LoadedExecution, Exit> {
    let mut retry = Retry::RPC;
    loop {
        let row = registry.reads.read(move |reader| reader.get(key)).await;
        let loaded = match row.map_err(|error| unreadable(&error)) {
            Ok(Some(row)) => Driver::from_store(registry, row).await,
            // It has been deleted.
            Ok(None) => return Err(Exit::Stopping),
            Err(status) => Err(status),
        };
        match loaded {
            Ok(loaded) => return Ok(loaded),
            // A temporary disk failure must not leave the execution without a driver.
            Err(status) if status.code() == Code::Unavailable => {
                tracing::warn!(execution.key = key.0, %status, "An execution cannot be loaded now; retrying");
                tokio::select! {
                    biased;
                    () = registry.reading.shutdown.requested() => return Err(Exit::Stopping),
                    () = retry.pause(&registry.ids) => {}
                }
            }
            Err(status) => return Err(Exit::Lost(status)),
        }
    }
}

fn refuse_all(mut commands: mpsc::UnboundedReceiver<Command>, status: &Status) {
    commands.close();
    while let Ok(command) = commands.try_recv() {
        command.refuse(status);
    }
}

/// The answer to requests for an execution that is set aside.
fn set_aside(name: &ExecutionName) -> Status {
    let message = format!(
        "Execution `{}` was set aside after {MAX_FAULTS} faults of the executor in a row; nothing of it is lost. Restart the executor to take \
         it up again, and report the fault that its log names.",
        name.id
    );
    status::error(Code::Internal, reasons::EXECUTION_SET_ASIDE, message).with("name", name).into()
}

#[cfg(test)]
mod tests {
    use belay_execution::{Actor, Control};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn requests_for_an_execution_that_cannot_go_on_are_told_why() {
        let (sender, commands) = mpsc::unbounded_channel();
        let (reply, mut answer) = oneshot::channel();
        let actor = Actor::new("person:planner".to_owned());
        let command = Command::Control { control: Control::Resume, actor, etag: String::new(), reply };
        assert!(sender.send(command).is_ok());
        refuse_all(commands, &Status::data_loss("a row is damaged"));
        let refused = answer.try_recv().unwrap().unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::DataLoss, "a row is damaged"));
        assert!(sender.is_closed(), "a later request finds no driver");
    }
}

/// The blobs of an execution that has no driver yet, which would evaluate its conditions, get room for its lists and ask for what the budget of the namespace
/// has left.
#[derive(Default)]
struct UnevaluatedBlobs {
    /// Whether one of these was asked for.
    is_asked: Cell<bool>,
    /// Whether the namespace has a budget.
    has_budget: bool,
}

impl Blobs for UnevaluatedBlobs {
    fn value(&self, blob: &BlobRef) -> BlobValue<'_> {
        NoBlobs.value(blob)
    }

    fn payload(&self, json: Json) -> Payload {
        NoBlobs.payload(json)
    }

    fn evaluate(&self, _: &str, _: Option<CheckPlace>, _: &Condition, _: ConditionValues) -> ConditionResult {
        self.is_asked.set(true);
        ConditionResult::Wanted
    }

    fn validate(&self, _: &str, _: &Value, _: Value) -> ConditionResult {
        self.is_asked.set(true);
        ConditionResult::Wanted
    }

    fn limit_room(&self) -> LimitRoom {
        self.is_asked.set(true);
        LimitRoom::Wanted
    }

    fn admit(&self, _: Amounts) -> Admission {
        if !self.has_budget {
            return Admission::Unlimited;
        }
        self.is_asked.set(true);
        Admission::Wanted
    }

    fn room(&self, _: &str, steps: usize) -> Room {
        if steps == 0 {
            return Room::Free;
        }
        self.is_asked.set(true);
        Room::Wanted
    }
}
