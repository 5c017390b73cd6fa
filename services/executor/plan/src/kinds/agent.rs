//! A goal that a model works towards with tools.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{COMMIT, Effects, REBASE, ToolStep};
use crate::Template;

/// The tool as which a turn of a model is recorded, and which the executor carries out itself. No plan may call it.
pub const MODEL_TOOL: &str = "ask_model";

/// The tool with which a model says that the task is done, and with what result. The executor carries it out itself, and no plan may call it.
pub const COMPLETION_TOOL: &str = "complete_step";

/// The tool as which a model judges whether a criterion of a goal is met. The executor carries it out itself, and no plan may call it.
pub const JUDGE_TOOL: &str = "judge_criterion";

/// The tool with which the files of a goal are read.
pub const READ_TOOL: &str = "read_file";

/// The tool with which the files are found that a pattern of a goal matches.
pub const FIND_TOOL: &str = "find_files";

/// The call that reads a file that a pattern has found; its path is known once that has ended.
static READ: LazyLock<ToolStep> = LazyLock::new(|| {
    let arguments = Template::parse(&serde_json::json!({})).expect("an object without templates is one");
    ToolStep { tool: READ_TOOL.to_owned(), arguments }
});

/// Whether two names are of one tool, in whatever spelling: `ReadFile`, `READ_FILE` and `read_file` are.
pub(crate) fn is_same_tool(one: &str, other: &str) -> bool {
    one.replace('_', "").eq_ignore_ascii_case(&other.replace('_', ""))
}

/// Whether the executor carries out the calls of this tool itself.
pub fn is_own_tool(tool: &str) -> bool {
    asks_model(tool) || tool == COMPLETION_TOOL
}

/// Whether a call of this tool asks a model, which counts tokens.
pub fn asks_model(tool: &str) -> bool {
    tool == MODEL_TOOL || tool == JUDGE_TOOL
}

/// What precedes the name of a group among the tools of a goal.
pub(crate) const GROUP_PREFIX: &str = "group:";

/// Groups of tools that are part of every tool runner, by their names.
pub const TOOL_GROUPS: [(&str, &[&str]); 2] = [
    ("reading", &[READ_TOOL, "list_directory", FIND_TOOL, "search_code"]),
    ("writing", &["write_file", "modify_file", "delete_file"]),
];

/// How many turns a model has where the plan says nothing (S2-FR-015).
pub const DEFAULT_TURNS: u32 = 10;

/// An unchecked goal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDraft {
    /// The model, by its name in the settings of the executor.
    pub model: String,
    /// What is to be achieved, in words; may hold templates.
    pub task: String,
    /// The tools that the model may call, by their names or aliases, and groups of tools, `group:NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The files that the model is shown with its task, by their paths in the workspace, which may hold templates, or by globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// How many times the model is asked at most; 0 means [`DEFAULT_TURNS`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_turns: u32,
    /// The models that take over, one after the other, where the one before cannot be asked any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// How many percent of the model's window a prompt may have before older results are archived; 0 where they are when it does not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prompt_percent: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl AgentDraft {
    /// Puts the tools of groups in the place of these, without those that are named already. The first stands where the group did and the others at the end, so that
    /// each tool that the author names keeps its place, by which problems are told. An unknown group stays.
    pub(crate) fn resolve_groups(&mut self) {
        for place in 0..self.tools.len() {
            let name = self.tools[place].strip_prefix(GROUP_PREFIX);
            let Some((_, group)) = TOOL_GROUPS.iter().find(|(known, _)| Some(*known) == name) else { continue };
            let mut new =
                group.iter().filter(|tool| !self.tools.iter().any(|named| is_same_tool(named, tool))).copied();
            // A group whose tools are all named stays, and is refused.
            let Some(first) = new.next() else { continue };
            let others: Vec<String> = new.map(str::to_owned).collect();
            self.tools[place] = first.to_owned();
            self.tools.extend(others);
        }
    }

    /// The bytes of everything in it that an author can make long.
    pub(super) fn size(&self) -> usize {
        let texts = self.tools.iter().chain(&self.files).chain(&self.fallback);
        self.model.len() + self.task.len() + texts.map(String::len).sum::<usize>()
    }
}

/// A step in which a model works towards a goal, turn by turn. Each turn, and each call that it asks for, is carried out as a step of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentStep {
    pub(crate) model: String,
    pub(crate) task: Template,
    pub(crate) tools: Vec<ToolStep>,
    pub(crate) files: Vec<ToolStep>,
    pub(crate) max_turns: u32,
    pub(crate) fallback: Vec<String>,
    pub(crate) prompt_percent: u32,
    pub(crate) effects: Effects,
}

impl AgentStep {
    /// The model, by its name in the settings.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The models that may be asked, by their names in the settings: the first, and those that take over in its place. At least one.
    pub fn models(&self) -> impl ExactSizeIterator<Item = &str> {
        let others = &self.fallback;
        (0..1 + others.len()).map(|place| place.checked_sub(1).map_or(&*self.model, |place| &*others[place]))
    }

    /// How many percent of the model's window a prompt may have before older results are archived; `None` where they are when it does not fit.
    pub fn prompt_percent(&self) -> Option<u32> {
        Some(self.prompt_percent).filter(|percent| *percent > 0)
    }

    /// The object whose `task` is what is to be achieved.
    pub fn task(&self) -> &Template {
        &self.task
    }

    /// The tools that the model may call, in the order of the plan: calls without arguments.
    pub fn tools(&self) -> &[ToolStep] {
        &self.tools
    }

    /// The calls that read what the model is shown with its task, or find which files these are, in the order of the plan.
    pub fn files(&self) -> &[ToolStep] {
        &self.files
    }

    /// The pattern at this place of [`Self::files`]; `None` for the path of a file.
    pub fn pattern(&self, place: usize) -> Option<&str> {
        let file = self.files.get(place)?;
        file.arguments.source().get("pattern")?.as_str()
    }

    /// The call that reads a file that a pattern has found, without its arguments; `None` for a goal without patterns.
    pub fn found(&self) -> Option<&ToolStep> {
        self.files.iter().any(|file| file.tool == FIND_TOOL).then(|| &*READ)
    }

    /// How many times the model is asked at most.
    pub fn max_turns(&self) -> u32 {
        if self.max_turns == 0 { DEFAULT_TURNS } else { self.max_turns }
    }

    /// How what the calls change becomes the workspace's.
    pub fn effects(&self) -> Effects {
        self.effects
    }

    /// The call that commits what the others have changed; `None` when each commits its own.
    pub fn commit(&self) -> Option<&ToolStep> {
        (self.effects == Effects::PerStep).then(|| &*COMMIT)
    }

    /// The call that drops what of their changes conflicts with what others have done since; `None` when each commits its own.
    pub fn rebase(&self) -> Option<&ToolStep> {
        (self.effects == Effects::PerStep).then(|| &*REBASE)
    }

    pub(super) fn to_draft(&self) -> AgentDraft {
        AgentDraft {
            model: self.model.clone(),
            task: self.task.source()["task"].as_str().unwrap_or_default().to_owned(),
            tools: self.tools.iter().map(|tool| tool.tool.clone()).collect(),
            files: self.files.iter().map(|file| path_of(file).to_owned()).collect(),
            max_turns: self.max_turns,
            fallback: self.fallback.clone(),
            prompt_percent: self.prompt_percent,
        }
    }
}

/// The path of a file of a goal, or its pattern, as it is written.
fn path_of(file: &ToolStep) -> &str {
    let source = file.arguments.source();
    source.get("path").or(source.get("pattern")).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Plan, PlanPart};

    const PLAN: &str = r#"
id: p
inputs: {x: {schema: {type: string}}}
steps: [{id: a, agent: {model: m, task: t, files: [a.md, "src/**/*.rs", "[${inputs.x}].md", 'b\*', "c?", "{d,e}"]}}]
"#;

    #[test]
    fn a_path_with_a_wildcard_and_without_a_template_is_a_pattern() {
        let plan = Plan::parse(Format::Yaml, PLAN).unwrap();
        let agent = plan.steps()[0].agent().unwrap();
        let tools: Vec<&str> = agent.files().iter().map(|file| file.tool.as_str()).collect();
        assert_eq!(tools, [READ_TOOL, FIND_TOOL, READ_TOOL, FIND_TOOL, FIND_TOOL, FIND_TOOL]);
        let patterns: Vec<&str> = (0..7).filter_map(|place| agent.pattern(place)).collect();
        assert_eq!(patterns, ["src/**/*.rs", r"b\*", "c?", "{d,e}"]);
        let again = Plan::new(plan.to_draft()).unwrap();
        assert_eq!(again.steps()[0].agent(), Some(agent), "as its author wrote it");
    }

    // What is known of the tool that reads is needed for what is found, also where the plan names no path.
    #[test]
    fn what_a_pattern_finds_is_read() {
        let text = "{id: p, steps: [{id: a, agent: {model: m, task: t, files: ['*.md']}}]}";
        let plan = Plan::parse(Format::Yaml, text).unwrap();
        let step = &plan.steps()[0];
        assert_eq!(step.named_calls().map(|call| call.tool.as_str()).collect::<Vec<_>>(), [FIND_TOOL, READ_TOOL]);
        let mut planned = Vec::new();
        let checked = Plan::parse_with(Format::Yaml, text, |part| {
            if let PlanPart::Call(call) = part {
                planned.push((call.tool.to_owned(), call.place.pointer("/tool"), call.arguments.is_some()));
            }
            Vec::new()
        });
        assert!(checked.is_ok());
        let field = "/agent/files/0".to_owned();
        let calls = [(FIND_TOOL.to_owned(), field.clone(), true), (READ_TOOL.to_owned(), field, false)];
        assert_eq!(planned, calls, "runners have to have both");
        assert!(
            Plan::parse(Format::Yaml, &text.replace('*', "")).unwrap().steps()[0].agent().unwrap().found().is_none()
        );
    }

    #[test]
    fn a_group_is_its_tools_and_moves_no_other() {
        let resolved = |tools: &[&str]| {
            let mut draft =
                AgentDraft { tools: tools.iter().map(|&tool| tool.to_owned()).collect(), ..AgentDraft::default() };
            draft.resolve_groups();
            draft.tools
        };
        let reading = ["read_file", "list_directory", "find_files", "search_code"];
        assert_eq!(resolved(&["group:reading"]), reading);
        assert_eq!(
            resolved(&["a", "group:reading", "list_directory", "group:writing"]),
            [
                "a",
                "read_file",
                "list_directory",
                "write_file",
                "find_files",
                "search_code",
                "modify_file",
                "delete_file"
            ]
        );
        assert_eq!(
            resolved(&["ReadFile", "group:reading"]),
            ["ReadFile", "list_directory", "find_files", "search_code"]
        );
        let all_named: Vec<&str> = reading.into_iter().chain(["group:reading", "group:other"]).collect();
        assert_eq!(resolved(&all_named), all_named, "what adds nothing, and what is none, is refused");
    }
}
