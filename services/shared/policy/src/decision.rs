//! The inputs and results of a policy's decisions.

use serde::{Deserialize, Serialize};

use crate::{built_in, protect};

/// The simple setting that applies to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// None.
    Other,
    /// It reads files.
    FileRead,
    /// It writes files: `file_write`.
    FileWrite,
    /// It removes files: `file_delete`.
    FileDelete,
    /// It runs commands: `terminal_commands`.
    Terminal,
    /// It reaches hosts, and does nothing else: `network`.
    Network,
}

/// A verdict, the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs and is committed.
    Auto,
    /// It runs in a view, and the policy then judges what it changed. Never returned for an effect.
    Preview,
    /// A person has to approve.
    Prompt,
    /// Denied.
    Deny,
}

/// The treatment of approvals in an execution that is started without a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NonInteractive {
    /// They are approved.
    Auto,
    /// Their steps are skipped.
    Skip,
    /// Their steps fail.
    Fail,
}

/// How strong a sandbox is, the strongest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Landlock and seccomp, no namespaces.
    C,
    /// Namespaces, without a fresh /proc.
    B,
    /// Everything.
    A,
}

/// A verdict, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The id of the rule that decided: one of the policy's, or a built-in one such as `file_write` or `protected`.
    pub rule: String,
    /// The rule's reason, for people. One line; parts of paths are escaped and bounded.
    pub reason: String,
    /// Whether the call must have the workspace to itself. Always false for an effect.
    pub exclusive: bool,
}

impl Decision {
    /// Whether the effect is allowed because the rule for the call allowed it; messages then name that rule.
    pub fn follows_the_intent(&self) -> bool {
        self.verdict == Verdict::Auto && self.rule == built_in::INTENT
    }
}

/// A call of a tool, before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// The tool's canonical name.
    pub tool: &'a str,
    /// The setting that applies to it.
    pub kind: ToolKind,
    /// The argument vector of a command; empty for other tools.
    pub command: &'a [String],
    /// The name of the program that the command would start, if it was found on the `PATH` outside the workspace. `None` for a program in the
    /// workspace, for one that was not found, and for other tools: conditions on programs do not match then.
    pub program: Option<&'a str>,
    /// The directory in which a command would run, relative to the workspace; empty for its root and for other tools.
    pub working_directory: &'a str,
    /// The names of the environment variables that a command is given.
    pub environment: &'a [String],
    /// The paths that the arguments name, as their author wrote them.
    pub paths: &'a [String],
    /// The network that a command would have; `None` for its own loopback alone, and for other tools.
    pub network: Option<NetworkAccess<'a>>,
    /// The names of the credentials that it would use: those that the rules of its network profile have, and those whose values its program gets.
    pub credentials: &'a [String],
}

/// The network that a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkAccess<'a> {
    /// The name of the profile in the operator's settings.
    pub profile: &'a str,
    /// The hosts of the profile, as its rules write them: `example.com`, `*.example.com`, or the address of a service of the machine.
    pub hosts: &'a [String],
}

/// The kind of a change of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The path did not exist before.
    #[serde(rename = "create")]
    Created,
    /// It was modified.
    #[serde(rename = "modify")]
    Modified,
    /// It was deleted.
    #[serde(rename = "delete")]
    Deleted,
}

/// The change of one path by a call in its view.
#[derive(Clone, Copy, Debug)]
pub struct ChangeFact<'a> {
    /// The path, relative to the workspace, with `/`.
    pub path: &'a str,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// Flags of what a person should check carefully: `executable`, `link_leaves`, `odd_name`, `case_collision`, `set_id_stripped`, `bare_repository`,
    /// `named_by_config`, `made_writable`.
    pub flags: &'a [String],
}

/// The changes of a call in its view, before they are committed.
#[derive(Clone, Copy, Debug)]
pub struct Effect<'a> {
    /// The tool's canonical name.
    pub tool: &'a str,
    /// The setting that applies to it.
    pub kind: ToolKind,
    /// This policy's verdict on the intent.
    pub intent: Verdict,
    /// The paths that the call declared, when a person approved the call; empty otherwise.
    pub granted_paths: &'a [String],
    /// Every path that changed, including each path in a folder that was created or deleted.
    pub changes: &'a [ChangeFact<'a>],
}

/// How grave a change is for the person who decides about it, the gravest first. All lists of changes use this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gravity {
    /// A protected path; the value is its row in [`crate::PROTECTED_PATHS`], whose first rows are the gravest.
    Protected(usize),
    /// It has a flag that requires approval.
    Flagged,
    /// A deletion.
    Deleted,
    /// A modification.
    Modified,
    /// A creation with a flag that only informs, such as `executable`.
    Remarkable,
    /// A creation.
    Created,
}

impl Gravity {
    /// The gravity of a change.
    pub fn of(path: &str, kind: ChangeKind, flags: &[String]) -> Self {
        if let Some(row) = protect::row(path) {
            return Self::Protected(row);
        }
        match kind {
            _ if flags.iter().any(|flag| protect::asks(flag)) => Self::Flagged,
            ChangeKind::Deleted => Self::Deleted,
            ChangeKind::Modified => Self::Modified,
            ChangeKind::Created if flags.is_empty() => Self::Created,
            ChangeKind::Created => Self::Remarkable,
        }
    }

    /// Whether it requires approval whatever the settings are: its path is protected, or a flag requires approval.
    pub fn asks(self) -> bool {
        matches!(self, Self::Protected(_) | Self::Flagged)
    }
}
