//! The section `agents`: command lines of models that work on a task on their own, which plans and models call as tools.

use std::{path::PathBuf, time::Duration};

use belay_agent_output::{Format, Patterns};

use crate::ToolRecovery;

/// An external agent: a program that runs in the sandbox, is given a task over its standard input, and reports over its standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAgent {
    /// Its name, which is that of its tool.
    pub name: String,
    /// What it does, for people and models; empty for the usual words.
    pub description: String,
    /// The form in which it reports, which has a command of its own.
    pub format: Format,
    /// The program and its arguments, where they are not those of the form.
    pub command: Vec<String>,
    /// More arguments, behind those of the command.
    pub flags: Vec<String>,
    /// The directory in which it runs, relative to the workspace; empty for its root.
    pub cwd: String,
    /// Variables that it gets.
    pub env: Vec<(String, String)>,
    /// The directory with its configuration, of which each call has a copy that it can write to.
    pub config_dir: Option<PathBuf>,
    /// The recovery of calls whose outcome is unknown.
    pub recovery: ToolRecovery,
    /// The network profile of its program; `None`: its own loopback alone.
    pub network: Option<String>,
    /// The credentials whose values it gets, each in the credential's variable.
    pub reveals: Vec<String>,
    /// The time limit of a call when the plan sets none; `None`: it may work as long as it likes.
    pub timeout: Option<Duration>,
    /// The most tokens that its models may use in one call; `None` for no bound.
    pub max_tokens: Option<u64>,
    /// How long it may go on after its final event.
    pub linger: Duration,
    /// Phrases of its output that say of which class its failure is.
    pub patterns: Patterns,
}
