//! Parses plan documents: YAML or JSON, in Belay's form or in the JSON form of other planners (`skillId`, `params`, …).
//!
//! The text is parsed into a tree with positions ([`tree`]), the tree is converted to a draft ([`read`]), and the draft is checked like any
//! other. Violations are reported with the author's field names, lines and columns ([`locate`]).

mod elsewhere;
mod fields;
mod files;
mod finding;
mod group;
mod json;
mod locate;
mod operation;
mod read;
mod shapes;
mod tree;
mod yaml;

use std::collections::HashSet;

use crate::{
    InvalidPlan, Plan, PlanPart, StepProblem, Violation,
    check::{self, CheckPlanned, Trust},
    error::{Findings, Problem},
    limits::MAX_PLAN_BYTES,
};
pub use files::{ComposedDocument, FileContent, NamedFile, PlanText, refused_name};
use finding::Finding;
use locate::Positions;
pub(crate) use locate::other_names;
pub use shapes::EXECUTOR_STAGE_COMMANDS;
use tree::Node;

/// The formats in which a plan may be written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Detected from the text: JSON when it begins with `{`, else YAML.
    #[default]
    Auto,
    /// YAML 1.2.
    Yaml,
    /// JSON.
    Json,
}

impl Plan {
    /// Parses and checks a plan document. All violations are reported, with the author's field names, lines and columns; only for text that is not
    /// YAML or JSON, parsing ends at the first syntax error.
    ///
    /// # Errors
    /// [`InvalidPlan`] with every violation.
    pub fn parse(format: Format, text: &str) -> Result<Self, InvalidPlan> {
        Self::parse_with(format, text, |_| Vec::new())
    }

    /// The same, with additional checks of each call and each form by `check`, whatever else is wrong with the plan.
    ///
    /// # Errors
    /// [`InvalidPlan`] with every violation.
    pub fn parse_with(
        format: Format,
        text: &str,
        mut check: impl FnMut(PlanPart<'_>) -> Vec<StepProblem>,
    ) -> Result<Self, InvalidPlan> {
        parse(format, text, &mut check).map_err(InvalidPlan::from)
    }
}

impl StepProblem {
    /// Converts problems in the steps of a readable document to violations with the author's names, lines and columns.
    pub fn locate(format: Format, text: &str, problems: Vec<Self>) -> Vec<Violation> {
        locate(format, text, problems)
    }
}

fn parse(format: Format, text: &str, check: CheckPlanned<'_>) -> Result<Plan, Findings<Violation>> {
    if text.len() > MAX_PLAN_BYTES {
        let message = format!("the plan has {} bytes and the limit is {MAX_PLAN_BYTES}: split it", text.len());
        return Err(whole(message, 0, 0));
    }
    // Editors that write a byte order mark do not show it: positions count without it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = parse_tree(format, text).map_err(|error| whole(error.message, error.line, error.column))?;
    read_and_check(text, &root, check).map_err(|mut findings| {
        let positions = Positions::new(text);
        findings.sort_by_key(|finding| finding.offset);
        // What a group says is checked once for each step that has it.
        let mut said = HashSet::new();
        findings.filter_map(|Finding { field, message, offset }| {
            let (line, column) = offset.map_or((0, 0), |offset| positions.line_and_column(offset));
            let violation = Violation { field: field.to_string(), message, line, column };
            said.insert((violation.field.clone(), violation.message.clone())).then_some(violation)
        })
    })
}

fn locate(format: Format, text: &str, problems: Vec<StepProblem>) -> Vec<Violation> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Ok(root) = parse_tree(format, text) else {
        return problems.into_iter().map(Violation::from).collect();
    };
    let origin = read::read(text, &root).origin;
    let positions = Positions::new(text);
    let located = problems.into_iter().map(|problem| {
        let Finding { field, message, offset } = origin.finding(problem.into());
        let (line, column) = offset.map_or((0, 0), |offset| positions.line_and_column(offset));
        Violation { field: field.to_string(), message, line, column }
    });
    located.collect()
}

fn parse_tree(format: Format, text: &str) -> Result<Node, tree::SyntaxError> {
    let is_json = match format {
        Format::Auto => text.trim_start().starts_with('{'),
        Format::Yaml => false,
        Format::Json => true,
    };
    if is_json { json::parse(text) } else { yaml::parse(text) }
}

/// Returns one violation of the document as a whole.
fn whole(message: String, line: u32, column: u32) -> Findings<Violation> {
    let mut findings = Findings::default();
    findings.add(|| Violation { field: String::new(), message, line, column });
    findings
}

fn read_and_check(text: &str, root: &Node, check: CheckPlanned<'_>) -> Result<Plan, Findings<Finding>> {
    let document = read::read(text, root);
    let checked = check::plan(document.draft, &document.origin.places, Trust::Author, check);
    if document.findings.is_empty() {
        return checked.map_err(|problems| problems.filter_map(|problem| Some(document.origin.finding(problem))));
    }
    let mut findings = document.findings;
    if let Err(problems) = checked {
        // A value that could not be read was replaced by a placeholder; violations of the placeholder would mislead.
        let unread: HashSet<String> = findings.iter().map(|finding| finding.field.to_string()).collect();
        findings.extend(problems.filter_map(|problem: Problem| {
            let finding = document.origin.finding(problem);
            let known = finding.field.ancestors().any(|field| unread.contains(&field.to_string()));
            (!known).then_some(finding)
        }));
    }
    Err(findings)
}

#[cfg(test)]
mod tests;
