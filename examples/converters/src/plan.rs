//! The plan as the converters build it, and how it is written.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{left_out::Place, text::Text};

/// The most steps of a plan that may run at once.
const MAX_PARALLELISM: usize = 256;

/// A plan. Fields that are empty are not written.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// The plan's name.
    pub id: String,
    /// Explains the plan to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The values that an execution is started with, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Value>,
    /// The values that an execution returns: templates by names.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub outputs: Map<String, Value>,
    /// The most steps that run at once; 0 is not written, and means one.
    #[serde(skip_serializing_if = "is_zero")]
    pub parallelism: usize,
    /// How many steps may use a resource at once.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, usize>,
    /// The time limit, such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Limits over its executions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// The steps and groups, in their order.
    pub steps: Vec<Step>,
}

/// The most executions that may hold a limit at once.
pub const MAX_AT_ONCE: u32 = 1000;

/// A limit of a plan: how many executions of the plans that name the same key run at once.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    /// The name that executions share: a template of inputs.
    pub key: String,
    /// How many executions hold the limit at once, from 1 to [`MAX_AT_ONCE`].
    pub at_once: u32,
    /// The fate of an execution that finds the limit full; waiting is not written.
    #[serde(skip_serializing_if = "WhenFull::is_wait")]
    pub when_full: WhenFull,
    /// The place in the document.
    #[serde(skip)]
    pub place: Place,
}

/// The fate of an execution that finds a limit full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It waits for its turn.
    Wait,
    /// The executions before it are cancelled.
    CancelOlder,
}

impl WhenFull {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_wait(&self) -> bool {
        *self == Self::Wait
    }
}

/// A step, or with `steps` a group of steps. Fields that are empty are not written.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Step {
    /// Its id, unique in the plan.
    pub id: String,
    /// A short line for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The dependencies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    /// After which ends of its dependencies it runs; nothing for success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_when: Option<RunWhen>,
    /// An expression in CEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// A list, a matrix or a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<Value>,
    /// Whether no more entries start once one has failed.
    #[serde(skip_serializing_if = "is_false")]
    pub fail_fast: bool,
    /// Until when it runs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Value>,
    /// Names of what it shares with others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The time limit, such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How often it is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Value>,
    /// The time, signal or form that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Value>,
    /// The tool that it calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The tool's arguments.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
    /// Names of arguments in which `${` is no template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbatim: Vec<String>,
    /// The values for the inputs of its plan.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Value>,
    /// The plan that it carries out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<Plan>>,
    /// The steps of a group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// The ends of the dependencies after which a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunWhen {
    /// At least one has failed.
    Failure,
    /// No dependency has failed; some may have been skipped.
    NoneFailed,
    /// All have ended, however.
    Always,
}

/// An entry of `depends_on`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Dependency {
    /// A step that has to complete, or as `run_when` says.
    Step(String),
    /// A step with the outcomes that it may end with: `success`, `failure`, `skipped`.
    On {
        /// The step.
        step: String,
        /// The outcomes.
        on: Vec<&'static str>,
    },
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Plan {
    /// Sets `parallelism`, within its limits; 1 is not written.
    pub fn set_parallelism(&mut self, steps: usize) {
        self.parallelism = if steps > 1 { steps.min(MAX_PARALLELISM) } else { 0 };
    }

    /// The plan as YAML, with a final line end.
    ///
    /// # Errors
    /// When a value cannot be written.
    pub fn to_yaml(&self) -> Result<String, String> {
        serde_saphyr::to_string(self).map_err(|error| error.to_string())
    }

    /// The plan as JSON, with a final line end.
    ///
    /// # Errors
    /// When a value cannot be written.
    pub fn to_json(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n").map_err(|error| error.to_string())
    }
}

impl Step {
    /// A step that calls `noop`: it does nothing, and returns `output`.
    pub fn noop(id: impl Into<String>, output: Value) -> Self {
        let mut step = Self { id: id.into(), tool: Some("noop".to_owned()), ..Self::default() };
        if !output.is_null() {
            step.arguments.insert("output".to_owned(), output);
        }
        step
    }

    /// A step that runs a program.
    pub fn command(id: impl Into<String>, words: &[Text]) -> Self {
        let mut step = Self { id: id.into(), tool: Some("run_terminal".to_owned()), ..Self::default() };
        let constant: Option<Vec<&str>> = words.iter().map(Text::constant).collect();
        let words: Vec<String> = match constant {
            // Without references, the words stay as they were written.
            Some(words) => {
                if words.iter().any(|word| word.contains("${")) {
                    step.verbatim.push("command".to_owned());
                }
                words.into_iter().map(str::to_owned).collect()
            }
            None => words.iter().map(Text::template).collect(),
        };
        step.arguments.insert("command".to_owned(), json!(words));
        step
    }

    /// A step that carries out a plan.
    pub fn with_plan(id: impl Into<String>, plan: Plan) -> Self {
        Self { id: id.into(), plan: Some(Box::new(plan)), ..Self::default() }
    }

    /// Adds a dependency on a step that has to complete, unless it is there.
    pub fn add_dependency(&mut self, id: &str) {
        let dependency = Dependency::Step(id.to_owned());
        if !self.depends_on.contains(&dependency) {
            self.depends_on.push(dependency);
        }
    }
}

/// A step after which others run, and how it may have ended then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// The step.
    pub id: String,
    /// Whether the next step also runs when this one was skipped for another reason than a failure.
    pub may_be_skipped: bool,
    /// Whether the next step also runs when this one has failed.
    pub may_fail: bool,
}

impl After {
    /// A step that has to complete.
    pub fn completed(id: impl Into<String>) -> Self {
        Self { id: id.into(), may_be_skipped: false, may_fail: false }
    }

    /// Makes a step run after others, in the fewest words: plain dependencies, `run_when: none_failed`, or outcomes of each.
    pub fn apply(after: &[Self], step: &mut Step) {
        if after.iter().any(|one| one.may_fail) {
            let outcomes = |one: &Self| {
                let also = [(one.may_fail, "failure"), (one.may_be_skipped, "skipped")];
                ["success"]
                    .into_iter()
                    .chain(also.into_iter().filter_map(|(may, outcome)| may.then_some(outcome)))
                    .collect()
            };
            step.depends_on.extend(after.iter().map(|one| match outcomes(one) {
                on if on == ["success"] => Dependency::Step(one.id.clone()),
                on => Dependency::On { step: one.id.clone(), on },
            }));
            return;
        }
        after.iter().for_each(|one| step.add_dependency(&one.id));
        if after.iter().any(|one| one.may_be_skipped) && step.run_when.is_none() {
            step.run_when = Some(RunWhen::NoneFailed);
        }
    }
}

/// Ids that a plan has already.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    taken: BTreeSet<String>,
}

impl Ids {
    /// Returns an id like the text, of letters, digits, `-` and `_`, that no other has.
    pub fn unique(&mut self, text: &str) -> String {
        let id = identifier(text, 100);
        let numbered = (2..).map(|number| format!("{id}-{number}"));
        let free = std::iter::once(id.clone()).chain(numbered).find(|id| !self.taken.contains(id)).unwrap_or(id);
        self.taken.insert(free.clone());
        free
    }
}

/// The text as an id of at most `limit` letters, digits, `-` and `_`, beginning with a letter or a digit.
#[must_use]
pub fn identifier(text: &str, limit: usize) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' };
    let mut id = String::new();
    for c in text.trim().chars().map(allowed) {
        if !(c == '-' && id.ends_with('-')) {
            id.push(c);
        }
    }
    let id: String = id.trim_matches(['-', '_']).chars().take(limit).collect();
    if id.is_empty() { "step".to_owned() } else { id }
}

/// A text as a literal of CEL in a condition, in which `$${` stands for `${`.
#[must_use]
pub fn cel_text(text: &str) -> String {
    json!(text.replace("${", "$${")).to_string()
}

/// A time of so many seconds, such as `90s` or `30m`; `None` for what is no time of a plan.
#[must_use]
pub fn duration(seconds: f64) -> Option<String> {
    let milliseconds = (seconds * 1000.0).round();
    let is_time = (1.0..=365.0 * 86_400_000.0).contains(&milliseconds);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within the limits of a plan"
    )]
    is_time.then(|| match milliseconds as u64 {
        time if time % 3_600_000 == 0 => format!("{}h", time / 3_600_000),
        time if time % 60_000 == 0 => format!("{}m", time / 60_000),
        time if time % 1000 == 0 => format!("{}s", time / 1000),
        time => format!("{time}ms"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_of_allowed_characters() {
        let mut ids = Ids::default();
        assert_eq!(ids.unique("build & test"), "build-test");
        assert_eq!(ids.unique("build/test"), "build-test-2");
        assert_eq!(ids.unique("日本"), "step");
    }

    #[test]
    fn durations_have_the_largest_whole_unit() {
        assert_eq!(duration(5400.0).as_deref(), Some("90m"));
        assert_eq!(duration(0.5).as_deref(), Some("500ms"));
        assert_eq!(duration(7200.0).as_deref(), Some("2h"));
        assert_eq!((duration(0.0), duration(1e12), duration(f64::NAN)), (None, None, None));
    }

    #[test]
    fn dependencies_are_written_in_the_fewest_words() {
        let dependencies = |after: &[After]| {
            let mut step = Step::noop("a", Value::Null);
            After::apply(after, &mut step);
            (json!(step.depends_on), step.run_when)
        };
        let plain = After::completed("x");
        let skipped = After { may_be_skipped: true, ..After::completed("y") };
        let failed = After { may_fail: true, ..After::completed("z") };
        assert_eq!(dependencies(std::slice::from_ref(&plain)), (json!(["x"]), None));
        assert_eq!(dependencies(&[plain.clone(), skipped.clone()]), (json!(["x", "y"]), Some(RunWhen::NoneFailed)));
        let on = json!(["x", {"step": "y", "on": ["success", "skipped"]}, {"step": "z", "on": ["success", "failure"]}]);
        assert_eq!(dependencies(&[plain, skipped, failed]), (on, None));
    }
}
