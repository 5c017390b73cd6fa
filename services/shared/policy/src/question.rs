//! What a policy is asked, and what it answers.

use serde::{Deserialize, Serialize};

use crate::protect;

/// Which of the simple settings speaks about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
}

/// What may happen, the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs and is committed.
    Auto,
    /// It runs in a view, and what it changed there is judged. Never said of an effect.
    Preview,
    /// A person decides.
    Prompt,
    /// No.
    Deny,
}

/// What may happen without a person, where an execution asks for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NonInteractive {
    /// What would be asked is approved.
    Auto,
    /// What would be asked is left out.
    Skip,
    /// What would be asked fails.
    Fail,
}

/// How much of the sandbox the kernel gives, the most last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Tier {
    /// Landlock and seccomp, no namespaces.
    C,
    /// Namespaces, without a fresh /proc.
    B,
    /// Everything.
    A,
}

/// What a policy says, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What may happen.
    pub verdict: Verdict,
    /// The id of the rule that said so: one of the policy's, or a built-in one such as `file_write` or `protected`.
    pub rule: String,
    /// The reason it gives, for people. One line; whatever comes from a path is escaped and bounded.
    pub reason: String,
    /// The call must have the workspace to itself. Never said of an effect.
    pub exclusive: bool,
}

impl Decision {
    /// Whether an effect was let through because the call's own rule let the call do it: that rule is the one to name.
    pub fn follows_the_intent(&self) -> bool {
        self.verdict == Verdict::Auto && self.rule == crate::judge::built_in::INTENT
    }
}

/// What a tool is asked to do, before anything happened.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// The tool's canonical name.
    pub tool: &'a str,
    /// Which setting speaks about it.
    pub kind: ToolKind,
    /// The argument vector of a command; empty for other tools.
    pub command: &'a [String],
    /// The name of the program that the command would start, when it was found on the `PATH` outside the workspace. `None` for a program
    /// that lies in the workspace, for one that was not found, and for other tools: conditions on programs are not met then.
    pub program: Option<&'a str>,
    /// The directory in which a command would run, relative to the workspace; empty for its root and for other tools.
    pub working_directory: &'a str,
    /// The names of the environment variables that a command is given.
    pub environment: &'a [String],
    /// The paths that the arguments name, as their author wrote them.
    pub paths: &'a [String],
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Nothing was there before.
    #[serde(rename = "create")]
    Created,
    /// It became another.
    #[serde(rename = "modify")]
    Modified,
    /// It went.
    #[serde(rename = "delete")]
    Deleted,
}

/// What a call did to one path in its view.
#[derive(Clone, Copy, Debug)]
pub struct ChangeFact<'a> {
    /// The path, relative to the workspace, with `/`.
    pub path: &'a str,
    /// What happened to it.
    pub kind: ChangeKind,
    /// What a person should look at twice: `executable`, `link_leaves`, `odd_name`, `case_collision`, `set_id_stripped`,
    /// `bare_repository`, `made_writable`.
    pub flags: &'a [String],
}

/// What a call did in its view, before it is committed.
#[derive(Clone, Copy, Debug)]
pub struct Effect<'a> {
    /// The tool's canonical name.
    pub tool: &'a str,
    /// Which setting speaks about it.
    pub kind: ToolKind,
    /// What this policy said of the intent.
    pub intent: Verdict,
    /// The paths that the call declared, when a person approved the call; empty otherwise.
    pub granted_paths: &'a [String],
    /// Every path that changed: of a folder that came or went, each path in it too.
    pub changes: &'a [ChangeFact<'a>],
}

/// How grave a change is for the person who decides about it, the gravest first. Everything that lists changes lists them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gravity {
    /// To a protected path; the row of [`crate::PROTECTED_PATHS`], whose first are the gravest.
    Protected(usize),
    /// It has a flag that alone requires approval.
    Flagged,
    /// Something goes.
    Deleted,
    /// Something becomes another.
    Modified,
    /// Something new with a flag that only informs, such as `executable`.
    Remarkable,
    /// Something new.
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

    /// Whether it asks a person whatever the settings say: it is to a protected path, or has a flag that asks.
    pub fn asks(self) -> bool {
        matches!(self, Self::Protected(_) | Self::Flagged)
    }
}
