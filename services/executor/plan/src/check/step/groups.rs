//! The groups that a step stands in: their time limits, and those that fail fast.

use crate::{
    StepDraft,
    check::{Checker, id_problem},
    duration,
    limits::{MAX_NESTED_GROUPS, MAX_STEP_ID_CHARS},
    path::{FieldPath, shown},
};

impl Checker<'_> {
    /// A group has one limit, which all its steps name.
    pub(super) fn group_timeouts(&mut self, path: &FieldPath, position: usize, steps: &[StepDraft]) {
        let timeouts = &steps[position].group_timeouts;
        if timeouts.len() > MAX_NESTED_GROUPS {
            self.rule(path, || {
                format!("names {} groups, and a step stands in at most {MAX_NESTED_GROUPS}", timeouts.len())
            });
        }
        for (group, timeout) in timeouts {
            let field = path.key(group.clone());
            if let Some(problem) = id_problem(group, MAX_STEP_ID_CHARS) {
                self.rule(&field, || problem);
            }
            self.duration(&field, Some(*timeout));
            let first = self.group_timeouts.entry(group.clone()).or_insert((position, *timeout));
            let (first, before) = *first;
            if before != *timeout {
                let other = shown(&steps[first].id);
                self.rule(&field, || {
                    format!(
                        "is {}, and step `{other}` says {}: a group has one time limit",
                        duration::format(*timeout),
                        duration::format(before)
                    )
                });
            }
        }
    }

    /// The groups with `fail_fast`, each once.
    pub(super) fn fail_fast_groups(&mut self, path: &FieldPath, groups: &[String]) {
        if groups.len() > MAX_NESTED_GROUPS {
            self.rule(path, || {
                format!("names {} groups, and a step stands in at most {MAX_NESTED_GROUPS}", groups.len())
            });
        }
        for (place, group) in groups.iter().enumerate() {
            let field = path.index(place);
            if let Some(problem) = id_problem(group, MAX_STEP_ID_CHARS) {
                self.rule(&field, || problem);
            } else if let Some(first) = groups[..place].iter().position(|before| before == group) {
                self.rule(&field, || format!("names `{}` as entry {first} does: remove one", shown(group)));
            }
        }
    }
}
