//! The steps that were skipped, and whether the failure of another is the reason.

use std::collections::{HashMap, HashSet};

use belay_execution::{Execution, SkipReason, StepId, StepKey, StepState};

/// A step that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedStep {
    /// The step.
    pub step: StepId,
    /// Why.
    pub reason: SkipReason,
    /// The step because of which.
    pub because: Option<StepId>,
    /// The group with `fail_fast` in which that step failed; `None` for another reason.
    pub group: Option<String>,
    /// Whether it follows, directly or through others, from a step that failed or was stopped, or from the end of the execution.
    pub follows_failure: bool,
}

/// All steps that were skipped, in order.
pub(super) fn skipped(execution: &Execution) -> Vec<SkippedStep> {
    let mut because_of: HashMap<Option<StepKey>, Vec<(StepKey, SkipReason)>> = HashMap::new();
    let (mut open, mut reached): (Vec<StepKey>, HashSet<StepKey>) = (Vec::new(), HashSet::new());
    for step in execution.steps() {
        match (step.state(), step.skipped()) {
            (StepState::Failed | StepState::Cancelled, _) => open.push(step.key),
            (StepState::Skipped, Some((SkipReason::Cancelled | SkipReason::TimedOut, _))) => {
                reached.insert(step.key);
            }
            (StepState::Skipped, Some((reason, because))) => {
                because_of.entry(because).or_default().push((step.key, reason));
            }
            _ => {}
        }
    }
    while let Some(step) = open.pop() {
        for (skipped, reason) in because_of.remove(&Some(step)).unwrap_or_default() {
            // One whose condition was false would have been skipped without the failure, too.
            if reason != SkipReason::ConditionFalse && reached.insert(skipped) {
                open.push(skipped);
            }
        }
    }
    let id = |key: StepKey| execution.step(key).id().clone();
    let skipped = execution.steps().filter_map(|step| {
        let (reason, because) = step.skipped().filter(|_| step.state() == StepState::Skipped)?;
        let follows_failure = reached.contains(&step.key);
        let group = step.skipped_group().map(str::to_owned);
        Some(SkippedStep { step: step.id().clone(), reason, because: because.map(id), group, follows_failure })
    });
    skipped.collect()
}
