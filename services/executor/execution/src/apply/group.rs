//! The meaning of a step's failure for the groups with `fail_fast` that it stands in.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Execution, SkipReason, StepKey, StepRole, StepState, steps};

impl Execution {
    /// A step has failed: of its groups with `fail_fast`, no step is to start that has not started.
    pub(super) fn group_failed(&mut self, failed: StepKey) {
        if self.steps[failed].role != StepRole::Planned {
            // A step with a list or several calls fails with those; what undoes a step is in no group.
            return;
        }
        let spec = Arc::clone(&self.steps[failed].spec);
        for group in spec.fail_fast_groups() {
            if !self.failed_groups.contains_key(group) {
                self.progress.failed_groups.insert(group.clone(), failed);
                self.mark_group(group, failed);
            }
        }
    }

    /// Steps run again: a group of which no step has failed any more has not.
    pub(super) fn forget_failed_groups(&mut self) {
        if self.failed_groups.is_empty() {
            return;
        }
        let mut first: BTreeMap<String, StepKey> = BTreeMap::new();
        for (step, record) in self.steps.iter() {
            if record.state != StepState::Failed || record.role != StepRole::Planned {
                continue;
            }
            for group in record.spec.fail_fast_groups() {
                let known = first.entry(group.clone()).or_insert(step);
                if record.ended_at < self.steps[*known].ended_at {
                    *known = step;
                }
            }
        }
        self.progress.failed_groups = first;
    }

    /// Marks what is to be skipped of the groups that have failed, once the steps that have not started wait for what they depend on.
    pub(super) fn mark_failed_groups(&mut self) {
        for (group, failed) in self.failed_groups.clone() {
            self.mark_group(&group, failed);
        }
    }

    fn mark_group(&mut self, group: &str, failed: StepKey) {
        if self.stop.is_some() {
            // The stop is the reason for what is still open.
            return;
        }
        for index in 0..self.steps.skippable(group).len() {
            let step = self.steps.skippable(group)[index];
            if self.steps[step].waits_to_start() {
                self.update_step(step, |record| {
                    record.to_skip.get_or_insert((SkipReason::StopOnError, failed));
                });
            } else {
                steps::for_each::skip_unstarted(self, step, failed);
            }
        }
    }

    /// A step has listed entries or calls: where its group has failed meanwhile, they do not start.
    pub(crate) fn mark_listed(&mut self, list: StepKey) {
        let spec = Arc::clone(&self.steps[list].spec);
        let failed = spec.fail_fast_groups().iter().find_map(|group| {
            let failed = self.failed_groups.get(group)?;
            self.steps.skippable(group).binary_search(&list).is_ok().then_some(*failed)
        });
        if let Some(failed) = failed {
            steps::for_each::skip_unstarted(self, list, failed);
        }
    }

    /// The group with `fail_fast` because of which a step is skipped with this failed step: the innermost; `None` when there is another reason.
    pub(crate) fn group_of_failure(&self, step: StepKey, failed: StepKey) -> Option<&str> {
        let record = &self.steps[step];
        // The entries of a list stand where the list does.
        let member = record.runs_for().unwrap_or(step);
        let mut groups = record.spec.fail_fast_groups().iter().filter(|_| record.compensates().is_none());
        let is_reason = |group: &&String| {
            self.failed_groups.get(*group) == Some(&failed)
                && self.steps.skippable(group).binary_search(&member).is_ok()
        };
        groups.find(is_reason).map(String::as_str)
    }
}
