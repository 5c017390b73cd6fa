//! Checks before and after a step's call.

use serde_json::Value;

use crate::{COMMAND_TOOL, CheckDraft, Condition, JUDGE_TOOL, StepDraft, StepKindDraft, ToolStep, path::shown};

/// Where the criterion stands in the arguments of [`JUDGE_TOOL`].
pub(crate) const CRITERION: &str = "criterion";

/// A check that must hold before or after a step's call.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// An expression that has to be true.
    Condition(Condition),
    /// A path in the workspace that has to exist: a call that has to complete.
    File(ToolStep),
    /// A program that has to end with exit code 0: a call that has to complete.
    Command(ToolStep),
    /// What a model has to find true of the result: a call that has to complete.
    Judge(ToolStep),
}

impl Check {
    /// The tool that looks for a file.
    pub(crate) const FILE_TOOL: &str = "file_info";
    /// The tool that runs a command.
    pub(crate) const COMMAND_TOOL: &str = COMMAND_TOOL;
    /// Where the path and the command stand in the arguments of these tools.
    const PATH: &str = "path";
    const COMMAND: &str = "command";
    /// Where the model that judges stands in the arguments of [`JUDGE_TOOL`].
    const MODEL: &str = "model";

    /// The call that it takes; `None` for an expression.
    pub fn call(&self) -> Option<&ToolStep> {
        match self {
            Self::Condition(_) => None,
            Self::File(call) | Self::Command(call) | Self::Judge(call) => Some(call),
        }
    }

    /// The requirement, as part of a sentence.
    pub fn in_words(&self) -> String {
        let CheckDraft { condition, file, command, judge, model: _ } = self.to_draft();
        match self {
            Self::Condition(_) => format!("`{}` must be true", shown(&condition)),
            Self::File(_) => format!("the file `{}` must exist", shown(&file)),
            Self::Command(_) => format!("`{}` must succeed", shown(&command.join(" "))),
            Self::Judge(_) => format!("a model must find `{}` true", shown(&judge)),
        }
    }

    pub(super) fn to_draft(&self) -> CheckDraft {
        match self {
            Self::Condition(condition) => {
                CheckDraft { condition: condition.source().to_owned(), ..CheckDraft::default() }
            }
            Self::File(call) => {
                let path = call.arguments.source()[Self::PATH].as_str().unwrap_or_default().to_owned();
                CheckDraft { file: path, ..CheckDraft::default() }
            }
            Self::Command(call) => {
                let words = call.arguments.source()[Self::COMMAND].as_array().into_iter().flatten();
                let words = words.map(|word| word.as_str().unwrap_or_default().to_owned());
                CheckDraft { command: words.collect(), ..CheckDraft::default() }
            }
            Self::Judge(call) => {
                let text = |field: &str| call.arguments.source()[field].as_str().unwrap_or_default().to_owned();
                CheckDraft { judge: text(CRITERION), model: text(Self::MODEL), ..CheckDraft::default() }
            }
        }
    }
}

/// The call that a check of a step takes, before it is checked: its tool and its arguments; `None` for an expression. A model that judges is told the task and the result
/// of the step.
pub(crate) fn call_of(check: &CheckDraft, step: &StepDraft) -> Option<(&'static str, Value)> {
    if !check.file.is_empty() {
        return Some((Check::FILE_TOOL, serde_json::json!({Check::PATH: check.file})));
    }
    if !check.judge.is_empty() {
        let task = match &step.kind {
            StepKindDraft::Agent { agent, .. } => agent.task.as_str(),
            _ => "",
        };
        let mut arguments = serde_json::json!({
            CRITERION: check.judge, "task": task, "result": format!("${{{}.result}}", step.id),
        });
        if !check.model.is_empty() {
            arguments[Check::MODEL] = check.model.as_str().into();
        }
        return Some((JUDGE_TOOL, arguments));
    }
    (!check.command.is_empty()).then(|| (Check::COMMAND_TOOL, serde_json::json!({Check::COMMAND: check.command})))
}

/// Identifies a check of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum CheckPlace {
    /// A check before its call, by its position.
    Before(usize),
    /// A check after its call, by its position.
    After(usize),
}

impl CheckPlace {
    /// Where the check stands in its step, as an RFC 6901 JSON pointer: `/preconditions/0`.
    pub fn pointer(self) -> String {
        match self {
            Self::Before(place) => format!("/preconditions/{place}"),
            Self::After(place) => format!("/postconditions/{place}"),
        }
    }
}
