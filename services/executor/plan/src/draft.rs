//! A plan as an author wrote it or a client sent it: plain, unchecked data.
//!
//! Serialised, a draft has the shape of the author's form, so that it can be shown, edited and parsed again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{
    Budget, CallDraft, Escalation, LimitDraft, OnError, RepeatDraft, RetryPolicy, StepKindDraft, duration, recovery,
};

/// An unchecked plan. `Plan::new` checks it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanDraft {
    /// The author's name for the plan.
    pub id: String,
    /// The purpose of the plan, for people.
    #[serde(default)]
    pub description: String,
    /// The labels of its executions, beside those that a start gives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether a start of it only says what would happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The values that an execution is started with, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Input>,
    /// The result of an execution, by the names of its parts: values whose strings may hold templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    /// The steps, in the plan's order.
    pub steps: Vec<StepDraft>,
    /// Whether the first failed step stops the execution.
    #[serde(default)]
    pub stop_on_error: bool,
    /// How many steps may run at once; 0 means 1.
    #[serde(default)]
    pub parallelism: u32,
    /// The longest time the whole execution may take; `None` means no limit.
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Reaction to failures of steps; `None` means that the execution ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Escalation>,
    /// Strategies for failures of steps, by the class of the failure, for the classes that a step does not name itself and the strategies that fit
    /// its kind. A plan that was checked has them at its steps.
    #[serde(default, with = "recovery::by_name", skip_serializing_if = "BTreeMap::is_empty")]
    pub on_error: OnError,
    /// How many steps may use a resource at the same time, by its name; one at a time where the name is missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u32>,
    /// How much of the audit log is listed when nothing else is asked for; `None` means the standard. Everything is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_level: Option<AuditLevel>,
    /// The programs that its commands may start, of those that the policy allows; `None`: all of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_commands: Option<Vec<String>>,
    /// The network profile of calls whose step names none, where their tool takes one; `None` for their own loopback alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The most that the calls of all its steps may use; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The limits that its executions share with others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitDraft>,
}

/// How much of an execution's audit log is listed. Each level has what the one before has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditLevel {
    /// Starts and ends, failures, what principals asked for and decided.
    Minimal,
    /// Also starts of steps, retries, requests for approval, waits, committed effects.
    Standard,
    /// Every event.
    Verbose,
}

impl AuditLevel {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("minimal", Self::Minimal), ("standard", Self::Standard), ("verbose", Self::Verbose)];
}

/// The input that has the context in which a plan is asked for: templates read it as `${context.NAME}`, and the programs of calls get it.
pub const CONTEXT_INPUT: &str = "context";

/// A value that an execution is started with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Description of the input, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of the value; `None` when every value will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The value of an execution that is started without one, which may be null; `None` when one is required.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// A value that is there, also when it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An unchecked step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepDraft {
    /// Unique in the plan.
    pub id: String,
    /// A short line for people; the id when empty.
    #[serde(default)]
    pub title: String,
    /// Its purpose and the reason for it, shown to those who decide about its calls.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The id of the outermost group that it was written in, for people; empty when it stands in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The steps that must have ended first. Steps named in templates need not be repeated here.
    #[serde(default)]
    pub depends_on: Vec<Dependency>,
    /// After which ends of the steps that it depends on it runs.
    #[serde(default, skip_serializing_if = "RunWhen::is_default")]
    pub run_when: RunWhen,
    /// An expression in CEL with references; it runs only if that is true. Always, when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// A list, or a template that becomes one: the step runs once for each entry. Once, when `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<Value>,
    /// Whether no more of its entries or calls start once one has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
    /// Until when it runs again. It runs once, when `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<RepeatDraft>,
    /// The longest time for all attempts and the waits between them; `None` means no limit.
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The longest times of the groups that it stands in, by their ids: from the start of the first of a group's steps.
    #[serde(default, with = "duration::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub group_timeouts: BTreeMap<String, Duration>,
    /// The groups with `fail_fast` that it stands in, by their ids, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fail_fast_groups: Vec<String>,
    /// The longest time for one attempt; `None` means the tool's default.
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Duration>,
    /// Whether no other call may commit in the workspace while the step's call runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// The network profile of the step's commands; `None` for their own loopback alone.
    pub network: Option<String>,
    /// The names of arguments that are taken verbatim: `${` means nothing in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbatim: Vec<String>,
    /// When to retry; `None` means one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Strategies for its final failure, by the class of the failure.
    #[serde(default, with = "recovery::by_name", skip_serializing_if = "BTreeMap::is_empty")]
    pub on_error: OnError,
    /// The calls that take the place of the step's own, one after the other, when all attempts of the one before have failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<CallDraft>,
    /// The call that undoes what the step has done, when the execution does not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<CallDraft>,
    /// Resources that the step uses and that no other step may use at the same time, by names of the author's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Checks that must hold before each of the step's attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preconditions: Vec<CheckDraft>,
    /// Checks that must hold once the step's call has ended with a result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub postconditions: Vec<CheckDraft>,
    /// The JSON Schema of the step's output; `None` when every output will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The most that its calls may use, those for the entries of its list and of its plan included; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The work that the step does.
    #[serde(flatten)]
    pub kind: StepKindDraft,
}

/// An unchecked check before or after a step's call. Exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckDraft {
    /// An expression in CEL with references, which has to be true.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The path of a file or directory that has to exist in the workspace; may hold templates.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// A program and its arguments, which has to end with exit code 0; may hold templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What a model has to find true of the result of a step with a goal; may hold templates.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub judge: String,
    /// The model that judges, by its name in the settings; empty for that of the step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
}

/// After which ends of the steps that it depends on a step runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunWhen {
    /// When all of them have completed.
    #[default]
    Success,
    /// When all of them have ended, and one has failed, or was skipped because of a step that failed.
    Failure,
    /// When all of them have ended, however.
    Always,
    /// When all of them have ended, and none has failed, or was skipped because of a step that failed: the opposite of `Failure`.
    NoneFailed,
}

impl RunWhen {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 4] = [
        ("success", Self::Success),
        ("failure", Self::Failure),
        ("always", Self::Always),
        ("none_failed", Self::NoneFailed),
    ];

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a step has ended, for those that depend on it. A step is cancelled only while its execution is being stopped, and nothing starts then: so no step
/// can wait for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It has completed.
    Success,
    /// It has failed.
    Failure,
    /// It was skipped, for whichever reason.
    Skipped,
}

impl Outcome {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("success", Self::Success), ("failure", Self::Failure), ("skipped", Self::Skipped)];

    /// The name, as authors write it.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, outcome)| *outcome == self).map_or("", |(word, _)| word)
    }
}

/// A step that another depends on, as an author names it: by its id, or with the outcomes after which the other runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenDependency", into = "WrittenDependency")]
pub struct Dependency {
    /// Its id.
    pub step: String,
    /// The outcomes with which it may end for the other to run; `None` when the other's `run_when` says that.
    pub on: Option<BTreeSet<Outcome>>,
}

impl Dependency {
    /// The outcomes that the author has named; none where the other step's `run_when` says after which it runs.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> + '_ {
        self.on.iter().flatten().copied()
    }
}

impl From<&str> for Dependency {
    fn from(step: &str) -> Self {
        Self { step: step.to_owned(), on: None }
    }
}

impl From<String> for Dependency {
    fn from(step: String) -> Self {
        Self { step, on: None }
    }
}

/// The two forms in which authors write a dependency.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenDependency {
    Id(String),
    WithOutcomes { step: String, on: BTreeSet<Outcome> },
}

impl From<WrittenDependency> for Dependency {
    fn from(written: WrittenDependency) -> Self {
        match written {
            WrittenDependency::Id(step) => Self { step, on: None },
            WrittenDependency::WithOutcomes { step, on } => Self { step, on: Some(on) },
        }
    }
}

impl From<Dependency> for WrittenDependency {
    fn from(Dependency { step, on }: Dependency) -> Self {
        match on {
            None => Self::Id(step),
            Some(on) => Self::WithOutcomes { step, on },
        }
    }
}

impl StepDraft {
    /// Whether steps of its own do its work: one for each entry of its list, for each of its calls, for each of its rounds, or for each turn of its model.
    pub(crate) fn has_entries(&self) -> bool {
        let by_kind = matches!(self.kind, StepKindDraft::Calls { .. } | StepKindDraft::Agent { .. });
        self.for_each.is_some() || self.repeat.is_some() || by_kind
    }

    /// Whether it names the outcomes of a step that it depends on.
    pub(crate) fn names_outcomes(&self) -> bool {
        self.depends_on.iter().any(|dependency| dependency.on.is_some())
    }

    /// Whether it runs when everything before it completes. A step that does not is for another course of things, and nobody waits for it who waits for
    /// a whole group.
    pub(crate) fn runs_when_all_goes_well(&self) -> bool {
        let named = || self.depends_on.iter().filter_map(|dependency| dependency.on.as_ref());
        self.run_when != RunWhen::Failure && named().all(|on| on.contains(&Outcome::Success))
    }

    /// Whether it may run although a step was skipped that it depends on.
    pub(crate) fn may_follow_skipped(&self) -> bool {
        let by_run_when = match self.run_when {
            RunWhen::Success | RunWhen::Failure => false,
            RunWhen::Always | RunWhen::NoneFailed => true,
        };
        by_run_when || self.depends_on.iter().flat_map(Dependency::outcomes).any(|named| named == Outcome::Skipped)
    }
}
