//! Applies the events about attempts at steps.

use std::sync::Arc;

use belay_plan::{RecoveryStrategy, ToolStep};
use belay_reasons as reasons;

use crate::{
    ErrorClass, Execution, ExecutionState, ExecutionTrigger, Failure, Resolution, SkipReason, StepEvent, StepId,
    StepKey, StepState, StepTrigger, Timestamp, Violation,
    state::{AttemptEnd, CarriedTurns, Stop},
    steps,
};

pub(super) fn apply(
    execution: &mut Execution,
    id: &StepId,
    attempt: u32,
    event: &StepEvent,
    time: Timestamp,
) -> Result<(), Violation> {
    let step = execution.named(id)?;
    match event {
        StepEvent::Started => started(execution, step, attempt, time)?,
        StepEvent::RetryScheduled { failure, not_before, .. } => {
            check(execution, step, attempt, StepTrigger::RetryScheduled)?;
            execution.transition_step(step, StepTrigger::RetryScheduled, time)?;
            execution.update_step(step, |record| {
                record.not_before = Some(*not_before);
                record.failed(attempt, failure, time);
                (record.end, record.attempt_started_at) = (None, None);
            });
            let queues = execution.steps[step].spec.queues_for_later();
            if queues && failure.class == ErrorClass::RateLimit {
                execution.progress.queued_until = Some(*not_before);
            }
        }
        StepEvent::FallbackSwitched { failure, from, to, reason: _ } => {
            let is_requested = execution.steps[step].state == StepState::BackingOff;
            match is_requested {
                true => check_backs_off(execution, step, attempt)?,
                false => check(execution, step, attempt, StepTrigger::FallbackSwitched)?,
            }
            let record = &execution.steps[step];
            let tool = |call: Option<&ToolStep>| call.map(|call| call.tool.clone());
            let are_next =
                [tool(record.current_call()), tool(record.next_call())] == [from, to].map(|tool| Some(tool.clone()));
            if !are_next {
                return Err(Violation::NoFallback { step: id.clone(), from: from.clone(), to: to.clone() });
            }
            if is_requested && record.failure.as_deref() != Some(failure) {
                return Err(Violation::OtherFailure(id.clone()));
            }
            // A step that waits for its next attempt keeps waiting, for one that is due.
            match is_requested {
                true => execution.resume_after_request()?,
                false => execution.transition_step(step, StepTrigger::FallbackSwitched, time)?,
            }
            execution.update_step(step, |record| {
                (record.call, record.attempts_before_call) = (record.call + 1, attempt);
                record.not_before = Some(time);
                // The failure of one that waits for its next attempt is known.
                if !is_requested {
                    record.failed(attempt, failure, time);
                }
                (record.end, record.attempt_started_at) = (None, None);
            });
        }
        StepEvent::CachedResultUsed { failure, result, source } => {
            steps::cache::used(execution, step, attempt, failure, (result, source), time)?;
        }
        StepEvent::ItemsListed { first, items } => {
            steps::for_each::listed(execution, step, attempt, (*first, items), time)?;
        }
        StepEvent::ItemsCollected { output } => steps::for_each::collected(execution, step, attempt, output)?,
        StepEvent::Completed { .. } => {
            check(execution, step, attempt, StepTrigger::Completed)?;
            execution.transition_step(step, StepTrigger::Completed, time)?;
            execution.progress.verification_due.retain(|due| *due != step);
            if steps::agent::asks_for_verification(execution, step) {
                execution.progress.verification_due.push(step);
            }
            end(execution, step, time);
            execution.count(step, |totals| totals.completed += 1);
            let completed_by = execution.last_sequence + 1;
            execution.update_step(step, |record| (record.failure, record.completed_by) = (None, completed_by));
            execution.dependency_ended(step, time)?;
        }
        StepEvent::Failed { failure, .. } => {
            check(execution, step, attempt, StepTrigger::Failed)?;
            execution.transition_step(step, StepTrigger::Failed, time)?;
            end(execution, step, time);
            execution.count(step, |totals| totals.failed += 1);
            execution.update_step(step, |record| {
                let last = record.failed_attempts.last();
                let is_known = last.is_some_and(|last| last.attempt == attempt && last.failure == *failure);
                // Its condition has no value, so that there was no attempt, or its next attempt was cancelled.
                match record.has_started() && !is_known {
                    true => record.failed(attempt, failure, time),
                    false => record.failure = Some(Box::new(failure.clone())),
                }
            });
            // What becomes of the failure of a model's call is for the model to say.
            if !execution.steps[step].is_of_agent() {
                step_failed(execution, step, failure, time)?;
            }
        }
        StepEvent::Skipped { reason, because, group, .. } => {
            let because = because.as_ref().map(|because| execution.named(because)).transpose()?;
            let of_failure = because.and_then(|because| execution.group_of_failure(step, because));
            if let Some(group) = group.as_deref().filter(|group| of_failure != Some(group)) {
                return Err(Violation::NoFailedGroup { step: id.clone(), group: group.to_owned() });
            }
            let record = &execution.steps[step];
            // So that whoever asks for the first reason goes from step to step against the dependencies, and never round in a circle.
            let is_of_dependency = matches!(reason, SkipReason::DependencyFailed | SkipReason::DependencySkipped);
            let depends_on = |on: StepKey| record.dependencies.contains(&on) || record.runs_for() == Some(on);
            if is_of_dependency && !because.is_some_and(depends_on) {
                return Err(Violation::NoSkipCause(id.clone()));
            }
            if record.has_started()
                && !matches!(record.end, Some(AttemptEnd::Skipped | AttemptEnd::SkipRequested | AttemptEnd::Removed))
            {
                return Err(Violation::SkippedLate(id.clone()));
            }
            if *reason == SkipReason::PlanUpdated && !record.is_being_removed() {
                return Err(Violation::StillPlanned(id.clone()));
            }
            execution.transition_step(step, StepTrigger::Skipped, time)?;
            end(execution, step, time);
            execution.count(step, |totals| totals.skipped += 1);
            execution.update_step(step, |record| {
                record.skipped = Some((*reason, because));
                record.skipped_group = group.as_deref().map(Box::from);
            });
            execution.dependency_ended(step, time)?;
        }
        StepEvent::Cancelled { .. } => {
            check(execution, step, attempt, StepTrigger::Cancelled)?;
            execution.transition_step(step, StepTrigger::Cancelled, time)?;
            end(execution, step, time);
            execution.count(step, |totals| totals.cancelled += 1);
            execution.dependency_ended(step, time)?;
        }
        StepEvent::Resolved { resolution, reason } => {
            if execution.stop.is_some() {
                return Err(Violation::Stopping);
            }
            check(execution, step, attempt, StepTrigger::Resolved)?;
            execution.transition_step(step, StepTrigger::Resolved, time)?;
            execution.resume_after_request()?;
            execution.update_step(step, |record| {
                record.attempt_started_at = Some(time);
                if *resolution == Resolution::Failed {
                    record.end = Some(AttemptEnd::Denied(resolved_as_failed(reason)));
                }
            });
            if let Resolution::Completed(result) = resolution {
                steps::checks::resolved(execution, step, result.clone().into());
            }
        }
        StepEvent::SkipRequested { .. } => {
            check_not_running(execution, step, attempt)?;
            execution.resume_after_request()?;
            execution.update_step(step, |record| record.end = Some(AttemptEnd::SkipRequested));
        }
        StepEvent::OutputSet { output, .. } => {
            check_not_running(execution, step, attempt)?;
            execution.resume_after_request()?;
            execution.update_step(step, |record| {
                (record.end, record.output) = (Some(AttemptEnd::Completed), Some(output.clone().into()));
            });
        }
        StepEvent::ConversationCarriedOver { conversation, turns, layers, spent, reason: _ } => {
            check_not_running(execution, step, attempt)?;
            let record = &execution.steps[step];
            let is_of_fork = !execution.created.forked_from.is_empty() && execution.started_at.is_none();
            let is_new = record.attempt == 0 && record.carried.is_none() && *turns > 0;
            let has_goal = record.has_entries() && record.spec.agent().is_some();
            if !(is_of_fork && is_new && has_goal && (layers.is_none() || record.has_one_effect())) {
                return Err(Violation::NoConversation(id.clone()));
            }
            let carried = CarriedTurns { conversation: conversation.clone(), turns: *turns, layers: layers.clone() };
            execution.update_step(step, |record| record.carried = Some(Box::new(carried)));
            execution.begin_with_spent(step, *spent);
        }
        StepEvent::RetryAdvanced { .. } => {
            check_backs_off(execution, step, attempt)?;
            execution.resume_after_request()?;
            execution.update_step(step, |record| record.not_before = record.not_before.map(|until| until.min(time)));
        }
        StepEvent::RetryCancelled { .. } => {
            check_backs_off(execution, step, attempt)?;
            execution.resume_after_request()?;
            execution.update_step(step, |record| {
                record.end = record.failure.as_deref().cloned().map(AttemptEnd::Denied);
            });
        }
        StepEvent::OutcomeUnknown { failure } => {
            check(execution, step, attempt, StepTrigger::OutcomeUnknown)?;
            execution.transition_step(step, StepTrigger::OutcomeUnknown, time)?;
            execution.update_step(step, |record| {
                record.failure = Some(Box::new(failure.clone()));
                (record.end, record.attempt_started_at) = (None, None);
            });
        }
    }
    if execution.steps[step].state.is_terminal() {
        steps::for_each::ended(execution, step);
        if execution.steps[step].compensates().is_some()
            && let Some(compensation) = &mut execution.progress.compensation
        {
            compensation.open -= 1;
        }
    }
    Ok(())
}

/// A step has failed for good: what follows for the others, and for the execution.
fn step_failed(execution: &mut Execution, step: StepKey, failure: &Failure, time: Timestamp) -> Result<(), Violation> {
    execution.progress.first_failure.get_or_insert_with(|| failure.clone());
    steps::for_each::failed(execution, step);
    execution.dependency_ended(step, time)?;
    execution.group_failed(step);
    let undoes = execution.steps[step].spec.recovery(failure.class) == Some(RecoveryStrategy::Compensate);
    let stops = execution.plan().stop_on_error() || failure.class == ErrorClass::Fatal || undoes;
    // What is being undone is undone as far as it can be.
    if execution.stop.is_none() && stops && execution.compensation.is_none() {
        execution.progress.stop = Some(Stop::Error { step });
    }
    Ok(())
}

/// The failure of a step of whose call a principal says that it has failed.
fn resolved_as_failed(reason: &str) -> Failure {
    let how = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let message = format!("The outcome of the call was unknown, and was found to be a failure{how}.");
    Failure::new(ErrorClass::OutcomeUnknown, reasons::RESOLVED_AS_FAILED, message)
}

/// Checks that a request can end a step or take it out of its wait for the next attempt: it has nothing in flight.
fn check_not_running(execution: &Execution, step: StepKey, attempt: u32) -> Result<(), Violation> {
    let record = &execution.steps[step];
    let state = record.state;
    if execution.stop.is_some() || execution.state.is_terminal() {
        return Err(Violation::Stopping);
    }
    let has_nothing = matches!(state, StepState::Pending | StepState::Ready | StepState::BackingOff);
    if attempt != record.attempt || !has_nothing || record.end.is_some() {
        return Err(Violation::NotWaiting { step: record.id.clone(), state, attempt: record.attempt });
    }
    Ok(())
}

fn check_backs_off(execution: &Execution, step: StepKey, attempt: u32) -> Result<(), Violation> {
    check_not_running(execution, step, attempt)?;
    match execution.steps[step].state {
        StepState::BackingOff => Ok(()),
        state => Err(Violation::NoNextAttempt { step: execution.steps[step].id.clone(), state }),
    }
}

/// Checks what the table of transitions cannot express: an event must name the step's current attempt, and must follow from how the step's
/// operation ended.
fn check(execution: &Execution, step: StepKey, attempt: u32, by: StepTrigger) -> Result<(), Violation> {
    let record = &execution.steps[step];
    if attempt != record.attempt {
        let (step, current) = (record.id.clone(), record.attempt);
        return Err(Violation::OtherAttempt { step, attempt, current });
    }
    let to_request = record.needs_operation();
    let leads_there = match (record.state, by) {
        (
            StepState::Pending | StepState::Ready | StepState::Running | StepState::BackingOff,
            StepTrigger::Completed,
        ) => matches!(record.end, Some(AttemptEnd::Completed)) || to_request && record.has_done(),
        (StepState::Running, StepTrigger::RetryScheduled | StepTrigger::FallbackSwitched) => {
            matches!(record.end, Some(AttemptEnd::Failed(_)))
        }
        (StepState::Running, StepTrigger::OutcomeUnknown) => matches!(record.end, Some(AttemptEnd::Unknown(_))),
        (StepState::Running, StepTrigger::Failed) => {
            to_request || matches!(record.end, Some(AttemptEnd::Failed(_) | AttemptEnd::Denied(_)))
        }
        (StepState::Running, StepTrigger::Cancelled) => to_request || matches!(record.end, Some(AttemptEnd::Cancelled)),
        // A step whose condition has no value, or whose group or whole has no time left, fails before its first attempt.
        (StepState::Ready, StepTrigger::Failed) => {
            let has_begun = execution.started_at.is_some();
            let may_fail = record.condition().is_some() || execution.step_deadline(step).is_some();
            to_request || has_begun && !record.has_started() && may_fail
        }
        (StepState::Ready, StepTrigger::Cancelled) => to_request,
        _ => true,
    };
    if !leads_there {
        return Err(Violation::NoEnd { step: record.id.clone(), state: record.state, by });
    }
    Ok(())
}

fn started(execution: &mut Execution, step: StepKey, attempt: u32, time: Timestamp) -> Result<(), Violation> {
    execution.check_can_start()?;
    let record = &execution.steps[step];
    let id = &record.id;
    if attempt != record.attempt + 1 || record.needs_operation() {
        return Err(Violation::NotNextAttempt { step: id.clone(), attempt, last: record.attempt });
    }
    if let Some(&on) = record.dependencies.iter().find(|&&on| !execution.steps[on].state.is_terminal()) {
        return Err(Violation::DependencyOpen { step: id.clone(), on: execution.steps[on].id.clone() });
    }
    if !record.has_started()
        && let Some(resource) = record.resources().iter().find(|one| !execution.index.is_free(execution.plan(), one))
    {
        return Err(Violation::ResourceInUse { step: id.clone(), resource: resource.clone() });
    }
    execution.transition_step(step, StepTrigger::Started, time)?;
    let spec = Arc::clone(&execution.steps[step].spec);
    for group in spec.group_timeouts().keys() {
        execution.progress.groups.entry(group.clone()).or_insert(time);
    }
    execution.update_step(step, |record| {
        (record.attempt, record.operations) = (attempt, 0);
        (record.operations_before_purpose, record.questions, record.checked) = (0, 0, 0);
        (record.conflicts, record.failed_during_commits) = (0, false);
        record.not_before = None;
        record.attempt_started_at = Some(time);
        record.started_at.get_or_insert(time);
    });
    Ok(())
}

/// Applies the part that all ends of a step share; the table of transitions has already rejected a second end.
fn end(execution: &mut Execution, step: StepKey, time: Timestamp) {
    execution.update_step(step, |record| {
        record.ended_at = Some(time);
        (record.attempt_started_at, record.end) = (None, None);
        (record.not_before, record.to_skip) = (None, None);
    });
}

impl Execution {
    /// Resumes an execution that only waited for approvals, after a request about a step.
    pub(super) fn resume_after_request(&mut self) -> Result<(), Violation> {
        match self.state {
            ExecutionState::AwaitingApproval => self.transition_execution(ExecutionTrigger::StepResolved, None),
            _ => Ok(()),
        }
    }
}
