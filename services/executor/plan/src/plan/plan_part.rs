//! Parts of a plan that are checked with knowledge that is not in it (calls, schemas, conditions), and where each stands.

use serde_json::Value;

use super::checks::CheckPlace;
use crate::{Budget, Condition, StepProblem, Template};

/// Where in a step a model is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPlace {
    /// It works towards the goal.
    Own,
    /// It takes over from the one before, by its place among those that do.
    Fallback(usize),
    /// It judges a criterion, by the place of the check.
    Judge(CheckPlace),
}

/// A part of a plan that is checked with knowledge that is not in the plan.
#[derive(Clone, Copy, Debug)]
pub enum PlanPart<'a> {
    /// The call of a step.
    Call(PlannedCall<'a>),
    /// The schema of a form.
    Form {
        /// The step.
        step: PlannedStep<'a>,
        /// The schema, an object within the limits.
        schema: &'a Value,
    },
    /// The schema of a step's output.
    Output {
        /// The step.
        step: PlannedStep<'a>,
        /// The schema, an object within the limits.
        schema: &'a Value,
    },
    /// The model of a step, whose name is one.
    Model {
        /// The step.
        step: PlannedStep<'a>,
        /// The name.
        model: &'a str,
        /// What it is asked to do: an object with the text as `task`.
        task: &'a Template,
        /// The tools that it may call.
        tools: &'a [String],
        /// Whether a budget limits what it may cost.
        has_cost_limit: bool,
        /// Where it is named.
        place: ModelPlace,
    },
    /// The condition of a step, or one that is checked before or after its call.
    Condition {
        /// The step.
        step: PlannedStep<'a>,
        /// Its place in the step.
        place: ConditionPlace,
        /// The condition.
        condition: &'a Condition,
    },
}

impl<'a> PlanPart<'a> {
    /// The step that it belongs to.
    pub fn step(&self) -> PlannedStep<'a> {
        match self {
            Self::Call(call) => call.step,
            Self::Form { step, .. }
            | Self::Output { step, .. }
            | Self::Model { step, .. }
            | Self::Condition { step, .. } => *step,
        }
    }

    /// The same, in a plan whose commands may start these programs.
    pub(crate) fn allowing(self, allowed_commands: Option<&'a [String]>) -> Self {
        match self {
            Self::Call(call) => Self::Call(PlannedCall { allowed_commands, ..call }),
            Self::Form { .. } | Self::Output { .. } | Self::Model { .. } | Self::Condition { .. } => self,
        }
    }

    /// The same, in a step whose commands have this network profile, of a plan with this one. Checks and the commit of a step run without both.
    pub(crate) fn in_network(self, network: Option<&'a str>, of_plan: Option<&'a str>) -> Self {
        match self {
            Self::Call(call) => match call.place {
                CallPlace::Own
                | CallPlace::Listed(_)
                | CallPlace::Offered(_)
                | CallPlace::Fallback(_)
                | CallPlace::Compensate => Self::Call(PlannedCall { network, network_of_plan: of_plan, ..call }),
                CallPlace::ShownFile(_) | CallPlace::FoundFile(_) | CallPlace::Commit | CallPlace::Check(_) => self,
            },
            Self::Form { .. } | Self::Output { .. } | Self::Model { .. } | Self::Condition { .. } => self,
        }
    }

    /// The same, in a step or a plan with such budgets.
    pub(crate) fn in_budgets(self, budgets: [Option<&Budget>; 2]) -> Self {
        match self {
            Self::Model { step, model, task, tools, has_cost_limit, place } => {
                let limits = |budget: &Budget| budget.cost_micros.is_some();
                let has_cost_limit = has_cost_limit || budgets.into_iter().flatten().any(limits);
                Self::Model { step, model, task, tools, has_cost_limit, place }
            }
            Self::Call(_) | Self::Form { .. } | Self::Output { .. } | Self::Condition { .. } => self,
        }
    }

    /// The same, of another step.
    pub(crate) fn of(self, step: PlannedStep<'a>) -> Self {
        match self {
            Self::Call(call) => Self::Call(PlannedCall { step, ..call }),
            Self::Form { schema, .. } => Self::Form { step, schema },
            Self::Output { schema, .. } => Self::Output { step, schema },
            Self::Model { model, task, tools, has_cost_limit, place, .. } => {
                Self::Model { step, model, task, tools, has_cost_limit, place }
            }
            Self::Condition { place, condition, .. } => Self::Condition { step, place, condition },
        }
    }
}

/// The place of a condition in its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionPlace {
    /// The step's own, which says whether it runs.
    Own,
    /// A check before or after its call.
    Check(CheckPlace),
    /// The one after which it does not run again.
    Until,
}

impl ConditionPlace {
    /// The condition's field, as an RFC 6901 JSON pointer from its step: `/preconditions/0/condition`.
    pub fn pointer(self) -> String {
        match self {
            Self::Own => "/condition".to_owned(),
            Self::Check(place) => format!("{}/condition", place.pointer()),
            Self::Until => "/repeat/until".to_owned(),
        }
    }
}

/// A step of a plan, or of a plan that is a step of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedStep<'a> {
    /// The step's index in the outermost plan, from 0.
    pub step: usize,
    /// Where the step itself stands in that one, as an RFC 6901 JSON pointer: `/plan/steps/2`; empty for a step of the outermost plan.
    pub within: &'a str,
}

impl<'a> PlannedStep<'a> {
    /// A problem of the field of the step at this pointer.
    pub fn problem(self, pointer: &str, message: String) -> StepProblem {
        StepProblem { step: self.step, pointer: format!("{}{pointer}", self.within), message }
    }
}

/// The call of a step whose tool is named, in a plan that may have other problems.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall<'a> {
    /// The step.
    pub step: PlannedStep<'a>,
    /// The call, among those of the step.
    pub place: CallPlace,
    /// The tool's name, or one of its aliases, as it was written.
    pub tool: &'a str,
    /// The arguments: always an object; `None` when they could not be read.
    pub arguments: Option<&'a Template>,
    /// The programs that commands of its plan may start; `None`: any.
    pub allowed_commands: Option<&'a [String]>,
    /// The network profile that its step names.
    pub network: Option<&'a str>,
    /// The network profile that its plan names, for tools that take one.
    pub network_of_plan: Option<&'a str>,
}

impl<'a> PlannedCall<'a> {
    /// The network profile that it asks for, of a tool that takes that of the plan or does not.
    pub fn network_asked(&self, takes_network: bool) -> Option<&'a str> {
        self.network.or(self.network_of_plan.filter(|_| takes_network))
    }
}

impl PlannedCall<'_> {
    /// A problem of the field of the call at this pointer: `/tool`, `/arguments/path`.
    pub fn problem(&self, field: &str, message: String) -> StepProblem {
        self.step.problem(&self.place.pointer(field), message)
    }
}

/// Identifies a call of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallPlace {
    /// Its own.
    Own,
    /// A call of several, by its position.
    Listed(usize),
    /// Any call that a model may make of a tool, by the position of the tool.
    Offered(usize),
    /// The call that reads a file that a model is shown, or finds those that a pattern matches, by its position.
    ShownFile(usize),
    /// Any call that reads a file that a pattern has found, by the position of the pattern.
    FoundFile(usize),
    /// The one that commits what the others have changed.
    Commit,
    /// A call that takes the place of its own, by its position.
    Fallback(usize),
    /// The one that undoes what it has done.
    Compensate,
    /// The call of a check.
    Check(CheckPlace),
}

impl CallPlace {
    /// Where a field of the call stands in its step, as an RFC 6901 JSON pointer: `/tool`, `/fallback/0/arguments/path`.
    pub fn pointer(self, field: &str) -> String {
        match self {
            Self::Own => field.to_owned(),
            Self::Listed(place) => format!("/calls/{place}{field}"),
            // The author names a tool, and no arguments.
            Self::Offered(place) => format!("/agent/tools/{place}"),
            // The author writes a path or a pattern.
            Self::ShownFile(place) | Self::FoundFile(place) => format!("/agent/files/{place}"),
            Self::Commit => "/effects".to_owned(),
            Self::Fallback(place) => format!("/fallback/{place}{field}"),
            Self::Compensate => format!("/compensate{field}"),
            // The author writes a path or a command, and no tool.
            Self::Check(place) => {
                let inner = field.strip_prefix("/arguments").unwrap_or_default();
                format!("{}{}", place.pointer(), inner.replacen("/path", "/file", 1))
            }
        }
    }
}
