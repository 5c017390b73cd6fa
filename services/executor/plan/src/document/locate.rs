//! Positions in a document: converts byte offsets to lines and columns, and a draft's field names to the author's.

use crate::{
    check::Places,
    error::Problem,
    path::{FieldPath, Segment},
};

use super::{finding::Finding, tree::Node};

/// Converts byte offsets to lines and columns.
pub(super) struct Positions<'t> {
    text: &'t str,
    /// The byte at which each line begins.
    lines: Vec<usize>,
}

impl<'t> Positions<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let after_breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(offset, _)| offset + 1);
        Self { text, lines: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// The line and the column in characters, both counted from 1.
    pub(super) fn line_and_column(&self, offset: usize) -> (u32, u32) {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.lines.partition_point(|start| *start <= offset);
        let column = self.text[self.lines[line - 1]..offset].chars().count() + 1;
        let counted = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (counted(line), counted(column))
    }

    /// The byte at a line and a column in bytes, both counted from 1.
    pub(super) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        (start + column.saturating_sub(1)).min(self.text.len())
    }
}

/// The other names that the fields of a draft may have in a document.
pub(super) const OTHER_NAMES: [(&str, &[&str]); 10] = [
    ("memory", &["working_memory"]),
    ("id", &["stepId", "step_id"]),
    ("tool", &["skillId", "action"]),
    ("arguments", &["params", "parameters", "args", "inputs"]),
    ("depends_on", &["dependencies"]),
    ("max_attempts", &["maxAttempts"]),
    ("backoff", &["backoffMs"]),
    ("stop_on_error", &["stopOnError"]),
    ("parallelism", &["parallel"]),
    ("audit_level", &["auditLevel"]),
];

/// The names that fields of a draft have in a task plan, and nowhere else.
const TASK_PLAN_NAMES: [(&str, &[&str]); 10] = [
    ("id", &["Id"]),
    ("description", &["goal", "Goal", "Description"]),
    ("title", &["Title"]),
    ("steps", &["tasks", "Tasks", "Steps"]),
    ("tool", &["Action", "Tool"]),
    ("arguments", &["Parameters", "Arguments"]),
    ("depends_on", &["dependsOn", "DependsOn", "Dependencies"]),
    (POSTCONDITIONS, &["verification", "Verification"]),
    ("command", &["Command"]),
    ("file", &["File"]),
];

/// Checks after a call, which a task plan has in one object instead of a list.
const POSTCONDITIONS: &str = "postconditions";

/// The other names that a field may have.
pub(crate) fn other_names(name: &str) -> &'static [&'static str] {
    OTHER_NAMES.iter().find(|(main, _)| *main == name).map_or(&[], |(_, others)| others)
}

/// Where the parts of a draft came from.
pub(super) struct Origin<'n> {
    /// The object that holds `id` and `steps`.
    pub(super) plan: &'n Node,
    pub(super) plan_path: FieldPath,
    /// The object with settings that some documents have beside the plan.
    pub(super) config: Option<&'n Node>,
    /// By step of the draft: its position in the document.
    pub(super) places: Places,
}

impl Origin<'_> {
    /// Converts a problem to the author's field names, with its position. A missing field has the position of the object that should contain it.
    pub(super) fn finding(&self, problem: Problem) -> Finding {
        let Problem { path, message } = problem;
        let segments = path.segments();
        let mut field = self.plan_path.clone();
        let mut node = Some(self.plan);
        let mut offset = self.plan.offset;
        if let [Segment::Key(key), ..] = segments
            && find(self.plan, key).is_none()
            && let Some(config) = self.config
            && find(config, key).is_some()
        {
            field = FieldPath::root().key("config");
            node = Some(config);
        }
        // The steps of a plan, its own and those of plans that are steps of it, may have been put in order.
        let mut places = Some(&self.places);
        // The groups that the step stands in which was entered last, the innermost last.
        let mut groups: Vec<(FieldPath, &Node)> = Vec::new();
        for (depth, segment) in segments.iter().enumerate() {
            match segment {
                Segment::Key(key) => {
                    let mut entry = node.and_then(|node| find(node, key));
                    // What a step does not say itself, its group does.
                    if entry.is_none()
                        && let Some((group, said)) =
                            groups.iter().rev().find_map(|(path, group)| Some((path, find(group, key)?)))
                    {
                        (field, entry) = (group.clone(), Some(said));
                    }
                    groups.clear();
                    field = field.key(entry.map_or_else(|| key.clone(), |(name, _)| name.to_owned().into()));
                    node = entry.map(|(_, value)| value);
                }
                Segment::Index(_) if is_verification(&segments[..depth], node) => {}
                Segment::Index(index) => {
                    let is_step = depth % 3 == 1 && is_in_plans(&segments[..depth]);
                    let positions = places.filter(|_| is_step).map_or_else(|| vec![*index], |of| of.positions(*index));
                    if is_step {
                        places = places.and_then(|of| of.of_plan(*index));
                    }
                    for (level, position) in positions.into_iter().enumerate() {
                        if level > 0 {
                            groups.extend(node.map(|group| (field.clone(), group)));
                            let entry = node.and_then(|node| find(node, "steps"));
                            field = field.key(entry.map_or("steps", |(name, _)| name).to_owned());
                            node = entry.map(|(_, steps)| steps);
                        }
                        field = field.index(position);
                        node = node.and_then(|node| node.entry(position));
                    }
                }
            }
            offset = node.map_or(offset, |node| node.offset);
        }
        Finding { field, message, offset: (!segments.is_empty()).then_some(offset) }
    }
}

/// Whether these segments lead to the checks of a step that its task plan has in one object.
fn is_verification(segments: &[Segment], node: Option<&Node>) -> bool {
    let is_checks = matches!(segments.last(), Some(Segment::Key(key)) if key == POSTCONDITIONS);
    is_checks && node.is_some_and(|node| node.entries().is_some())
}

/// Whether these segments lead to the steps of a plan: `steps`, or `steps[2].plan.steps`.
fn is_in_plans(segments: &[Segment]) -> bool {
    let is = |segment: Option<&Segment>, name: &str| matches!(segment, Some(Segment::Key(key)) if key == name);
    segments.chunks(3).all(|chunk| is(chunk.first(), "steps") && (chunk.len() == 1 || is(chunk.get(2), "plan")))
}

/// Finds a field by its name in a draft, under whichever name the author used.
fn find<'n>(node: &'n Node, key: &str) -> Option<(&'n str, &'n Node)> {
    let written = || {
        let of_task_plan = TASK_PLAN_NAMES.iter().find(|(name, _)| *name == key)?;
        of_task_plan.1.iter().find_map(|other| node.field(other))
    };
    let others = || other_names(key).iter().find_map(|other| node.field(other));
    let entry = node.field(key).or_else(others).or_else(written)?;
    Some((&entry.key.name, &entry.value))
}
