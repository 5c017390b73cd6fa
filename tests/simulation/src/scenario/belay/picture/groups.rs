//! Groups of steps that fail fast.

use belay_proto::v1::{self, step, step_spec};

use super::super::plans;
use super::Fold;

impl Fold {
    /// The group because of which a step may not start: another step of it has failed, and this one neither runs after a failure in it nor follows one that
    /// does. An entry or a call stands where its list does, and so does the first round of a step that repeats.
    pub(in super::super) fn group_that_failed(&self, index: usize) -> Option<&str> {
        let list = self.entries[index].as_ref().map(|(list, _)| *list);
        let is_later_round = list.is_some_and(|list| {
            let first = self.entries.iter().position(|entry| entry.as_ref().is_some_and(|(of, _)| *of == list));
            self.plan.steps[list].repeat.is_some() && first != Some(index)
        });
        if is_later_round || self.undoes[index].is_some() {
            return None;
        }
        let step = list.unwrap_or(index);
        let groups = self.plan.steps[step].fail_fast_groups.iter().map(String::as_str);
        let has_failed = |group: &str| {
            let mut others = self.picture.steps.iter().enumerate();
            others.any(|(other, status)| {
                let is_planned = self.entries[other].is_none() && self.undoes[other].is_none();
                is_planned && status.state() == step::State::Failed && self.stands_in(other, group)
            })
        };
        groups.into_iter().find(|group| has_failed(group) && !self.runs_after_failure_in(step, group, &mut Vec::new()))
    }

    /// Whether a step commits what the calls of another have changed.
    pub(in super::super) fn commits_step(&self, step: usize) -> bool {
        matches!(&self.plan.steps[step].kind, Some(step_spec::Kind::Tool(call)) if call.tool == plans::COMMIT)
    }

    fn stands_in(&self, step: usize, group: &str) -> bool {
        self.plan.steps[step].fail_fast_groups.iter().any(|one| one == group)
    }

    fn runs_after_failure_in(&self, step: usize, group: &str, seen: &mut Vec<usize>) -> bool {
        if seen.contains(&step) {
            return false;
        }
        seen.push(step);
        let spec = &self.plan.steps[step];
        let within = self.dependencies[step].iter().copied().filter(|&on| self.stands_in(on, group));
        let within: Vec<usize> = within.collect();
        let after = |on: &usize| match plans::outcomes_of(spec, &self.plan.steps[*on].id) {
            Some(named) => named.outcomes().any(|outcome| outcome == v1::Outcome::Failure),
            None => matches!(spec.run_when(), v1::RunWhen::Failure | v1::RunWhen::Always),
        };
        within.iter().any(after) || within.iter().any(|&on| self.runs_after_failure_in(on, group, seen))
    }
}
