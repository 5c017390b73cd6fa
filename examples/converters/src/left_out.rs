//! The list of what a document says and a plan does not.

use std::fmt;

/// A part of a document that has no place in the plan, or another meaning there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The line of the document, from 1; 0 when not known, as in JSON.
    pub line: u32,
    /// The path in the document, such as `jobs.build.steps[2].uses`.
    pub path: String,
    /// A name for it, short enough to count by: `action actions/cache`, `permissions`.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The way out: what to write or to type instead.
    pub instead: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{}: {}: {}", self.path, self.what, self.why)?;
        if self.instead.is_empty() { Ok(()) } else { write!(f, "; {}", self.instead) }
    }
}

/// A part of a document, with its place.
pub trait HasPlace {
    /// The line, from 1 or 0 when not known, and the path.
    fn place(&self) -> (u32, &str);
}

/// The place of a part of a document, for what is reported later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    line: u32,
    path: String,
}

impl Place {
    /// The place of a part.
    pub fn of(part: &impl HasPlace) -> Self {
        let (line, path) = part.place();
        Self { line, path: path.to_owned() }
    }
}

impl HasPlace for Place {
    fn place(&self) -> (u32, &str) {
        (self.line, &self.path)
    }
}

/// A list that grows while a document is converted.
#[derive(Debug, Default)]
pub struct Report {
    entries: Vec<LeftOut>,
}

impl Report {
    /// Adds what stands at a field.
    pub fn add(
        &mut self,
        at: &impl HasPlace,
        what: impl Into<String>,
        why: impl Into<String>,
        instead: impl Into<String>,
    ) {
        let (line, path) = at.place();
        self.entries.push(LeftOut {
            line,
            path: path.to_owned(),
            what: what.into(),
            why: why.into(),
            instead: instead.into(),
        });
    }

    /// Returns the entries in the order of the document, each once.
    #[must_use]
    pub fn finish(mut self) -> Vec<LeftOut> {
        self.entries.sort();
        self.entries.dedup();
        self.entries
    }
}
