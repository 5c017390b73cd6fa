//! The two parts of docs/requirements.md: rows `| id | what must hold | status |`, which people write, and then the rows `| id | shown by |`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::ids;

/// For each id the test files that name it.
pub(super) type FilesByRequirement = BTreeMap<String, BTreeSet<String>>;

/// The heading of the second part. Everything after it is generated.
const SHOWN_BY: &str = "## Shown by";

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) status: Status,
}

#[derive(Clone, Debug)]
pub(super) enum Status {
    Shown,
    /// Shown except for the part that it names.
    Partly(String),
    /// Not shown, for this reason.
    NotYet(String),
    /// None of the three.
    Invalid(String),
}

impl Row {
    /// Returns the row on this line, or `None` for a line whose first cell is not an id.
    fn parse(line: &str) -> Option<Self> {
        // A `|` within a cell is written `\|`.
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix('|')?.split(" | ").map(str::trim).collect();
        let (id, rest) = cells.split_first()?;
        if !ids::is_id(id) {
            return None;
        }
        let [_what, status] = rest else { panic!("this row does not have three cells: {line}") };
        Some(Self { id: (*id).to_owned(), status: Status::parse(status) })
    }
}

impl Status {
    fn parse(cell: &str) -> Self {
        match cell.split_once(": ") {
            None if cell == "shown" => Self::Shown,
            Some(("partly", missing)) => Self::Partly(missing.to_owned()),
            Some(("not yet", why)) => Self::NotYet(why.to_owned()),
            _ => Self::Invalid(cell.to_owned()),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shown => f.write_str("shown"),
            Self::Partly(missing) => write!(f, "partly: {missing}"),
            Self::NotYet(why) => write!(f, "not yet: {why}"),
            Self::Invalid(cell) => f.write_str(cell),
        }
    }
}

/// Returns the rows of the first part.
pub(super) fn rows(text: &str) -> Vec<Row> {
    first_part(text).filter_map(Row::parse).collect()
}

/// Returns the document with its line of counts and its second part generated from the first part and the tests.
pub(super) fn generate(text: &str, all: &[String], named: &FilesByRequirement) -> String {
    let counts = counts(&rows(text));
    let first = first_part(text).map(|line| if is_counts(line) { &counts } else { line });
    let second = all.iter().filter_map(|id| Some(format!("| {id} | {} |", links(named.get(id)?))));
    let heading = [SHOWN_BY, "", "| id | shown by |", "|---|---|"].map(str::to_owned);
    first.map(str::to_owned).chain(heading).chain(second).map(|line| line + "\n").collect()
}

fn first_part(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| *line != SHOWN_BY)
}

/// Returns how many rows have which status, as the document says it.
pub(super) fn counts(rows: &[Row]) -> String {
    let count = |has: fn(&Status) -> bool| rows.iter().filter(|row| has(&row.status)).count();
    format!(
        "{} shown, {} partly, {} not yet",
        count(|status| matches!(status, Status::Shown)),
        count(|status| matches!(status, Status::Partly(_))),
        count(|status| matches!(status, Status::NotYet(_))),
    )
}

fn is_counts(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit()) && line.ends_with(" not yet")
}

/// Returns links from docs to files, whose paths begin at the root.
fn links(files: &BTreeSet<String>) -> String {
    let links: Vec<String> = files.iter().map(|path| format!("[{path}](../{path})")).collect();
    links.join(", ")
}
