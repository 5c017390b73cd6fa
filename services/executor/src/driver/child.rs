//! The execution of a step's plan, a child: creates it, pauses, resumes and cancels it with the one that it belongs to, and takes its end.
//!
//! Its name follows from the step and its attempt, so that nothing of this is done twice, however often an executor dies in between. Its end is
//! a message that its last transition puts into the inbox of its parent; the parent records it, also while it is paused, and takes the message out
//! in the same transition. Until then the child cannot be deleted. So a child that is not there before its creation is recorded was never created,
//! and one that is not there afterwards was lost.

use std::sync::Arc;

use belay_defects::{Defect, is_planted};
use belay_execution::{
    Actor, Amounts, ApprovalMode, Body, Child, ChildEnd, Control, Created, ErrorClass, Event, ExecutionEvent, Failure,
    Operation, OperationEnd, OperationEvent, OperationKey, OperationReport, PauseCause, RequiredAction, Workspace,
};
use belay_journal::{ExecutionRow, Folder, NewExecution, ParentStep, Refused, TakenMessage};
use belay_plan::{LimitBound, LimitClaim, Plan};
use belay_reasons as reasons;
use belay_service_kit::{Retry, status};
use belay_telemetry::TraceContext;
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::{
    Driver,
    child_end::{cancelled, end_of, lost},
    exit::Exit,
};
use crate::{
    intake::submitted::{self, Source, shared_folder},
    names::{ExecutionName, shard_of},
    owned::{
        messages::{ChildResult, Command, EndedChild},
        registry::ExecutionRegistry,
        steps_in_memory::{Owner, StepShare, too_many_steps},
    },
    runners::operation::{Busy, OperationHandle, ReportFault, Update},
    store::journal_reads::unreadable,
    wire,
};

/// The operation on one child.
pub(crate) struct ChildOperation {
    pub(crate) registry: Arc<ExecutionRegistry>,
    /// The operation of the parent that it is.
    pub(crate) key: OperationKey,
    /// The step whose plan it carries out.
    pub(crate) parent: ParentStep,
    /// The name of that step.
    pub(crate) parent_step: String,
    pub(crate) name: ExecutionName,
    pub(crate) child: Child,
    /// See [`OperationHandle::number`].
    pub(crate) number: u64,
    /// Whether the parent knows it to be created.
    pub(crate) is_created: bool,
    /// Whether the parent does not know that it runs.
    pub(crate) may_be_paused: bool,
    /// Whether a pause of the parent discards running calls.
    pub(crate) discards_calls: bool,
    pub(crate) plan: Arc<Plan>,
    /// Attributes that it inherits from its parent.
    pub(crate) inherited: InheritedAttributes,
    pub(crate) updates: mpsc::UnboundedSender<Update>,
}

/// Attributes that a child inherits from its parent.
pub(crate) struct InheritedAttributes {
    pub(crate) approval_mode: ApprovalMode,
    pub(crate) workspace: Workspace,
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    pub(crate) principal: String,
    /// The span of the step's attempt.
    pub(crate) trace: TraceContext,
    /// See [`Owner::tree`].
    pub(crate) tree: Arc<str>,
}

/// Why nothing could be done.
enum Problem {
    /// The child cannot be created, and never will be.
    Refused(String),
    /// A limit over executions is full, and its plan does not wait.
    LimitFull(String),
    /// The child was created, and is not in the store any more.
    Lost,
    /// It is tried again.
    Later(Status),
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::InvalidArgument => Self::Refused(status.message().to_owned()),
            _ => Self::Later(status),
        }
    }
}

/// The end of a child that has not begun.
fn not_begun(failure: Failure) -> Vec<OperationEvent> {
    let (end, spent) = (ChildEnd::Failed { failure }, Some(Amounts::default()));
    vec![OperationEvent::Ended(OperationEnd::Child { end, spent })]
}

impl ChildOperation {
    pub(crate) fn start(self, required: RequiredAction) -> OperationHandle {
        let number = self.number;
        let fault = ReportFault::new(&self.updates, self.key);
        let task = tokio::spawn(async move {
            let _fault = fault;
            self.run(required).await;
            if required.stops() {
                // It stays in flight until the end of the child is recorded.
                std::future::pending::<()>().await;
            }
        });
        OperationHandle::numbered(required, number, task.abort_handle())
    }

    async fn run(&self, required: RequiredAction) {
        let mut retry = Retry::RPC;
        let events = loop {
            match self.carry_out(required).await {
                Ok(events) => break events,
                Err(Problem::Refused(message)) => {
                    let class = ErrorClass::InvalidArguments;
                    break not_begun(Failure::new(class, reasons::CHILD_REFUSED, message));
                }
                Err(Problem::LimitFull(key)) => {
                    let message = format!("The limit `{key}` is full, and the step's plan says `when_full: refuse`.");
                    break not_begun(Failure::new(ErrorClass::RateLimit, reasons::LIMIT_FULL, message));
                }
                Err(Problem::Lost) => {
                    break vec![OperationEvent::Ended(OperationEnd::Child {
                        end: ChildEnd::Failed { failure: lost(&self.name) },
                        spent: None,
                    })];
                }
                Err(Problem::Later(status)) => {
                    let (child, parent) = (&self.name, &self.parent_step);
                    tracing::warn!(%child, parent, %status, "The execution of a step's plan cannot be reached yet; trying again");
                    retry.at_least(status::retry_after(&status).unwrap_or_default());
                }
            }
            retry.pause(&self.registry.ids).await;
        };
        // An error means that the driver has ended.
        drop(self.updates.send(Update::Child { key: self.key, number: self.number, news: events }));
    }

    /// Does what the parent needs, and returns what is new about the child.
    async fn carry_out(&self, required: RequiredAction) -> Result<Vec<OperationEvent>, Problem> {
        let (row, is_new) = self.created(required).await?;
        let mut events = Vec::new();
        if !self.is_created {
            events.push(OperationEvent::Reported(OperationReport::ChildCreated));
        }
        match required {
            RequiredAction::Pause => {
                let discard_calls = self.discards_calls;
                let pause = Control::Pause { reason: self.with_parent("paused"), discard_calls, resume_at: None };
                self.control(&row, pause).await?;
                events.push(OperationEvent::Reported(OperationReport::ChildPaused));
            }
            RequiredAction::Cancel | RequiredAction::Kill => {
                let reason = self.with_parent("cancelled");
                self.control(&row, Control::Cancel { reason, kill: required == RequiredAction::Kill }).await?;
            }
            RequiredAction::Dispatch
            | RequiredAction::RequestApproval
            | RequiredAction::Commit
            | RequiredAction::Discard => {
                // An earlier operation may have held it back or paused it, and its request may still be on its way to the child: this one
                // comes after it.
                if !is_new {
                    self.control(&row, Control::Resume).await?;
                    self.registry.drive_child(row);
                }
                if self.may_be_paused {
                    events.push(OperationEvent::Reported(OperationReport::ChildResumed));
                }
            }
        }
        Ok(events)
    }

    fn with_parent(&self, what: &str) -> String {
        format!("{what} with `{}`", self.parent_step)
    }

    /// The child, and whether this operation has created it. It is created unless it was. One that is to be paused or cancelled is created all the same,
    /// and held back: an earlier operation may be creating it.
    async fn created(&self, required: RequiredAction) -> Result<(ExecutionRow, bool), Problem> {
        let (row, is_new) = match self.found().await? {
            Some(row) => (row, false),
            None if self.is_created && !is_planted(Defect::LostChildStartedAgain) => return Err(Problem::Lost),
            None => {
                let steps = self.room(required).await?;
                let is_new = self.create(required != RequiredAction::Dispatch, steps).await?;
                (self.found().await?.ok_or(Problem::Lost)?, is_new)
            }
        };
        if row.execution.parent.as_ref() != Some(&self.parent) {
            let message = format!("There is another execution `{}`: delete it, and run the step again.", self.name.id);
            return Err(Problem::Refused(message));
        }
        Ok((row, is_new))
    }

    async fn found(&self) -> Result<Option<ExecutionRow>, Problem> {
        match self.registry.reading.follower.find(&self.name).await {
            Err(status) if status.code() == Code::NotFound => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Room for the child's steps in memory. One that is held back waits for none: what needs it is to come to an end.
    async fn room(&self, required: RequiredAction) -> Result<StepShare, Problem> {
        let owner = Owner::of(&self.inherited.principal, Arc::clone(&self.inherited.tree), &self.plan);
        let (mut share, steps) = (self.registry.steps.enter(owner), self.plan.steps().len());
        if required != RequiredAction::Dispatch {
            share.set(steps);
            return Ok(share);
        }
        if steps > share.most() {
            return Err(Problem::Refused(too_many_steps(steps, share.most())));
        }
        if !share.ask(steps) {
            drop(self.updates.send(Update::Busy(self.key, Busy::Steps)));
            share.granted().await;
        }
        Ok(share)
    }

    /// Creates the child. Returns whether it was this that has created it, and not an earlier operation that may have held it back.
    async fn create(&self, is_held_back: bool, steps: StepShare) -> Result<bool, Problem> {
        let registry = &self.registry;
        let source = Source::Message(wire::plan_message(&self.plan));
        let (plan, tools) = submitted::accepted(registry, &source).await?;
        let inputs = submitted::inputs_of(registry, &plan, self.child.inputs.clone())?;
        let limits = submitted::limits_of(registry, &plan, &inputs)?;
        self.check_limits(&limits).await?;
        let catalogue = registry.runner.catalogue(false).await?;
        let (now, shard) = (registry.now(), shard_of(&self.name.namespace, &self.name.id));
        let InheritedAttributes { approval_mode, workspace, labels, principal, trace, tree: _ } = &self.inherited;
        let labels = submitted::with_labels_of(&plan, labels.clone());
        let (workspace, folder) = match workspace {
            Workspace::MadeFolder(_) if is_planted(Defect::ChildInAnotherFolder) => {
                let id = self.name.id.clone();
                (Workspace::MadeFolder(id.clone()), Some(Folder::New(id)))
            }
            workspace => (workspace.clone(), shared_folder(workspace)),
        };
        let row = NewExecution {
            namespace: self.name.namespace.clone(),
            id: self.name.id.clone(),
            shard,
            created_at: now.as_micros(),
            plan_id: plan.id().to_owned(),
            labels: labels.clone(),
            principal: principal.clone(),
            request_id: String::new(),
            request_hash: String::new(),
            parent: Some(self.parent.clone()),
        };
        let limit = plan.timeout().map(|limit| now.saturating_add(limit));
        let created = Created {
            uid: registry.ids.next_id(),
            deadline: [limit, self.child.until].into_iter().flatten().min(),
            start_at: None,
            inputs,
            plan,
            approval_mode: *approval_mode,
            workspace,
            labels,
            tools,
            trace: (trace.traceparent(), trace.tracestate().to_owned()),
            shard,
            parent_step: self.parent_step.clone(),
            forked_from: String::new(),
            allotment: self.child.allotment,
            spent: Amounts::default(),
            limits,
        };
        let actor = Actor::new(principal.clone());
        let body = ExecutionEvent::Created(Box::new(created)).into();
        let first = Event { sequence: 1, time: now, actor: Some(actor), body };
        let reason = self.with_parent("held back");
        let paused =
            ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Request };
        let then = if is_held_back { vec![(Actor::new(self.parent_step.clone()), paused.into())] } else { Vec::new() };
        // A task of its own: what is stored must have a driver, also when this operation is replaced meanwhile.
        let ledger_id = catalogue.ledger_id.as_str().into();
        let create = Driver::create(Arc::clone(registry), row, folder, (first, then).into(), ledger_id, steps);
        let stopping =
            || Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping."));
        match tokio::spawn(create).await.map_err(|_| stopping())?? {
            Ok(_) => Ok(true),
            Err(Refused::IdTaken { .. }) => Ok(false),
            Err(Refused::IdDeleted { .. }) => Err(Problem::Lost),
            Err(Refused::LimitFull { key }) => Err(Problem::LimitFull(key)),
            Err(Refused::FolderGone(folder)) => Err(Problem::Refused(format!(
                "The folder `{folder}` of the execution was removed, and its step's plan cannot be carried out elsewhere."
            ))),
            Err(refused) => Err(Problem::Later(Status::aborted(refused.to_string()))),
        }
    }

    /// Refuses a limit that an execution above holds until its end, for which it would wait in vain.
    async fn check_limits(&self, limits: &[LimitClaim]) -> Result<(), Problem> {
        let mut above = Some(self.parent.execution);
        while let Some(key) = above.filter(|_| !limits.is_empty()) {
            let held = self.registry.reads.read(move |reader| reader.limits_held(key)).await;
            let held = held.map_err(|error| unreadable(&error))?;
            let is_held =
                |claim: &&LimitClaim| matches!(claim.bound, LimitBound::AtOnce(_)) && held.contains(&claim.key);
            if let Some(claim) = limits.iter().find(is_held) {
                return Err(Problem::Refused(format!(
                    "The execution that carries out the step holds the limit `{}` until it ends, so that its plan would wait for it in vain: \
                     give one of them another key.",
                    claim.key
                )));
            }
            let row =
                self.registry.reads.read(move |reader| reader.get(key)).await.map_err(|error| unreadable(&error))?;
            above = row.and_then(|row| row.execution.parent).map(|parent| parent.execution);
        }
        Ok(())
    }

    /// Asks for a change on behalf of the parent. One that has ended, or is so already, needs none.
    async fn control(&self, row: &ExecutionRow, control: Control) -> Result<(), Problem> {
        let (reply, received) = oneshot::channel();
        let actor = Actor::new(self.parent_step.clone());
        self.registry.send(row.clone(), Command::Control { control, actor, etag: String::new(), reply }).await;
        let stopping =
            || Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping."));
        match received.await.map_err(|_| stopping())? {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
            Err(status) => Err(Problem::Later(status)),
        }
    }
}

impl Driver {
    /// Reads the ends of children that were sent while nobody listened: when the execution is loaded, or a message came without its content. Outside
    /// a service that drives all executions, whoever drives an execution drives its children.
    pub(super) async fn review_children(&mut self) -> Result<(), Exit> {
        let (key, mut ended) = (self.key, Vec::new());
        let inbox = self.registry.reads.read(move |reader| reader.inbox(key, MAX_MESSAGES)).await;
        let inbox = inbox.map_err(|error| Exit::Unreadable(unreadable(&error)))?;
        let mut messages: Vec<TakenMessage> =
            inbox.iter().map(|message| TakenMessage { from: message.from, revision: message.revision }).collect();
        let child = |operation: &Operation| Some((operation.child()?.execution.clone(), operation.is_created_child()));
        let children: Vec<(String, bool)> = self.execution.operations().filter_map(child).collect();
        for (id, is_created) in children {
            let name = ExecutionName { namespace: self.name.namespace.clone(), id };
            let row = match self.registry.reading.follower.find(&name).await {
                Ok(row) => row,
                Err(status) if status.code() == Code::NotFound => {
                    if is_created && !is_planted(Defect::LostChildStartedAgain) {
                        ended.push(EndedChild { id: name.id, end: None });
                    }
                    continue;
                }
                Err(status) => return Err(Exit::Unreadable(status)),
            };
            if !row.summary.ended && !is_planted(Defect::StaleView) {
                self.registry.drive_child(row);
                continue;
            }
            messages.retain(|message| message.from != row.key);
            let end = self.registry.reading.follower.look(&name, |seen| {
                Some((seen.execution.last_sequence(), end_of(&name, seen.execution, &seen.redactor())?))
            });
            // One that was retried since its row was read sends another end.
            if let Some((revision, end)) = end.await.map_err(Exit::Unreadable)? {
                ended.push(EndedChild { id: name.id, end: Some((TakenMessage { from: row.key, revision }, end)) });
            }
        }
        self.ended_children.extend(ended);
        self.unawaited_messages.extend(messages);
        Ok(())
    }

    /// Records the ends of children that have come. One that cannot be recorded is a fault, and its message stays.
    pub(super) fn take_ends(&mut self, events: &mut Vec<Event>) -> Result<(), Exit> {
        let now = self.now();
        for EndedChild { id, end } in std::mem::take(&mut self.ended_children) {
            let (message, end) = end.unzip();
            let is_this = |operation: &&Operation| operation.child().is_some_and(|child| child.execution == id);
            let Some(operation) = self.execution.operations().find(is_this).map(|operation| operation.key) else {
                self.unawaited_messages.extend(message);
                continue;
            };
            let name = ExecutionName { namespace: self.name.namespace.clone(), id };
            let (end, spent) = match end {
                None => (ChildEnd::Failed { failure: lost(&name) }, None),
                // A person has cancelled it, or another principal.
                Some(ChildResult { end: ChildEnd::Cancelled, spent, .. }) if !self.execution.is_stopping() => {
                    (ChildEnd::Failed { failure: cancelled(&name) }, Some(spent))
                }
                Some(ChildResult { end, secrets, spent }) => {
                    // What the child hides, this execution hides as well, under whichever name it has it.
                    self.secrets.mark(secrets);
                    (end, Some(spent))
                }
            };
            let child = self.execution.operation_id(operation);
            let body = Body::Operation { id: child, event: OperationEvent::Ended(OperationEnd::Child { end, spent }) };
            let event = self.execution.record(now, None, body);
            events.push(
                event.map_err(|illegal| Exit::Fault(format!("the end of {name} cannot be recorded: {illegal}")))?,
            );
            self.operations.remove(&operation);
            if is_planted(Defect::UnstoredEndDropped) {
                self.unawaited_messages.extend(message);
            } else {
                self.taken_messages.extend(message);
            }
        }
        Ok(())
    }

    /// Removes messages that nothing waits for from the inbox. What is recorded has to be durable before: an end that came twice was recorded with the first
    /// message, and while only this process knows that, the message is all that keeps the child.
    pub(super) fn drop_unawaited_messages(&mut self) {
        let taken = std::mem::take(&mut self.unawaited_messages);
        if taken.is_empty() {
            return;
        }
        let fence = self.registry.fence(self.execution.created().shard);
        let take = belay_journal::StoreWrite::TakeMessages { key: self.key, taken, fence };
        let registry = Arc::clone(&self.registry);
        // A store that fails is reported to all; what is left is found when the execution is loaded.
        tokio::spawn(async move { drop(registry.commit(take).await) });
    }
}

/// How many messages of children are read at a time: more than an execution has steps in flight.
const MAX_MESSAGES: usize = 100_000;
