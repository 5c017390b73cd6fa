//! The part of an execution that a fork carries over into another execution of the same plan.

use std::collections::BTreeSet;

use super::Refused;
use crate::{Execution, Payload, SkipReason, StepId, StepKey, StepState, StepView};

/// How a step begins in an execution that is forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedOver<'a> {
    /// It has completed, with this output.
    Output(&'a Payload),
    /// A principal has skipped it.
    Skipped,
}

impl Execution {
    /// The steps that a fork takes over, in the plan's order: those that have completed, and neither depend on one that has not nor on `from`, which
    /// run again.
    ///
    /// # Errors
    /// [`Refused::NoStep`] for a step that the plan does not have, [`Refused::NothingToRetry`] when nothing would run.
    pub fn carried_over_by_fork(&self, from: Option<&StepId>) -> Result<Vec<(&StepId, CarriedOver<'_>)>, Refused> {
        let planned = || self.steps().filter(|step| self.is_planned(step.key));
        let mut again: BTreeSet<StepKey> =
            planned().filter(|step| carried_over(step).is_none()).map(|step| step.key).collect();
        if let Some(from) = from {
            let refused = || Refused::NoStep(from.clone());
            let key = self.step_key(from).ok_or_else(refused)?;
            let key = self.steps[key].runs_for().unwrap_or(key);
            again.insert(Some(key).filter(|&key| self.is_planned(key)).ok_or_else(refused)?);
        }
        if again.is_empty() {
            return Err(Refused::NothingToRetry);
        }
        let mut dependents: Vec<StepKey> = again.iter().copied().collect();
        while let Some(step) = dependents.pop() {
            dependents.extend(self.steps[step].dependents.iter().filter(|&&dependent| again.insert(dependent)));
        }
        let taken = planned().filter(|step| !again.contains(&step.key));
        Ok(taken.filter_map(|step| Some((step.id(), carried_over(&step)?))).collect())
    }

    /// Whether it is a step of the plan, and not one for an entry of a list or one that undoes another.
    pub(crate) fn is_planned(&self, step: StepKey) -> bool {
        let record = &self.steps[step];
        !record.is_removed() && record.compensates().is_none() && record.runs_for().is_none()
    }
}

fn carried_over<'a>(step: &StepView<'a>) -> Option<CarriedOver<'a>> {
    match (step.state(), step.skipped()) {
        (StepState::Completed, _) if step.compensation() != Some(StepState::Completed) => {
            step.output().map(CarriedOver::Output)
        }
        (StepState::Skipped, Some((SkipReason::Requested, _))) => Some(CarriedOver::Skipped),
        _ => None,
    }
}
