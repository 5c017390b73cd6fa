//! The rules for one step, and for references between steps.

use crate::{
    Backoff, PlannedCall, RetryPolicy, Step, StepDraft, StepKind, StepKindDraft, Template, ToolStep,
    limits::{MAX_ARGUMENT_BYTES, MAX_ATTEMPTS, MAX_TOOL_CHARS},
    nearest,
    path::{FieldPath, shown},
    template::json_size,
};

use super::{Checker, step_path};

/// The result of checking a step.
pub(super) struct Part {
    pub(super) dependencies: Vec<usize>,
    /// Whether the tool's name is valid.
    has_tool: bool,
    /// The arguments, as far as they could be read.
    arguments: Template,
    /// Whether all of them could be read.
    arguments_are_valid: bool,
}

impl Part {
    /// The step's call, when the tool is named.
    pub(super) fn call<'a>(&'a self, step: usize, draft: &'a StepDraft) -> Option<PlannedCall<'a>> {
        let StepKindDraft::Tool { tool, .. } = &draft.kind;
        let arguments = self.arguments_are_valid.then_some(&self.arguments);
        self.has_tool.then_some(PlannedCall { step, tool, arguments })
    }

    /// The step, after the whole plan has been checked.
    pub(super) fn complete(self, draft: StepDraft) -> Step {
        let StepKindDraft::Tool { tool, .. } = draft.kind;
        Step {
            id: draft.id,
            title: draft.title,
            depends_on: draft.depends_on,
            dependencies: self.dependencies,
            timeout: draft.timeout,
            attempt_timeout: draft.attempt_timeout,
            exclusive: draft.exclusive,
            verbatim: draft.verbatim,
            retry: draft.retry.unwrap_or_default(),
            kind: StepKind::Tool(ToolStep { tool, arguments: self.arguments }),
        }
    }
}

impl Checker<'_> {
    pub(super) fn step(&mut self, position: usize, step: &StepDraft, steps: &[StepDraft]) -> Part {
        let path = step_path(position);
        let StepKindDraft::Tool { tool, arguments } = &step.kind;
        let has_tool = self.tool(&path.key("tool"), tool);
        self.verbatim(&path.key("verbatim"), &step.verbatim, arguments);
        let (arguments, arguments_are_valid) = self.arguments(&path.key("arguments"), arguments, &step.verbatim);
        let mut dependencies = Vec::with_capacity(step.depends_on.len());
        let depends_on = path.key("depends_on");
        for (entry, id) in step.depends_on.iter().enumerate() {
            let explain = "name a step of this plan";
            dependencies.extend(self.dependency(&depends_on.index(entry), position, id, steps, explain));
        }
        for (inner, reference) in arguments.references() {
            let explain = "`${…}` names a step of this plan; `$${` stands for the text `${`, and `verbatim` takes a whole argument as it is";
            dependencies.extend(self.dependency(
                &path.key("arguments").join(inner),
                position,
                reference.step(),
                steps,
                explain,
            ));
        }
        dependencies.sort_unstable();
        dependencies.dedup();
        self.duration(&path.key("timeout"), step.timeout);
        self.duration(&path.key("attempt_timeout"), step.attempt_timeout);
        if let Some(retry) = &step.retry {
            self.retry(&path.key("retry"), retry);
        }
        Part { dependencies, has_tool, arguments, arguments_are_valid }
    }

    /// Whether a tool can have this name.
    fn tool(&mut self, path: &FieldPath, tool: &str) -> bool {
        if tool.is_empty() {
            self.refuse(path, || "is required: name the tool that the step calls".to_owned());
        } else if tool.chars().count() > MAX_TOOL_CHARS || tool.contains(|c: char| c.is_control() || c.is_whitespace())
        {
            self.refuse(path, || {
                format!("`{}` is not a tool's name: it has 1 to {MAX_TOOL_CHARS} characters and no spaces", shown(tool))
            });
        } else {
            return true;
        }
        false
    }

    fn verbatim(&mut self, path: &FieldPath, verbatim: &[String], arguments: &serde_json::Value) {
        let Some(arguments) = arguments.as_object() else { return };
        for (entry, name) in verbatim.iter().enumerate().filter(|(_, name)| !arguments.contains_key(name.as_str())) {
            self.refuse(&path.index(entry), || {
                let near = nearest(name, arguments.keys().map(String::as_str));
                let did_you_mean = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
                format!("the step has no argument `{}`{did_you_mean}", shown(name))
            });
        }
    }

    /// The arguments as far as they can be read, and whether they are valid.
    fn arguments(&mut self, path: &FieldPath, arguments: &serde_json::Value, verbatim: &[String]) -> (Template, bool) {
        if !arguments.is_object() {
            self.refuse(path, || "must be an object with the tool's arguments by name".to_owned());
            return (Template::read(&serde_json::Value::Null, &[]).0, false);
        }
        let size = json_size(arguments);
        if size > MAX_ARGUMENT_BYTES {
            self.refuse(path, || {
                format!("has {size} bytes as JSON and the limit is {MAX_ARGUMENT_BYTES}: put the content into a file and pass its path")
            });
        }
        let (template, errors) = Template::read(arguments, verbatim);
        let is_valid = errors.is_empty();
        for error in errors {
            self.refuse(&path.join(&error.field), || error.message);
        }
        (template, is_valid)
    }

    /// The step that an id names, unless it does not exist or is the step itself.
    fn dependency(
        &mut self,
        path: &FieldPath,
        position: usize,
        id: &str,
        steps: &[StepDraft],
        explain: &str,
    ) -> Option<usize> {
        if id == steps[position].id {
            self.refuse(path, || format!("`{}` is the step itself, which cannot wait for its own result", shown(id)));
            return None;
        }
        let found = self.index.get(id).copied();
        if found.is_none() {
            let suggestion = self.suggestion(id, steps);
            self.refuse(path, || format!("there is no step `{}`{suggestion} ({explain})", shown(id)));
        }
        found
    }

    fn retry(&mut self, path: &FieldPath, retry: &RetryPolicy) {
        if !(1..=MAX_ATTEMPTS).contains(&retry.max_attempts) {
            self.refuse(&path.key("max_attempts"), || {
                format!("must be 1 to {MAX_ATTEMPTS}, not {}", retry.max_attempts)
            });
        }
        let path = path.key("backoff");
        match &retry.backoff {
            Backoff::List(delays) => {
                if delays.len() > MAX_ATTEMPTS as usize {
                    self.refuse(&path, || {
                        format!("has {} delays, but there are at most {MAX_ATTEMPTS} attempts", delays.len())
                    });
                    return;
                }
                for (entry, delay) in delays.iter().enumerate() {
                    self.duration(&path.index(entry), Some(*delay));
                }
            }
            Backoff::Exponential { initial, factor, max } => {
                self.duration(&path.key("initial"), Some(*initial));
                self.duration(&path.key("max"), Some(*max));
                if !factor.is_finite() || *factor < 1.0 {
                    self.refuse(&path.key("factor"), || format!("must be a number from 1, not {factor}"));
                }
                if max < initial {
                    self.refuse(&path.key("max"), || "must not be shorter than `initial`".to_owned());
                }
            }
        }
    }

    /// Reports a cycle at the field where its first step names its second.
    pub(super) fn cycle(&mut self, cycle: &[usize], steps: &[StepDraft], parts: &[Part]) {
        let (first, second) = (cycle[0], cycle[1]);
        let path = step_path(first);
        let second_id = &steps[second].id;
        let listed = steps[first].depends_on.iter().position(|id| id == second_id);
        let path = match listed {
            Some(entry) => path.key("depends_on").index(entry),
            None => {
                let mut references = parts[first].arguments.references();
                let inner = references.find(|(_, reference)| reference.step() == second_id).map(|(inner, _)| inner);
                path.key("arguments").join(inner.expect("a dependency is listed or named in a template"))
            }
        };
        self.refuse(&path, || format!("cyclic dependencies: {} (each step waits for the next)", named(cycle, steps)));
    }
}

/// The maximum number of steps of a cycle that a message names.
const MAX_STEPS_NAMED: usize = 20;

/// `a → b → c → a`; the middle of a long cycle is counted, not named.
fn named(cycle: &[usize], steps: &[StepDraft]) -> String {
    let mut names: Vec<String> =
        cycle.iter().take(MAX_STEPS_NAMED).map(|&position| shown(&steps[position].id)).collect();
    if let Some(more @ 1..) = cycle.len().checked_sub(MAX_STEPS_NAMED) {
        names.push(format!("… {more} more …"));
    }
    names.push(shown(&steps[cycle[0]].id));
    names.join(" → ")
}
