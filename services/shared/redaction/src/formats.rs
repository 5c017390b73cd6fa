//! The formats of vendors' tokens that are recognized without their surroundings, as the documentation lists them.

use crate::rules;

/// The day on which the table of formats was last changed.
pub const FORMATS_CHANGED: &str = "2026-11-26";

/// A format of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The name of its rule: `github-token`.
    pub name: &'static str,
    /// The regular expression. Its first group is the secret if it has one.
    pub pattern: &'static str,
}

/// All formats, in the order of their names.
pub fn formats() -> Vec<Format> {
    let mut formats: Vec<Format> =
        rules::of_services().map(|rule| Format { name: rule.id, pattern: rule.regex }).collect();
    formats.sort_by_key(|format| format.name);
    formats
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// The list in the documentation has a date, which says how old it is.
    #[test]
    fn who_changes_the_table_changes_its_date() {
        let table: String = formats().iter().map(|format| format!("{} {}\n", format.name, format.pattern)).collect();
        let digest = &HEXLOWER.encode(&Sha256::digest(table))[..16];
        assert_eq!(
            (FORMATS_CHANGED, digest),
            ("2026-11-26", "3091140cad14f075"),
            "set FORMATS_CHANGED to today's date, and both here"
        );
    }
}
