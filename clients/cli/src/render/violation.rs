//! Problems of a plan, pointed at in its text.

use std::sync::Arc;

use belay_proto::v1::PlanViolation;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use super::{
    json,
    text::{Line, Style, clean},
};

/// A text with a name, to point into.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Its author's name for it: a path, or `<stdin>`.
    pub(crate) name: String,
    /// All of it.
    pub(crate) text: String,
}

/// A problem, and the file that has it.
#[derive(Clone, Debug)]
pub(crate) struct LocatedViolation {
    /// The problem.
    pub(crate) violation: PlanViolation,
    /// The file of a step's plan that it is in; `None` when it is in the file that the command was given.
    pub(crate) part: Option<Arc<Source>>,
}

impl LocatedViolation {
    /// Like [`lines`]; `source` is the file that the command was given.
    pub(crate) fn lines(&self, source: Option<&Source>) -> Vec<Line> {
        lines(&self.violation, self.part.as_deref().or(source))
    }

    /// For programs: the violation, with `file` when it is in another file than the one that the command was given.
    pub(crate) fn json(&self) -> Option<Value> {
        let mut value = json::of(&self.violation).ok()?;
        if let Some(part) = &self.part {
            value["file"] = part.name.clone().into();
        }
        Some(value)
    }
}

impl From<PlanViolation> for LocatedViolation {
    fn from(violation: PlanViolation) -> Self {
        Self { violation, part: None }
    }
}

/// Like a compiler: `plan.yaml:12:7: steps[2].depends_on[0]: …`, the line, and a caret under the column.
fn lines(violation: &PlanViolation, source: Option<&Source>) -> Vec<Line> {
    let name = source.map_or("plan", |source| source.name.as_str());
    let place = match (violation.line, violation.column) {
        (1.., 1..) => format!("{name}:{}:{}", violation.line, violation.column),
        (1.., _) => format!("{name}:{}", violation.line),
        _ => name.to_owned(),
    };
    let field = if violation.field.is_empty() { String::new() } else { format!("{}: ", violation.field) };
    let mut lines = vec![
        Line::default()
            .and(Style::Strong, format!("{place}: "))
            .and(Style::Plain, format!("{field}{}", violation.message)),
    ];
    let line = usize::try_from(violation.line).ok().and_then(|line| line.checked_sub(1));
    if let Some(text) = line.and_then(|line| source?.text.lines().nth(line)) {
        lines.extend(snippet(text, violation.line, violation.column));
    }
    lines
}

/// The line of the plan with its number, and the caret where there is a column. Long lines are cut around the column.
fn snippet(text: &str, line: i32, column: i32) -> Vec<Line> {
    const WIDTH: usize = 100;
    let column = usize::try_from(column).unwrap_or(0).min(text.chars().count() + 1);
    let skipped = if column > WIDTH { column - WIDTH / 2 } else { 0 };
    let shown: String = text.chars().skip(skipped).take(WIDTH).collect();
    let mut lines = vec![Line::default().and(Style::Dim, format!("  {line:>5} | ")).and(Style::Plain, &shown)];
    if column > 0 {
        let before: String = shown.chars().take(column - 1 - skipped).collect();
        let width = clean(&before).width();
        lines.push(
            Line::default().and(Style::Dim, "        | ").and(Style::Plain, " ".repeat(width)).and(Style::Bad, "^"),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(line: i32, column: i32) -> PlanViolation {
        PlanViolation { field: "f".to_owned(), message: "m".to_owned(), line, column }
    }

    #[test]
    fn a_caret_never_leaves_its_line() {
        let source = Source { name: "p".to_owned(), text: format!("{}x", "a".repeat(300)) };
        for column in [1, 100, 101, 301, 302, 9_999, i32::MAX] {
            let shown = lines(&violation(1, column), Some(&source));
            let (text, caret) = (shown[1].render(false), shown[2].render(false));
            assert!(caret.len() <= text.len() + 1, "column {column}");
        }
        for line in [7, 0, i32::MIN, i32::MAX] {
            assert_eq!(lines(&violation(line, 1), Some(&source)).len(), 1, "line {line} is not there");
        }
    }
}
