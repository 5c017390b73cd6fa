//! Approvals: how an operation starts to wait for one, and how it continues.
//!
//! A held operation stays in flight. Its step releases its `parallelism` slot while all its operations wait, so that a missing decision
//! blocks only the steps that depend on it. An approved call that has yet to run queues for a slot ahead of all steps that have not started;
//! commits and discards run no tool and need no slot.

use belay_reasons as reasons;

use crate::{
    ApprovalMode, ApprovalRequirement, Body, Decision, Execution, ExecutionState, ExecutionTrigger, Operation,
    OperationEvent, OperationId, PendingApproval, Phase, RecordedDecision, StepTrigger, Timestamp, Violation,
    state::AttemptEnd, steps,
};

impl Execution {
    /// The runner holds a call.
    pub(crate) fn held(
        &mut self,
        id: &OperationId,
        requirement: &ApprovalRequirement,
        time: Timestamp,
    ) -> Result<(), Violation> {
        self.check_not_stopped(id)?;
        let operation = self.in_flight(id)?;
        let key = operation.key;
        if operation.requested_approval().is_some() {
            return Err(Violation::Undecided(id.clone()));
        }
        match operation.pending_approval.as_ref().map(|pending| (pending, pending.decision())) {
            Some((_, Some(Decision::Denied | Decision::Skipped | Decision::Expired))) => {
                return Err(Violation::TurnedDown(id.clone()));
            }
            // A gate that lost its store does not know about the approval: a person has to approve again.
            Some((_, Some(Decision::Approved))) | None => {}
            Some((pending, None)) => {
                let known = &pending.requirement;
                if (known.kind, &known.subject_digest) == (requirement.kind, &requirement.subject_digest) {
                    return Err(Violation::HeldBefore(id.clone()));
                }
            }
        }
        let pending = PendingApproval { requirement: requirement.clone(), since: time, approval: None, decided: None };
        self.update_operation(key, |operation| {
            operation.phase = Phase::AwaitingApproval;
            operation.pending_approval = Some(pending);
        });
        self.settle_approvals(key.step, StepTrigger::CallHeld, time)
    }

    /// The gate asks a person, for the approval of a held call or for the answer to a form.
    pub(crate) fn asked(&mut self, id: &OperationId, approval: &str, digest: &str) -> Result<(), Violation> {
        let operation = self.in_flight(id)?;
        let (key, is_wait) = (operation.key, operation.wait().is_some());
        self.check_not_stopped(id)?;
        if is_wait {
            return steps::wait::asked(self, id, approval, digest);
        }
        let pending = self.pending(id)?;
        let held_for = &pending.requirement.subject_digest;
        if held_for != digest {
            return Err(Violation::OtherSubject {
                operation: id.clone(),
                subject: held_for.clone(),
                asked: digest.to_owned(),
            });
        }
        if approval.is_empty() || !self.index.approval_to_request.contains(&key) {
            return Err(Violation::NothingToAsk(id.clone()));
        }
        self.update_operation(key, |operation| {
            if let Some(pending) = &mut operation.pending_approval {
                pending.approval = Some(approval.to_owned());
            }
        });
        Ok(())
    }

    /// A person or the approval mode has decided about a held call.
    pub(crate) fn decided(
        &mut self,
        id: &OperationId,
        approval: &str,
        decided: RecordedDecision,
        time: Timestamp,
    ) -> Result<(), Violation> {
        let key = self.in_flight(id)?.key;
        self.check_not_stopped(id)?;
        let pending = self.pending(id)?;
        if pending.decided.is_some() {
            return Err(Violation::DecidedBefore(id.clone()));
        }
        let by_mode = self.mode_decision().is_some() && approval.is_empty() && decided.decision != Decision::Approved;
        if !by_mode && (approval.is_empty() || pending.approval.as_deref() != Some(approval)) {
            return Err(Violation::NotAsked { operation: id.clone(), approval: approval.to_owned() });
        }
        let phase = Operation::phase_after(pending, decided.decision);
        self.update_operation(key, |operation| {
            operation.phase = phase;
            if let Some(pending) = &mut operation.pending_approval {
                pending.decided = Some(decided);
            }
        });
        self.settle_approvals(key.step, StepTrigger::ApprovalDecided, time)?;
        if self.state == ExecutionState::AwaitingApproval {
            self.transition_execution(ExecutionTrigger::ApprovalDecided, None)?;
        }
        Ok(())
    }

    /// Whether the execution can make no progress until a pending approval is decided.
    pub(crate) fn only_awaits_approvals(&self) -> bool {
        let index = &self.index;
        !index.approval_requested.is_empty()
            && index.approval_requested.len() == self.operations.iter().len()
            && self.next_ready().filter(|_| self.has_unheld_slot()).is_none()
            && self.next_to_request().is_none()
            && index.to_start_without_slot.is_empty()
            && index.to_skip.is_empty()
            && index.to_resolve.is_empty()
            && index.backing_off.is_empty()
            && index.ready_from.is_empty()
    }

    /// Checks whether a call can end this way, and returns the end to record. Changes nothing.
    pub(crate) fn check_end(&self, id: &OperationId, end: AttemptEnd) -> Result<AttemptEnd, Violation> {
        let operation = self.in_flight(id)?;
        let Some(pending) = &operation.pending_approval else { return Ok(end) };
        if self.stop.is_none() && operation.requested_approval().is_some() {
            return Err(Violation::Undecided(id.clone()));
        }
        match (end, pending.decision()) {
            (AttemptEnd::Completed, decision) if decision != Some(Decision::Approved) => {
                Err(Violation::NotApproved(id.clone()))
            }
            (AttemptEnd::Denied(_), Some(Decision::Skipped)) => Ok(AttemptEnd::Skipped),
            (end, _) => Ok(end),
        }
    }

    /// The decision of the execution's approval mode about the first held operation; `None` when the mode leaves decisions to the gate.
    pub(crate) fn decide_by_mode(&self) -> Option<Body> {
        let decision = self.mode_decision()?;
        let &key = self.index.approval_to_request.first()?;
        let (approval, reason) = (String::new(), reasons::NON_INTERACTIVE.to_owned());
        let event = OperationEvent::Decided { approval, decision, reason };
        Some(Body::Operation { id: self.operation_id(key), event })
    }

    fn mode_decision(&self) -> Option<Decision> {
        match self.created.approval_mode {
            ApprovalMode::Fail => Some(Decision::Denied),
            ApprovalMode::Skip => Some(Decision::Skipped),
            ApprovalMode::Wait | ApprovalMode::Auto => None,
        }
    }

    /// The operation that an event names, which must be in flight.
    pub(crate) fn in_flight(&self, id: &OperationId) -> Result<&Operation, Violation> {
        let operation = self.operation_key(id).and_then(|key| self.operations.get(key));
        operation.ok_or_else(|| Violation::NotInFlight(id.clone()))
    }

    fn pending(&self, id: &OperationId) -> Result<&PendingApproval, Violation> {
        self.in_flight(id)?.pending_approval.as_ref().ok_or_else(|| Violation::NotHeld(id.clone()))
    }

    pub(crate) fn check_not_stopped(&self, id: &OperationId) -> Result<(), Violation> {
        if self.stop.is_some() { Err(Violation::BeingStopped(id.clone())) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Actor, DecideContext, EffectSummary, Event, Json, OperationEnd, OperationEvent, OperationKind, PolicyDecision,
        RequiredAction, StepState, SubjectKind, ToolCallEnd, Verdict, test_support::started,
    };

    const NOW: Timestamp = Timestamp::from_micros(5);

    fn held(digest: &str) -> OperationEvent {
        let rule = || "r".to_owned();
        let decision = PolicyDecision { verdict: Verdict::Prompt, rule: rule(), reason: rule(), policy_revision: 1 };
        let (kind, effect) = (SubjectKind::Call, EffectSummary::default());
        OperationEvent::Held(Box::new(ApprovalRequirement {
            kind,
            subject_digest: digest.into(),
            decision,
            effect,
            allowing_rules: Vec::new(),
            risk: crate::Risk::Medium,
        }))
    }

    /// A step whose two calls are in flight, both waiting for approval. No kind of step makes two calls yet, so the second is put there.
    fn two_held() -> (Execution, [OperationId; 2]) {
        let mut execution = started("id: p\nsteps: [{id: a, tool: t}, {id: b, tool: t}]", NOW);
        let mut second = execution.operations.iter().next().unwrap().clone();
        second.key.number = 2;
        let OperationKind::ToolCall(request) = &mut second.kind else { unreachable!() };
        Arc::make_mut(request).arguments = Json::from_text("2").into();
        let step = second.key.step;
        execution.insert_operation(second);
        execution.update_step(step, |record| record.operations = 2);
        let calls = [1, 2].map(|number| OperationId { step: "a".into(), attempt: 1, number });
        for call in &calls {
            let event = held(&format!("sha256:{}", call.number));
            execution.record(NOW, None, Body::Operation { id: call.clone(), event }).unwrap();
            let (approval, subject_digest) = (format!("ap{}", call.number), format!("sha256:{}", call.number));
            let event = OperationEvent::Asked { approval, subject_digest };
            execution.record(NOW, None, Body::Operation { id: call.clone(), event }).unwrap();
        }
        (execution, calls)
    }

    fn state(execution: &Execution) -> (StepState, usize) {
        assert!(execution.is_index_consistent());
        (execution.steps().next().unwrap().state(), execution.index.slots_held)
    }

    fn decide(execution: &mut Execution, call: &OperationId, decision: Decision) {
        let event = OperationEvent::Decided { approval: format!("ap{}", call.number), decision, reason: "ok".into() };
        let actor = Some(Actor::new("ann"));
        execution.record(NOW, actor, Body::Operation { id: call.clone(), event }).unwrap();
    }

    // B-25: several operations of one step wait for approval at once, and each continues by its own decision.
    #[test]
    fn two_operations_of_one_step_wait_for_approval_at_once() {
        let (mut execution, [first, second]) = two_held();
        assert_eq!(state(&execution), (StepState::AwaitingApproval, 0), "the slot is free for the next step");
        assert_eq!(execution.steps().next().unwrap().approvals().collect::<Vec<_>>(), ["ap1", "ap2"]);
        assert_eq!(execution.waiting().len(), 2);

        decide(&mut execution, &second, Decision::Approved);
        assert_eq!(state(&execution), (StepState::Running, 0), "one waits for a slot, the other for a decision");
        let events = execution.advance(DecideContext { now: NOW, ledger_id: "l" });
        let dispatched = |event: &Event| matches!(&event.body, Body::Operation { id: call, event: OperationEvent::Dispatched } if *call == second);
        assert!(events.iter().any(dispatched), "{events:?}");

        decide(&mut execution, &first, Decision::Denied);
        let required: Vec<_> = execution.actions().into_iter().map(|action| action.required).collect();
        assert_eq!(required[..2], [RequiredAction::Discard, RequiredAction::Dispatch]);
        assert_eq!(state(&execution).0, StepState::Running);
    }

    // While one of two operations runs, its step runs.
    #[test]
    fn a_step_waits_for_approval_when_all_its_operations_do() {
        let (mut execution, [first, second]) = two_held();
        decide(&mut execution, &first, Decision::Approved);
        execution.advance(DecideContext { now: NOW, ledger_id: "l" });
        assert_eq!(state(&execution).0, StepState::Running);
        let event = held("sha256:again");
        execution.record(NOW, None, Body::Operation { id: first.clone(), event }).unwrap();
        assert_eq!(state(&execution).0, StepState::AwaitingApproval);
        let end = ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() };
        let event = OperationEvent::Ended(OperationEnd::ToolCall(end));
        assert!(
            execution.record(NOW, None, Body::Operation { id: second, event }).is_err(),
            "it waits for its decision"
        );
    }
}
