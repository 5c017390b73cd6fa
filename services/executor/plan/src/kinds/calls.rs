//! The calls of tools that a step makes, and which programs they may start.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Template, path::shown, template::json_size};

/// An unchecked call: one of a step's `calls`, one that takes the place of a step's own, or one that undoes what that has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallDraft {
    /// The tool's name, or one of its aliases.
    pub tool: String,
    /// The arguments, as those of the step's own call.
    pub arguments: Value,
    /// The names of arguments that are taken verbatim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbatim: Vec<String>,
}

impl CallDraft {
    /// The bytes of everything in it that an author can make long.
    pub(crate) fn size(&self) -> usize {
        self.tool.len() + json_size(&self.arguments) + self.verbatim.iter().map(String::len).sum::<usize>()
    }
}

/// How what several calls of a step change becomes the workspace's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// Each call commits its own effect when it ends.
    #[default]
    PerCall,
    /// The calls have one effect, which is committed when all of them have completed, or not at all.
    PerStep,
}

impl Effects {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("per_call", Self::PerCall), ("per_step", Self::PerStep)];

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A step that is one call of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolStep {
    /// The tool's name, or one of its aliases, as it was written.
    pub tool: String,
    /// The arguments: always an object.
    pub arguments: Template,
}

/// A call of a step with the arguments that are taken verbatim: one of its `calls`, or one beside its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OtherCall {
    pub(crate) call: ToolStep,
    pub(crate) verbatim: Vec<String>,
}

impl OtherCall {
    pub(crate) fn to_draft(&self) -> CallDraft {
        let Self { call: ToolStep { tool, arguments }, verbatim } = self;
        CallDraft { tool: tool.clone(), arguments: arguments.source().clone(), verbatim: verbatim.clone() }
    }
}

/// A step that makes several calls of tools, side by side. Each is carried out as a step of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct CallsStep {
    pub(crate) calls: Vec<OtherCall>,
    pub(crate) effects: Effects,
}

/// The call that commits what the calls of a step have changed.
pub(crate) static COMMIT: LazyLock<ToolStep> = LazyLock::new(|| without_arguments(COMMIT_TOOL));

/// The call that drops those of their changes that conflict with what others have done since.
pub(crate) static REBASE: LazyLock<ToolStep> = LazyLock::new(|| without_arguments(REBASE_TOOL));

fn without_arguments(tool: &str) -> ToolStep {
    let arguments = Template::parse(&serde_json::json!({})).expect("an object without templates is one");
    ToolStep { tool: tool.to_owned(), arguments }
}

impl CallsStep {
    /// The calls, in the order of their results; at least one.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = &ToolStep> {
        self.calls.iter().map(|listed| &listed.call)
    }

    /// How what the calls change becomes the workspace's.
    pub fn effects(&self) -> Effects {
        self.effects
    }

    /// The call that commits what the others have changed; `None` when each commits its own.
    pub fn commit(&self) -> Option<&ToolStep> {
        (self.effects == Effects::PerStep).then(|| &*COMMIT)
    }

    /// The calls as drafts.
    pub(super) fn to_drafts(&self) -> Vec<CallDraft> {
        self.calls.iter().map(OtherCall::to_draft).collect()
    }

    /// The calls, each with the names of the arguments that it takes verbatim.
    pub fn as_written(&self) -> impl ExactSizeIterator<Item = (&ToolStep, &[String])> {
        self.calls.iter().map(|listed| (&listed.call, &listed.verbatim[..]))
    }
}

/// The tool that commits what the calls of a step have changed, by its canonical name.
pub const COMMIT_TOOL: &str = "commit_changes";

/// The tool that drops the changes of a step that conflict with what others have done since, by its canonical name.
pub const REBASE_TOOL: &str = "rebase_changes";

/// The tool that runs a command, by its canonical name.
pub const COMMAND_TOOL: &str = "run_terminal";

/// The tool that runs code with an interpreter, by its canonical name.
pub const CODE_TOOL: &str = "code_exec";

/// The argument of a tool that says which program it starts, as a JSON pointer, and the program. `None` for a tool that starts none of the plan's choice.
pub fn chosen_program<'a>(tool: &str, arguments: &'a Value) -> Option<(&'static str, Option<&'a str>)> {
    match tool {
        COMMAND_TOOL => Some(("/command/0", arguments["command"][0].as_str())),
        CODE_TOOL => {
            // The program of each language, as the runner's tool has it.
            let language = arguments["language"].as_str().unwrap_or("python");
            Some(("/language", Some(if language == "python" { "python3" } else { language })))
        }
        _ => None,
    }
}

/// Why a plan with this list of programs does not start the program that a tool is to start, given as its arguments; `None` when it does, and where there is
/// no program. Programs are compared as they are written: `/usr/bin/git` is not `git`.
pub fn not_allowed(tool: &str, allowed_commands: Option<&[String]>, arguments: &Value) -> Option<String> {
    let allowed = allowed_commands?;
    let (_, program) = chosen_program(tool, arguments)?;
    let program = program.filter(|program| allowed.iter().all(|name| name != program))?;
    let list = match allowed {
        [] => "is empty".to_owned(),
        names => format!("has {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Some(format!(
        "`{}` is not one of the programs that the plan's `allowed_commands` {list}: add it there, or use another",
        shown(program)
    ))
}
