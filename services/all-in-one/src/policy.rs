//! The policy that the services start with, and a summary of a policy file.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use belay_policy::{Policies, RevisedPolicies};
use serde_json::Value;

/// The largest policy file that is read, in bytes; the limit of the policy is smaller, and its error is more precise.
const LONGEST: u64 = 1 << 20;

/// The policy that the services start with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    /// The last policy in force; at the first start, the built-in policy.
    #[default]
    Keep,
    /// The built-in policy.
    BuiltIn,
    /// The policy in this file.
    File(PathBuf),
}

impl PolicyChoice {
    /// The user's policy: `$XDG_CONFIG_HOME/belay/policy.yaml`, else `~/.config/belay/policy.yaml`, else the built-in policy. Never one
    /// from the workspace, because a policy protects against the workspace.
    pub fn of_user(env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let from = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = from("XDG_CONFIG_HOME").or_else(|| from("HOME").map(|home| home.join(".config")));
        let file = folder.map(|folder| folder.join("belay/policy.yaml"));
        // A file that exists and cannot be read is an error, not a reason to use another policy.
        file.filter(|file| file.try_exists().unwrap_or(true)).map_or(Self::BuiltIn, Self::File)
    }

    /// The policy; `None` for the last policy in force.
    pub(crate) fn read(&self) -> Result<Option<Policies>, RefusedPolicy> {
        match self {
            Self::Keep => Ok(None),
            // One user on one machine: the user who starts executions also approves them.
            Self::BuiltIn => Ok(Some(Policies::of_one_person())),
            Self::File(path) => read(path).map(Some),
        }
    }
}

/// A policy file that cannot be used. The services do not start, and no other policy replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPolicy {
    /// The file.
    pub path: PathBuf,
    /// The text; empty if it cannot be read.
    pub text: String,
    /// All violations; empty if it cannot be read.
    pub violations: Vec<PolicyViolation>,
    /// Why it cannot be read.
    pub unreadable: Option<String>,
}

/// A violation in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyViolation {
    /// The field, as its author wrote it.
    pub field: String,
    /// The line, counted from 1; 0 if there is none.
    pub line: u32,
    /// The problem, and the correct form.
    pub message: String,
}

impl std::fmt::Display for RefusedPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the policy {} ", self.path.display())?;
        match &self.unreadable {
            Some(why) => write!(f, "cannot be read: {why}"),
            None => f.write_str("is refused"),
        }
    }
}

/// A summary of a policy, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFacts {
    /// Its settings with defaults: the name as in the file, and the value.
    pub settings: Vec<(&'static str, String)>,
    /// The ids of its rules, in order.
    pub rules: Vec<String>,
    /// The facts of namespaces with a section, by name: all their settings, and the rules that the section adds.
    pub namespaces: Vec<(String, PolicyFacts)>,
}

/// Reads a policy file, as a start does.
///
/// # Errors
/// [`RefusedPolicy`] with every violation.
pub fn check_policy(path: &Path) -> Result<PolicyFacts, RefusedPolicy> {
    read(path).map(|policies| facts(&policies))
}

/// Whether a policy file equals a published policy (`SignedPolicy.body`).
///
/// # Errors
/// [`RefusedPolicy`] if the file cannot be used.
pub fn is_same_policy(path: &Path, published: &[u8]) -> Result<bool, RefusedPolicy> {
    let policies = read(path)?;
    Ok(RevisedPolicies::from_bytes(published).is_ok_and(|published| published.policies == policies))
}

fn read(path: &Path) -> Result<Policies, RefusedPolicy> {
    let refused = |text: &str, violations, unreadable| RefusedPolicy {
        path: path.to_owned(),
        text: text.to_owned(),
        violations,
        unreadable,
    };
    let unreadable = |why: String| refused("", Vec::new(), Some(why));
    let metadata = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("it is not a file".to_owned()));
    }
    if metadata.len() > LONGEST {
        return Err(unreadable("it is longer than 1 MiB".to_owned()));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    Policies::from_yaml(&text).map_err(|violations| {
        let plain = |violation: belay_policy::Violation| PolicyViolation {
            field: violation.field,
            line: violation.line,
            message: violation.message,
        };
        refused(&text, violations.into_iter().map(plain).collect(), None)
    })
}

/// Reads the signed form, so that the summary shows what is in force.
pub(crate) fn facts(policies: &Policies) -> PolicyFacts {
    let signed = RevisedPolicies { revision: 1, policies: policies.clone() }.to_bytes();
    let signed: Value = serde_json::from_slice(&signed).expect("a policy's canonical form is JSON");
    let sections = signed["namespaces"].as_object().into_iter().flatten();
    let namespaces = sections.map(|(name, section)| (name.clone(), facts_of(section, Vec::new()))).collect();
    facts_of(&signed["policy"], namespaces)
}

fn facts_of(policy: &Value, namespaces: Vec<(String, PolicyFacts)>) -> PolicyFacts {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "never".to_owned(),
        other => other.to_string(),
    };
    let expire_after = match policy["approvals"]["expire_after"].as_u64() {
        Some(seconds) => format!("{seconds}s"),
        None => "never".to_owned(),
    };
    let settings = vec![
        ("file_write", plain(&policy["file_write"])),
        ("file_delete", plain(&policy["file_delete"])),
        ("terminal_commands", plain(&policy["terminal_commands"])),
        ("non_interactive_policy", plain(&policy["non_interactive_policy"])),
        ("sandbox.min_tier", plain(&policy["sandbox"]["min_tier"])),
        ("approvals.expire_after", expire_after),
        ("approvals.separate_duties", plain(&policy["approvals"]["separate_duties"])),
        ("protect", plain(&policy["protect"])),
    ];
    let rules = policy["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    PolicyFacts { settings, rules: rules.iter().map(|rule| plain(&rule["id"])).collect(), namespaces }
}
