//! Applies that steps which have ended run again.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    EscalationRetry, Execution, ExecutionState, ExecutionTrigger, PauseCause, Retried, StepKey, StepState, StepTrigger,
    Timestamp, Violation,
    state::{PausedBy, Stop},
};

pub(super) fn apply(execution: &mut Execution, retried: &Retried, time: Timestamp) -> Result<(), Violation> {
    let has_ended = execution.state.is_terminal();
    // What a failure has stopped has ended by now.
    let resumes = retried.escalation.is_some() || execution.waits_for_retry();
    let is_stopped = match execution.stop {
        Some(Stop::Error { .. }) => !resumes,
        stop => stop.is_some(),
    };
    if !has_ended && (is_stopped || execution.compensation.is_some()) {
        return Err(Violation::Stopping);
    }
    if retried.escalation.is_some() && (has_ended || execution.paused.is_some() || !execution.has_nothing_left()) {
        return Err(Violation::EscalatedEarly);
    }
    let named = retried.steps.iter().map(|id| execution.named(id)).collect::<Result<Vec<_>, _>>()?;
    let steps: BTreeSet<StepKey> = named.iter().copied().collect();
    if steps.is_empty() {
        return Err(Violation::NothingToRetry);
    }
    if steps.len() != named.len() {
        return Err(Violation::NamedTwice);
    }
    let mut waiting = BTreeSet::new();
    for &step in &steps {
        let record = &execution.steps[step];
        if record.is_removed() || record.compensates().is_some() {
            return Err(Violation::NotPlanned(record.id.clone()));
        }
        if !record.state.is_terminal() {
            return Err(Violation::NotEnded { step: record.id.clone(), state: record.state });
        }
        if let Some(list) = execution.steps[step].runs_for().filter(|list| !steps.contains(list)) {
            let list = execution.steps[list].id.clone();
            return Err(Violation::ListStays { step: record.id.clone(), list });
        }
        for &dependent in execution.steps[step].dependents.iter().filter(|dependent| !steps.contains(dependent)) {
            let record = &execution.steps[dependent];
            if !record.waits_to_start() {
                return Err(Violation::DependentStarted(record.id.clone()));
            }
            waiting.insert(dependent);
        }
    }
    let to =
        if execution.state == ExecutionState::Paused { ExecutionState::Paused } else { execution.state_to_go_on_in() };
    execution.transition_execution(ExecutionTrigger::Retried, Some(to))?;
    if has_ended {
        // Nobody has said how long after its end they are meant to hold.
        execution.progress.held_answers.clear();
    }
    // What a rate limit said before counts no longer: a person asks for another attempt.
    execution.progress.queued_until = None;
    for &step in &steps {
        // The time of its groups begins with the first of these that starts.
        for group in Arc::clone(&execution.steps[step].spec).group_timeouts().keys() {
            execution.progress.groups.remove(group);
        }
        execution.run_again(step, time)?;
    }
    for &step in &waiting {
        if execution.steps[step].state == StepState::Ready {
            execution.transition_step(step, StepTrigger::Retried, time)?;
        }
    }
    for step in steps.into_iter().chain(waiting) {
        execution.await_dependencies(step, time)?;
    }
    execution.forget_failed_groups();
    if resumes {
        execution.progress.stop = None;
    }
    (execution.progress.escalations, execution.progress.is_escalated) = (0, false);
    if let Some(EscalationRetry { number, resume_at, .. }) = retried.escalation {
        execution.transition_execution(ExecutionTrigger::Paused, None)?;
        execution.progress.escalations = number;
        let resume_at = Some(resume_at);
        execution.progress.paused = Some(PausedBy {
            principal: String::new(),
            since: time,
            discard_calls: false,
            resume_at,
            cause: PauseCause::Request,
            reason: String::new(),
        });
    }
    if has_ended {
        (execution.progress.stop, execution.progress.ended_at, execution.progress.outputs) = (None, None, None);
        execution.progress.resumed_after_end_at = Some(time);
        execution.forget_compensation();
    }
    execution.mark_failed_groups();
    execution.progress.first_failure = execution.earliest_failure();
    execution.progress.deadline = retried.deadline;
    Ok(())
}

impl Execution {
    /// Takes a step that has ended back to its beginning.
    pub(crate) fn run_again(&mut self, step: StepKey, time: Timestamp) -> Result<(), Violation> {
        let state = self.steps[step].state;
        self.count(step, |totals| {
            let counter = match state {
                StepState::Completed => &mut totals.completed,
                StepState::Failed => &mut totals.failed,
                StepState::Skipped => &mut totals.skipped,
                _ => &mut totals.cancelled,
            };
            *counter -= 1;
        });
        self.transition_step(step, StepTrigger::Retried, time)?;
        self.update_step(step, |record| record.reset(time));
        Ok(())
    }

    /// The failure of the step that failed first.
    fn earliest_failure(&self) -> Option<crate::Failure> {
        let failed = self.steps.iter().filter(|(_, record)| record.state == StepState::Failed && record.is_counted());
        let first = failed.min_by_key(|(_, record)| record.ended_at);
        first.and_then(|(_, record)| record.failure.as_deref().cloned())
    }
}
