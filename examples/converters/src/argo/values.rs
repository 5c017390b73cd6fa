//! Values in double braces, `{{inputs.parameters.name}}`, as texts and references of plans.

use std::collections::{BTreeMap, BTreeSet};

use crate::{fields::Field, left_out::Report, plan::identifier, scope::Scope, text::Text};

/// A task that later ones can name.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The id of its step.
    pub(super) id: String,
    /// The field of the step's value that has its outputs; `None` for a loop, which has a list of them.
    pub(super) outputs: Option<&'static str>,
}

/// Values that can be named in a template.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) scope: Scope,
    /// The parameters of the template.
    pub(super) parameters: BTreeMap<String, Text>,
    /// The parameters of the workflow, which are inputs of the plan.
    pub(super) workflow: BTreeSet<String>,
    /// The tasks before.
    pub(super) tasks: BTreeMap<String, Task>,
    /// The reference of the entry of a list for which a step runs.
    pub(super) item: Option<&'static str>,
}

impl Values {
    /// Converts a text. What has no value is reported, and stays as it is written.
    pub(super) fn text(&mut self, text: &str, field: &Field<'_>, report: &mut Report) -> Text {
        let (whole, unknown) = self.try_text(text);
        for name in unknown {
            report.add(
                field,
                format!("value {}", kind(&name)),
                format!("`{{{{{name}}}}}` has no value in a plan, and stays as it is written"),
                "write the value, or declare an input and write `${inputs.NAME}`",
            );
        }
        whole
    }

    /// Converts a text, and returns the names in it that have no value.
    pub(super) fn try_text(&mut self, text: &str) -> (Text, Vec<String>) {
        let (mut whole, mut unknown, mut rest) = (Text::default(), Vec::new(), text);
        while let Some(start) = rest.find("{{") {
            let Some(length) = rest[start..].find("}}") else { break };
            whole.push_literal(&rest[..start]);
            let name = rest[start + 2..start + length].trim();
            match self.value(name).filter(|value| value.constant().is_some() || whole.takes_reference()) {
                Some(value) => whole.push(&value),
                None => {
                    whole.push_literal(&rest[start..start + length + 2]);
                    unknown.push(name.to_owned());
                }
            }
            rest = &rest[start + length + 2..];
        }
        whole.push_literal(rest);
        (whole, unknown)
    }

    fn value(&mut self, name: &str) -> Option<Text> {
        if let Some(parameter) = name.strip_prefix("inputs.parameters.") {
            return self.parameters.get(parameter).cloned();
        }
        if let Some(parameter) = name.strip_prefix("workflow.parameters.") {
            let input = identifier(parameter, 64);
            return self
                .workflow
                .contains(&input)
                .then(|| Text::reference(self.scope.import(&format!("inputs.{input}"))));
        }
        if name == "item" || name.starts_with("item.") {
            let path = name.strip_prefix("item").unwrap_or_default();
            return Some(Text::reference(format!("{}{path}", self.item?)));
        }
        let rest = name.strip_prefix("steps.").or_else(|| name.strip_prefix("tasks."))?;
        let (task, rest) = rest.split_once('.')?;
        let task = self.tasks.get(task)?;
        let output = match rest {
            "outputs.result" => "result",
            _ => rest.strip_prefix("outputs.parameters.").filter(|name| !name.contains('.'))?,
        };
        Some(Text::reference(format!("{}.{}.{output} ?? \"\"", task.id, task.outputs?)))
    }
}

/// The beginning of a name, to count by.
fn kind(name: &str) -> String {
    if name.starts_with('=') {
        return "of an expression".to_owned();
    }
    let names: Vec<&str> = name.split('.').collect();
    match names.as_slice() {
        ["steps" | "tasks", _, rest @ ..] => {
            format!("of a task: {}", rest.iter().take(2).copied().collect::<Vec<_>>().join("."))
        }
        [first, second, ..] => format!("{first}.{second}"),
        _ => name.to_owned(),
    }
}
