//! Forms that a person answers: asked, refused, answered, withdrawn.

use std::sync::Arc;

use belay_execution::{Actor, Body, Decision, Event, OperationEnd, OperationEvent, OperationKey, StepView, WaitEnd};
use belay_proto::v1::{self, approval::State};

use super::Driver;
use crate::{
    approvals::form_request::{FormRequest, create_request},
    owned::messages::GateNotice,
    wire,
};

impl Driver {
    /// The request for a form's answer; `None` when the operation is no form.
    pub(super) fn form_request(&self, key: OperationKey, name: &str) -> Option<FormRequest> {
        let form = self.execution.operation(key)?.wait()?.form()?;
        let request = create_request(name.to_owned(), form, self.execution.principal().to_owned(), self.registry.fence);
        let trace = self.trace.call(&self.execution.operation_id(key));
        let (registry, updates) = (Arc::clone(&self.registry), self.update_sender.clone());
        Some(FormRequest { registry, key, request, trace, updates })
    }

    /// Whether the gate is being asked for this form. Until it has replied, its answer is not taken: once the answer is acknowledged, the gate would
    /// take that request for one of an executor that has lost the answer, and ask a person again.
    pub(super) fn is_asking(&self, wait: OperationKey) -> bool {
        let is_form = self.execution.operation(wait).is_some_and(|operation| operation.wait().is_some());
        let again = self.requesting_again.as_ref().is_some_and(|again| again.missing.contains(&wait));
        is_form && (again || self.operations.contains_key(&wait))
    }

    /// Records that the gate refuses to ask a form; `None` when the wait has ended, or is being stopped.
    pub(super) fn refused_form(&mut self, wait: OperationKey, message: String) -> Option<Event> {
        self.execution.operation(wait)?;
        let event = OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Refused { message }));
        let body = Body::Operation { id: self.execution.operation_id(wait), event };
        self.execution.record(self.now(), None, body).ok()
    }

    /// Records that the gate asks a form, and what became of it, as far as that is new. Returns `false` when no step waits for this form.
    pub(super) fn on_form(
        &mut self,
        wait: OperationKey,
        asked: &v1::Approval,
        answer: Option<v1::Payload>,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(operation) = self.execution.operation(wait) else { return false };
        let form = operation.wait().and_then(|condition| condition.form());
        if form.is_none_or(|form| form.subject_digest != asked.subject_digest) {
            return false;
        }
        let known = operation.requested_answer().map(str::to_owned);
        if known.as_ref().is_some_and(|known| *known != asked.name) {
            return false;
        }
        let (now, id) = (self.now(), self.execution.operation_id(wait));
        if known.is_none() {
            let (approval, subject_digest) = (asked.name.clone(), asked.subject_digest.clone());
            let event = OperationEvent::Asked { approval, subject_digest };
            let Ok(event) = self.execution.record(now, None, Body::Operation { id: id.clone(), event }) else {
                return false;
            };
            events.push(event);
        }
        let end = match (asked.state(), wire::decision_from(asked.state())) {
            (State::Answered, _) => match wire::json(answer, "the answer to a form") {
                Ok(answer) => WaitEnd::Answered { answer },
                // The next message of the watch has it, or the gate has to ask again.
                Err(_) => return true,
            },
            (_, Some(decision @ (Decision::Denied | Decision::Skipped))) => {
                WaitEnd::Declined { decision, reason: asked.decide_reason.clone() }
            }
            // Only this executor cancels a form, and only when no step waits for it.
            (_, None | Some(Decision::Approved | Decision::Expired)) => return true,
        };
        let actor = Some(Actor::new(asked.decided_by.clone()));
        let Ok(event) = self.execution.record(
            now,
            actor,
            Body::Operation { id, event: OperationEvent::Ended(OperationEnd::Wait(end)) },
        ) else {
            return false;
        };
        events.push(event);
        self.operations.remove(&wait);
        self.notices.push(GateNotice::Delivered(asked.name.clone()));
        true
    }

    /// Withdraws the forms whose waits ended without a decision about them. Called before the operations of these events are aborted.
    pub(super) fn withdraw_forms(&mut self, events: &[Event]) {
        for event in events {
            let Body::Operation {
                id: wait,
                event:
                    OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Held { .. } | WaitEnd::TimedOut | WaitEnd::Cancelled)),
            } = &event.body
            else {
                continue;
            };
            let step = self.execution.step_key(&wait.step).map(|step| self.execution.step(step));
            // Those that are no waits of the step are questions of its calls.
            let has_form = |step: StepView<'_>| step.spec().form().is_some() || step.call().is_some();
            if step.is_some_and(has_form) {
                let call = wire::call_name(&self.execution_name, wait);
                self.notices.push(GateNotice::Withdraw { execution: self.execution_name.clone(), call });
            }
        }
    }
}
