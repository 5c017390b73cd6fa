//! The entries of a step in which a model works towards a goal, and the tools that the executor carries out itself for them.

use std::{sync::LazyLock, time::Duration};

use belay_plan::{AgentStep, COMMIT_TOOL, COMPLETION_TOOL, JUDGE_TOOL, MODEL_TOOL, REBASE_TOOL, Template, ToolStep};
use serde::Deserialize;
use serde_json::json;

use crate::{Json, RecoveryClass, ToolFacts};

/// How long a turn may take, beside the limits of the model's server.
const TURN_TIMEOUT: Duration = Duration::from_secs(3600);

/// What an entry of a step with a goal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentEntry {
    /// The reading of a file that the model is shown with its task, by its place in the plan.
    File { place: usize },
    /// The search for the files that a pattern matches, by its place in the plan.
    Listing { place: usize },
    /// The reading of a file that a pattern has found, by the place of the pattern in the plan and that of the file in its result.
    Found { place: usize, index: usize },
    /// A turn of the model, from 1.
    Turn(u32),
    /// A call of the turn before it, by its place in the answer and that of its tool in the plan.
    Call { place: usize, tool: usize },
    /// The call with which the model completes the step, by its place in the answer.
    Completion { place: usize },
    /// The call that drops what of their changes conflicts with what others have done since.
    Rebase,
    /// The call that commits what the others have changed.
    Commit,
}

/// An entry of a step with a goal as it is listed. It is parsed once: what a turn adds and what follows from its answer look at all entries before.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct AgentItem {
    turn: Option<u32>,
    /// The model that is asked, by its place among those of the step.
    #[serde(default)]
    model: usize,
    call: Option<usize>,
    file: Option<usize>,
    /// Whether the model asks for the verification of what it has done.
    #[serde(default)]
    verify: bool,
    listing: Option<usize>,
    /// Whether it takes over what the calls of the step have changed in another execution.
    #[serde(default)]
    carried: bool,
    /// Whether it is the first turn that the step asks for, though a conversation precedes it.
    #[serde(default)]
    first: bool,
    found: Option<usize>,
    #[serde(default)]
    tool: Box<str>,
}

/// The calls that the executor carries out itself.
static MODEL_CALL: LazyLock<ToolStep> = LazyLock::new(|| own_call(MODEL_TOOL));
static COMPLETION_CALL: LazyLock<ToolStep> = LazyLock::new(|| own_call(COMPLETION_TOOL));
static OWN_FACTS: LazyLock<[ToolFacts; 3]> = LazyLock::new(|| [MODEL_TOOL, COMPLETION_TOOL, JUDGE_TOOL].map(own_facts));

fn own_call(tool: &str) -> ToolStep {
    let arguments = Template::parse(&json!({})).expect("an object without templates is one");
    ToolStep { tool: tool.to_owned(), arguments }
}

fn own_facts(tool: &str) -> ToolFacts {
    ToolFacts {
        used_as: tool.to_owned(),
        tool: tool.to_owned(),
        recovery: RecoveryClass::ReadOnly,
        default_timeout: TURN_TIMEOUT,
        ..ToolFacts::default()
    }
}

/// The facts about a tool that the executor carries out itself; `None` for the tools of runners.
pub(crate) fn facts(tool: &str) -> Option<&'static ToolFacts> {
    OWN_FACTS.iter().find(|facts| facts.tool == tool)
}

impl AgentItem {
    /// Parses an entry; `None` for one that is none of a step with a goal.
    pub(crate) fn parse(item: &Json) -> Option<Self> {
        serde_json::from_str(item.as_str()).ok()
    }

    /// Whether the model that completes the step asks for the verification of what it has done.
    pub(crate) fn asks_for_verification(&self) -> bool {
        self.verify
    }

    /// Whether it takes over what the calls of the step have changed in another execution.
    pub(crate) fn takes_over_layers(&self) -> bool {
        self.carried
    }

    /// Whether it is the first turn that the step asks for.
    pub(crate) fn is_first_turn(&self) -> bool {
        self.call.is_none() && (self.turn == Some(1) || self.first)
    }

    /// The place of the model that a turn asks among those of its step.
    pub(crate) fn model(&self) -> usize {
        self.model
    }

    /// The turn of the model that it is, or whose answer it is of.
    pub(crate) fn turn(&self) -> Option<u32> {
        self.turn
    }
}

impl AgentEntry {
    /// The kind of an entry of a step with this goal.
    pub(crate) fn of(item: &AgentItem, agent: &AgentStep) -> Option<Self> {
        let AgentItem { turn, model: _, verify: _, carried: _, first: _, call, file, listing, found, ref tool } = *item;
        if let Some(place) = file {
            return (place < agent.files().len() && agent.pattern(place).is_none()).then_some(Self::File { place });
        }
        if let Some(place) = listing {
            agent.pattern(place)?;
            return Some(found.map_or(Self::Listing { place }, |index| Self::Found { place, index }));
        }
        match (turn, call) {
            (Some(_), Some(place)) if **tool == *COMPLETION_TOOL => Some(Self::Completion { place }),
            (Some(_), Some(place)) => {
                let tool = agent.tools().iter().position(|offered| *offered.tool == **tool)?;
                Some(Self::Call { place, tool })
            }
            (Some(turn), None) => Some(Self::Turn(turn)),
            (None, _) if **tool == *REBASE_TOOL => agent.rebase().map(|_| Self::Rebase),
            (None, _) => (**tool == *COMMIT_TOOL && agent.commit().is_some()).then_some(Self::Commit),
        }
    }

    /// The call that it makes.
    pub(crate) fn call(self, agent: &AgentStep) -> Option<&ToolStep> {
        match self {
            Self::File { place } | Self::Listing { place } => agent.files().get(place),
            Self::Found { .. } => agent.found(),
            Self::Turn(_) => Some(&MODEL_CALL),
            Self::Call { tool, .. } => agent.tools().get(tool),
            Self::Completion { .. } => Some(&COMPLETION_CALL),
            Self::Rebase => agent.rebase(),
            Self::Commit => agent.commit(),
        }
    }
}
