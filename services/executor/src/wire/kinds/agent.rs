//! A goal that a model works towards, as messages.

use belay_execution::{Execution, StepView};
use belay_plan::{AgentDraft, AgentStep, Effects, Violation};
use belay_proto::v1;

use super::{super::plan::values::violation, call::effects_from};

/// The goal, as its author wrote it.
pub(super) fn spec_message(
    AgentDraft { model, task, tools, files, max_turns, fallback, prompt_percent }: AgentDraft,
    effects: Effects,
    exclusive: bool,
    network: Option<String>,
) -> v1::AgentStep {
    let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let (max_turns, prompt_percent) = (number(max_turns), number(prompt_percent));
    let effects = super::call::effects_message(effects);
    let (effects, network) = (effects.into(), network.unwrap_or_default());
    v1::AgentStep { model, task, tools, files, max_turns, effects, exclusive, network, fallback, prompt_percent }
}

/// Reads what [`spec_message`] writes; what the step has beside the goal is left to the caller.
pub(super) fn draft_from(
    v1::AgentStep { model, task, tools, files, max_turns, effects, exclusive: _, network: _, fallback, prompt_percent }: v1::AgentStep,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
) -> (AgentDraft, Effects) {
    let mut number = |field: &str, number: i32| {
        u32::try_from(number).unwrap_or_else(|_| {
            violations.push(violation(at(field), "must not be negative: 0 is the default"));
            0
        })
    };
    let max_turns = number("agent.max_turns", max_turns);
    let prompt_percent = number("agent.prompt_percent", prompt_percent);
    let effects = effects_from(effects, || at("agent.effects"), violations);
    (AgentDraft { model, task, tools, files, max_turns, fallback, prompt_percent }, effects)
}

/// The goal of a step, for readers.
pub(super) fn detail(agent: &AgentStep, execution: &Execution, view: StepView<'_>) -> v1::AgentStepDetail {
    let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    v1::AgentStepDetail {
        model: view.model(execution).to_owned(),
        turns: number(view.turns(execution)),
        max_turns: number(agent.max_turns()),
    }
}
