//! Applies that an execution carries out another version of its plan.

use std::{collections::HashSet, sync::Arc};

use belay_plan::{Input, StepDraft, StepSpec};

use crate::{
    Execution, ForbiddenChange, Operation, PlanUpdated, SkipReason, StepKey, StepRole, StepState, StepTrigger,
    Timestamp, Violation,
    state::{AttemptEnd, PlanRevision, StepRecord},
};

pub(super) fn apply(execution: &mut Execution, updated: &PlanUpdated, time: Timestamp) -> Result<(), Violation> {
    if execution.state.is_terminal() || execution.stop.is_some() || execution.compensation.is_some() {
        return Err(Violation::Stopping);
    }
    if updated.revision != execution.revision + 1 {
        return Err(Violation::OtherRevision(execution.revision));
    }
    if let Some(change) = execution.forbidden_change(&updated.plan) {
        return Err(change.into());
    }
    let given = execution.created.inputs.value();
    let is_missing = |(name, input): &(&String, &Input)| input.default.is_none() && given.get(name.as_str()).is_none();
    if let Some((name, _)) = updated.plan.inputs().iter().find(is_missing) {
        return Err(Violation::NoInput(name.clone()));
    }
    execution.resume_after_request()?;
    execution.revision = updated.revision;
    execution.progress.deadline = updated.deadline;
    if execution.plan().budget() != updated.plan.budget() {
        execution.forget_reports(None);
    }
    // They were given to what the plan said then.
    execution.progress.held_answers.clear();
    execution.revised = Some(Box::new(PlanRevision { plan: updated.plan.clone(), tools: updated.tools.clone() }));
    let named: HashSet<&str> = updated.plan.steps().iter().map(|spec| spec.id()).collect();
    let removed: Vec<StepKey> = execution
        .steps
        .iter()
        .filter(|(_, record)| !record.state.is_terminal() && record.role == StepRole::Planned)
        .filter(|(_, record)| !named.contains(record.id.as_str()))
        .map(|(step, _)| step)
        .collect();
    let mut added = Vec::new();
    for spec in updated.plan.steps() {
        let Some(step) = execution.steps.key(spec.id()) else {
            added.push(Arc::clone(spec));
            continue;
        };
        if execution.steps[step].is_removed() {
            execution.progress.totals.skipped -= 1;
            execution.transition_step(step, StepTrigger::Retried, time)?;
            execution.update_step(step, |record| record.reset(time));
        } else if execution.steps[step].is_being_removed() {
            // The plan has it again before it was said to be skipped.
            execution.update_step(step, |record| record.end = None);
        }
        if execution.steps[step].spec.budget() != spec.budget() {
            execution.forget_reports(Some(step));
        }
        execution.replace_spec(step, spec);
    }
    execution.progress.totals.total += added.len();
    execution.steps.append(&added, time).map_err(Violation::DuplicateStep)?;
    execution.steps.connect(&updated.plan);
    execution.index_new();
    execution.recount_budgets();
    let waiting: Vec<StepKey> = execution
        .steps
        .iter()
        .filter(|(_, record)| record.waits_to_start() && named.contains(record.id.as_str()))
        .map(|(step, _)| step)
        .collect();
    for step in waiting {
        if execution.steps[step].state == StepState::Ready {
            execution.transition_step(step, StepTrigger::Retried, time)?;
        }
        execution.await_dependencies(step, time)?;
    }
    execution.mark_failed_groups();
    for step in removed {
        execution.update_step(step, |record| record.end = Some(AttemptEnd::Removed));
    }
    Ok(())
}

impl Execution {
    /// Returns a change in a new version of the plan that is not allowed, if there is one.
    pub(crate) fn forbidden_change(&self, plan: &belay_plan::Plan) -> Option<ForbiddenChange> {
        if plan.id() != self.plan().id() {
            return Some(ForbiddenChange::Id(self.plan().id().to_owned()));
        }
        // Its request has the network, and its recovery follows from it.
        let has_that_of_plan =
            |call: &&Operation| call.tool_call().is_some() && self.steps[call.key.step].spec.network().is_none();
        if plan.network() != self.plan().network()
            && let Some(call) = self.operations.iter().find(has_that_of_plan)
        {
            return Some(ForbiddenChange::Network(self.steps[call.key.step].id.clone()));
        }
        let planned = self.steps.iter().filter(|(_, record)| record.role == StepRole::Planned);
        planned.into_iter().find_map(|(_, record)| {
            let spec = plan.step_index(&record.id).map(|index| &plan.steps()[index]);
            let is_fixed = !record.waits_to_start() && !record.is_removed() && !record.is_being_removed();
            match spec {
                None if is_fixed => Some(ForbiddenChange::Removed(record.id.clone())),
                Some(spec) if is_fixed && !same_work(spec, &record.spec) => {
                    Some(ForbiddenChange::Changed(record.id.clone()))
                }
                _ => None,
            }
        })
    }
}

/// Whether two specifications say the same, wherever the steps that they name stand in their plans, and however much the steps may use: that can be
/// raised while they run.
fn same_work(one: &StepSpec, other: &StepSpec) -> bool {
    let work = |spec: &StepSpec| StepDraft { budget: None, ..spec.to_draft() };
    work(one) == work(other)
}

impl StepRecord {
    /// Whether it has not started and not ended: it can still be changed.
    pub(crate) fn waits_to_start(&self) -> bool {
        matches!(self.state, StepState::Pending | StepState::Ready) && !self.has_started() && self.end.is_none()
    }

    /// Whether it is skipped next, because the current version of the plan has it no longer, or its list has not.
    pub(super) fn is_being_removed(&self) -> bool {
        self.end == Some(AttemptEnd::Removed) || matches!(self.to_skip, Some((SkipReason::PlanUpdated, _)))
    }

    /// Whether an earlier version of the plan had it, and the current one has not.
    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.skipped, Some((SkipReason::PlanUpdated, _)))
    }
}
