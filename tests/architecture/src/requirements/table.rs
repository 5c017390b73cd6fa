//! The rows of docs/requirements.md: `| id | what must hold | shown by | status |`.

use std::collections::BTreeSet;
use std::fmt;

use super::{Named, ids};

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: String,
    what: String,
    /// Paths from the root.
    pub(super) files: BTreeSet<String>,
    pub(super) status: Status,
}

#[derive(Clone, Debug)]
pub(super) enum Status {
    Shown,
    /// Shown, but for what it says.
    Partly(String),
    /// Perhaps with the reason.
    NotYet(Option<String>),
    Unclear(String),
}

impl Row {
    /// The row on this line; a line whose first cell is no id has none.
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let (id, rest) = cells.split_first()?;
        if !ids::is_id(id) {
            return None;
        }
        let [what, files, status] = rest else { panic!("this row has not four cells: {line}") };
        Some(Self {
            id: (*id).to_owned(),
            what: (*what).to_owned(),
            // `[path](../path)`: the link is written again from the path.
            files: files
                .split(", ")
                .filter_map(|link| link.strip_prefix('[')?.split(']').next())
                .map(str::to_owned)
                .collect(),
            status: match status.split_once(": ").map_or((*status, None), |(word, why)| (word, Some(why.to_owned()))) {
                ("shown", None) => Status::Shown,
                ("partly", Some(missing)) => Status::Partly(missing),
                ("not yet", why) => Status::NotYet(why),
                _ => Status::Unclear((*status).to_owned()),
            },
        })
    }

    pub(super) fn with_files(&self, files: &BTreeSet<String>) -> Self {
        Self { files: files.clone(), ..self.clone() }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<String> = self.files.iter().map(|path| format!("[{path}](../{path})")).collect();
        write!(f, "| {} | {} | {} | {} |", self.id, self.what, files.join(", "), self.status)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shown => f.write_str("shown"),
            Self::Partly(missing) => write!(f, "partly: {missing}"),
            Self::NotYet(None) => f.write_str("not yet"),
            Self::NotYet(Some(why)) => write!(f, "not yet: {why}"),
            Self::Unclear(word) => f.write_str(word),
        }
    }
}

pub(super) fn rows(text: &str) -> Vec<Row> {
    text.lines().filter_map(Row::parse).collect()
}

/// The document with the column "shown by" written anew.
pub(super) fn with_files(text: &str, named: &Named) -> String {
    let none = BTreeSet::new();
    let line = |line: &str| match Row::parse(line) {
        Some(row) => row.with_files(named.get(&row.id).unwrap_or(&none)).to_string(),
        None => line.to_owned(),
    };
    text.lines().map(|old| line(old) + "\n").collect()
}
