//! Parts of a plan that stand in files of their own: the plan of a step, `plan: parts/build.yaml`, and the task of a model, `task: {file: prompts/fix.md}`.
//!
//! The service gets one text with everything in its place. A client that reads files finds with [`PlanText::named`] which files the steps name,
//! and [`PlanText::with`] writes the whole plan as JSON on one line, with a map from each value back to the file it came from:
//! [`ComposedDocument::locate`] converts what the service says of that line to the author's file, field, line and column. Pure: the client reads the
//! files.

use std::{collections::HashMap, sync::Arc};

use serde_json::Number;

use super::{
    Format,
    locate::Positions,
    parse_tree,
    read::imprecise,
    tree::{Kind, Node},
};
use crate::{
    Violation,
    limits::MAX_PLAN_BYTES,
    path::{FieldPath, shown},
};

/// A plan's text, parsed, before the files that its steps name are in place.
#[derive(Debug)]
pub struct PlanText {
    text: String,
    root: Node,
}

/// The content of a file that a step names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileContent {
    /// The plan of the step.
    Plan,
    /// The task of its model, as it stands there.
    Task,
}

/// A file that a step names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its content.
    pub content: FileContent,
    /// The field that names the file, such as `steps[2].plan`.
    pub field: String,
    /// The name of the file, as it stands there.
    pub name: String,
    /// How many plans of the same text it stands in: 1 for a step of the outermost.
    pub depth: usize,
    /// The line and the column in characters, counted from 1.
    pub line: u32,
    /// See `line`.
    pub column: u32,
}

/// A plan as one line of JSON, with the files that its steps name in place.
#[derive(Debug)]
pub struct ComposedDocument {
    /// The JSON.
    json: String,
    /// The text it was made of, and the caller's number of it.
    text: String,
    source: usize,
    /// Where values and names begin: in the JSON and in the text, in this order.
    tokens: Vec<(usize, usize)>,
    /// The plans that were put in place, in the order in which they stand in the JSON.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    start: usize,
    field: String,
    plan: Arc<ComposedDocument>,
}

impl PlanText {
    /// Parses a text. What is wrong with its fields is not looked at here.
    ///
    /// # Errors
    /// The violation when it is neither YAML nor JSON.
    pub fn parse(format: Format, text: &str) -> Result<Self, Violation> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match parse_tree(format, text) {
            Ok(root) => Ok(Self { text: text.to_owned(), root }),
            Err(error) => {
                Err(Violation { field: String::new(), message: error.message, line: error.line, column: error.column })
            }
        }
    }

    /// The files that the steps name, in the order of the text.
    pub fn named(&self) -> Vec<NamedFile> {
        let positions = Positions::new(&self.text);
        let mut named = Vec::new();
        let (plan, path) = self.plan();
        walk(plan, &path, 1, &mut |Found { content, node, path, depth, name }| {
            let (line, column) = positions.line_and_column(node.offset);
            named.push(NamedFile { content, field: path.to_string(), name: name.to_owned(), depth, line, column });
        });
        named
    }

    /// Why this text cannot be the plan of a step; `None` when it may be one.
    pub fn unfit(&self) -> Option<Violation> {
        let message = match &self.root.kind {
            Kind::Null => "the file is empty: it must have a plan, an object with `id` and `steps`",
            Kind::Map(_) if self.is_wrapped() => {
                "has settings around its plan, which the plan of a step cannot have: leave only what stands in `plan`"
            }
            Kind::Map(_) => return None,
            _ => "the file must have a plan: an object with `id` and `steps`",
        };
        let (line, column) = Positions::new(&self.text).line_and_column(self.root.offset);
        Some(Violation { field: String::new(), message: message.to_owned(), line, column })
    }

    /// The whole plan, with `parts` in place of the names of files, by their fields. `source` is the caller's number of this text.
    ///
    /// # Errors
    /// The violation when the whole is longer than a plan may be, or has a number that would not be the same in JSON.
    pub fn with(
        self,
        source: usize,
        parts: &HashMap<String, Arc<ComposedDocument>>,
    ) -> Result<ComposedDocument, Violation> {
        let mut by_offset: HashMap<*const Node, (String, Arc<ComposedDocument>)> = HashMap::new();
        let (plan, path) = self.plan();
        walk(plan, &path, 1, &mut |Found { node, path, .. }| {
            let field = path.to_string();
            if let Some(part) = parts.get(&field) {
                by_offset.insert(node, (field, Arc::clone(part)));
            }
        });
        let mut writer = Writer {
            text: &self.text,
            parts: by_offset,
            json: String::new(),
            tokens: Vec::new(),
            put: Vec::new(),
            path: FieldPath::root(),
        };
        if let Err((offset, message)) = writer.value(&self.root) {
            let (line, column) = Positions::new(&self.text).line_and_column(offset);
            return Err(Violation { field: writer.path.to_string(), message, line, column });
        }
        let Writer { json, tokens, put, .. } = writer;
        Ok(ComposedDocument { json, text: self.text, source, tokens, parts: put })
    }

    fn is_wrapped(&self) -> bool {
        self.root.field("plan").is_some() && self.root.field("steps").is_none()
    }

    /// The object with the steps, as the reader finds it.
    fn plan(&self) -> (&Node, FieldPath) {
        match self.root.field("plan").filter(|_| self.is_wrapped()) {
            Some(entry) => (&entry.value, FieldPath::root().key("plan")),
            None => (&self.root, FieldPath::root()),
        }
    }
}

impl ComposedDocument {
    /// A text that is no plan, as it is put in place of the name of its file. `source` is the caller's number of it.
    pub fn of_task(source: usize, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let json = serde_json::Value::from(text.as_str()).to_string();
        Self { json, text, source, tokens: vec![(0, 0)], parts: Vec::new() }
    }

    /// The whole plan, which [`Format::Json`] reads.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Converts a violation of [`ComposedDocument::json`] to its author's: the number of the text, and the violation with the fields and places of that
    /// text.
    pub fn locate(&self, violation: Violation) -> (usize, Violation) {
        let Violation { mut field, message, line, column } = violation;
        let column = usize::try_from(column).unwrap_or(0);
        let offset = self.json.char_indices().nth(column.saturating_sub(1)).map(|(offset, _)| offset);
        let Some(mut offset) = offset.filter(|_| line == 1) else {
            return (self.source, Violation { field, message, line: 0, column: 0 });
        };
        let mut plan = self;
        loop {
            let after = plan.parts.partition_point(|part| part.start <= offset);
            let part = after.checked_sub(1).map(|index| &plan.parts[index]);
            // What is said of the whole inner plan, such as how deep it stands, is about the field that names its file.
            let inner = part
                .filter(|part| offset < part.start + part.plan.json.len())
                .and_then(|part| Some((part, field.strip_prefix(part.field.as_str())?.strip_prefix('.')?.to_owned())));
            let Some((part, rest)) = inner else { break };
            offset -= part.start;
            field = rest;
            plan = &part.plan;
        }
        let token = plan.tokens.partition_point(|(start, _)| *start <= offset);
        let place = token.checked_sub(1).map_or(0, |token| plan.tokens[token].1);
        let (line, column) = Positions::new(&plan.text).line_and_column(place);
        (plan.source, Violation { field, message, line, column })
    }
}

/// A file that a step names, and the value in whose place it is put.
struct Found<'a> {
    content: FileContent,
    node: &'a Node,
    path: &'a FieldPath,
    /// The number of plans around the step.
    depth: usize,
    name: &'a str,
}

/// Visits the files that steps name, also the steps of plans that are written out. `depth` is the number of plans around them.
fn walk(plan: &Node, path: &FieldPath, depth: usize, visit: &mut impl FnMut(Found<'_>)) {
    let Some(steps) = plan.field("steps") else { return };
    let Kind::List(steps) = &steps.value.kind else { return };
    for (index, step) in steps.iter().enumerate() {
        let path = path.key("steps").index(index);
        if let Some((node, name)) = task_file(step) {
            let path = path.key("agent").key("task");
            visit(Found { content: FileContent::Task, node, path: &path, depth, name });
        }
        let Some(inner) = step.field("plan") else {
            // A group of steps.
            walk(step, &path, depth, visit);
            continue;
        };
        let (path, node) = (path.key("plan"), &inner.value);
        match &node.kind {
            Kind::Text(name) => visit(Found { content: FileContent::Plan, node, path: &path, depth, name }),
            _ => walk(node, &path, depth + 1, visit),
        }
    }
}

/// The task of a step that names a file, and the name.
fn task_file(step: &Node) -> Option<(&Node, &str)> {
    let task = &step.field("agent")?.value.field("task")?.value;
    match (&task.field("file")?.value.kind, &task.kind) {
        (Kind::Text(name), Kind::Map(fields)) if fields.len() == 1 => Some((task, name)),
        _ => None,
    }
}

/// Writes a tree as JSON.
struct Writer<'t> {
    text: &'t str,
    parts: HashMap<*const Node, (String, Arc<ComposedDocument>)>,
    json: String,
    tokens: Vec<(usize, usize)>,
    put: Vec<Part>,
    /// Where it is.
    path: FieldPath,
}

impl Writer<'_> {
    /// The error is the byte of the text that cannot be written, and why.
    fn value(&mut self, node: &Node) -> Result<(), (usize, String)> {
        self.tokens.push((self.json.len(), node.offset));
        if let Some((field, plan)) = self.parts.remove(&std::ptr::from_ref(node)) {
            let start = self.json.len();
            self.within_limit(plan.json.len(), node.offset)?;
            self.json.push_str(&plan.json);
            self.put.push(Part { start, field, plan });
            return Ok(());
        }
        match &node.kind {
            Kind::Null => self.json.push_str("null"),
            Kind::Bool(value) => self.json.push_str(if *value { "true" } else { "false" }),
            Kind::Number(number) => self.number(number, node)?,
            Kind::Text(text) => self.string(text),
            Kind::List(entries) => {
                self.json.push('[');
                for (index, entry) in entries.iter().enumerate() {
                    self.separate(index);
                    let outer = self.path.clone();
                    self.path = outer.index(index);
                    self.value(entry)?;
                    self.path = outer;
                }
                self.json.push(']');
            }
            Kind::Map(entries) => {
                self.json.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    self.separate(index);
                    self.tokens.push((self.json.len(), entry.key.offset));
                    self.string(&entry.key.name);
                    self.json.push(':');
                    let outer = self.path.clone();
                    self.path = outer.key(entry.key.name.clone());
                    self.value(&entry.value)?;
                    self.path = outer;
                }
                self.json.push('}');
            }
        }
        self.within_limit(0, node.offset)
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.json.push(',');
        }
    }

    fn string(&mut self, text: &str) {
        self.json.push_str(&serde_json::Value::from(text).to_string());
    }

    /// A number as it is written, as far as JSON has that, so that the service sees whether it would lose digits.
    fn number(&mut self, number: &Number, node: &Node) -> Result<(), (usize, String)> {
        let rest = &self.text[node.offset..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
        match serde_json::from_str::<Number>(&rest[..end]) {
            Ok(same) if number.is_f64() && same == *number => self.json.push_str(&rest[..end]),
            _ => match imprecise(self.text, node) {
                Some(message) => return Err((node.offset, message.to_owned())),
                None => self.json.push_str(&number.to_string()),
            },
        }
        Ok(())
    }

    fn within_limit(&self, more: usize, offset: usize) -> Result<(), (usize, String)> {
        match self.json.len() + more > MAX_PLAN_BYTES {
            true => Err((offset, too_long())),
            false => Ok(()),
        }
    }
}

fn too_long() -> String {
    format!(
        "with the files of its steps in place, the plan is longer than the limit of {MAX_PLAN_BYTES} bytes: split it"
    )
}

/// The longest name of a file, which is that of a path on Linux.
const MAX_NAME_BYTES: usize = 4096;

/// The problem with the name of a file, found before the file is looked for; `None` when the name is allowed.
pub fn refused_name(name: &str, content: FileContent) -> Option<String> {
    let (what, instead) = match content {
        FileContent::Plan => ("a plan or the name of a file", "indent the plan below `plan:`"),
        FileContent::Task => ("the name of a file", "write the task as a text"),
    };
    if name.trim().is_empty() {
        return Some(format!("must be {what}: it is empty"));
    }
    if name.contains("${") {
        return Some(format!(
            "names the file `{}`, and templates are not filled in there: name the file as it is called, and give the plan `inputs`",
            shown(name)
        ));
    }
    if name.contains("://") {
        return Some(format!(
            "names `{}`, a URL, and only files are read: save it beside the plan, and name the file",
            shown(name)
        ));
    }
    if let Some(hidden) = name.chars().find(|c| !belay_text::is_plain(*c) && *c != '\n') {
        return Some(format!(
            "names a file with a character that cannot be seen, U+{:04X}: type the name again, `{}`",
            u32::from(hidden),
            shown(name)
        ));
    }
    if name.contains('\n') || name.len() > MAX_NAME_BYTES {
        return Some(format!("must be {what}: {instead}, or name a file in one line"));
    }
    None
}

#[cfg(test)]
mod tests;
