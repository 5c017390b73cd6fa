//! The file that holds the settings.

use std::path::Path;

use belay_yaml::{Bounds, Reader, Value, Violation};

use crate::{Settings, read};

/// The schemas of tools have the most levels.
const BOUNDS: Bounds = Bounds { what: "settings file", max_depth: 40, max_nodes: 20_000, max_text: 256 * 1024 };
/// The maximum number of reported violations.
const MAX_VIOLATIONS: usize = 100;

/// The text of a settings file.
pub struct File;

impl File {
    /// Parses a settings file. `~` expands to `home`.
    ///
    /// # Errors
    /// All violations, in the order of the lines; never empty.
    pub fn parse(text: &str, home: Option<&Path>) -> Result<Settings, Vec<Violation>> {
        Self::parse_from(text, home, None)
    }

    /// Parses the settings of this file, which the origins of the network's rules name.
    ///
    /// # Errors
    /// As those of [`File::parse`].
    pub fn parse_from(text: &str, home: Option<&Path>, file: Option<&Path>) -> Result<Settings, Vec<Violation>> {
        let root = belay_yaml::parse(text, &BOUNDS).map_err(|violation| vec![violation])?;
        let mut reader = Reader::default();
        let mut settings = Settings::default();
        // A file with only comments is valid: every value is the default.
        if !matches!(root.value, Value::Null) {
            read::settings(&mut reader, &root, home, file, &mut settings);
        }
        let mut violations = reader.into_violations();
        if violations.is_empty() {
            return Ok(settings);
        }
        violations.sort_by_key(|violation| violation.line);
        violations.truncate(MAX_VIOLATIONS);
        Err(violations)
    }
}
