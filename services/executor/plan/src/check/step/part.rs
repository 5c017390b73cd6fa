//! Knowledge about a step that has been checked: its parts, the planned ones among them, its references, and the step that is made of them.

use super::{
    call_part::{CallPart, outermost},
    kind::KindPart,
};
use crate::{
    CallDraft, CallPlace, Check, CheckPlace, Condition, ConditionPlace, JUDGE_TOOL, ModelPlace, Plan, PlanPart,
    Profile, Repeat, RetryPolicy, StepDraft, StepKindDraft, StepSpec, Template, ToolStep,
    path::FieldPath,
    plan::{CRITERION, call_of},
    template::Reference,
};

/// The result of checking a step.
pub(in crate::check) struct Part {
    pub(in crate::check) dependencies: Vec<usize>,
    pub(super) kind: KindPart,
    pub(super) condition: Option<Condition>,
    /// The list, as far as it could be read.
    pub(super) for_each: Option<Template>,
    /// Until when it runs again, as far as that could be read.
    pub(super) until: Option<Condition>,
    pub(super) fallback: Vec<CallPart>,
    pub(super) compensate: Option<CallPart>,
    pub(super) preconditions: Vec<CheckPart>,
    pub(super) postconditions: Vec<CheckPart>,
    /// Whether the schema of the output is one within the limits.
    pub(super) has_output_schema: bool,
}

/// The result of checking a check before or after a call.
pub(super) enum CheckPart {
    Condition(Condition),
    File(CallPart),
    Command(CallPart),
    Judge(CallPart),
    /// The check names nothing valid.
    Unread,
}

/// Where in a step a reference stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// In what the step does.
    Call,
    /// In the call that undoes what it has done.
    Compensate,
    /// In the list for each entry of which it runs.
    List,
    Condition,
    /// In what is checked before the step's call.
    Before,
    /// In what is checked after it.
    After,
    /// In the condition after which it does not run again.
    Until,
}

impl Part {
    /// The step's call, when the tool is named, or its form, when the schema is within the limits.
    pub(in crate::check) fn planned<'a>(&'a self, step: usize, draft: &'a StepDraft) -> Option<PlanPart<'a>> {
        self.kind.planned(step, &draft.kind)
    }

    /// The calls of the step beside its own, and its `calls`, whose tools are named.
    pub(in crate::check) fn planned_others<'a>(
        &'a self,
        step: usize,
        draft: &'a StepDraft,
    ) -> impl Iterator<Item = PlanPart<'a>> {
        let listed = self.kind.planned_calls(step, &draft.kind);
        let calls = self.fallback.iter().zip(&draft.fallback).enumerate();
        let calls =
            calls.filter_map(move |(place, (call, draft))| call.planned(step, CallPlace::Fallback(place), &draft.tool));
        let undoes = self.compensate.as_ref().zip(draft.compensate.as_ref());
        listed
            .chain(calls)
            .chain(undoes.and_then(|(call, draft)| call.planned(step, CallPlace::Compensate, &draft.tool)))
    }

    /// The step's conditions beside its checks, when their references could be read.
    pub(in crate::check) fn planned_conditions(&self, step: usize) -> impl Iterator<Item = PlanPart<'_>> {
        let step = outermost(step);
        let own = self.condition.iter().map(|condition| (ConditionPlace::Own, condition));
        let until = self.until.iter().map(|condition| (ConditionPlace::Until, condition));
        own.chain(until).map(move |(place, condition)| PlanPart::Condition { step, place, condition })
    }

    /// The checks before and after the step's call, and the schema of its output.
    pub(in crate::check) fn planned_checks<'a>(
        &'a self,
        step: usize,
        draft: &'a StepDraft,
    ) -> impl Iterator<Item = PlanPart<'a>> {
        let schema = draft.output_schema.as_ref().filter(|_| self.has_output_schema);
        let schema = schema.map(move |schema| PlanPart::Output { step: outermost(step), schema });
        let checks = self.checks().zip(draft.preconditions.iter().chain(&draft.postconditions));
        let checks = checks.filter_map(move |((place, part), check)| match part {
            CheckPart::Condition(condition) => {
                let place = ConditionPlace::Check(place);
                Some(PlanPart::Condition { step: outermost(step), place, condition })
            }
            CheckPart::File(call) | CheckPart::Command(call) => {
                call.planned(step, CallPlace::Check(place), call_of(check, draft)?.0)
            }
            CheckPart::Judge(call) => {
                let StepKindDraft::Agent { agent, .. } = &draft.kind else { return None };
                let model = if check.model.is_empty() { &agent.model } else { &check.model };
                let place = ModelPlace::Judge(place);
                let (step, task) = (outermost(step), &call.arguments);
                Some(PlanPart::Model { step, model, task, tools: &[], has_cost_limit: false, place })
            }
            CheckPart::Unread => None,
        });
        checks.chain(schema)
    }

    fn checks(&self) -> impl Iterator<Item = (CheckPlace, &CheckPart)> {
        let before = self.preconditions.iter().enumerate().map(|(place, part)| (CheckPlace::Before(place), part));
        before.chain(self.postconditions.iter().enumerate().map(|(place, part)| (CheckPlace::After(place), part)))
    }

    /// The templates of the step at `path`, each with its field; the list for each entry of which it runs is not among them.
    pub(in crate::check) fn templates(&self, path: &FieldPath) -> Vec<(FieldPath, &Template)> {
        let mut templates = self.kind.templates(path);
        for (place, call) in self.fallback.iter().enumerate() {
            templates.push((path.key("fallback").index(place).key("arguments"), &call.arguments));
        }
        templates
    }

    /// The step's references, each with its field.
    pub(super) fn references(&self, path: &FieldPath) -> Vec<(Site, FieldPath, &Reference)> {
        let list = self.for_each.iter().map(|list| (Site::List, path.key("for_each"), list));
        let others = self.templates(path).into_iter().map(|(field, template)| (Site::Call, field, template));
        let undoes = self
            .compensate
            .as_ref()
            .map(|call| (Site::Compensate, path.key("compensate").key("arguments"), &call.arguments));
        let mut references = Vec::new();
        for (site, field, template) in others.chain(list).chain(undoes) {
            references.extend(template.references().map(|(inner, reference)| (site, field.join(inner), reference)));
        }
        let condition = self.condition.iter().flat_map(Condition::references);
        references.extend(condition.map(|reference| (Site::Condition, path.key("condition"), reference)));
        let until = self.until.iter().flat_map(Condition::references);
        references.extend(until.map(|reference| (Site::Until, path.key("repeat").key("until"), reference)));
        for (place, part) in self.checks() {
            let (site, field) = match place {
                CheckPlace::Before(place) => (Site::Before, path.key("preconditions").index(place)),
                CheckPlace::After(place) => (Site::After, path.key("postconditions").index(place)),
            };
            match part {
                CheckPart::Condition(condition) => {
                    let field = field.key("condition");
                    references.extend(condition.references().map(|reference| (site, field.clone(), reference)));
                }
                CheckPart::File(call) => {
                    let field = field.key("file");
                    let inner = call.arguments.references();
                    references.extend(inner.map(|(_, reference)| (site, field.clone(), reference)));
                }
                CheckPart::Judge(call) => {
                    let field = field.key("judge");
                    // Those of the task stand at the task.
                    let inner = call.arguments.references().filter(|(inner, _)| inner.begins_with(CRITERION));
                    references.extend(inner.map(|(_, reference)| (site, field.clone(), reference)));
                }
                CheckPart::Command(call) => {
                    let inner = call.arguments.references();
                    references.extend(inner.map(|(inner, reference)| (site, field.join(inner), reference)));
                }
                CheckPart::Unread => {}
            }
        }
        references
    }

    /// The step, after the whole plan has been checked.
    pub(in crate::check) fn complete(self, draft: StepDraft) -> StepSpec {
        let other = |(draft, part): (CallDraft, CallPart)| part.complete(draft);
        let kind = self.kind.complete(draft.kind);
        // What fails for a while is tried again within the loop, and everything else goes to the model.
        let retry = draft.retry.unwrap_or_else(|| match kind.agent() {
            Some(_) => Profile::Executor.policy(),
            None => RetryPolicy::default(),
        });
        let checks = |parts: Vec<CheckPart>| -> Vec<Check> {
            let call = |tool: &str, CallPart { arguments, .. }| ToolStep { tool: tool.to_owned(), arguments };
            let checks = parts.into_iter().map(|part| match part {
                CheckPart::Condition(condition) => Check::Condition(condition),
                CheckPart::File(part) => Check::File(call(Check::FILE_TOOL, part)),
                CheckPart::Command(part) => Check::Command(call(Check::COMMAND_TOOL, part)),
                CheckPart::Judge(part) => Check::Judge(call(JUDGE_TOOL, part)),
                CheckPart::Unread => unreachable!("the plan is valid"),
            });
            checks.collect()
        };
        let fallback = draft.fallback.into_iter().zip(self.fallback).map(other);
        let mut resources = draft.resources;
        resources.sort_unstable();
        resources.dedup();
        let named = draft.depends_on.iter().filter_map(|on| Some((on.step.clone(), on.on.clone()?)));
        StepSpec {
            outcomes: named.collect(),
            id: draft.id,
            title: draft.title,
            description: draft.description,
            group: draft.group,
            depends_on: draft.depends_on,
            dependencies: self.dependencies,
            run_when: draft.run_when,
            condition: self.condition,
            for_each: self.for_each,
            repeat: draft.repeat.zip(self.until).map(|(draft, until)| Repeat {
                until,
                max: draft.max,
                delay: draft.delay,
            }),
            fail_fast: draft.fail_fast,
            timeout: draft.timeout,
            group_timeouts: draft.group_timeouts,
            fail_fast_groups: draft.fail_fast_groups,
            attempt_timeout: draft.attempt_timeout,
            exclusive: draft.exclusive,
            network: draft.network,
            verbatim: draft.verbatim,
            retry,
            on_error: draft.on_error,
            fallback: fallback.collect(),
            compensate: draft.compensate.zip(self.compensate).map(other),
            resources,
            preconditions: checks(self.preconditions),
            postconditions: checks(self.postconditions),
            output_schema: draft.output_schema,
            budget: draft.budget,
            kind,
        }
    }
}

impl Part {
    /// The plan that the step carries out, which has been checked.
    pub(in crate::check) fn set_plan(&mut self, checked: Plan) {
        self.kind.set_plan(checked);
    }
}
