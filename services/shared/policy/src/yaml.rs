//! A policy as its author writes it. Everything that is wrong is told at once, by field and line.

mod read;
mod tree;

use crate::{
    Policy, Violation,
    check::{MAX_TEXT, MAX_VIOLATIONS},
};

/// Reads a policy.
pub(crate) fn parse(text: &str) -> Result<Policy, Vec<Violation>> {
    let whole = |line, message| vec![Violation { field: String::new(), line, message }];
    if text.len() > MAX_TEXT {
        return Err(whole(0, format!("the policy has {} bytes, and may have {MAX_TEXT}: shorten it", text.len())));
    }
    // Editors that write a byte order mark do not show it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = tree::parse(text).map_err(|(line, message)| whole(line, message))?;
    let read = read::read(&root);
    let mut violations = read.violations;
    if violations.is_empty() {
        match Policy::new(read.document) {
            Ok(policy) => return Ok(policy),
            Err(found) => {
                violations =
                    found.into_iter().map(|found| Violation { line: read.lines.of(&found.field), ..found }).collect()
            }
        }
    }
    violations.sort_by_key(|violation| violation.line);
    violations.truncate(MAX_VIOLATIONS);
    Err(violations)
}
