//! Calls that wait for a decision: how they come to wait, and how they go on.
//!
//! A held call stays in flight. Its step gives its place among the plan's `parallelism` back while nobody has decided, so that a person
//! who is away stops nothing that does not depend on it. A call that is let run waits for a place, before any step that has not started;
//! commits and discards run no tool, and wait for none.

use belay_reasons as reasons;

use crate::{
    Action, ApprovalMode, CallId, Decided, Decision, EventKind, Execution, ExecutionMove, ExecutionState, Hold, Need,
    NeedKind, SkipReason, StepMove, StepState, Timestamp,
    execution::{CallEnd, CallInFlight},
};

impl Execution {
    pub(crate) fn call_held(&mut self, call: CallId, need: &Need, time: Timestamp) -> Result<(), String> {
        self.check_not_stopped(call)?;
        let known = self.flying(call)?.hold.as_ref();
        if self.awaiting.contains(&call) {
            return Err(format!("{call} waits for a decision, and cannot be held anew before it"));
        }
        match known.map(|hold| (hold, hold.decision())) {
            Some((_, Some(Decision::Denied | Decision::Skipped | Decision::Expired))) => {
                return Err(format!("{call} was turned down, and cannot be held anew"));
            }
            // A gate that lost its store does not know that somebody has approved it: a person is asked again.
            Some((_, Some(Decision::Approved))) => {}
            Some((hold, _)) if (hold.need.kind, &hold.need.subject_digest) == (need.kind, &need.subject_digest) => {
                return Err(format!("{call} is held for this already"));
            }
            _ => {}
        }
        if self.steps[call.step].state == StepState::Running {
            self.move_step(call.step, StepMove::CallHeld, time)?;
            self.active -= 1;
        }
        self.unasked.insert(call);
        let hold = Hold { need: need.clone(), since: time, approval: None, decided: None };
        self.in_flight.get_mut(&call).expect("looked up above").hold = Some(hold);
        Ok(())
    }

    pub(crate) fn approval_requested(&mut self, call: CallId, approval: &str, digest: &str) -> Result<(), String> {
        self.check_not_stopped(call)?;
        let hold = self.flying(call)?.hold.as_ref().ok_or_else(|| format!("{call} is not held"))?;
        if hold.need.subject_digest != digest {
            return Err(format!("{call} is held for {}, and was asked about as {digest}", hold.need.subject_digest));
        }
        if approval.is_empty() || !self.unasked.remove(&call) {
            return Err(format!("nothing is to be asked about {call}"));
        }
        self.awaiting.insert(call);
        self.hold_mut(call).approval = Some(approval.to_owned());
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
        let hold = self.flying(call)?.hold.as_ref().ok_or_else(|| format!("{call} is not held"))?;
        if hold.decided.is_some() {
            return Err(format!("it was decided about {call} before"));
        }
        let by_mode = self.decides_itself().is_some() && approval.is_empty() && decided.decision != Decision::Approved;
        if !by_mode && (approval.is_empty() || hold.approval.as_deref() != Some(approval)) {
            return Err(format!("nobody was asked about {call} by the approval `{approval}`"));
        }
        let let_run = hold.need.kind == NeedKind::Call && decided.decision == Decision::Approved;
        self.leave_hold(call, StepMove::ApprovalDecided, time)?;
        if let_run && self.active > self.created.plan.parallelism() {
            self.active -= 1;
            self.queued.insert(call);
        }
        if self.state == ExecutionState::AwaitingApproval {
            self.move_execution(ExecutionMove::ApprovalDecided, None)?;
        }
        self.hold_mut(call).decided = Some(decided);
        Ok(())
    }

    /// Nothing but the decisions that are asked for can bring the execution on.
    pub(crate) fn only_awaits(&self) -> bool {
        !self.awaiting.is_empty()
            && self.awaiting.len() == self.in_flight.len()
            && self.ready.is_empty()
            && self.uncalled.is_empty()
            && self.doomed.is_empty()
            && self.unsettled.is_empty()
            && self.backing_off.is_empty()
    }

    /// What the end of a call leads to, and whether it can end so. Nothing is changed yet.
    pub(crate) fn check_end(&self, call: CallId, end: CallEnd) -> Result<CallEnd, String> {
        let Some(hold) = &self.flying(call)?.hold else { return Ok(end) };
        if self.stop.is_none() && self.awaiting.contains(&call) {
            return Err(format!("{call} waits for a decision, and cannot end before it"));
        }
        match (end, hold.decision()) {
            (CallEnd::Completed, decision) if decision != Some(Decision::Approved) => {
                Err(format!("{call} was held, and nobody has approved it"))
            }
            (CallEnd::Denied(_), Some(Decision::Skipped)) => Ok(CallEnd::LeftOut(match self.created.approval_mode {
                ApprovalMode::Wait => SkipReason::ApprovalSkipped,
                ApprovalMode::Fail | ApprovalMode::Skip | ApprovalMode::Auto => SkipReason::NonInteractive,
            })),
            (end, _) => Ok(end),
        }
    }

    /// Gives free places to calls that were let run, the first in the plan first. Nothing new runs during a pause.
    pub(crate) fn admit(&mut self) {
        while self.paused.is_none()
            && self.active < self.created.plan.parallelism()
            && self.queued.pop_first().is_some()
        {
            self.active += 1;
        }
    }

    /// A step that waited goes on; it has its place among the running ones again.
    pub(crate) fn leave_hold(&mut self, call: CallId, by: StepMove, time: Timestamp) -> Result<(), String> {
        let record = &self.steps[call.step];
        if record.state == StepState::AwaitingApproval {
            let waited = time.since(record.since);
            self.move_step(call.step, by, time)?;
            self.steps[call.step].waited += waited;
            self.active += 1;
            self.unasked.remove(&call);
            self.awaiting.remove(&call);
        }
        Ok(())
    }

    /// What the execution's approval mode says about the first call that is held, when that mode is to ask nobody.
    pub(crate) fn decide_held(&self) -> Option<EventKind> {
        let decision = self.decides_itself()?;
        let &call = self.unasked.first()?;
        let (approval, principal, reason) = (String::new(), String::new(), reasons::NON_INTERACTIVE.to_owned());
        Some(EventKind::ApprovalDecided { call, approval, decision, principal, reason })
    }

    fn decides_itself(&self) -> Option<Decision> {
        match self.created.approval_mode {
            ApprovalMode::Fail => Some(Decision::Denied),
            ApprovalMode::Skip => Some(Decision::Skipped),
            ApprovalMode::Wait | ApprovalMode::Auto => None,
        }
    }

    /// What has to be done about a call in flight; nothing while it rests.
    ///
    /// While the execution is paused a held call rests, whatever is decided about it meanwhile. Only a call that was let run before the
    /// pause is treated like any other that runs.
    pub(crate) fn action_for(&self, flying: &CallInFlight) -> Option<Action> {
        let call = flying.request.call;
        let running = || match &self.paused {
            Some(paused) if paused.discard_calls => Action::Stop(call),
            _ => Action::Send(call),
        };
        if self.stop.is_some() {
            return Some(Action::Stop(call));
        }
        if self.queued.contains(&call) {
            return None;
        }
        let Some(hold) = &flying.hold else { return Some(running()) };
        let let_run = hold.need.kind == NeedKind::Call && hold.decision() == Some(Decision::Approved);
        match (&self.paused, &hold.decided) {
            (Some(paused), Some(decided)) if let_run && decided.sequence < paused.sequence => Some(running()),
            (Some(_), _) => None,
            (None, None) => self.unasked.contains(&call).then_some(Action::Ask(call)),
            (None, Some(_)) if let_run => Some(Action::Send(call)),
            (None, Some(decided)) if decided.decision == Decision::Approved => Some(Action::Commit(call)),
            (None, Some(_)) => Some(Action::Discard(call)),
        }
    }

    fn flying(&self, call: CallId) -> Result<&CallInFlight, String> {
        self.in_flight.get(&call).ok_or_else(|| format!("{call} is not in flight"))
    }

    fn hold_mut(&mut self, call: CallId) -> &mut Hold {
        let flying = self.in_flight.get_mut(&call);
        flying.and_then(|flying| flying.hold.as_mut()).expect("looked up before anything is changed")
    }

    fn check_not_stopped(&self, call: CallId) -> Result<(), String> {
        if self.stop.is_some() { Err(format!("{call} is being stopped")) } else { Ok(()) }
    }
}
