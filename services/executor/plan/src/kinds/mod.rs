//! The kinds of steps, as authors write them and as they are checked. Each has a file beside this one where there is more to say.

mod agent;
mod calls;
mod wait;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Plan, PlanDraft, Template, template::json_size};

pub use agent::{
    AgentDraft, AgentStep, COMPLETION_TOOL, DEFAULT_TURNS, FIND_TOOL, JUDGE_TOOL, MODEL_TOOL, READ_TOOL, TOOL_GROUPS,
    asks_model, is_own_tool,
};
pub(crate) use agent::{GROUP_PREFIX, is_same_tool};
pub use calls::{
    CODE_TOOL, COMMAND_TOOL, COMMIT_TOOL, CallDraft, CallsStep, Effects, REBASE_TOOL, ToolStep, chosen_program,
    not_allowed,
};
pub(crate) use calls::{COMMIT, OtherCall, REBASE};
pub use wait::{FormDraft, FormSpec, WaitDraft, WaitFor, WaitStep};

/// The work that an unchecked step does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StepKindDraft {
    /// A single call of one tool.
    Tool {
        /// The tool's name, or one of its aliases.
        tool: String,
        /// The arguments: an object, whose strings may hold templates, except in the arguments named in `verbatim`.
        arguments: Value,
    },
    /// Several calls of tools, side by side.
    Calls {
        /// The calls, in the order of their results.
        calls: Vec<CallDraft>,
        /// How what they change becomes the workspace's.
        #[serde(default, skip_serializing_if = "Effects::is_default")]
        effects: Effects,
    },
    /// A wait.
    Wait {
        /// The event that it waits for.
        wait: WaitDraft,
    },
    /// A goal that a model works towards.
    Agent {
        /// The goal, the model and its tools.
        agent: AgentDraft,
        /// How what its calls change becomes the workspace's.
        #[serde(default, skip_serializing_if = "Effects::is_default")]
        effects: Effects,
    },
    /// An execution of another plan.
    Plan {
        /// The other plan.
        plan: Box<PlanDraft>,
        /// The values of the other plan's inputs: an object, whose strings may hold templates.
        #[serde(default = "no_inputs", skip_serializing_if = "is_empty")]
        inputs: Value,
    },
}

impl StepKindDraft {
    /// Whether it calls tools itself.
    pub(crate) fn calls_tool(&self) -> bool {
        match self {
            Self::Tool { .. } | Self::Calls { .. } => true,
            Self::Wait { .. } | Self::Plan { .. } | Self::Agent { .. } => false,
        }
    }

    /// The bytes of everything in it that an author can make long; `of_plan` measures a plan.
    pub(crate) fn size(&self, of_plan: impl Fn(&PlanDraft) -> usize) -> usize {
        match self {
            Self::Tool { tool, arguments } => tool.len() + json_size(arguments),
            Self::Calls { calls, .. } => calls.iter().map(CallDraft::size).sum(),
            Self::Plan { plan, inputs } => of_plan(plan) + json_size(inputs),
            Self::Wait { wait } => wait.size(),
            Self::Agent { agent, .. } => agent.size(),
        }
    }

    /// The name of its kind where a plan says how often steps of a kind are tried: the tool, `calls`, `agent` or `plan`. `None` for a step without attempts.
    pub(crate) fn retried_as(&self) -> Option<&str> {
        match self {
            Self::Tool { tool, .. } => Some(tool),
            Self::Calls { .. } => Some("calls"),
            Self::Plan { .. } => Some("plan"),
            Self::Agent { .. } => Some("agent"),
            Self::Wait { .. } => None,
        }
    }
}

fn no_inputs() -> Value {
    Value::Object(serde_json::Map::new())
}

fn is_empty(inputs: &Value) -> bool {
    inputs.as_object().is_some_and(serde_json::Map::is_empty)
}

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
    /// A goal that a model works towards.
    Agent(AgentStep),
}

impl StepKind {
    /// Whether a step of this kind holds one of the plan's `parallelism` slots while it works. A step that holds none starts as soon as it is
    /// ready.
    pub fn needs_slot(&self) -> bool {
        match self {
            Self::Tool(_) | Self::Calls(_) | Self::Plan(_) | Self::Agent(_) => true,
            Self::Wait(_) => false,
        }
    }

    /// Whether a step of this kind has attempts, of which its plan says how many.
    pub fn has_attempts(&self) -> bool {
        match self {
            Self::Tool(_) | Self::Calls(_) | Self::Plan(_) | Self::Agent(_) => true,
            Self::Wait(_) => false,
        }
    }

    /// The one call of a step that is a call.
    pub(crate) fn own_call(&self) -> Option<&ToolStep> {
        match self {
            Self::Tool(call) => Some(call),
            Self::Calls(_) | Self::Wait(_) | Self::Plan(_) | Self::Agent(_) => None,
        }
    }

    /// The calls of a step that makes several.
    pub(crate) fn several(&self) -> Option<&CallsStep> {
        match self {
            Self::Calls(several) => Some(several),
            Self::Tool(_) | Self::Wait(_) | Self::Plan(_) | Self::Agent(_) => None,
        }
    }

    /// The form of a step that waits for an answer.
    pub(crate) fn form(&self) -> Option<&FormSpec> {
        match self {
            Self::Wait(wait) => wait.form(),
            Self::Tool(_) | Self::Calls(_) | Self::Plan(_) | Self::Agent(_) => None,
        }
    }

    /// The goal of a step in which a model works towards one.
    pub fn agent(&self) -> Option<&AgentStep> {
        match self {
            Self::Agent(agent) => Some(agent),
            Self::Tool(_) | Self::Calls(_) | Self::Wait(_) | Self::Plan(_) => None,
        }
    }

    /// The plan of a step that carries one out.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Plan(step) => Some(&step.plan),
            Self::Tool(_) | Self::Calls(_) | Self::Wait(_) | Self::Agent(_) => None,
        }
    }

    /// The kind as a draft.
    pub(crate) fn to_draft(&self) -> StepKindDraft {
        match self {
            Self::Tool(ToolStep { tool, arguments }) => {
                StepKindDraft::Tool { tool: tool.clone(), arguments: arguments.source().clone() }
            }
            Self::Calls(calls) => StepKindDraft::Calls { calls: calls.to_drafts(), effects: calls.effects },
            Self::Wait(wait) => StepKindDraft::Wait { wait: wait.to_draft() },
            Self::Agent(agent) => StepKindDraft::Agent { agent: agent.to_draft(), effects: agent.effects },
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
