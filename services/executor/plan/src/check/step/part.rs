//! Knowledge about a step that has been checked: its parts, the planned ones among them, its references, and the step that is made of them.

use std::sync::Arc;

use crate::{
    CallDraft, CallPlace, CallsStep, Check, CheckDraft, CheckPlace, Condition, Effects, Plan, PlanStep, Planned,
    PlannedCall, PlannedStep, StepDraft, StepKind, StepKindDraft, StepSpec, Template, ToolStep, WaitFor, WaitStep,
    path::FieldPath,
    plan::{COMMIT, OtherCall, call_of},
    template::Reference,
};

/// The result of checking a step.
pub(in crate::check) struct Part {
    pub(in crate::check) dependencies: Vec<usize>,
    pub(super) kind: KindPart,
    pub(super) condition: Option<Condition>,
    /// The list, as far as it could be read.
    pub(super) for_each: Option<Template>,
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
    /// The check names nothing valid.
    Unread,
}

/// The result of checking a call.
pub(super) struct CallPart {
    /// Whether the tool's name is valid.
    pub(super) has_tool: bool,
    /// The arguments, as far as they could be read.
    pub(super) arguments: Template,
    /// Whether all of them could be read.
    pub(super) arguments_are_valid: bool,
}

impl CallPart {
    fn planned<'a>(&'a self, step: usize, place: CallPlace, tool: &'a str) -> Option<Planned<'a>> {
        let step = outermost(step);
        let arguments = self.arguments_are_valid.then_some(&self.arguments);
        self.has_tool.then_some(Planned::Call(PlannedCall { step, place, tool, arguments, allowed_commands: None }))
    }
}

/// The call that commits what the calls of a step have changed.
fn commit_of(step: usize) -> Planned<'static> {
    let (step, ToolStep { tool, arguments }) = (outermost(step), &*COMMIT);
    Planned::Call(PlannedCall {
        step,
        place: CallPlace::Commit,
        tool,
        arguments: Some(arguments),
        allowed_commands: None,
    })
}

/// A step of the plan that is being checked.
fn outermost(step: usize) -> PlannedStep<'static> {
    PlannedStep { step, within: "" }
}

/// The result of checking what a step does.
pub(super) enum KindPart {
    Tool(CallPart),
    Calls(Vec<CallPart>),
    /// The plan is checked after the step, and `None` when it is not valid.
    Plan(Option<Arc<Plan>>, Template),
    /// `None` when nothing valid was named.
    Wait(Option<WaitFor>),
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
}

impl Part {
    /// The step's call, when the tool is named, or its form, when the schema is within the limits.
    pub(in crate::check) fn planned<'a>(&'a self, step: usize, draft: &'a StepDraft) -> Option<Planned<'a>> {
        match (&draft.kind, &self.kind) {
            (StepKindDraft::Tool { tool, .. }, KindPart::Tool(call)) => call.planned(step, CallPlace::Own, tool),
            (StepKindDraft::Wait { .. }, KindPart::Wait(Some(WaitFor::Form(form)))) => {
                Some(Planned::Form { step: outermost(step), schema: &form.schema })
            }
            (
                StepKindDraft::Tool { .. }
                | StepKindDraft::Calls { .. }
                | StepKindDraft::Wait { .. }
                | StepKindDraft::Plan { .. },
                _,
            ) => None,
        }
    }

    /// The calls of the step beside its own, and its `calls`, whose tools are named.
    pub(in crate::check) fn planned_others<'a>(
        &'a self,
        step: usize,
        draft: &'a StepDraft,
    ) -> impl Iterator<Item = Planned<'a>> {
        let listed = match (&draft.kind, &self.kind) {
            (StepKindDraft::Calls { calls: drafts, .. }, KindPart::Calls(parts)) => Some(parts.iter().zip(drafts)),
            _ => None,
        };
        let commit = match &draft.kind {
            StepKindDraft::Calls { effects: Effects::PerStep, .. } => Some(commit_of(step)),
            _ => None,
        };
        let listed = listed.into_iter().flatten().enumerate();
        let listed =
            listed.filter_map(move |(place, (call, draft))| call.planned(step, CallPlace::Listed(place), &draft.tool));
        let calls = self.fallback.iter().zip(&draft.fallback).enumerate();
        let calls =
            calls.filter_map(move |(place, (call, draft))| call.planned(step, CallPlace::Fallback(place), &draft.tool));
        let undoes = self.compensate.as_ref().zip(draft.compensate.as_ref());
        listed
            .chain(commit)
            .chain(calls)
            .chain(undoes.and_then(|(call, draft)| call.planned(step, CallPlace::Compensate, &draft.tool)))
    }

    /// The step's condition, when its references could be read.
    pub(in crate::check) fn planned_condition(&self, step: usize) -> Option<Planned<'_>> {
        let step = outermost(step);
        self.condition.as_ref().map(|condition| Planned::Condition { step, place: None, condition })
    }

    /// The checks before and after the step's call, and the schema of its output.
    pub(in crate::check) fn planned_checks<'a>(
        &'a self,
        step: usize,
        draft: &'a StepDraft,
    ) -> impl Iterator<Item = Planned<'a>> {
        let schema = draft.output_schema.as_ref().filter(|_| self.has_output_schema);
        let schema = schema.map(move |schema| Planned::Output { step: outermost(step), schema });
        let checks = self.checks().zip(draft.preconditions.iter().chain(&draft.postconditions));
        let checks = checks.filter_map(move |((place, part), draft)| match part {
            CheckPart::Condition(condition) => {
                Some(Planned::Condition { step: outermost(step), place: Some(place), condition })
            }
            CheckPart::File(call) | CheckPart::Command(call) => {
                call.planned(step, CallPlace::Check(place), call_of(draft)?.0)
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
        let mut templates = Vec::with_capacity(1 + self.fallback.len());
        match &self.kind {
            KindPart::Tool(call) => templates.push((path.key("arguments"), &call.arguments)),
            KindPart::Calls(calls) => templates.extend(
                calls
                    .iter()
                    .enumerate()
                    .map(|(place, call)| (path.key("calls").index(place).key("arguments"), &call.arguments)),
            ),
            KindPart::Wait(Some(WaitFor::Form(form))) => templates.push((path.key("wait").key("form"), &form.texts)),
            KindPart::Wait(_) => {}
            KindPart::Plan(_, inputs) => templates.push((path.key("inputs"), inputs)),
        }
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
        let other = |(draft, part): (CallDraft, CallPart)| OtherCall {
            call: ToolStep { tool: draft.tool, arguments: part.arguments },
            verbatim: draft.verbatim,
        };
        let kind = match (draft.kind, self.kind) {
            (StepKindDraft::Calls { calls, effects }, KindPart::Calls(parts)) => {
                StepKind::Calls(CallsStep { calls: calls.into_iter().zip(parts).map(other).collect(), effects })
            }
            (StepKindDraft::Tool { tool, .. }, KindPart::Tool(CallPart { arguments, .. })) => {
                StepKind::Tool(ToolStep { tool, arguments })
            }
            (StepKindDraft::Wait { .. }, KindPart::Wait(Some(wait_for))) => StepKind::Wait(WaitStep { wait_for }),
            (StepKindDraft::Plan { .. }, KindPart::Plan(Some(plan), inputs)) => {
                StepKind::Plan(PlanStep { plan, inputs })
            }
            (
                StepKindDraft::Tool { .. }
                | StepKindDraft::Calls { .. }
                | StepKindDraft::Wait { .. }
                | StepKindDraft::Plan { .. },
                _,
            ) => {
                unreachable!("the plan is valid")
            }
        };
        let checks = |drafts: Vec<CheckDraft>, parts: Vec<CheckPart>| -> Vec<Check> {
            let call = |draft, CallPart { arguments, .. }| {
                let tool = call_of(draft).map(|(tool, _)| tool.to_owned()).unwrap_or_default();
                ToolStep { tool, arguments }
            };
            let checks = drafts.iter().zip(parts).map(|(draft, part)| match part {
                CheckPart::Condition(condition) => Check::Condition(condition),
                CheckPart::File(part) => Check::File(call(draft, part)),
                CheckPart::Command(part) => Check::Command(call(draft, part)),
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
            timeout: draft.timeout,
            attempt_timeout: draft.attempt_timeout,
            exclusive: draft.exclusive,
            verbatim: draft.verbatim,
            retry: draft.retry.unwrap_or_default(),
            on_error: draft.on_error,
            fallback: fallback.collect(),
            compensate: draft.compensate.zip(self.compensate).map(other),
            resources,
            preconditions: checks(draft.preconditions, self.preconditions),
            postconditions: checks(draft.postconditions, self.postconditions),
            output_schema: draft.output_schema,
            budget: draft.budget,
            kind,
        }
    }
}

impl Part {
    /// The plan that the step carries out, which has been checked.
    pub(in crate::check) fn set_plan(&mut self, checked: Plan) {
        if let KindPart::Plan(plan, _) = &mut self.kind {
            *plan = Some(Arc::new(checked));
        }
    }
}
