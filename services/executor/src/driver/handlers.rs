//! How a driver turns updates and commands into events.

use std::sync::Arc;

use belay_execution::{
    Actor, ApprovalRequirement, Body, Control, Decision, Event, ExecutionEvent, ExecutionState, ForbiddenChange,
    OperationEnd, OperationEvent, OperationKey, OperationReport, PauseCause, PendingApproval, Refused, RequiredAction,
    ToolCallEnd,
};
use belay_journal::StoreError;
use belay_plan::is_own_tool;
use belay_proto::v1::{self};
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use super::{Driver, call_end, exit::Exit};
use crate::{
    approvals::decisions::outcome::notice_after,
    names::ExecutionName,
    owned::messages::{Command, GateNotice, Reply},
    runners::operation::{Large, Update},
    wire,
};

impl Driver {
    pub(super) fn on_update(&mut self, update: Update, events: &mut Vec<Event>) -> Result<(), Exit> {
        let now = self.now();
        match update {
            Update::RunnerUnavailable(answer) => self.blockers.set_runner_away(answer, now),
            Update::SecretsFound(values) => self.secrets.mark_telling(values),
            Update::ClocksDiffer => self.blockers.set_clocks_differ(now),
            Update::GateUnavailable => self.blockers.set_gate_away(now),
            Update::Busy(call, service) => {
                self.blockers.clear_services();
                self.blockers.set_busy(call, service, self.registry.now());
            }
            Update::FormRefused(wait, message) => {
                self.gate_replied(wait);
                self.operations.remove(&wait);
                events.extend(self.refused_form(wait, message));
            }
            Update::RequestedAgain(number) => {
                self.requesting_again.take_if(|again| again.number == number);
            }
            Update::Fenced => {
                self.registry.fail(Arc::new(StoreError::Superseded));
                return Err(Exit::Lost(Status::aborted("another executor owns the execution")));
            }
            Update::Child { key: child, number, news } => {
                self.blockers.remove(child);
                let under_way = self.operations.get(&child);
                let is_replaced = under_way.is_none_or(|operation| operation.number != number);
                let is_stopping = under_way.is_some_and(|operation| operation.required.stops());
                if !is_replaced && !is_stopping
                    || news.iter().any(|event| matches!(event, OperationEvent::Ended(OperationEnd::Child { .. })))
                {
                    self.operations.remove(&child);
                }
                for event in news {
                    // What has replaced it may have undone that already, and tells.
                    if is_replaced
                        && matches!(
                            event,
                            OperationEvent::Reported(OperationReport::ChildPaused)
                                | OperationEvent::Reported(OperationReport::ChildResumed)
                        )
                    {
                        continue;
                    }
                    if self.execution.operation(child).is_some() {
                        let body = Body::Operation { id: self.execution.operation_id(child), event };
                        // An error means that it was resumed meanwhile, or that another operation has told it.
                        events.extend(self.execution.record(now, None, body).ok());
                    }
                }
            }
            Update::Fault(call) => {
                let id = self.execution.operation_id(call);
                return Err(Exit::Fault(format!("an operation of {id} failed")));
            }
            Update::Ended { operation: call, end, is_copied } => {
                self.blockers.clear_services();
                // The reply to a call may arrive just before an operation to cancel it starts.
                self.mark_result(call, &end);
                if self.execution.operation(call).is_some()
                    && let Some(end) = self.seal_if_large(call, end, is_copied)
                {
                    self.on_call_end(call, end, is_copied, None, events)?;
                }
            }
            Update::ResultSealed(sealed) => {
                let (call, is_copied) = (sealed.operation, sealed.is_copied);
                if self.execution.operation(call).is_some()
                    && let Some((end, large)) = self.accept_sealed(*sealed)
                {
                    self.on_call_end(call, end, is_copied, Some(large), events)?;
                }
            }
            Update::WaitingForCall(call, other) => {
                self.blockers.clear_services();
                self.blockers.set_behind(call, other, self.registry.now());
            }
            Update::Asking(call, questions) => {
                self.blockers.clear_services();
                if self.execution.operation(call).is_some() {
                    self.on_asking(call, questions, events);
                }
            }
            Update::Held(call, requirement) => {
                self.blockers.clear_services();
                self.blockers.remove(call);
                self.on_held(call, requirement, events);
            }
            Update::ApprovalRequested(call, approval) => {
                self.gate_replied(call);
                self.blockers.clear_services();
                self.blockers.remove(call);
                if self
                    .operations
                    .get(&call)
                    .is_some_and(|operation| operation.required == RequiredAction::RequestApproval)
                {
                    self.operations.remove(&call);
                }
                // An answer comes with the decisions.
                if !self.on_approval(call, &approval, None, events) && wire::is_pending(approval.state()) {
                    self.notices.push(GateNotice::Cancel(approval.name));
                }
            }
        }
        Ok(())
    }

    /// `is_copied`: the runner keeps the call's result until it is acknowledged. `large`: its result, when that is a blob.
    fn on_call_end(
        &mut self,
        key: OperationKey,
        ended: ToolCallEnd,
        is_copied: bool,
        large: Option<Large>,
        events: &mut Vec<Event>,
    ) -> Result<(), Exit> {
        let in_flight = self.execution.operation(key).expect("the caller has looked");
        let pending = in_flight.pending_approval.as_ref();
        let is_own = in_flight.tool_call().is_some_and(|call| is_own_tool(&call.tool));
        let step = self.execution.step(key.step);
        let facts = call_end::Facts {
            recovery: self.execution.recovery(key),
            number: self.execution.calls_for_purpose(key),
            was_cancelled: self.operations.get(&key).is_some_and(|operation| operation.required.stops()),
            was_held: pending.is_some(),
            is_unapproved: pending.is_some_and(|pending| approved(pending).is_none()),
            is_copied,
            conflicts: step.conflicts(),
            failed_during_commits: step.failed_during_commits(),
        };
        let call_end::CallRecord { end, needs_acknowledgement, machine_blocker } = call_end::recorded(ended, facts);
        self.blockers.set_machine(key.step, machine_blocker, self.registry.now());
        let call = self.execution.operation_id(key);
        // What is recorded instead of an unapproved result has none.
        if let ToolCallEnd::Completed { .. } = end
            && let Some(large) = large
        {
            self.keep(large);
        }
        let in_flight = self.execution.operation(key).expect("the caller has looked");
        let event = OperationEvent::Ended(OperationEnd::ToolCall(end));
        let notice = in_flight
            .pending_approval
            .as_ref()
            .and_then(|pending| notice_after(approved(pending)?, pending.requirement.kind, &event));
        let event = self.execution.record(self.now(), None, Body::Operation { id: call.clone(), event });
        events.push(event.map_err(|error| Exit::Lost(Status::internal(error.to_string())))?);
        self.operations.remove(&key);
        self.blockers.remove(key);
        self.in_doubt.remove(&key);
        // No runner knows a call that the executor carries out itself.
        if needs_acknowledgement && !is_own {
            self.unacknowledged.push(call);
        }
        self.notices.extend(notice);
        Ok(())
    }

    /// The runner holds a call. Ignored when the call is held for the same subject already, or is being cancelled.
    fn on_held(&mut self, call: OperationKey, requirement: ApprovalRequirement, events: &mut Vec<Event>) {
        if self.operations.get(&call).is_some_and(|operation| operation.required.stops()) {
            return;
        }
        self.operations.remove(&call);
        let before = self.execution.operation(call).and_then(|in_flight| in_flight.pending_approval.as_ref());
        // Held for the same subject again because the gate lost the decision: the approval has the same name, and is pending or decided anew.
        let before = before.filter(|pending| {
            (pending.requirement.kind, &pending.requirement.subject_digest)
                != (requirement.kind, &requirement.subject_digest)
        });
        let held = OperationEvent::Held(Box::new(requirement));
        let used = before.and_then(|pending| notice_after(approved(pending)?, pending.requirement.kind, &held));
        let held = Body::Operation { id: self.execution.operation_id(call), event: held };
        if let Ok(event) = self.execution.record(self.now(), None, held) {
            events.push(event);
            self.in_doubt.remove(&call);
            self.notices.extend(used);
        }
    }

    pub(super) fn on_command(&mut self, command: Command, events: &mut Vec<Event>, replies: &mut Vec<Reply>) {
        match command {
            Command::Control { control, actor, etag, reply } => match self.on_control(control, actor, &etag) {
                Ok(recorded) => {
                    events.extend(recorded);
                    replies.push(reply);
                }
                Err(status) => drop(reply.send(Err(status))),
            },
            Command::CompareApprovals { pending, turn } => self.compare_approvals(&pending, turn),
            Command::Decided { approval, answer } => self.on_decided(approval, answer, events),
            Command::ChildEnded(ended) => self.ended_children.push(*ended),
            Command::ReviewChildren => self.reviews_children = true,
            // The next decision looks.
            Command::ReviewLimits => {}
            Command::PauseAndDrain { principal, reason, reply } => {
                let pause =
                    ExecutionEvent::Paused { reason, discard_calls: true, resume_at: None, cause: PauseCause::Request };
                // An execution that is paused or being stopped only has to drain.
                events.extend(self.execution.record(self.now(), Some(Actor::new(principal)), pause).ok());
                self.drained.push(reply);
            }
            Command::Drain { reply } => self.drained.push(reply),
        }
    }

    /// Handles what the gate delivers: a decision about a call, or what became of a form.
    pub(super) fn on_decided(
        &mut self,
        approval: Box<v1::Approval>,
        answer: Option<v1::Payload>,
        events: &mut Vec<Event>,
    ) {
        let call = wire::parse_call(&approval.call).and_then(|call| self.execution.operation_key(&call));
        if call.is_some_and(|call| self.is_asking(call)) {
            self.early_answers.push((approval, answer));
        } else if !call.is_some_and(|call| self.on_approval(call, &approval, answer, events)) {
            self.late_decisions.push(*approval);
        }
    }

    /// The gate has replied to the request for this approval or form.
    fn gate_replied(&mut self, call: OperationKey) {
        if let Some(again) = &mut self.requesting_again {
            again.missing.remove(&call);
        }
    }

    /// Records the gate's approval of a call and its decision, as far as they are new. Returns `false` when the call is not held for this
    /// approval.
    fn on_approval(
        &mut self,
        call: OperationKey,
        approval: &v1::Approval,
        answer: Option<v1::Payload>,
        events: &mut Vec<Event>,
    ) -> bool {
        if self.execution.operation(call).is_some_and(|operation| operation.wait().is_some()) {
            return self.on_form(call, approval, answer, events);
        }
        let pending = self.execution.operation(call).and_then(|in_flight| in_flight.pending_approval.as_ref());
        let Some(pending) = pending else { return false };
        if pending.requirement.subject_digest != approval.subject_digest {
            return false;
        }
        let now = self.now();
        let (name, subject_digest) = (approval.name.clone(), approval.subject_digest.clone());
        if pending.approval.is_none() {
            let event = OperationEvent::Asked { approval: name.clone(), subject_digest };
            let asked = Body::Operation { id: self.execution.operation_id(call), event };
            let Ok(event) = self.execution.record(now, None, asked) else { return false };
            events.push(event);
        } else if pending.approval.as_deref() != Some(&name) {
            return false;
        }
        let Some(decision) = wire::decision_from(approval.state()) else { return true };
        let known =
            self.execution.operation(call).and_then(|in_flight| in_flight.pending_approval.as_ref()?.decision());
        if known.is_none() {
            let reason = approval.decide_reason.clone();
            let event = OperationEvent::Decided { approval: name.clone(), decision, reason };
            let decided = Body::Operation { id: self.execution.operation_id(call), event };
            // No person decided an approval that expired.
            let actor = Some(approval.decided_by.clone()).filter(|principal| !principal.is_empty()).map(Actor::new);
            let Ok(event) = self.execution.record(now, actor, decided) else { return false };
            events.push(event);
        }
        if decision != Decision::Approved {
            self.notices.push(GateNotice::Delivered(name));
        }
        true
    }

    /// Carries out a principal's request; returns no event when it is a repetition.
    fn on_control(&mut self, control: Control, actor: Actor, etag: &str) -> Result<Vec<Event>, Status> {
        let current = wire::etag(&self.execution);
        // A repetition names the etag that the first request found.
        if !etag.is_empty() && etag != current && !self.execution.has_seen(&actor) {
            let message =
                format!("The execution has changed: its etag is {current}, not {etag}. Get it again and retry.");
            return Err(status::error(Code::Aborted, reasons::ETAG_MISMATCH, message).into());
        }
        let asked = match &control {
            Control::Pause { .. } => "paused",
            Control::Resume => "resumed",
            Control::Cancel { .. } => "cancelled",
            Control::Signal { .. } => "sent a signal",
            Control::ResolveStep { .. } => "resolved",
            Control::Retry { .. } => "retried",
            Control::UpdatePlan { .. } => "changed",
            Control::SkipStep { .. } | Control::SetStepOutput { .. } | Control::ChangeRetry { .. } => "changed",
        };
        let needed = match &control {
            Control::ChangeRetry { .. } => "only one that waits for its next attempt (BACKING_OFF) has one to change",
            Control::SkipStep { .. } => "only one that has not started, or waits for its next attempt, can be skipped",
            Control::SetStepOutput { .. } => {
                "only one that has not started, or waits for its next attempt, can be given its output"
            }
            Control::Retry { .. } => "only one that has ended can run again",
            Control::ResolveStep { .. } => "only one whose outcome is unknown (OUTCOME_UNKNOWN) can be resolved",
            Control::Pause { .. }
            | Control::Resume
            | Control::Cancel { .. }
            | Control::Signal { .. }
            | Control::UpdatePlan { .. } => "it cannot be changed",
        };
        let is_cancelled_twice = matches!(control, Control::Cancel { kill: false, .. })
            && self.execution.state() == ExecutionState::Cancelling;
        let now = self.now();
        self.execution.control(now, actor, control).map_err(|refused| {
            let state = wire::state_name(&self.execution);
            let id = &self.name.id;
            let (code, reason, message) = match refused {
                Refused::Ended => {
                    let message = format!("Execution `{id}` is {state} and cannot be {asked}.");
                    (Code::FailedPrecondition, reasons::EXECUTION_ENDED, message)
                }
                Refused::EndedForStep(step) => return ended_for_step(&self.name, &step),
                Refused::WrongState(_) if is_cancelled_twice => {
                    let message = format!(
                        "Execution `{id}` is being cancelled: running programs have a while to end. A cancellation with `kill` does not wait for them."
                    );
                    (Code::FailedPrecondition, reasons::WRONG_STATE, message)
                }
                Refused::WrongState(_) => {
                    let message = format!("Execution `{id}` is {state} and cannot be {asked}.");
                    (Code::FailedPrecondition, reasons::WRONG_STATE, message)
                }
                // Only now: a repetition of the request may come after that time.
                Refused::ResumeTimePassed => return status::invalid("resume_time", "must be in the future").into(),
                Refused::TooManySignals => {
                    let message = format!("Execution `{id}` cannot take another signal: {refused}.");
                    (Code::FailedPrecondition, reasons::TOO_MANY_SIGNALS, message)
                }
                Refused::NoStep(step) => {
                    let message = format!("Execution `{id}` has no step `{step}`.");
                    (Code::NotFound, reasons::STEP_NOT_FOUND, message)
                }
                Refused::WrongStepState(found) => {
                    let found = wire::step_state_name(found);
                    (Code::FailedPrecondition, reasons::WRONG_STATE, format!("The step is {found}: {needed}."))
                }
                Refused::NoFallback(step) => {
                    let message = format!(
                        "Step `{step}` has no other call left in its `fallback`: start its next attempt now (`--now`), or give it up (`--cancel`)."
                    );
                    (Code::FailedPrecondition, reasons::WRONG_STATE, message)
                }
                Refused::NothingToRetry => {
                    let message = format!(
                        "Execution `{id}` is {state}, and no step of it has failed or was stopped: name the step from which on it is to run again."
                    );
                    (Code::FailedPrecondition, reasons::NOTHING_TO_RETRY, message)
                }
                Refused::DependentRuns(step) => {
                    let message = format!(
                        "Step `{step}` is under way and depends on a step that is to run again: wait for its end, or cancel the execution first."
                    );
                    (Code::FailedPrecondition, reasons::WRONG_STATE, message)
                }
                Refused::PlanChange(change) => {
                    let field = match &change {
                        ForbiddenChange::Id(_) => "plan.id".to_owned(),
                        ForbiddenChange::Network(_) => "plan.network".to_owned(),
                        ForbiddenChange::Changed(step) | ForbiddenChange::Removed(step) => format!("plan.steps[{step}]"),
                    };
                    let message = format!(
                        "The plan cannot be changed like this: {change}. Only steps that have not started can be changed, removed or added."
                    );
                    return status::error(Code::InvalidArgument, reasons::PLAN_REFUSED, message)
                        .field(field, change.to_string())
                        .with("state", state)
                        .into();
                }
                Refused::NoInput(ref name) => {
                    return status::error(
                        Code::InvalidArgument,
                        reasons::PLAN_REFUSED,
                        format!("The plan cannot be changed like this: {refused}. Give it a default."),
                    )
                    .field(format!("plan.inputs.{name}"), "needs a `default`")
                    .with("state", state)
                    .into();
                }
                Refused::OtherRevision(revision) => {
                    let message = format!(
                        "The plan of execution `{id}` has revision {revision}: it was changed meanwhile. Get it, change that, and ask again."
                    );
                    (Code::FailedPrecondition, reasons::PLAN_REVISION_MISMATCH, message)
                }
                Refused::RequestIdReused => {
                    let message = format!(
                        "This request id was used with another request for execution `{id}`; nothing was changed. Use a new one."
                    );
                    (Code::AlreadyExists, reasons::REQUEST_ID_REUSED, message)
                }
            };
            Status::from(status::error(code, reason, message).with("state", state))
        })
    }
}

/// The approval that allowed the call to continue.
fn approved(pending: &PendingApproval) -> Option<&str> {
    pending.approval.as_deref().filter(|_| pending.decision() == Some(Decision::Approved))
}

/// An execution that has ended for the step whose plan it carried out: that has recorded its end and does not take another.
fn ended_for_step(name: &ExecutionName, step: &str) -> Status {
    let mut ids = step.split('/').skip(3).step_by(2);
    let (parent, step) = (ids.next().unwrap_or_default(), ids.next().unwrap_or_default());
    let message = format!(
        "Execution `{}` carries out the plan of step `{step}` of execution `{parent}`, which would not take its result: retry that one, with \
         `belay executions retry {parent}`. It runs the step again.",
        name.id
    );
    status::error(Code::FailedPrecondition, reasons::RETRY_PARENT, message)
        .with("name", name)
        .with("parent", parent)
        .into()
}
