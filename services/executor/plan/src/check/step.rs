//! The rules for one step, and for the ways in which steps name each other.

use crate::{
    Backoff, RetryPolicy, Step, StepDraft, StepKind, StepKindDraft, Template, ToolStep,
    limits::{MAX_ARGUMENT_BYTES, MAX_ATTEMPTS, MAX_TOOL_CHARS},
    path::{FieldPath, shown},
    template::json_size,
};

use super::{Checker, step_path};

/// What checking a step worked out.
pub(super) struct Part {
    pub(super) dependencies: Vec<usize>,
    /// `None` only where a finding says why.
    arguments: Option<Template>,
}

impl Part {
    /// The step, once the whole plan was found to be right.
    pub(super) fn complete(self, draft: StepDraft) -> Step {
        let StepKindDraft::Tool { tool, .. } = draft.kind;
        let arguments = self.arguments.expect("a step without arguments is a finding");
        Step {
            id: draft.id,
            title: draft.title,
            depends_on: draft.depends_on,
            dependencies: self.dependencies,
            timeout: draft.timeout,
            attempt_timeout: draft.attempt_timeout,
            exclusive: draft.exclusive,
            retry: draft.retry.unwrap_or_default(),
            kind: StepKind::Tool(ToolStep { tool, arguments }),
        }
    }
}

impl Checker<'_> {
    pub(super) fn step(&mut self, position: usize, step: &StepDraft, steps: &[StepDraft]) -> Part {
        let path = step_path(position);
        let StepKindDraft::Tool { tool, arguments } = &step.kind;
        self.tool(&path.key("tool"), tool);
        let arguments = self.arguments(&path.key("arguments"), arguments);
        let mut dependencies = Vec::with_capacity(step.depends_on.len());
        let depends_on = path.key("depends_on");
        for (entry, id) in step.depends_on.iter().enumerate() {
            let explain = "name a step of this plan";
            dependencies.extend(self.dependency(&depends_on.index(entry), position, id, steps, explain));
        }
        for (inner, reference) in arguments.iter().flat_map(Template::references) {
            let explain = "`${…}` names a step of this plan, and `$${` stands for the text `${` itself";
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
        Part { dependencies, arguments }
    }

    fn tool(&mut self, path: &FieldPath, tool: &str) {
        if tool.is_empty() {
            self.refuse(path, || "is required: name the tool that the step calls".to_owned());
        } else if tool.chars().count() > MAX_TOOL_CHARS || tool.contains(|c: char| c.is_control() || c.is_whitespace())
        {
            self.refuse(path, || {
                format!("`{}` is not a tool's name: it has 1 to {MAX_TOOL_CHARS} characters and no spaces", shown(tool))
            });
        }
    }

    fn arguments(&mut self, path: &FieldPath, arguments: &serde_json::Value) -> Option<Template> {
        if !arguments.is_object() {
            self.refuse(path, || "must be an object with the tool's arguments by name".to_owned());
            return None;
        }
        let size = json_size(arguments);
        if size > MAX_ARGUMENT_BYTES {
            self.refuse(path, || {
                format!("holds {size} bytes as JSON, and may hold {MAX_ARGUMENT_BYTES}: put the content into a file and pass its path")
            });
        }
        Template::parse(arguments)
            .map_err(|errors| {
                for error in errors {
                    self.refuse(&path.join(&error.field), || error.message);
                }
            })
            .ok()
    }

    /// The step that an id names, unless there is none or it is the step itself.
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
                        format!("has {} delays, and there are at most {MAX_ATTEMPTS} attempts", delays.len())
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

    /// Refuses a cycle at the place where its first step names its second.
    pub(super) fn cycle(&mut self, cycle: &[usize], steps: &[StepDraft], parts: &[Part]) {
        let (first, second) = (cycle[0], cycle[1]);
        let path = step_path(first);
        let second_id = &steps[second].id;
        let listed = steps[first].depends_on.iter().position(|id| id == second_id);
        let path = match listed {
            Some(entry) => path.key("depends_on").index(entry),
            None => {
                let mut references = parts[first].arguments.iter().flat_map(Template::references);
                let inner = references.find(|(_, reference)| reference.step() == second_id).map(|(inner, _)| inner);
                path.key("arguments").join(inner.expect("a dependency is listed or named in a template"))
            }
        };
        self.refuse(&path, || format!("cyclic dependencies: {} (each step waits for the next)", named(cycle, steps)));
    }
}

/// Most steps of a cycle that a message names.
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
