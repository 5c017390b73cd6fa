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
pub(crate) static COMMIT: LazyLock<ToolStep> = LazyLock::new(|| {
    let arguments = Template::parse(&serde_json::json!({})).expect("an object without templates is one");
    ToolStep { tool: COMMIT_TOOL.to_owned(), arguments }
});

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

/// The tool that runs a command, by its canonical name.
pub const COMMAND_TOOL: &str = "run_terminal";

/// Why a plan with this list of programs does not start the program of a command, given as the tool's arguments; `None` when it does, and where there is
/// no program. Programs are compared as they are written: `/usr/bin/git` is not `git`.
pub fn not_allowed(allowed_commands: Option<&[String]>, arguments: &Value) -> Option<String> {
    let allowed = allowed_commands?;
    let program = arguments["command"][0].as_str().filter(|program| allowed.iter().all(|name| name != program))?;
    let list = match allowed {
        [] => "is empty".to_owned(),
        names => format!("has {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Some(format!(
        "`{}` is not one of the programs that the plan's `allowed_commands` {list}: add it there, or use another",
        shown(program)
    ))
}
