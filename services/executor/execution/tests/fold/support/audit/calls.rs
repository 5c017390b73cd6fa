//! Operations of steps: calls, approvals, waits and the executions of plans.

use belay_execution::{OperationEnd, OperationReport, Work};

use super::*;

impl Audit {
    pub(super) fn about_operation(&mut self, id: &OperationId, kind: &OperationEvent, event: &Event) {
        let (step, time) = (self.step_of(id), event.time);
        match kind {
            OperationEvent::Requested(Work::ToolCall(request)) => {
                self.requested(id, request.check);
                self.hold_call(id, request.held);
            }
            OperationEvent::Held(requirement) => {
                assert!(self.open.contains(id) && self.stop.is_none());
                let (kind, digest) = (requirement.kind, requirement.subject_digest.clone());
                let held = LastHold { kind: Some(kind), digest: digest.clone(), ..LastHold::default() };
                let before = self.held.insert(id.clone(), held);
                let again = before.is_none_or(|held| held.digest != digest && !held.waits());
                assert!(again, "{id} was held twice for the same, or before a decision");
                self.holding.remove(&self.step_of(id));
            }
            OperationEvent::Dispatched => {
                self.check_may_start();
                let held = &self.held[id];
                assert_eq!((held.kind, held.decision), (Some(SubjectKind::Call), Some(Decision::Approved)));
                assert!(self.queued.remove(id), "{id} did not wait for a slot");
                self.was_dispatched(id);
                self.holding.insert(self.step_of(id));
                // A step that waits for what this call holds of a budget keeps its slot, and does nothing with it.
                let in_flight = |step: &&usize| self.open.iter().any(|open| self.step_of(open) == **step);
                let running = match self.plan.has_budgets() {
                    true => self.holding.iter().filter(in_flight).count(),
                    false => self.holding.len(),
                };
                assert!(running <= self.plan.parallelism(), "more steps at once than the plan allows");
            }
            OperationEvent::Ended(OperationEnd::ToolCall(end)) => {
                let used = self.used_by_call(id, end);
                self.spend(id, Some(used));
                match end {
                    ToolCallEnd::Completed { result, .. } => {
                        // Number 3: what was held completes with a yes to what it was held for last.
                        let yes = self.held.get(id).is_none_or(|held| held.decision == Some(Decision::Approved));
                        assert!(yes, "{id} completed, and nobody had approved it");
                        match self.checking.get(id) {
                            Some(place) => assert!(self.passed.insert((step, *place)), "{id} checks again"),
                            None => {
                                // S2-NFR-007: whatever happens, a step takes effect once.
                                let first = self.effects.insert(step);
                                assert!(first, "{id} took effect after another id of its step had");
                                self.took_effect(step);
                                self.results.insert((self.last_time, text_of(result)));
                            }
                        }
                    }
                    ToolCallEnd::Denied { .. } => {
                        if self.held.get(id).is_some_and(|held| held.decision == Some(Decision::Skipped)) {
                            self.left_out.insert(self.step_of(id));
                        }
                    }
                    ToolCallEnd::OutcomeUnknown { .. } => {
                        let place = self.checking.get(id).copied();
                        place.map(|place| self.doubted.insert(self.step_of(id), place));
                    }
                    ToolCallEnd::Failed { .. } | ToolCallEnd::Cancelled { .. } => {}
                }
                self.call_ended(id);
            }

            OperationEvent::Asked { subject_digest, .. } if self.waits.contains_key(id) => {
                assert_eq!(self.mode, ApprovalMode::Wait, "a run that cannot ask has asked");
                let form = self.waits[id].form().expect("only a form is asked");
                assert_eq!(&form.subject_digest, subject_digest);
                assert!(self.asked.insert(id.clone()), "{id} was asked twice");
            }
            OperationEvent::Asked { approval, subject_digest } => {
                let held = self.held.get_mut(id).expect("only what is held is asked about");
                assert_eq!(&held.digest, subject_digest);
                assert!(held.decision.is_none() && held.approval.replace(approval.clone()).is_none());
            }
            OperationEvent::Decided { approval, decision, .. } => {
                let held = self.held.get_mut(id).expect("only what is held is decided about");
                let asks_nobody = matches!(self.mode, ApprovalMode::Fail | ApprovalMode::Skip);
                match &held.approval {
                    Some(asked) => assert_eq!(asked, approval),
                    None => assert!(approval.is_empty() && asks_nobody && *decision != Decision::Approved),
                }
                assert!(held.decision.replace(*decision).is_none(), "it was decided about {id} twice");
                match (held.kind, *decision) {
                    (Some(SubjectKind::Call), Decision::Approved) => drop(self.queued.insert(id.clone())),
                    _ => drop(self.holding.insert(step)),
                }
            }

            OperationEvent::Requested(Work::Wait(condition)) => {
                self.requested(id, None);
                self.open.remove(id);
                self.waits.insert(id.clone(), condition.clone());
            }
            OperationEvent::Ended(OperationEnd::Wait(end)) => {
                let condition = self.waits.remove(id).expect("it waits");
                match end {
                    WaitEnd::Elapsed => {
                        assert!(matches!(condition, WaitCondition::Time { until } if until <= time), "too early");
                        self.effects.insert(step);
                    }
                    WaitEnd::Signalled { sequence } => {
                        // Each signal is taken once, the oldest first.
                        let signal = self.signals.remove(sequence).expect("a signal that nobody has taken");
                        assert_eq!(condition.signal(), Some(signal.as_str()));
                        assert!(!self.signals.range(..sequence).any(|(_, older)| *older == signal));
                        self.effects.insert(step);
                    }
                    WaitEnd::TimedOut => {
                        let by_limit = condition.signal().is_some() || condition.form().is_some();
                        assert!(by_limit && condition.until().is_some_and(|until| until <= time));
                    }
                    WaitEnd::Answered { .. } => {
                        let asked = condition.form().is_some() && self.asked.contains(id);
                        assert!(asked && event.actor.is_some() && self.stop.is_none(), "{id} was not asked");
                        self.effects.insert(step);
                    }
                    WaitEnd::Held { .. } => panic!("{id} is no question of a call"),
                    WaitEnd::Declined { decision, .. } => {
                        assert!(condition.form().is_some() && self.stop.is_none());
                        // A person declines what they were asked, and the mode what nobody is asked.
                        assert_eq!(event.actor.is_some(), self.mode == ApprovalMode::Wait);
                        assert_eq!(event.actor.is_some(), self.asked.contains(id));
                        match decision {
                            Decision::Denied => assert_ne!(self.mode, ApprovalMode::Skip),
                            Decision::Skipped => drop(self.left_out.insert(step)),
                            Decision::Approved | Decision::Expired => panic!("a form is denied or skipped"),
                        }
                    }
                    WaitEnd::Refused { .. } => {
                        assert!(condition.form().is_some() && event.actor.is_none() && self.stop.is_none());
                    }
                    WaitEnd::Cancelled => assert!(self.stop.is_some(), "nothing was stopped"),
                }
            }

            OperationEvent::Requested(Work::Child(started)) => {
                self.requested(id, None);
                assert!(started.until.is_none_or(|until| until >= time), "{id} has no time left");
                self.open.remove(id);
                let given = started.allotment.unwrap_or_default();
                self.hold(id, &[0, 1, 2, 3], BudgetUnit::ALL.map(|unit| given.of(unit)));
                assert!(self.names_of_children.insert(started.execution.clone()), "two children have one name");
                self.children.insert(id.clone(), Some(false));
            }
            OperationEvent::Reported(OperationReport::ChildCreated) => {
                assert!(self.children.contains_key(id), "{id} has not begun");
                assert!(self.created_children.insert(id.clone()), "{id} is created twice");
            }
            OperationEvent::Reported(OperationReport::ChildPaused) => {
                let before = self.children.insert(id.clone(), Some(true)).expect("it has begun");
                assert!(self.paused && before != Some(true), "{id} is not to pause");
            }
            OperationEvent::Reported(OperationReport::ChildResumed) => {
                let before = self.children.insert(id.clone(), Some(false)).expect("it has begun");
                assert!(!self.paused && before != Some(false), "{id} is not to go on");
            }
            OperationEvent::Ended(OperationEnd::Child { end, spent }) => {
                self.spend(id, *spent);
                assert!(self.children.remove(id).is_some(), "{id} has not begun");
                match end {
                    ChildEnd::Completed { .. } => drop(self.effects.insert(step)),
                    ChildEnd::Failed { .. } => {}
                    ChildEnd::Cancelled => assert!(self.stop.is_some(), "nothing was stopped"),
                }
            }
        }
    }

    pub(super) fn requested(&mut self, id: &OperationId, check: Option<CheckPlace>) {
        self.check_may_start();
        let step = self.step_of(id);
        self.check_attempt(step, id.attempt);
        // Number 12.
        let is_after = matches!(check, Some(CheckPlace::After(_)));
        assert_eq!(
            self.effects.contains(&step),
            is_after,
            "{id} was requested after its step had taken effect, or before"
        );
        // S4-08, S4-20: all checks before this call hold.
        let earlier = self.checks_with_calls(step).take_while(|place| match check {
            None => matches!(place, CheckPlace::Before(_)),
            Some(check) => *place < check,
        });
        for place in earlier {
            assert!(self.passed.contains(&(step, place)), "{id} was requested before {place:?}");
        }
        if let Some(place) = check {
            assert!(self.checks_with_calls(step).any(|known| known == place), "{id}: no call checks {place:?}");
            self.checking.insert(id.clone(), place);
        }
        let other = self.open.iter().chain(self.waits.keys()).any(|open| open.step == id.step);
        assert!(!other, "{id} was requested while another was in flight");
        let first = OperationId { number: 0, ..id.clone() };
        assert_eq!(
            self.requested.range(&first..id).count() + 1,
            usize::try_from(id.number).unwrap(),
            "{id} is out of turn"
        );
        assert!(self.requested.insert(id.clone()), "{id} was requested twice");
        self.open.insert(id.clone());
    }

    pub(super) fn call_ended(&mut self, call: &OperationId) {
        // Number 2, first half: never two ends.
        assert!(self.open.remove(call), "{call} ended and was not in flight");
        self.held.remove(call);
        self.queued.remove(call);
        self.checking.remove(call);
        let step = self.step_of(call);
        if !self.ended.contains(&step) {
            self.holding.insert(step);
        }
    }

    /// The checks of a step that take calls.
    pub(super) fn checks_with_calls(&self, step: usize) -> impl Iterator<Item = CheckPlace> {
        let [is_before, is_after] = self.checked(step);
        let spec = self.spec(step);
        let before = spec.preconditions().iter().enumerate().map(|(place, check)| (CheckPlace::Before(place), check));
        let after = spec.postconditions().iter().enumerate().map(|(place, check)| (CheckPlace::After(place), check));
        let checks = before.filter(|_| is_before).chain(after.filter(|_| is_after));
        let checks = checks.filter(|(_, check)| check.call().is_some());
        checks.map(|(place, _)| place).collect::<Vec<_>>().into_iter()
    }

    pub(super) fn took_effect(&mut self, step: usize) {
        self.effects.insert(step);
        if self.has_checks_after(step) {
            self.order.push(step);
        }
    }

    pub(super) fn has_checks_after(&self, step: usize) -> bool {
        let spec = self.spec(step);
        let has_some = !spec.postconditions().is_empty() || spec.output_schema().is_some();
        has_some && self.checked(step)[1] && !self.commits_step(step)
    }

    /// How many calls a step makes that have one effect; `None` for any other step.
    pub(super) fn calls_with_one_effect(&self, step: usize) -> Option<usize> {
        let several = self.spec(step).several()?;
        several.commit().map(|_| several.calls().len())
    }

    /// Whether it commits what the calls of a step have changed.
    pub(super) fn commits_step(&self, step: usize) -> bool {
        if let Some(item) = self.agent_item(step) {
            return item["tool"] == COMMIT_TOOL;
        }
        let list = self.lists.get(&step).filter(|list| self.calls_with_one_effect(**list).is_some());
        list.is_some_and(|list| {
            self.items[list].iter().position(|item| *item == step) == self.calls_with_one_effect(*list)
        })
    }

    /// A step whose calls have one effect is skipped with the call that commits it.
    pub(super) fn commit_skipped(&mut self, step: usize, reason: SkipReason) {
        // A call that a new version of the plan has removed commits nothing, and its step is in no plan any more.
        let by_a_person = [SkipReason::Requested, SkipReason::ApprovalSkipped, SkipReason::NonInteractive];
        if self.stop.is_some() || !by_a_person.contains(&reason) || !self.commits_step(step) {
            return;
        }
        let whole = self.lists[&step];
        if reason == SkipReason::Requested {
            self.to_skip.insert(whole);
        } else {
            self.left_out.insert(whole);
        }
    }
}
