//! The groups with `fail_fast`: which of their steps are skipped once one has failed.

use std::collections::{BTreeMap, HashSet};

use belay_plan::{Outcome, RunWhen, StepSpec};

use super::{StepKey, Steps};

impl Steps {
    /// By each group with `fail_fast`: its steps that do not start once one of them has failed, in order. Those are all but the steps that run after a failure
    /// in the group, and what depends on these.
    pub(super) fn find_skippable(&self, planned: &[StepKey]) -> BTreeMap<String, Vec<StepKey>> {
        let mut members: BTreeMap<&str, Vec<StepKey>> = BTreeMap::new();
        for &step in planned {
            for group in self[step].spec.fail_fast_groups() {
                members.entry(group).or_default().push(step);
            }
        }
        let mut skippable = BTreeMap::new();
        for (group, mut members) in members {
            let is_member = |step: StepKey| stands_in(&self[step].spec, group);
            let follows_failure = |&&step: &&StepKey| {
                let record = &self[step];
                let mut within = record.dependencies.iter().filter(|&&on| is_member(on));
                within.any(|&on| runs_after_failure(&record.spec, self[on].id.as_str()))
            };
            let mut open: Vec<StepKey> = members.iter().filter(follows_failure).copied().collect();
            let mut kept: HashSet<StepKey> = open.iter().copied().collect();
            while let Some(step) = open.pop() {
                let dependents = self[step].dependents.iter().copied();
                open.extend(dependents.filter(|&dependent| is_member(dependent) && kept.insert(dependent)));
            }
            members.retain(|step| !kept.contains(step));
            members.sort_unstable();
            skippable.insert(group.to_owned(), members);
        }
        skippable
    }
}

/// Whether a step stands in a group with `fail_fast` of this name.
fn stands_in(spec: &StepSpec, group: &str) -> bool {
    spec.fail_fast_groups().iter().any(|one| one == group)
}

/// Whether a step may run once this one, which it depends on, has failed.
fn runs_after_failure(spec: &StepSpec, on: &str) -> bool {
    match (spec.outcomes_of(on), spec.run_when()) {
        (Some(outcomes), _) => outcomes.contains(&Outcome::Failure),
        (None, RunWhen::Failure | RunWhen::Always) => true,
        (None, RunWhen::Success | RunWhen::NoneFailed) => false,
    }
}
