//! The execution of a step's plan: starts it, pauses and cancels it with the one that it belongs to, and waits for its end.
//!
//! Its name follows from the step and its attempt, so that nothing of this is done twice, however often an executor dies in between.

use std::sync::Arc;

use belay_defects::{Defect, is_planted};
use belay_execution::{
    Actor, ApprovalMode, Child, ChildEnd, ChildEvent, Control, Created, ErrorClass, Event, Execution, ExecutionEvent,
    ExecutionState, Failure, Json, OperationKey, StepRole, StepState, Verb, Workspace,
};
use belay_journal::{ExecutionRow, Folder, NewExecution, Refused};
use belay_plan::Plan;
use belay_proto::payload::MAX_INLINE_BYTES;
use belay_reasons as reasons;
use belay_service_kit::{Retry, status};
use belay_telemetry::TraceContext;
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::Driver;
use crate::{
    messages::Command,
    names::{ExecutionName, shard_of},
    operation::{OperationHandle, ReportFault, Update},
    registry::ExecutionRegistry,
    submitted::{self, Source, shared_folder},
    wire,
};

/// What is done about one child.
pub(crate) struct ChildOperation {
    pub(crate) registry: Arc<ExecutionRegistry>,
    /// The operation of the parent that it is.
    pub(crate) key: OperationKey,
    /// The name of the step whose plan it carries out.
    pub(crate) parent_step: String,
    pub(crate) name: ExecutionName,
    pub(crate) child: Child,
    /// Whether the parent knows it to be paused.
    pub(crate) is_paused: bool,
    pub(crate) plan: Arc<Plan>,
    /// What it has of its parent.
    pub(crate) inherited: Inherited,
    pub(crate) updates: mpsc::UnboundedSender<Update>,
}

/// What a child has of its parent.
pub(crate) struct Inherited {
    pub(crate) approval_mode: ApprovalMode,
    pub(crate) workspace: Workspace,
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    pub(crate) principal: String,
    /// The span of the step's attempt.
    pub(crate) trace: TraceContext,
}

/// Why nothing could be done.
enum Problem {
    /// The child cannot be started, and never will be.
    Refused(String),
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

impl ChildOperation {
    pub(crate) fn start(self, verb: Verb) -> OperationHandle {
        let fault = ReportFault::new(&self.updates, self.key);
        let task = tokio::spawn(async move {
            let _fault = fault;
            self.run(verb).await;
        });
        OperationHandle::new(verb, task.abort_handle())
    }

    async fn run(self, verb: Verb) {
        let mut retry = Retry::RPC;
        let event = loop {
            match self.carry_out(verb).await {
                Ok(event) => break event,
                Err(Problem::Refused(message)) => {
                    let class = ErrorClass::InvalidArguments;
                    let failure = Failure::new(class, reasons::CHILD_REFUSED, message);
                    break ChildEvent::Ended(ChildEnd::Failed { failure });
                }
                Err(Problem::Later(status)) => {
                    let (child, parent) = (&self.name, &self.parent_step);
                    tracing::warn!(%child, parent, %status, "The execution of a step's plan cannot go on yet; trying again");
                    retry.at_least(status::retry_after(&status).unwrap_or_default());
                }
            }
            retry.pause(&self.registry.ids).await;
        };
        // An error means that the driver has ended.
        drop(self.updates.send(Update::Child(self.key, event)));
    }

    /// What becomes of the child.
    async fn carry_out(&self, verb: Verb) -> Result<ChildEvent, Problem> {
        let row = self.started(verb).await?;
        match verb {
            Verb::Pause => {
                self.control(
                    &row,
                    Control::Pause { reason: self.with_parent("paused"), discard_calls: false, resume_at: None },
                )
                .await?;
                return Ok(ChildEvent::Paused);
            }
            Verb::Cancel | Verb::Kill => {
                let reason = self.with_parent("cancelled");
                self.control(&row, Control::Cancel { reason, kill: verb == Verb::Kill }).await?;
            }
            Verb::Dispatch | Verb::RequestApproval | Verb::Commit | Verb::Discard => {
                // What a person has paused stays paused.
                let paused_by = self.registry.look(&self.name, |seen| seen.execution.paused_by().map(str::to_owned));
                if paused_by.await?.is_some_and(|principal| principal == self.parent_step) {
                    self.control(&row, Control::Resume).await?;
                }
                if self.is_paused {
                    // An error means that the driver has ended.
                    drop(self.updates.send(Update::Child(self.key, ChildEvent::Resumed)));
                }
            }
        }
        self.ended(&row).await?;
        let (name, parent_stops) = (&self.name, verb.stops());
        let end = self.registry.look(name, |seen| end_of(name, seen.execution, parent_stops)).await?;
        Ok(ChildEvent::Ended(end))
    }

    fn with_parent(&self, what: &str) -> String {
        format!("{what} with `{}`", self.parent_step)
    }

    /// The child, which is started unless it was. One that is to be paused or cancelled is started all the same, and held back: an earlier
    /// operation may be starting it.
    async fn started(&self, verb: Verb) -> Result<ExecutionRow, Problem> {
        let found = match self.registry.client_reads.find(&self.name).await {
            Err(status) if status.code() == Code::NotFound => None,
            found => Some(found?),
        };
        let row = match found {
            Some(row) => row,
            None => {
                self.create(verb != Verb::Dispatch).await?;
                self.registry.client_reads.find(&self.name).await?
            }
        };
        let parent = self.registry.look(&self.name, |seen| seen.execution.created().parent_step.clone()).await?;
        if parent != self.parent_step {
            let message = format!("There is another execution `{}`: delete it, and run the step again.", self.name.id);
            return Err(Problem::Refused(message));
        }
        Ok(row)
    }

    async fn create(&self, is_held_back: bool) -> Result<(), Problem> {
        let registry = &self.registry;
        let source = Source::Message(wire::plan_message(&self.plan));
        let (plan, tools) = submitted::accepted(registry, &source).await?;
        let inputs = submitted::inputs_of(registry, &plan, self.child.inputs.clone())?;
        let catalogue = registry.runner.catalogue(false).await?;
        let (now, shard) = (registry.now(), shard_of(&self.name.namespace, &self.name.id));
        let Inherited { approval_mode, workspace, labels, principal, trace } = &self.inherited;
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
            labels: labels.clone(),
            tools,
            trace: (trace.traceparent(), trace.tracestate().to_owned()),
            shard,
            parent_step: self.parent_step.clone(),
            forked_from: String::new(),
        };
        let actor = Actor::new(principal.clone());
        let body = ExecutionEvent::Created(Box::new(created)).into();
        let first = Event { sequence: 1, time: now, actor: Some(actor), body };
        let reason = self.with_parent("held back");
        let paused = ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None };
        let then = if is_held_back { vec![(Actor::new(self.parent_step.clone()), paused.into())] } else { Vec::new() };
        // A task of its own: what is stored must have a driver, also when this operation is replaced meanwhile.
        let create =
            Driver::create(Arc::clone(registry), row, folder, first, then, catalogue.ledger_id.as_str().into());
        let stopping =
            || Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping."));
        match tokio::spawn(create).await.map_err(|_| stopping())?? {
            Ok(_) | Err(Refused::IdTaken { .. }) => Ok(()),
            Err(Refused::IdDeleted { id, .. }) => Err(Problem::Refused(format!(
                "The execution `{id}`, which carried out the step's plan, was deleted before its result was known."
            ))),
            Err(Refused::FolderGone(folder)) => Err(Problem::Refused(format!(
                "The folder `{folder}` of the execution was removed, and its step's plan cannot be carried out elsewhere."
            ))),
            Err(refused) => Err(Problem::Later(Status::aborted(refused.to_string()))),
        }
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

    /// Waits for the child's end.
    async fn ended(&self, row: &ExecutionRow) -> Result<(), Problem> {
        // Subscribed before the row is read again, so that an end in between is not missed.
        let feed = self.registry.feed(row.key);
        let mut end = feed.subscribe_end();
        if self.registry.client_reads.find(&self.name).await?.summary.ended {
            return Ok(());
        }
        let ended = end.wait_for(Option::is_some).await.map(|_| ());
        ended.map_err(|_| Problem::Later(Status::unavailable("the end of the execution was not published")))
    }
}

/// How a child that has ended ended for its parent. Its output is that of the steps on which no other depends.
fn end_of(name: &ExecutionName, execution: &Execution, parent_stops: bool) -> ChildEnd {
    let failed = |class, reason, message: String| ChildEnd::Failed { failure: Failure::new(class, reason, message) };
    match execution.state() {
        ExecutionState::Completed => match output_of(name, execution) {
            Ok(output) => ChildEnd::Completed { output },
            Err(message) => failed(ErrorClass::InvalidResult, reasons::CHILD_REFUSED, message),
        },
        ExecutionState::Cancelled if parent_stops => ChildEnd::Cancelled,
        ExecutionState::Cancelled => {
            let message = format!("The execution `{}`, which carried out the step's plan, was cancelled.", name.id);
            failed(ErrorClass::Cancelled, reasons::CHILD_CANCELLED, message)
        }
        _ => {
            let first = execution.first_failure();
            let class = first.map_or(ErrorClass::Internal, |failure| failure.class);
            let why = first.map_or("it did not complete", |failure| failure.message.as_str());
            let message = format!("The execution `{}`, which carried out the step's plan, failed: {why}", name.id);
            failed(class, reasons::CHILD_FAILED, message)
        }
    }
}

fn output_of(name: &ExecutionName, execution: &Execution) -> Result<Json, String> {
    let plan = execution.plan();
    let mut outputs = serde_json::Map::new();
    let mut size = 0;
    for step in execution.steps() {
        let is_last = plan.step_index(step.id().as_str()).is_some_and(|index| plan.dependents(index).is_empty());
        if step.role() != StepRole::Planned || !is_last || step.state() != StepState::Completed {
            continue;
        }
        let Some(output) = step.output() else { continue };
        size += output.size();
        let json = output.inline().filter(|_| size <= MAX_INLINE_BYTES as u64).ok_or_else(|| {
            format!(
                "The outputs of the last steps of `{}` have {size} bytes, and the limit for the output of a step that carries out a plan is \
                 {MAX_INLINE_BYTES}: end the plan with a step that returns less, such as the path of a file.",
                name.id
            )
        })?;
        outputs.insert(step.id().as_str().to_owned(), json.value());
    }
    Ok(Json::canonical(&serde_json::json!({"execution": name.to_string(), "outputs": outputs})))
}
