//! Held calls: how a call starts to wait for approval, and how it continues.
//!
//! A held call stays in flight. Its step releases its `parallelism` slot while the decision is pending, so that a missing decision blocks
//! only the steps that depend on it. An approved call that has yet to run queues for a slot ahead of all steps that have not started;
//! commits and discards run no tool and need no slot.

use belay_reasons as reasons;

use crate::{
    Action, ApprovalMode, ApprovalRequirement, CallId, Decided, Decision, EventKind, Execution, ExecutionState,
    ExecutionTrigger, PendingApproval, SkipReason, StepState, StepTrigger, SubjectKind, Timestamp,
    execution::{CallEnd, CallInFlight},
};

impl Execution {
    pub(crate) fn call_held(
        &mut self,
        call: CallId,
        requirement: &ApprovalRequirement,
        time: Timestamp,
    ) -> Result<(), String> {
        self.check_not_stopped(call)?;
        let known = self.in_flight_call(call)?.pending_approval.as_ref();
        if self.awaiting.contains(&call) {
            return Err(format!("{call} waits for a decision, and cannot be held anew before it"));
        }
        match known.map(|pending| (pending, pending.decision())) {
            Some((_, Some(Decision::Denied | Decision::Skipped | Decision::Expired))) => {
                return Err(format!("{call} was turned down, and cannot be held anew"));
            }
            // A gate that lost its store does not know about the approval: a person has to approve again.
            Some((_, Some(Decision::Approved))) => {}
            Some((pending, _))
                if (pending.requirement.kind, &pending.requirement.subject_digest)
                    == (requirement.kind, &requirement.subject_digest) =>
            {
                return Err(format!("{call} is held for this already"));
            }
            _ => {}
        }
        if self.steps[call.step].state == StepState::Running {
            self.transition_step(call.step, StepTrigger::CallHeld, time)?;
            self.active -= 1;
        }
        self.to_request.insert(call);
        let pending = PendingApproval { requirement: requirement.clone(), since: time, approval: None, decided: None };
        self.in_flight.get_mut(&call).expect("looked up above").pending_approval = Some(pending);
        Ok(())
    }

    pub(crate) fn approval_requested(&mut self, call: CallId, approval: &str, digest: &str) -> Result<(), String> {
        self.check_not_stopped(call)?;
        let pending =
            self.in_flight_call(call)?.pending_approval.as_ref().ok_or_else(|| format!("{call} is not held"))?;
        if pending.requirement.subject_digest != digest {
            return Err(format!(
                "{call} is held for {}, and was asked about as {digest}",
                pending.requirement.subject_digest
            ));
        }
        if approval.is_empty() || !self.to_request.remove(&call) {
            return Err(format!("nothing is to be asked about {call}"));
        }
        self.awaiting.insert(call);
        self.pending_mut(call).approval = Some(approval.to_owned());
        Ok(())
    }

    pub(crate) fn approval_decided(
        &mut self,
        call: CallId,
        approval: &str,
        decided: Decided,
        time: Timestamp,
    ) -> Result<(), String> {
        self.check_not_stopped(call)?;
        let pending =
            self.in_flight_call(call)?.pending_approval.as_ref().ok_or_else(|| format!("{call} is not held"))?;
        if pending.decided.is_some() {
            return Err(format!("it was decided about {call} before"));
        }
        let by_mode = self.mode_decision().is_some() && approval.is_empty() && decided.decision != Decision::Approved;
        if !by_mode && (approval.is_empty() || pending.approval.as_deref() != Some(approval)) {
            return Err(format!("nobody was asked about {call} by the approval `{approval}`"));
        }
        let let_run = pending.requirement.kind == SubjectKind::Call && decided.decision == Decision::Approved;
        self.leave_pending(call, StepTrigger::ApprovalDecided, time)?;
        if let_run && self.active > self.created.plan.parallelism() {
            self.active -= 1;
            self.queued.insert(call);
        }
        if self.state == ExecutionState::AwaitingApproval {
            self.transition_execution(ExecutionTrigger::ApprovalDecided, None)?;
        }
        self.pending_mut(call).decided = Some(decided);
        Ok(())
    }

    /// Whether the execution can make no progress until a pending approval is decided.
    pub(crate) fn only_awaits_approvals(&self) -> bool {
        !self.awaiting.is_empty()
            && self.awaiting.len() == self.in_flight.len()
            && self.ready.is_empty()
            && self.to_dispatch.is_empty()
            && self.to_skip.is_empty()
            && self.to_resolve.is_empty()
            && self.backing_off.is_empty()
    }

    /// Checks whether the call can end this way, and returns the end to record. Changes nothing.
    pub(crate) fn check_end(&self, call: CallId, end: CallEnd) -> Result<CallEnd, String> {
        let Some(pending) = &self.in_flight_call(call)?.pending_approval else { return Ok(end) };
        if self.stop.is_none() && self.awaiting.contains(&call) {
            return Err(format!("{call} waits for a decision, and cannot end before it"));
        }
        match (end, pending.decision()) {
            (CallEnd::Completed, decision) if decision != Some(Decision::Approved) => {
                Err(format!("{call} was held, and nobody has approved it"))
            }
            (CallEnd::Denied(_), Some(Decision::Skipped)) => Ok(CallEnd::Skipped(match self.created.approval_mode {
                ApprovalMode::Wait => SkipReason::ApprovalSkipped,
                ApprovalMode::Fail | ApprovalMode::Skip | ApprovalMode::Auto => SkipReason::NonInteractive,
            })),
            (end, _) => Ok(end),
        }
    }

    /// Gives free slots to approved calls in plan order. No new call runs during a pause.
    pub(crate) fn admit(&mut self) {
        while self.paused.is_none()
            && self.active < self.created.plan.parallelism()
            && self.queued.pop_first().is_some()
        {
            self.active += 1;
        }
    }

    /// The step no longer waits for approval and occupies a slot again.
    pub(crate) fn leave_pending(&mut self, call: CallId, by: StepTrigger, time: Timestamp) -> Result<(), String> {
        let record = &self.steps[call.step];
        if record.state == StepState::AwaitingApproval {
            let waited = time.since(record.since);
            self.transition_step(call.step, by, time)?;
            self.steps[call.step].waited += waited;
            self.active += 1;
            self.to_request.remove(&call);
            self.awaiting.remove(&call);
        }
        Ok(())
    }

    /// The decision of the execution's approval mode about the first held call; `None` when the mode leaves decisions to the gate.
    pub(crate) fn decide_by_mode(&self) -> Option<EventKind> {
        let decision = self.mode_decision()?;
        let &call = self.to_request.first()?;
        let (approval, principal, reason) = (String::new(), String::new(), reasons::NON_INTERACTIVE.to_owned());
        Some(EventKind::ApprovalDecided { call, approval, decision, principal, reason })
    }

    fn mode_decision(&self) -> Option<Decision> {
        match self.created.approval_mode {
            ApprovalMode::Fail => Some(Decision::Denied),
            ApprovalMode::Skip => Some(Decision::Skipped),
            ApprovalMode::Wait | ApprovalMode::Auto => None,
        }
    }

    /// The action that a call in flight needs; `None` when it needs none.
    ///
    /// While the execution is paused, a held call needs none, even if it is decided meanwhile. Only a call that was approved to run before
    /// the pause is treated as running.
    pub(crate) fn action_for(&self, in_flight: &CallInFlight) -> Option<Action> {
        let call = in_flight.request.call;
        let running = || match &self.paused {
            Some(paused) if paused.discard_calls => Action::Cancel(call),
            _ => Action::Dispatch(call),
        };
        if self.stop.is_some() {
            return Some(Action::Cancel(call));
        }
        if self.queued.contains(&call) {
            return None;
        }
        let Some(pending) = &in_flight.pending_approval else { return Some(running()) };
        let let_run = pending.requirement.kind == SubjectKind::Call && pending.decision() == Some(Decision::Approved);
        match (&self.paused, &pending.decided) {
            (Some(paused), Some(decided)) if let_run && decided.sequence < paused.sequence => Some(running()),
            (Some(_), _) => None,
            (None, None) => self.to_request.contains(&call).then_some(Action::RequestApproval(call)),
            (None, Some(_)) if let_run => Some(Action::Dispatch(call)),
            (None, Some(decided)) if decided.decision == Decision::Approved => Some(Action::Commit(call)),
            (None, Some(_)) => Some(Action::Discard(call)),
        }
    }

    fn in_flight_call(&self, call: CallId) -> Result<&CallInFlight, String> {
        self.in_flight.get(&call).ok_or_else(|| format!("{call} is not in flight"))
    }

    fn pending_mut(&mut self, call: CallId) -> &mut PendingApproval {
        let in_flight = self.in_flight.get_mut(&call);
        in_flight
            .and_then(|in_flight| in_flight.pending_approval.as_mut())
            .expect("looked up before anything is changed")
    }

    fn check_not_stopped(&self, call: CallId) -> Result<(), String> {
        if self.stop.is_some() { Err(format!("{call} is being stopped")) } else { Ok(()) }
    }
}
