//! A goal that a model works towards, as messages.

use belay_execution::{Execution, StepView};
use belay_plan::{AgentDraft, AgentStep, Effects, Violation};
use belay_proto::v1;

use super::{super::plan::values::violation, call::effects_from};

/// The goal, as its author wrote it.
pub(super) fn spec_message(
    AgentDraft { model, task, tools, files, max_turns }: AgentDraft,
    effects: Effects,
    exclusive: bool,
    network: Option<String>,
) -> v1::AgentStep {
    let max_turns = i32::try_from(max_turns).unwrap_or(i32::MAX);
    let effects = super::call::effects_message(effects);
    let (effects, network) = (effects.into(), network.unwrap_or_default());
    v1::AgentStep { model, task, tools, files, max_turns, effects, exclusive, network }
}

/// Reads what [`spec_message`] writes; what the step has beside the goal is left to the caller.
pub(super) fn draft_from(
    v1::AgentStep { model, task, tools, files, max_turns, effects, exclusive: _, network: _ }: v1::AgentStep,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
) -> (AgentDraft, Effects) {
    let max_turns = u32::try_from(max_turns).unwrap_or_else(|_| {
        violations.push(violation(at("agent.max_turns"), "must not be negative: 0 is the default"));
        0
    });
    let effects = effects_from(effects, || at("agent.effects"), violations);
    (AgentDraft { model, task, tools, files, max_turns }, effects)
}

/// The goal of a step, for readers.
pub(super) fn detail(agent: &AgentStep, execution: &Execution, view: StepView<'_>) -> v1::AgentStepDetail {
    let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    v1::AgentStepDetail {
        model: agent.model().to_owned(),
        turns: number(view.turns(execution)),
        max_turns: number(agent.max_turns()),
    }
}
