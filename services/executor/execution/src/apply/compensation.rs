//! Applies that what steps have done is undone.

use std::sync::Arc;

use crate::{
    Execution, ExecutionTrigger, StepId, StepKey, StepTrigger, Timestamp, Violation,
    state::{Compensation, StepRecord, Stop},
};

pub(super) fn apply(execution: &mut Execution, steps: &[StepId], time: Timestamp) -> Result<(), Violation> {
    let is_free = execution.paused.is_none() && execution.holds_limits();
    if !is_free || !execution.has_nothing_left() || execution.compensation.is_some() {
        return Err(Violation::MayNotUndo);
    }
    execution.transition_execution(ExecutionTrigger::CompensationStarted, None)?;
    let mut before = None;
    for id in steps {
        let step = execution.named(id)?;
        let record = &execution.steps[step];
        if !record.needs_undo() || record.compensation.is_some() {
            return Err(Violation::NothingToUndo(id.clone()));
        }
        let (known, spec) = (execution.steps.len(), Arc::clone(&record.spec));
        let undoes = execution.steps.compensation(step, time).map_err(Violation::DuplicateStep)?;
        if undoes.position() == known {
            execution.index_appended(undoes);
        } else {
            execution.run_again(undoes, time)?;
            execution.replace_spec(undoes, &spec);
            execution.transition_step(undoes, StepTrigger::DependenciesCompleted, time)?;
        }
        execution.steps[step].compensation = Some(undoes);
        execution.undo_after(undoes, before, time)?;
        before = Some(undoes);
    }
    execution.progress.compensation = Some(Compensation { stop: execution.progress.stop.take(), open: steps.len() });
    execution.progress.deadline = None;
    Ok(())
}

impl StepRecord {
    /// Whether it has done something that its plan says how to undo. Its call may have completed where the step has not: what was checked after it did
    /// not hold. A step without an attempt, whose output was given, has done nothing here, nor has one whose output is an earlier result.
    fn needs_undo(&self) -> bool {
        self.state.is_terminal()
            && self.attempt > 0
            && self.completed_by > 0
            && self.cached_from().is_none()
            && self.compensation_call().is_some()
    }
}

impl Execution {
    /// Whether no step is left to end, those that undo others included.
    pub(crate) fn has_nothing_left(&self) -> bool {
        self.totals.done() == self.totals.total && self.compensation.is_none_or(|compensation| compensation.open == 0)
    }

    /// The steps whose work is to be undone now, the last to complete first: those that say how, once a step has failed or the execution was stopped; none when it was killed.
    pub(crate) fn undone(&self) -> Vec<StepId> {
        let is_stopped = self.stop.is_some_and(Stop::is_of_execution);
        let does_not_complete = self.totals.failed > 0 || is_stopped && self.totals.completed < self.totals.total;
        if self.compensation.is_some() || self.stop == Some(Stop::Killed) || !does_not_complete {
            return Vec::new();
        }
        let mut undone: Vec<_> =
            self.steps.iter().map(|(_, record)| record).filter(|record| record.needs_undo()).collect();
        undone.sort_by_key(|record| std::cmp::Reverse(record.completed_by));
        undone.into_iter().map(|record| record.id.clone()).collect()
    }

    /// Forgets the compensation, since the execution resumes: steps whose compensation failed are compensated when it fails again.
    pub(super) fn forget_compensation(&mut self) {
        if self.progress.compensation.take().is_some() {
            let steps: Vec<StepKey> = self.steps.iter().map(|(step, _)| step).collect();
            for step in steps {
                let record = &mut self.steps[step];
                record.compensation = None;
                if record.compensates().is_some() {
                    (record.dependencies, record.dependents) = (Vec::new(), Vec::new());
                }
            }
        }
    }

    /// A step that undoes another waits for the one before it.
    fn undo_after(&mut self, undoes: StepKey, before: Option<StepKey>, time: Timestamp) -> Result<(), Violation> {
        let record = &mut self.steps[undoes];
        (record.dependencies, record.dependents) = (before.into_iter().collect(), Vec::new());
        record.open_dependencies = record.dependencies.len();
        if let Some(before) = before {
            self.steps[before].dependents.push(undoes);
            self.transition_step(undoes, StepTrigger::Retried, time)?;
        }
        Ok(())
    }
}
