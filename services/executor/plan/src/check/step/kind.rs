//! Kinds of steps that have been checked, with the parts of them that could be read.

use std::sync::Arc;

use super::{
    agent::{AgentPart, FilePart},
    call_part::{CallPart, outermost},
};
use crate::{
    AgentStep, COMMIT, CallPlace, CallsStep, Effects, ModelPlace, Plan, PlanPart, PlanStep, PlannedCall, REBASE,
    StepDraft, StepKind, StepKindDraft, Template, ToolStep, WaitFor, WaitStep, check::Checker, path::FieldPath,
};

/// The result of checking a step's kind.
pub(super) enum KindPart {
    Tool(CallPart),
    Calls(Vec<CallPart>),
    Agent(AgentPart),
    /// The plan is checked after the step, and `None` when it is not valid.
    Plan(Option<Arc<Plan>>, Template),
    /// `None` when nothing valid was named.
    Wait(Option<WaitFor>),
}

impl Checker<'_> {
    pub(super) fn kind(&mut self, path: &FieldPath, step: &StepDraft) -> KindPart {
        match &step.kind {
            StepKindDraft::Tool { tool, arguments } => KindPart::Tool(self.call(path, tool, arguments, &step.verbatim)),
            StepKindDraft::Calls { calls, effects } => KindPart::Calls(self.listed_calls(path, step, calls, *effects)),
            StepKindDraft::Wait { wait } => KindPart::Wait(self.wait(path, step, wait)),
            StepKindDraft::Agent { agent, .. } => KindPart::Agent(self.agent(path, step, agent)),
            StepKindDraft::Plan { plan, inputs } => KindPart::Plan(None, self.plan_inputs(path, step, plan, inputs)),
        }
    }
}

/// The call that commits what the calls of a step have changed, or another one that the plan does not name.
fn call_of_belay(step: usize, ToolStep { tool, arguments }: &'static ToolStep) -> PlanPart<'static> {
    let step = outermost(step);
    PlanPart::Call(PlannedCall {
        step,
        place: CallPlace::Commit,
        tool,
        arguments: Some(arguments),
        allowed_commands: None,
        network: None,
        network_of_plan: None,
    })
}

impl KindPart {
    /// The step's call, when the tool is named, its model, when that is named, or its form, when the schema is within the limits.
    pub(super) fn planned<'a>(&'a self, step: usize, draft: &'a StepKindDraft) -> Option<PlanPart<'a>> {
        match (self, draft) {
            (Self::Tool(call), StepKindDraft::Tool { tool, .. }) => call.planned(step, CallPlace::Own, tool),
            (Self::Agent(part), StepKindDraft::Agent { agent, .. }) => part.has_model.then(|| PlanPart::Model {
                step: outermost(step),
                model: &agent.model,
                task: &part.task,
                tools: &agent.tools,
                has_cost_limit: false,
                place: ModelPlace::Own,
            }),
            (Self::Wait(Some(WaitFor::Form(form))), _) => {
                Some(PlanPart::Form { step: outermost(step), schema: &form.schema })
            }
            (Self::Tool(_) | Self::Calls(_) | Self::Agent(_) | Self::Wait(_) | Self::Plan(..), _) => None,
        }
    }

    /// The calls of a step that makes several, or that a model may make, whose tools are named, and the one that commits what they have changed.
    pub(super) fn planned_calls<'a>(
        &'a self,
        step: usize,
        draft: &'a StepKindDraft,
    ) -> impl Iterator<Item = PlanPart<'a>> {
        let (listed, commits) = match (self, draft) {
            (Self::Calls(parts), StepKindDraft::Calls { calls, effects }) => {
                (Some(parts.iter().zip(calls)), *effects == Effects::PerStep)
            }
            (Self::Agent(_), StepKindDraft::Agent { effects, .. }) => (None, *effects == Effects::PerStep),
            _ => (None, false),
        };
        let rebases = commits && matches!(self, Self::Agent(_));
        let others = match (self, draft) {
            (Self::Agent(part), StepKindDraft::Agent { agent, .. }) => Some((part, agent)),
            _ => None,
        };
        let others = others.into_iter().flat_map(move |(part, agent)| {
            let named = part.fallback.iter().zip(&agent.fallback).enumerate().filter(|(_, (is_name, _))| **is_name);
            named.map(move |(place, (_, model))| PlanPart::Model {
                step: outermost(step),
                model,
                task: &part.task,
                tools: &agent.tools,
                has_cost_limit: false,
                place: ModelPlace::Fallback(place),
            })
        });
        let offered = match (self, draft) {
            (Self::Agent(part), StepKindDraft::Agent { agent, .. }) => Some(part.tools.iter().zip(&agent.tools)),
            _ => None,
        };
        let shown = match self {
            Self::Agent(part) => &part.files[..],
            _ => &[],
        };
        let shown = shown.iter().enumerate();
        let shown = shown.flat_map(move |(place, file)| file.planned(step, place));
        let offered = offered.into_iter().flatten().enumerate();
        let offered =
            offered.filter_map(move |(place, (call, tool))| call.planned(step, CallPlace::Offered(place), tool));
        let listed = listed.into_iter().flatten().enumerate();
        let listed =
            listed.filter_map(move |(place, (call, draft))| call.planned(step, CallPlace::Listed(place), &draft.tool));
        others
            .chain(listed)
            .chain(shown)
            .chain(offered)
            .chain(commits.then(|| call_of_belay(step, &COMMIT)))
            .chain(rebases.then(|| call_of_belay(step, &REBASE)))
    }

    /// The templates of the step at `path`, each with its field.
    pub(super) fn templates(&self, path: &FieldPath) -> Vec<(FieldPath, &Template)> {
        match self {
            Self::Tool(call) => vec![(path.key("arguments"), &call.arguments)],
            Self::Calls(calls) => {
                let field = |place| path.key("calls").index(place).key("arguments");
                calls.iter().enumerate().map(|(place, call)| (field(place), &call.arguments)).collect()
            }
            Self::Wait(Some(WaitFor::Form(form))) => vec![(path.key("wait").key("form"), &form.texts)],
            Self::Wait(_) => Vec::new(),
            Self::Agent(agent) => {
                let path = path.key("agent");
                let field = |place| path.key("files").index(place);
                let files = agent.files.iter().enumerate().map(|(place, file)| (field(place), &file.call.arguments));
                [(path.clone(), &agent.task)].into_iter().chain(files).collect()
            }
            Self::Plan(_, inputs) => vec![(path.key("inputs"), inputs)],
        }
    }

    /// Sets the plan that the step carries out, which has been checked.
    pub(super) fn set_plan(&mut self, checked: Plan) {
        if let Self::Plan(plan, _) = self {
            *plan = Some(Arc::new(checked));
        }
    }

    /// The kind, after the whole plan has been checked.
    pub(super) fn complete(self, draft: StepKindDraft) -> StepKind {
        match (self, draft) {
            (Self::Calls(parts), StepKindDraft::Calls { calls, effects }) => {
                let calls = calls.into_iter().zip(parts).map(|(draft, part)| part.complete(draft)).collect();
                StepKind::Calls(CallsStep { calls, effects })
            }
            (Self::Tool(CallPart { arguments, .. }), StepKindDraft::Tool { tool, .. }) => {
                StepKind::Tool(ToolStep { tool, arguments })
            }
            (Self::Agent(AgentPart { task, tools, files, .. }), StepKindDraft::Agent { agent, effects }) => {
                let tools = agent.tools.into_iter().zip(tools);
                let tools = tools.map(|(tool, CallPart { arguments, .. })| ToolStep { tool, arguments }).collect();
                let files = files.into_iter().map(FilePart::complete).collect();
                StepKind::Agent(AgentStep {
                    model: agent.model,
                    task,
                    tools,
                    files,
                    max_turns: agent.max_turns,
                    fallback: agent.fallback,
                    prompt_percent: agent.prompt_percent,
                    effects,
                })
            }
            (Self::Wait(Some(wait_for)), _) => StepKind::Wait(WaitStep { wait_for }),
            (Self::Plan(Some(plan), inputs), _) => StepKind::Plan(PlanStep { plan, inputs }),
            (Self::Tool(_) | Self::Calls(_) | Self::Agent(_) | Self::Wait(_) | Self::Plan(..), _) => {
                unreachable!("the plan is valid")
            }
        }
    }
}
