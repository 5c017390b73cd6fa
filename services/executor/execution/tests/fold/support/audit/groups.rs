//! The rules of groups with `fail_fast`.

use std::collections::BTreeSet;

use belay_execution::{SkipReason, StepId};
use belay_plan::{Outcome, RunWhen};

use super::{Audit, Stop};

impl Audit {
    /// No step of a group starts once another has failed, unless it runs after a failure in the group or follows one that does.
    pub(super) fn check_groups_let_start(&self, step: usize) {
        for group in self.groups(step) {
            let failed: Vec<usize> = self.failed.iter().copied().filter(|&other| self.counts(other, group)).collect();
            let commits = self.commits_step(step);
            assert!(
                failed.is_empty() || commits || self.follows_failure(step, group, &mut BTreeSet::new()),
                "step {step} starts after {failed:?} of the group {group} failed"
            );
        }
    }

    /// A step that names a group as the reason for which it is skipped does so because of one that has failed there; nothing but a stop and a list's own
    /// `fail_fast` skips one without a group because of an error.
    pub(super) fn check_group_skips(
        &mut self,
        step: usize,
        reason: SkipReason,
        because: Option<&StepId>,
        group: Option<&str>,
    ) {
        self.by_group.remove(&step);
        let Some(group) = group else {
            let of_list = self.lists.contains_key(&step);
            assert!(
                reason != SkipReason::StopOnError || of_list || self.stop == Some(Stop::Error),
                "nothing stops {step}"
            );
            return;
        };
        let failed = because.and_then(|id| self.index_of(id)).expect("a step has failed");
        assert_eq!(reason, SkipReason::StopOnError);
        assert!(self.failed.contains(&failed) && self.counts(failed, group), "{failed} has not failed in {group}");
        assert!(self.is_member(step, group) && !self.follows_failure(step, group, &mut BTreeSet::new()));
        self.by_group.insert(step);
    }

    /// The groups with `fail_fast` of a step of the plan, or of an entry of one. A step makes its rounds after the first like further
    /// attempts.
    fn groups(&self, step: usize) -> Vec<&str> {
        let is_round = |step: usize| {
            let list = self.lists.get(&step).filter(|_| self.spec(step).repeat().is_some());
            list.is_some_and(|list| self.items[list].first() != Some(&step))
        };
        let is_planned = !self.undoes.contains_key(&step) && !self.removed.contains(&step) && !is_round(step);
        let groups = is_planned.then(|| self.spec(step).fail_fast_groups());
        groups.into_iter().flatten().map(String::as_str).collect()
    }

    /// Whether the failure of a step is one of the group: that of an entry is one of its list first.
    fn counts(&self, step: usize, group: &str) -> bool {
        !self.lists.contains_key(&step) && self.is_member(step, group)
    }

    fn is_member(&self, step: usize, group: &str) -> bool {
        self.groups(step).contains(&group)
    }

    /// Whether a step of a group runs after a failure in it, or depends in it on one that does.
    fn follows_failure(&self, step: usize, group: &str, seen: &mut BTreeSet<usize>) -> bool {
        let step = self.lists.get(&step).copied().unwrap_or(step);
        let within = self.dependencies(step).into_iter().filter(|&on| self.is_member(on, group));
        let within: Vec<usize> = within.collect();
        let spec = self.spec(step);
        let runs_after = |on: &usize| match spec.outcomes_of(&self.ids[*on]) {
            Some(named) => named.contains(&Outcome::Failure),
            None => matches!(spec.run_when(), RunWhen::Failure | RunWhen::Always),
        };
        seen.insert(step)
            && (within.iter().any(runs_after) || within.iter().any(|&on| self.follows_failure(on, group, seen)))
    }
}
