//! The kinds of steps: each has a file beside this one where there is more to say.

use std::sync::Arc;

use super::{
    Plan,
    calls::{CallsStep, ToolStep},
    wait::{FormSpec, WaitStep},
};
use crate::{StepKindDraft, Template};

/// The work of a step. The enum is exhaustive, so that the compiler finds all code that a new kind affects.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// A single call of one tool.
    Tool(ToolStep),
    /// Several calls of tools, side by side.
    Calls(CallsStep),
    /// A wait.
    Wait(WaitStep),
    /// An execution of another plan.
    Plan(PlanStep),
}

impl StepKind {
    /// Whether a step of this kind holds one of the plan's `parallelism` slots while it works. A step that holds none starts as soon as it is
    /// ready.
    pub fn needs_slot(&self) -> bool {
        match self {
            Self::Tool(_) | Self::Calls(_) | Self::Plan(_) => true,
            Self::Wait(_) => false,
        }
    }

    /// The one call of a step that is a call.
    pub(super) fn own_call(&self) -> Option<&ToolStep> {
        match self {
            Self::Tool(call) => Some(call),
            Self::Calls(_) | Self::Wait(_) | Self::Plan(_) => None,
        }
    }

    /// The calls of a step that makes several.
    pub(super) fn several(&self) -> Option<&CallsStep> {
        match self {
            Self::Calls(several) => Some(several),
            Self::Tool(_) | Self::Wait(_) | Self::Plan(_) => None,
        }
    }

    /// The form of a step that waits for an answer.
    pub(super) fn form(&self) -> Option<&FormSpec> {
        match self {
            Self::Wait(wait) => wait.form(),
            Self::Tool(_) | Self::Calls(_) | Self::Plan(_) => None,
        }
    }

    /// The plan of a step that carries one out.
    pub(super) fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Plan(step) => Some(&step.plan),
            Self::Tool(_) | Self::Calls(_) | Self::Wait(_) => None,
        }
    }

    /// The kind as a draft.
    pub(super) fn to_draft(&self) -> StepKindDraft {
        match self {
            Self::Tool(ToolStep { tool, arguments }) => {
                StepKindDraft::Tool { tool: tool.clone(), arguments: arguments.source().clone() }
            }
            Self::Calls(calls) => StepKindDraft::Calls { calls: calls.to_drafts(), effects: calls.effects },
            Self::Wait(wait) => StepKindDraft::Wait { wait: wait.to_draft() },
            Self::Plan(PlanStep { plan, inputs }) => {
                StepKindDraft::Plan { plan: Box::new(plan.to_draft()), inputs: inputs.source().clone() }
            }
        }
    }
}

/// A step that is an execution of another plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStep {
    /// The other plan.
    pub plan: Arc<Plan>,
    /// The values of its inputs: always an object.
    pub inputs: Template,
}
