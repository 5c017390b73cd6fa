//! References of Conductor, `${task.output.name}`, as those of plans.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{fields::Field, left_out::Report, plan::identifier, scope::Scope, text::Text};

/// The values that can be named in a list of tasks.
#[derive(Debug)]
pub(super) struct References {
    pub(super) scope: Scope,
    /// By the reference name of a task, the id of its step.
    tasks: BTreeMap<String, String>,
    /// The same of the plan around, whose values are brought in.
    outer: BTreeMap<String, String>,
    /// By the name of a variable, the steps that set it, the last one first.
    setters: BTreeMap<String, Vec<String>>,
    defaults: BTreeMap<String, Value>,
    inputs: BTreeSet<String>,
}

impl References {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            tasks: BTreeMap::new(),
            outer: BTreeMap::new(),
            setters: BTreeMap::new(),
            defaults: BTreeMap::new(),
            inputs: BTreeSet::new(),
        }
    }

    /// Returns the references within the plan of a step that names what this plan names, as a loop does.
    pub(super) fn inner(&self, names: &[&str]) -> Self {
        let scope = Scope::inner(names);
        let mut outer = self.outer.clone();
        outer.extend(self.tasks.clone());
        Self {
            scope,
            tasks: BTreeMap::new(),
            outer,
            setters: self.setters.clone(),
            defaults: self.defaults.clone(),
            inputs: BTreeSet::new(),
        }
    }

    pub(super) fn add_task(&mut self, name: &str, id: &str) {
        self.tasks.insert(name.to_owned(), id.to_owned());
    }

    pub(super) fn add_setter(&mut self, variable: &str, id: &str) {
        self.setters.entry(variable.to_owned()).or_default().insert(0, id.to_owned());
    }

    pub(super) fn set_variable_default(&mut self, name: &str, value: &Field<'_>) {
        self.defaults.insert(name.to_owned(), value.node.to_json());
    }

    /// The id of the step of a task.
    pub(super) fn task(&self, name: &str) -> Option<&str> {
        self.tasks.get(name).map(String::as_str)
    }

    /// The names of all inputs that were read.
    pub(super) fn inputs(&self) -> Vec<String> {
        self.inputs.iter().cloned().collect()
    }

    /// Takes over what an inner plan has read of the inputs of the whole one.
    pub(super) fn add_inputs(&mut self, inner: &Self) {
        self.inputs.extend(inner.inputs.iter().cloned());
    }

    /// Converts a value, in which every text may have references.
    pub(super) fn value(&mut self, field: &Field<'_>, report: &mut Report) -> Value {
        match field.node.to_json() {
            Value::String(text) => json!(self.text(&text, field, report).template()),
            Value::Object(_) => {
                field.members().into_iter().map(|(name, member)| (name, self.value(&member, report))).collect()
            }
            Value::Array(_) => field.items().iter().map(|item| self.value(item, report)).collect(),
            other => other,
        }
    }

    /// Converts a text. References without a place are reported, and stay as they are written.
    pub(super) fn text(&mut self, text: &str, field: &Field<'_>, report: &mut Report) -> Text {
        let (whole, unknown) = self.try_text(text);
        for name in unknown {
            report.add(
                field,
                "reference",
                format!("`{name}` has no value in a plan, and stays as it is written"),
                "write the value, or declare an input and write `${inputs.NAME}`",
            );
        }
        whole
    }

    /// Converts a text, and returns the references in it that have no place.
    pub(super) fn try_text(&mut self, text: &str) -> (Text, Vec<String>) {
        let (mut whole, mut unknown, mut rest) = (Text::default(), Vec::new(), text);
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            whole.push_literal(&rest[..start]);
            let name = &rest[start + 2..start + length];
            match self.reference(name).filter(|_| whole.takes_reference()) {
                Some(reference) => whole.push(&Text::reference(reference)),
                None => {
                    whole.push_literal(&rest[start..=start + length]);
                    unknown.push(name.to_owned());
                }
            }
            rest = &rest[start + length + 1..];
        }
        whole.push_literal(rest);
        (whole, unknown)
    }

    /// The reference of a plan for what stands between `${` and `}`, with null where there is no value.
    pub(super) fn reference(&mut self, name: &str) -> Option<String> {
        let names: Vec<&str> = name.trim().split('.').collect();
        let reference = match names.as_slice() {
            ["workflow", "input", first, rest @ ..] => {
                let (input, index) = first.split_once('[').map_or((*first, ""), |(input, index)| (input, index));
                let input = identifier(input, 64);
                self.inputs.insert(input.clone());
                let index = if index.is_empty() { String::new() } else { format!("[{index}") };
                self.scope.import(&format!("inputs.{input}{index}{}", accessors(rest)?))
            }
            ["workflow", "variables", variable, rest @ ..] => return self.variable(variable, rest),
            [task, "output", rest @ ..] => {
                let path = accessors(rest)?;
                match (self.tasks.get(*task), self.outer.get(*task)) {
                    (Some(step), _) => format!("{step}.result{path}"),
                    (None, Some(step)) => self.scope.import(&format!("{step}.result{path}")),
                    (None, None) => return None,
                }
            }
            [task, "status"] => return Some(format!("{}.state", self.tasks.get(*task)?)),
            _ => return None,
        };
        Some(format!("{reference} ?? null"))
    }

    /// The value that the last step has set which has run; before any, the one that the workflow begins with.
    fn variable(&mut self, name: &str, rest: &[&str]) -> Option<String> {
        let path = accessors(rest)?;
        let setters = self.setters.get(name).cloned().unwrap_or_default();
        let default =
            if rest.is_empty() { self.defaults.get(name).cloned().unwrap_or(Value::Null) } else { Value::Null };
        if setters.is_empty() {
            return None;
        }
        let own: Vec<&String> = self.tasks.values().collect();
        let names: Vec<String> = setters
            .iter()
            .map(|step| (own.contains(&step), format!("{step}.result.{name}{path}")))
            .map(|(is_own, reference)| if is_own { reference } else { self.scope.import(&reference) })
            .collect();
        // A default of a reference is a scalar.
        let default = if default.is_object() || default.is_array() { Value::Null } else { default };
        Some(format!("{} ?? {default}", names.join(" ?? ")))
    }
}

/// Names with indexes, `list[0].name`, as they stand in references of plans; `None` for what is no such path.
fn accessors(names: &[&str]) -> Option<String> {
    let mut path = String::new();
    for name in names {
        let (name, index) = name.split_once('[').map_or((*name, None), |(name, index)| (name, Some(index)));
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !is_name {
            return None;
        }
        path.push('.');
        path.push_str(name);
        if let Some(index) = index {
            let is_index = index
                .strip_suffix(']')
                .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
            if !is_index {
                return None;
            }
            path.push('[');
            path.push_str(index);
        }
    }
    Some(path)
}
