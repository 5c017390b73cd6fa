//! A policy as values: the form that is signed and from which its rules are compiled.

use serde::{Deserialize, Serialize};

use crate::{ChangeKind, NonInteractive, Tier, Verdict};

/// A simple setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Setting {
    Auto,
    Prompt,
    Deny,
}

/// A whole policy. Its fields have the names of the YAML keys and are in canonical order: a new one goes to the end and raises the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    pub(crate) file_write: Setting,
    pub(crate) file_delete: Setting,
    pub(crate) terminal_commands: Setting,
    pub(crate) non_interactive_policy: NonInteractive,
    pub(crate) sandbox: Sandbox,
    pub(crate) approvals: Approvals,
    pub(crate) protect: bool,
    pub(crate) rules: Vec<Rule>,
    /// The programs that commands may start; `None`: all.
    pub(crate) allowed_commands: Option<Vec<String>>,
    /// The decision about commands that ask for a network beyond their own loopback.
    pub(crate) network: Setting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sandbox {
    pub(crate) min_tier: Tier,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approvals {
    /// In seconds; `None` means never.
    pub(crate) expire_after: Option<u64>,
    pub(crate) separate_duties: bool,
}

/// When a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    Intent,
    Effect,
}

/// A rule. An empty list means no condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) on: Phase,
    pub(crate) tools: Vec<String>,
    pub(crate) programs: Vec<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) changes: Vec<ChangeKind>,
    pub(crate) flags: Vec<String>,
    pub(crate) decide: Verdict,
    pub(crate) reason: String,
    #[serde(rename = "match")]
    pub(crate) matching: Vec<Example>,
    pub(crate) not_match: Vec<Example>,
    pub(crate) cwd: Vec<String>,
    pub(crate) env: Vec<String>,
    /// A call that matches the rule must have the workspace to itself, whatever the rule decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) exclusive: bool,
    /// Names of network profiles. A rule with these, with hosts or with credentials decides about the network of commands and about nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) networks: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<String>,
    /// Names of credentials of the settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) credentials: Vec<String>,
}

impl Rule {
    /// Whether it decides about the network of commands.
    pub(crate) fn is_about_network(&self) -> bool {
        !(self.networks.is_empty() && self.hosts.is_empty() && self.credentials.is_empty())
    }
}

/// A call that a rule's author expects it to match, or not to match. Conditions on fields that the example leaves out count as met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Example {
    pub(crate) tool: Option<String>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) path: Option<String>,
    pub(crate) change: Option<ChangeKind>,
    pub(crate) flags: Option<Vec<String>>,
    pub(crate) cwd: Option<String>,
    pub(crate) env: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credentials: Option<Vec<String>>,
}

impl Default for Document {
    /// The built-in policy, which also provides the defaults for other policies.
    fn default() -> Self {
        Self {
            file_write: Setting::Auto,
            file_delete: Setting::Prompt,
            terminal_commands: Setting::Prompt,
            non_interactive_policy: NonInteractive::Fail,
            sandbox: Sandbox { min_tier: Tier::A },
            approvals: Approvals { expire_after: None, separate_duties: false },
            protect: true,
            rules: Vec::new(),
            allowed_commands: None,
            network: Setting::Prompt,
        }
    }
}
