//! The end of an execution, and what a step may wait for until then.

use super::*;

impl Audit {
    pub(super) fn finished(&mut self, finished: &Finished) {
        let has_failed =
            self.totals.failed > 0 && matches!(self.stop, None | Some(Stop::Error)) && self.undoing.is_none();
        if has_failed && self.plan.escalation().is_some() && !self.is_escalated {
            assert_eq!(self.escalates_to(), Some(Then::Fail), "it has ended before its escalation");
        }
        self.finished = true;
        // Number 2, second half: never none.
        assert!(self.open.is_empty(), "calls without an end: {:?}", self.open);
        assert!(self.waits.is_empty(), "waits without an end: {:?}", self.waits);
        // Number 8, S4-09, S4-11.
        let counted = self.ended.iter().filter(|step| self.counted(**step) == 1).count();
        assert_eq!(counted, self.totals.total);
        let (undoing, before) = self.undoing.clone().unwrap_or_default();
        assert!(undoing.iter().all(|step| self.ended.contains(step)));
        // Something is left of an execution where a step that has completed was not undone; one that has only made its call counts for nothing.
        let both = |step: &&usize| self.completed.contains(step) && self.completed.contains(&self.undoes[*step].0);
        let undone = undoing.iter().filter(both).count();
        let stop = before.filter(|stop| *stop != Stop::Error).or(self.stop);
        assert_eq!((finished.totals, &finished.failure), (self.totals, &self.first_failure));
        let Totals { total, completed, failed, .. } = self.totals;
        let expected = match stop {
            Some(Stop::Cancel | Stop::Kill) if completed < total => ExecutionState::Cancelled,
            Some(Stop::Deadline) if completed < total => ExecutionState::TimedOut,
            // Skipping is not success where others needed what was skipped, or everything was.
            _ if failed == 0 && self.missed() => ExecutionState::Partial,
            _ if failed == 0 => ExecutionState::Completed,
            _ if completed > undone && !self.plan.stop_on_error() => ExecutionState::Partial,
            _ => ExecutionState::Failed,
        };
        assert_eq!(finished.state, expected);
        self.outputs(finished);
    }

    /// An execution has outputs when its plan declares some and it has come to its end. Those that name a step's result are null unless the step has
    /// completed, and those that name its state say how it ended.
    fn outputs(&self, finished: &Finished) {
        let has_ended = matches!(finished.state, ExecutionState::Completed | ExecutionState::Partial);
        assert_eq!(finished.outputs.is_some(), has_ended && self.plan.outputs().is_some());
        let Some(Ok(outputs)) = &finished.outputs else { return };
        let outputs = outputs.inline().expect("nothing here is large").value();
        let declared = self.plan.outputs().expect("they are declared").source().as_object().expect("an object");
        assert!(outputs.as_object().expect("an object").keys().eq(declared.keys()));
        for (name, template) in declared {
            let text = template.as_str().and_then(|text| text.strip_prefix("${")?.strip_suffix('}'));
            let Some((step, what)) = text.and_then(|text| text.split_once('.')) else { continue };
            let step = self.ids.iter().position(|id| id == step).expect("a step of the plan");
            let state = match () {
                () if self.completed.contains(&step) => "completed",
                () if self.failed.contains(&step) => "failed",
                () if self.skipped.contains_key(&step) => "skipped",
                () => "cancelled",
            };
            match what {
                "state" => assert_eq!(outputs[name], state, "{name}"),
                "result" => {
                    assert!(outputs[name].is_null() || state == "completed", "{name} of a step that is {state}")
                }
                _ => {}
            }
        }
    }

    pub(super) fn dependencies_ended(&self, step: usize) -> bool {
        self.dependencies(step).iter().all(|on| self.ended.contains(on))
    }

    /// Whether the steps that it depends on have ended as it wants.
    pub(super) fn may_run(&self, step: usize) -> bool {
        if self.undoes.contains_key(&step) {
            return self.is_being_undone(step) && self.dependencies_ended(step);
        }
        if let Some(&list) = self.lists.get(&step) {
            return self.current(list).is_some_and(|current| current.contains(&step));
        }
        let spec = self.spec(step);
        let dependencies = self.dependencies(step);
        let mut on = dependencies.iter();
        let has_failed = |&on: &usize| self.failed.contains(&self.root(on));
        match spec.run_when() {
            RunWhen::Success => on.all(|&on| self.has_outcome(step, on)),
            RunWhen::Always => self.dependencies_ended(step),
            RunWhen::Failure => self.dependencies_ended(step) && on.any(has_failed),
            RunWhen::NoneFailed => self.dependencies_ended(step) && !on.any(has_failed),
        }
    }

    /// Whether a step has ended with one of the outcomes after which another runs: those that it names, or success. What a person has skipped counts as
    /// both.
    pub(super) fn has_outcome(&self, step: usize, on: usize) -> bool {
        let named = self.spec(step).outcomes_of(&self.ids[on]);
        let wants = |outcome| named.map_or(outcome == Outcome::Success, |named| named.contains(&outcome));
        let by_request = matches!(self.skipped.get(&on), Some((SkipReason::Requested, _)));
        (self.completed.contains(&on) || by_request) && wants(Outcome::Success)
            || self.failed.contains(&on) && wants(Outcome::Failure)
            || self.skipped.contains_key(&on) && wants(Outcome::Skipped)
    }

    /// Whether a step that is skipped because of another would have run after that one's success, and does not run after its end.
    pub(super) fn needed(&self, step: usize, on: usize) -> bool {
        let named = self.spec(step).outcomes_of(&self.ids[on]);
        named.is_none_or(|named| named.contains(&Outcome::Success)) && self.is_kept_by(step, on)
    }

    /// Whether a step that is skipped because of another does not run after that one's end.
    pub(super) fn is_kept_by(&self, step: usize, on: usize) -> bool {
        let depends = self.dependencies(step).contains(&on) && self.ended.contains(&on);
        depends
            && match self.spec(step).run_when() {
                RunWhen::Success => !self.has_outcome(step, on),
                RunWhen::NoneFailed => self.failed.contains(&self.root(on)),
                RunWhen::Failure => self.dependencies_ended(step) && !self.may_run(step),
                RunWhen::Always => false,
            }
    }

    /// The step at which the reason for skipping a step begins.
    pub(super) fn root(&self, step: usize) -> usize {
        match self.skipped.get(&step) {
            Some((SkipReason::DependencySkipped | SkipReason::DependencyFailed, Some(because))) => self.root(*because),
            Some((SkipReason::StopOnError, Some(because))) if self.by_group.contains(&step) => *because,
            _ => step,
        }
    }

    /// Whether a step was skipped that another one needed, or all were, and no condition is the reason.
    pub(super) fn missed(&self) -> bool {
        self.skipped.iter().any(|(&step, (reason, _))| {
            let root = self.skipped.get(&self.root(step)).map(|(reason, _)| *reason);
            self.counted(step) == 1
                && (*reason == SkipReason::DependencySkipped || self.totals.completed == 0)
                && root != Some(SkipReason::ConditionFalse)
        })
    }
}
