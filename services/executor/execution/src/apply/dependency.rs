//! The meaning of a step's end for the steps that depend on it.

use std::collections::BTreeSet;

use belay_plan::{Outcome, RunWhen};

use crate::{
    Execution, SkipReason, StepKey, StepState, StepTrigger, Timestamp, Violation,
    state::{StepRecord, Steps},
};

/// The meaning of a step for one that depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// It has not ended.
    Open,
    /// It has ended as the other wants.
    Met,
    /// It has ended otherwise: the other is skipped for this reason.
    Unmet(SkipReason),
}

impl Steps {
    /// The meaning of `on`, as it is now, for a step that depends on it. Nothing else decides that.
    fn meaning(&self, dependent: StepKey, on: StepKey) -> Meaning {
        let (dependent, ended) = (&self[dependent], &self[on]);
        let outcomes = dependent.outcomes_of(&ended.id);
        let outcome = match ended.state {
            StepState::Completed => Outcome::Success,
            StepState::Failed => Outcome::Failure,
            StepState::Skipped => Outcome::Skipped,
            // Only while the execution is being stopped, and what was stopped runs again before anything starts that depends on it.
            StepState::Cancelled => return cancelled(dependent.run_when(), outcomes),
            StepState::Pending
            | StepState::Ready
            | StepState::Running
            | StepState::AwaitingApproval
            | StepState::Waiting
            | StepState::BackingOff
            | StepState::OutcomeUnknown => return Meaning::Open,
        };
        // Whoever skips a step by request has those that depend on it run, as if it had completed.
        let counts_as_success = ended.is_skipped_by_request();
        if let Some(outcomes) = outcomes {
            return among(outcome, counts_as_success, |wanted| outcomes.contains(&wanted));
        }
        match dependent.run_when() {
            RunWhen::Success => among(outcome, counts_as_success, |wanted| wanted == Outcome::Success),
            RunWhen::NoneFailed if self[self.skipped_because(on)].state == StepState::Failed => {
                Meaning::Unmet(reason(outcome))
            }
            // Whether one has failed is known when all have ended.
            RunWhen::NoneFailed | RunWhen::Failure | RunWhen::Always => Meaning::Met,
        }
    }

    /// Whether a step runs, all of whose dependencies have ended as it wants.
    fn runs_after_dependencies(&self, step: StepKey) -> bool {
        let record = &self[step];
        let has_failed = |&on: &StepKey| self[self.skipped_because(on)].state == StepState::Failed;
        match record.run_when() {
            RunWhen::Success | RunWhen::Always | RunWhen::NoneFailed => true,
            RunWhen::Failure => record.dependencies.iter().any(has_failed),
        }
    }

    /// The step at which the reason for skipping a step begins: itself, one that it depends on, or one whose failure has skipped its group.
    pub(crate) fn skipped_because(&self, step: StepKey) -> StepKey {
        let mut step = step;
        while let Some((SkipReason::DependencySkipped | SkipReason::DependencyFailed, Some(because))) =
            self[step].skipped
        {
            step = because;
        }
        match (self[step].skipped, &self[step].skipped_group) {
            (Some((_, Some(failed))), Some(_)) => failed,
            _ => step,
        }
    }
}

/// The meaning of an end for a step that runs after certain outcomes.
fn among(outcome: Outcome, counts_as_success: bool, is_wanted: impl Fn(Outcome) -> bool) -> Meaning {
    let wants_success = is_wanted(Outcome::Success);
    if is_wanted(outcome) || counts_as_success && wants_success {
        return Meaning::Met;
    }
    // One that does not run after success is there for another course of things: that it did not come is the plan's own will, and nothing is missing.
    Meaning::Unmet(if wants_success { reason(outcome) } else { SkipReason::ConditionFalse })
}

/// The reason for skipping a step that does not run after this end of one that it depends on.
fn reason(outcome: Outcome) -> SkipReason {
    match outcome {
        Outcome::Success => SkipReason::ConditionFalse,
        Outcome::Failure => SkipReason::DependencyFailed,
        Outcome::Skipped => SkipReason::DependencySkipped,
    }
}

fn cancelled(run_when: RunWhen, outcomes: Option<&BTreeSet<Outcome>>) -> Meaning {
    match (outcomes, run_when) {
        (Some(_), _) | (None, RunWhen::Success) => Meaning::Unmet(SkipReason::DependencySkipped),
        (None, RunWhen::Failure | RunWhen::Always | RunWhen::NoneFailed) => Meaning::Met,
    }
}

impl StepRecord {
    /// Whether a principal has skipped it, or taken it out of the plan.
    fn is_skipped_by_request(&self) -> bool {
        matches!(self.skipped, Some((SkipReason::Requested | SkipReason::PlanUpdated, _)))
    }
}

impl Execution {
    /// A step has ended: those that depend on it have one less to wait for, or are to be skipped. Once the execution is being stopped nothing starts, and
    /// the stop is the reason.
    pub(super) fn dependency_ended(&mut self, step: StepKey, time: Timestamp) -> Result<(), Violation> {
        let ended = &self.steps[step];
        let has_done = ended.state == StepState::Completed || ended.is_skipped_by_request();
        if self.stop.is_some() && !has_done {
            return Ok(());
        }
        for index in 0..self.steps[step].dependents.len() {
            let dependent = self.steps[step].dependents[index];
            if self.steps[dependent].state != StepState::Pending {
                continue;
            }
            match self.steps.meaning(dependent, step) {
                Meaning::Open => {}
                Meaning::Met => self.has_met(dependent, step, time)?,
                Meaning::Unmet(reason) => self.mark_to_skip(dependent, reason, step),
            }
        }
        Ok(())
    }

    /// Counts off a step, `last`, that has ended as `dependent` wants.
    fn has_met(&mut self, dependent: StepKey, last: StepKey, time: Timestamp) -> Result<(), Violation> {
        let record = &mut self.steps[dependent];
        let open = record.open_dependencies.checked_sub(1);
        record.open_dependencies = open.ok_or_else(|| Violation::NoOpenDependency(record.id.clone()))?;
        if record.open_dependencies > 0 {
            return Ok(());
        }
        if self.steps.runs_after_dependencies(dependent) {
            return self.transition_step(dependent, StepTrigger::DependenciesCompleted, time);
        }
        self.mark_to_skip(dependent, SkipReason::ConditionFalse, last);
        Ok(())
    }

    fn mark_to_skip(&mut self, dependent: StepKey, reason: SkipReason, because: StepKey) {
        if self.stop.is_none() {
            self.update_step(dependent, |record| {
                record.to_skip.get_or_insert((reason, because));
            });
        }
    }

    /// Decides from the states of all its dependencies what a step that has not started does: it becomes ready, is marked to be skipped, or waits.
    pub(super) fn await_dependencies(&mut self, step: StepKey, time: Timestamp) -> Result<(), Violation> {
        let record = &self.steps[step];
        if record.runs_for().is_some() {
            // It waits for the list.
            return Ok(());
        }
        let meanings = || record.dependencies.iter().map(|&on| (on, self.steps.meaning(step, on)));
        let open = meanings().filter(|(_, meaning)| *meaning != Meaning::Met).count();
        let to_skip = meanings().find_map(|(on, meaning)| match meaning {
            Meaning::Open | Meaning::Met => None,
            Meaning::Unmet(reason) => Some((reason, on)),
        });
        let last = record.dependencies.last().copied();
        self.update_step(step, |record| (record.open_dependencies, record.to_skip) = (open, to_skip));
        if open > 0 || self.steps[step].state != StepState::Pending {
            return Ok(());
        }
        if last.is_none() || self.steps.runs_after_dependencies(step) {
            return self.transition_step(step, StepTrigger::DependenciesCompleted, time);
        }
        self.update_step(step, |record| record.to_skip = last.map(|last| (SkipReason::ConditionFalse, last)));
        Ok(())
    }
}
