//! A goal that a model works towards.

use globset::GlobBuilder;

use super::call_part::{CallPart, outermost};
use crate::{
    AgentDraft, CallPlace, FIND_TOOL, PlanPart, PlannedCall, READ_TOOL, StepDraft, Template, ToolStep,
    check::Checker,
    kinds::{GROUP_PREFIX, TOOL_GROUPS},
    limits::{MAX_FALLBACK_MODELS, MAX_FILES, MAX_OFFERED_TOOLS, MAX_TASK_BYTES, MAX_TOOL_CHARS, MAX_TURNS},
    nearest,
    path::{FieldPath, shown},
};

/// The result of checking a goal.
pub(super) struct AgentPart {
    /// The task, as far as it could be read.
    pub(super) task: Template,
    /// Whether the model's name is one.
    pub(super) has_model: bool,
    /// Whether the names of the models that take over are such.
    pub(super) fallback: Vec<bool>,
    /// The tools that the model may call.
    pub(super) tools: Vec<CallPart>,
    /// The files that it is shown.
    pub(super) files: Vec<FilePart>,
}

/// The call that reads a file of a goal, or finds those that a pattern matches.
pub(super) struct FilePart {
    is_pattern: bool,
    pub(super) call: CallPart,
}

impl FilePart {
    fn tool(&self) -> &'static str {
        if self.is_pattern { FIND_TOOL } else { READ_TOOL }
    }

    /// The planned calls: what a pattern has found is read as well.
    pub(super) fn planned(&self, step: usize, place: usize) -> impl Iterator<Item = PlanPart<'_>> {
        let read = PlannedCall {
            step: outermost(step),
            place: CallPlace::FoundFile(place),
            tool: READ_TOOL,
            arguments: None,
            allowed_commands: None,
            network: None,
            network_of_plan: None,
        };
        let read = self.is_pattern.then_some(PlanPart::Call(read));
        self.call.planned(step, CallPlace::ShownFile(place), self.tool()).into_iter().chain(read)
    }

    /// The call, after the whole plan has been checked.
    pub(super) fn complete(self) -> ToolStep {
        ToolStep { tool: self.tool().to_owned(), arguments: self.call.arguments }
    }
}

/// The problem of a group that stands for no tools.
fn problem_of_group(name: &str) -> String {
    let known = TOOL_GROUPS.map(|(known, _)| known);
    if known.contains(&name) {
        return format!("`{name}` has no tool that is not named besides: remove it");
    }
    let near = nearest(name, known).map(|near| format!("; did you mean `{GROUP_PREFIX}{near}`?")).unwrap_or_default();
    format!("there is no group `{}`, only {}{near}", shown(name), known.join(" and "))
}

impl Checker<'_> {
    /// The task and the tools, as far as they can be read.
    pub(super) fn agent(&mut self, path: &FieldPath, step: &StepDraft, agent: &AgentDraft) -> AgentPart {
        let AgentDraft { model, task, tools, files, max_turns, fallback, prompt_percent } = agent;
        let not_for_agents = [
            (
                "for_each",
                step.for_each.is_some(),
                "let the step carry out a `plan`, and one in that plan have the goal",
            ),
            ("repeat", step.repeat.is_some(), "let the step carry out a `plan`, and one in that plan have the goal"),
            (
                "fallback",
                !step.fallback.is_empty(),
                "name other models in `agent.fallback`, or let another step run after the failure of this one",
            ),
            ("compensate", step.compensate.is_some(), "make what has to be undone a step of its own"),
            ("verbatim", !step.verbatim.is_empty(), "write `$${` in the task where `${` means nothing"),
        ];
        for (field, _, way_out) in not_for_agents.into_iter().filter(|(_, is_set, _)| *is_set) {
            self.rule(&path.key(field), || {
                format!("is for steps with one call of their own, and in this one a model works: remove it; {way_out}")
            });
        }
        let at = path.key("agent");
        let has_model = self.model(&at.key("model"), model);
        let fallback = self.other_models(&at.key("fallback"), model, fallback);
        if *prompt_percent > 100 {
            self.rule(&at.key("prompt_percent"), || format!("is {prompt_percent} and the limit is 100"));
        }
        if belay_text::is_blank(task) {
            self.rule(&at.key("task"), || "is required: say in words what is to be achieved".to_owned());
        }
        if task.len() > MAX_TASK_BYTES {
            self.rule(&at.key("task"), || {
                format!(
                    "has {} bytes and the limit is {MAX_TASK_BYTES}: put what is long into files, and name their paths",
                    task.len()
                )
            });
        }
        if *max_turns > MAX_TURNS {
            self.rule(&at.key("max_turns"), || format!("is {max_turns} and the limit is {MAX_TURNS}"));
        }
        if tools.len() > MAX_OFFERED_TOOLS {
            self.rule(&at.key("tools"), || {
                format!(
                    "names {} tools and the limit is {MAX_OFFERED_TOOLS}: leave out what the task does not need",
                    tools.len()
                )
            });
        }
        if files.len() > MAX_FILES {
            self.rule(&at.key("files"), || {
                format!(
                    "names {} files and the limit is {MAX_FILES}: the model can read the others when it needs them",
                    files.len()
                )
            });
        }
        let (task, errors) = Template::read(&serde_json::json!({"task": task}), &[]);
        for error in errors {
            self.refuse(&at.join(&error.field), || error.message);
        }
        let named = tools.iter().enumerate();
        let tools = named.map(|(place, tool)| {
            let at = at.key("tools").index(place);
            let is_first = tools.iter().position(|other| other == tool) == Some(place);
            if !is_first {
                self.rule(&at, || format!("`{}` is named twice: remove it here", shown(tool)));
            }
            let group = tool.strip_prefix(GROUP_PREFIX);
            if let Some(group) = group {
                self.rule(&at, || problem_of_group(group));
            }
            let has_tool = group.is_none() && self.tool(&at, tool) && is_first;
            CallPart { has_tool, arguments: Template::read(&serde_json::json!({}), &[]).0, arguments_are_valid: false }
        });
        let tools = tools.collect();
        let files = files.iter().enumerate().map(|(place, file)| {
            let at = at.key("files").index(place);
            if file.is_empty() {
                self.rule(&at, || "must not be empty: name a file of the workspace".to_owned());
            } else if files.iter().position(|other| other == file) != Some(place) {
                self.rule(&at, || format!("`{}` is named twice: remove it here", shown(file)));
            }
            let (mut arguments, errors) = Template::read(&serde_json::json!({"path": file}), &[]);
            let mut arguments_are_valid = errors.is_empty() && !file.is_empty();
            let is_pattern = arguments_are_valid && is_pattern(&arguments);
            if is_pattern {
                (arguments, _) = Template::read(&serde_json::json!({"pattern": file}), &[]);
                if let Some(problem) = problem_of_pattern(file) {
                    arguments_are_valid = false;
                    self.rule(&at, || problem);
                }
            }
            for error in errors {
                self.refuse(&at, || error.message);
            }
            FilePart { is_pattern, call: CallPart { has_tool: true, arguments, arguments_are_valid } }
        });
        AgentPart { task, has_model, fallback, tools, files: files.collect() }
    }

    /// Whether it is the name of a model.
    fn model(&mut self, at: &FieldPath, model: &str) -> bool {
        let is_name = !model.is_empty()
            && model.chars().count() <= MAX_TOOL_CHARS
            && model.chars().all(|c| belay_text::is_plain(c) && !c.is_whitespace());
        if !is_name {
            self.rule(at, || match model {
                "" => {
                    "is required: name one of the models of the settings, as `belay models list` shows them".to_owned()
                }
                name => format!(
                    "`{}` is not a model's name: it has 1 to {MAX_TOOL_CHARS} characters and no spaces",
                    shown(name)
                ),
            });
        }
        is_name
    }

    /// Checks the models that take over, and says of each whether its name is one.
    fn other_models(&mut self, at: &FieldPath, first: &str, others: &[String]) -> Vec<bool> {
        if others.len() > MAX_FALLBACK_MODELS {
            self.rule(at, || format!("names {} models and the limit is {MAX_FALLBACK_MODELS}", others.len()));
        }
        let of = others.iter().enumerate().map(|(place, model)| {
            let at = at.index(place);
            let is_name = self.model(&at, model);
            let is_first = model != first && others.iter().position(|other| other == model) == Some(place);
            if is_name && !is_first {
                self.rule(&at, || {
                    format!("`{}` is named twice: a model that could not be asked is not asked again", shown(model))
                });
            }
            is_name && is_first
        });
        of.collect()
    }
}

/// Whether a path that names nothing has a character that means something in globs.
fn is_pattern(path: &Template) -> bool {
    let written = path.source()["path"].as_str().unwrap_or_default();
    path.is_constant() && written.contains(['*', '?', '[', '{'])
}

/// The problem that the tool that finds files would have with a pattern.
fn problem_of_pattern(pattern: &str) -> Option<String> {
    let why = if pattern.starts_with('/') {
        "must be relative to the workspace: remove the `/` at its beginning".to_owned()
    } else if pattern.split('/').any(|name| name == "..") {
        "leads out of the workspace by `..`, or may: write it without".to_owned()
    } else if pattern.ends_with('/') {
        "matches no file: add `**` for all files in a folder".to_owned()
    } else {
        let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
        let error = glob.err()?;
        format!("is not a valid glob: {}; write `[[]` for the character `[`, and `[{{]` for `{{`", error.kind())
    };
    Some(format!("`{}` {why}", shown(pattern)))
}
