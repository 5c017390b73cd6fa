//! Parses a policy's YAML. All violations are reported at once, by field and line.

mod read;

use belay_yaml::Bounds;

use crate::{
    Policies, Violation,
    check::{MAX_TEXT, MAX_VIOLATIONS},
};

/// The deepest values of a policy, the words of an example's command in a section, are at level eight.
const BOUNDS: Bounds = Bounds { what: "policy", max_depth: 8, max_nodes: 100_000, max_text: MAX_TEXT };

impl Policies {
    /// Parses a policy file from YAML. The preset provides the defaults.
    ///
    /// # Errors
    /// All violations, in the order of its lines: never empty, at most 100.
    pub fn from_yaml(text: &str) -> Result<Self, Vec<Violation>> {
        let root = belay_yaml::parse(text, &BOUNDS).map_err(|violation| vec![violation])?;
        let read::PolicyReading { document, sections, reader } = read::read(&root);
        if !reader.violations().is_empty() {
            return Err(in_order(reader.into_violations()));
        }
        Self::new(document, sections).map_err(|found| {
            let placed = found.into_iter().map(|found| Violation { line: reader.line_of(&found.field), ..found });
            in_order(placed.collect())
        })
    }
}

fn in_order(mut violations: Vec<Violation>) -> Vec<Violation> {
    violations.sort_by_key(|violation| violation.line);
    violations.truncate(MAX_VIOLATIONS);
    violations
}
