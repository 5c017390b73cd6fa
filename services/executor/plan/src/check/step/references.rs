//! References: to other steps, which must not wait for each other, and to the entries of a list.

use std::collections::{BTreeSet, HashMap};

use super::{
    part::{Part, Site},
    reads_own_result,
};
use crate::{
    RunWhen, StepDraft, StepKindDraft, StepValue,
    check::{Checker, JOINED_TWICE, step_path},
    nearest,
    path::{FieldPath, shown},
    template::Reference,
};

impl Checker<'_> {
    /// A reference to an entry stands where there is one.
    pub(super) fn item(&mut self, field: &FieldPath, site: Site, step: &StepDraft, reference: &Reference) {
        let has_list = step.for_each.is_some() || step.repeat.is_some();
        let why = match site {
            Site::Call | Site::Compensate | Site::Before | Site::After | Site::Until if has_list => return,
            Site::Call | Site::Compensate | Site::Before | Site::After | Site::Until => {
                "is for steps with `for_each` or `repeat`, and this one has none: add it, or name a step or an input"
            }
            Site::List => "has no value here: the entries come from this list",
            Site::Condition => {
                "has no value here: the condition is evaluated once, before the list is read. Let the step that makes the list leave out \
                 entries"
            }
        };
        self.refuse(field, || format!("`${{{reference}}}` {why}"));
    }

    /// The step that an id names, unless it does not exist or is the step itself.
    pub(super) fn dependency(
        &mut self,
        path: &FieldPath,
        position: usize,
        id: &str,
        steps: &[StepDraft],
        explain: &str,
    ) -> Option<usize> {
        if id.is_empty() {
            self.refuse(path, || "is empty: name a step by its id".to_owned());
            return None;
        }
        if id == steps[position].id {
            self.refuse(path, || format!("`{}` is the step itself, which cannot wait for its own result", shown(id)));
            return None;
        }
        self.named_step(path, id, steps, explain)
    }

    /// The step that an id names, unless it does not exist.
    pub(in crate::check) fn named_step(
        &mut self,
        path: &FieldPath,
        id: &str,
        steps: &[StepDraft],
        explain: &str,
    ) -> Option<usize> {
        let found = self.index.get(id).copied();
        if found.is_none() && self.places.groups.contains(id) {
            self.refuse(path, || {
                format!("`{}` is a group, which has no result of its own: name one of its steps", shown(id))
            });
        } else if found.is_none() {
            let suggestion = self.suggestion(id, steps);
            self.refuse(path, || format!("there is no step `{}`{suggestion} ({explain})", shown(id)));
        }
        found
    }

    /// Checks that a step names the outcomes of each of its dependencies only once.
    pub(super) fn outcomes(&mut self, path: &FieldPath, step: &StepDraft) {
        let depends_on = path.key("depends_on");
        let mut seen: HashMap<&str, (usize, bool)> = HashMap::new();
        for (entry, on) in step.depends_on.iter().enumerate() {
            if on.on.as_ref().is_some_and(BTreeSet::is_empty) {
                self.rule(&depends_on.index(entry).key("on"), || {
                    "is empty, and the step would never run: name at least one of success, failure and skipped"
                        .to_owned()
                });
            }
            let (first, named) = *seen.entry(&on.step).or_insert((entry, on.on.is_some()));
            if first < entry && (named || on.on.is_some()) {
                // Of two entries the later one is the author's own, unless a group stands for it.
                self.rule(&depends_on.index(entry), || {
                    format!(
                        "names `{}` again: name it once, with all outcomes after which the step runs",
                        shown(&on.step)
                    )
                });
            }
        }
        if step.run_when != RunWhen::Success && step.names_outcomes() {
            self.rule(&path.key("run_when"), || JOINED_TWICE.to_owned());
        }
    }

    /// A step that runs once has no results of entries.
    pub(super) fn results(
        &mut self,
        field: &FieldPath,
        site: Site,
        step: &StepDraft,
        reference: &Reference,
        steps: &[StepDraft],
    ) {
        if reference.value() != StepValue::Results {
            return;
        }
        let id = shown(reference.step());
        if reference.step() == step.id && reads_own_result(site, step) {
            self.rule(field, || {
                format!("`${{{reference}}}` has no value here, where each entry is for itself: name `${{{id}.result}}`")
            });
            return;
        }
        self.results_of_entries(field, reference, steps);
    }

    /// A reference to what became of each entry names a step that has entries.
    pub(in crate::check) fn results_of_entries(
        &mut self,
        field: &FieldPath,
        reference: &Reference,
        steps: &[StepDraft],
    ) {
        let id = shown(reference.step());
        let named = self.index.get(reference.step()).map(|&position| &steps[position]);
        if reference.value() == StepValue::Results && named.is_some_and(|named| !named.has_entries()) {
            self.rule(field, || {
                format!(
                    "`${{{reference}}}` is what became of each entry, and `{id}` has none of `for_each`, `calls` and `repeat`: name `${{{id}.result}}`, or \
                     `${{{id}.state}}` and `${{{id}.failure}}`"
                )
            });
        }
    }

    /// A reference to an output of a step that carries out a plan names one that the plan declares, where it declares any.
    pub(in crate::check) fn output_of_plan(&mut self, field: &FieldPath, reference: &Reference, steps: &[StepDraft]) {
        let named = self.index.get(reference.step()).map(|&position| &steps[position]);
        let Some(StepDraft { kind: StepKindDraft::Plan { plan, .. }, for_each: None, .. }) = named else { return };
        // Whoever names the result may mean what is not there, with `??`.
        let names_outputs = reference.value() == StepValue::Outputs && !plan.outputs.is_empty();
        let Some(name) = reference.first_name().filter(|_| names_outputs) else { return };
        if plan.outputs.contains_key(name) {
            return;
        }
        let near = nearest(name, plan.outputs.keys().map(String::as_str));
        let near = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
        self.rule(field, || {
            let (id, name) = (shown(reference.step()), shown(name));
            format!("the plan of `{id}` declares no output `{name}`{near} (its `outputs` say what `{id}` returns)")
        });
    }

    /// A reference names one step, however ids with dots are read.
    pub(in crate::check) fn unambiguous(&mut self, field: &FieldPath, reference: &Reference) {
        let Some(dotted) = reference.dotted_step().filter(|dotted| self.index.contains_key(dotted.as_str())) else {
            return;
        };
        let (step, dotted) = (shown(reference.step()), shown(&dotted));
        self.rule(field, || {
            format!(
                "`${{{reference}}}` could mean the step `{step}` or the step `{dotted}`: write `${{[\"{step}\"].result}}` or \
                 `${{[\"{dotted}\"].result}}`"
            )
        });
    }

    /// Reports a cycle at the field where its first step names its second.
    pub(in crate::check) fn cycle(&mut self, cycle: &[usize], steps: &[StepDraft], parts: &[Part]) {
        let (first, second) = (cycle[0], cycle[1]);
        let path = step_path(first);
        let second_id = &steps[second].id;
        let listed = steps[first].depends_on.iter().position(|on| on.step == *second_id);
        let path = match listed {
            Some(entry) => path.key("depends_on").index(entry),
            None => {
                let mut references = parts[first].references(&path).into_iter();
                let named = references.find(|(_, _, reference)| reference.step() == second_id);
                named.map_or(path, |(_, field, _)| field)
            }
        };
        self.refuse(&path, || {
            format!(
                "cyclic dependencies: {} (each step waits for the next): remove one of these dependencies",
                named(cycle, steps)
            )
        });
    }
}

/// The maximum number of steps of a cycle that a message names.
const MAX_STEPS_NAMED: usize = 20;

/// `a → b → c → a`; the middle of a long cycle is counted, not named.
fn named(cycle: &[usize], steps: &[StepDraft]) -> String {
    let mut names: Vec<String> =
        cycle.iter().take(MAX_STEPS_NAMED).map(|&position| shown(&steps[position].id)).collect();
    if let Some(more @ 1..) = cycle.len().checked_sub(MAX_STEPS_NAMED) {
        names.push(format!("… {more} more …"));
    }
    names.push(shown(&steps[cycle[0]].id));
    names.join(" → ")
}
