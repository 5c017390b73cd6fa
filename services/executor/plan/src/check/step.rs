//! The rules for one step, and for references between steps.

mod agent;
mod call_part;
mod calls;
mod checks;
mod failures;
mod groups;
mod kind;
mod part;
mod plan_inputs;
mod references;
mod repeat;
mod runs;
mod schema;
mod wait;

pub use wait::is_signal_name;

use crate::{
    RunWhen, StepDraft, StepKindDraft,
    limits::{MAX_DESCRIPTION_CHARS, MAX_STEP_ID_CHARS},
};

use self::part::{Part, Site};
use super::{Checker, step_path};

impl Checker<'_> {
    pub(super) fn step(&mut self, position: usize, step: &StepDraft, steps: &[StepDraft]) -> Part {
        let path = step_path(position);
        let kind = self.kind(&path, step);
        if step.group.chars().count() > MAX_STEP_ID_CHARS {
            self.rule(&path.key("group"), || format!("has more than {MAX_STEP_ID_CHARS} characters"));
        }
        let described = step.description.chars().count();
        if described > MAX_DESCRIPTION_CHARS {
            self.rule(&path.key("description"), || {
                format!("has {described} characters and the limit is {MAX_DESCRIPTION_CHARS}: shorten it")
            });
        }
        let calls_tool = step.kind.calls_tool();
        self.on_error(&path.key("on_error"), &step.on_error, calls_tool);
        let condition = self.condition(&path.key("condition"), &step.condition);
        let for_each = step.for_each.as_ref().and_then(|list| self.list(&path.key("for_each"), list));
        if step.fail_fast && step.for_each.is_none() && !matches!(step.kind, StepKindDraft::Calls { .. }) {
            self.rule(&path.key("fail_fast"), || {
                "is for steps with `for_each` or `calls`, and this one has none: remove it, write it on the group of the step, or write \
                 `stop_on_error` in the plan"
                    .to_owned()
            });
        }
        let until = step.repeat.as_ref().and_then(|repeat| self.repeat(&path, step, repeat));
        let fallback = self.fallback(&path.key("fallback"), &step.fallback);
        self.resources(&path.key("resources"), &step.resources);
        self.network(&path.key("network"), step.network.as_deref());
        self.budget(&path.key("budget"), step.budget.as_ref());
        let undoes = step.compensate.as_ref();
        let compensate =
            undoes.map(|call| self.call(&path.key("compensate"), &call.tool, &call.arguments, &call.verbatim));
        let mut part = Part {
            dependencies: Vec::new(),
            kind,
            condition,
            for_each,
            until,
            fallback,
            compensate,
            preconditions: self.checks_before(&path.key("preconditions"), step),
            postconditions: self.checks(&path.key("postconditions"), &step.postconditions, step),
            has_output_schema: self.output_schema(&path.key("output_schema"), step.output_schema.as_ref()),
        };
        let mut dependencies = Vec::with_capacity(step.depends_on.len());
        let depends_on = path.key("depends_on");
        for (entry, on) in step.depends_on.iter().enumerate() {
            let explain = "name a step of this plan";
            if on.step.is_empty() && on.on.is_some() {
                self.refuse(&depends_on.index(entry), || {
                    "names no step: write its id as `step` beside `on`".to_owned()
                });
                continue;
            }
            dependencies.extend(self.dependency(&depends_on.index(entry), position, &on.step, steps, explain));
        }
        self.outcomes(&path, step);
        for (site, field, reference) in part.references(&path) {
            if reference.is_item() {
                self.item(&field, site, step, reference);
                continue;
            }
            self.results(&field, site, step, reference, steps);
            self.output_of_plan(&field, reference, steps);
            if reads_own_result(site, step) && reference.step() == step.id {
                continue;
            }
            if let Some(input) = reference.input() {
                self.input(&field, input);
                continue;
            }
            self.unambiguous(&field, reference);
            let explain = "`${…}` names a step of this plan; `$${` stands for the text `${`, and `verbatim` takes a whole argument as it is";
            dependencies.extend(self.dependency(&field, position, reference.step(), steps, explain));
        }
        if step.run_when != RunWhen::Success && step.depends_on.is_empty() && dependencies.is_empty() {
            self.rule(&path.key("run_when"), || {
                "says after which ends of other steps this one runs, and it depends on none: add `depends_on`, or remove it".to_owned()
            });
        }
        dependencies.sort_unstable();
        dependencies.dedup();
        self.duration(&path.key("timeout"), step.timeout);
        self.group_timeouts(&path.key("group_timeouts"), position, steps);
        self.fail_fast_groups(&path.key("fail_fast_groups"), &step.fail_fast_groups);
        self.duration(&path.key("attempt_timeout"), step.attempt_timeout);
        if let Some(retry) = &step.retry {
            self.retry(&path.key("retry"), retry);
        }
        part.dependencies = dependencies;
        part
    }
}

/// Whether the step's own result is there: that of its last round, or the one after which something is done.
fn reads_own_result(site: Site, step: &StepDraft) -> bool {
    match site {
        Site::Compensate | Site::After | Site::Until => true,
        Site::Call | Site::Before => step.repeat.is_some(),
        Site::List | Site::Condition => false,
    }
}
