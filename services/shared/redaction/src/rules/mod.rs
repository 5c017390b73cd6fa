//! The patterns of secrets: one line each, with the fields of a gitleaks rule.

mod assigned;
mod rule;
mod services;
mod structure;

pub(crate) use rule::{KeywordPosition, Rule};

/// All rules. When two match at the same place, the earlier one gives its id.
pub(crate) fn all() -> impl Iterator<Item = Rule> {
    services::RULES.iter().chain(structure::RULES).chain(assigned::RULES).copied()
}

/// The formats of vendors' tokens.
pub(crate) fn of_services() -> impl Iterator<Item = Rule> {
    services::RULES.iter().copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_rule_has_its_own_id_and_keywords() {
        let ids: Vec<&str> = all().map(|rule| rule.id).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an id stands twice in {ids:?}");
        assert!(ids.len() >= 60, "{}", ids.len());
        for rule in all() {
            assert!(!rule.keywords.is_empty() && rule.keywords.iter().all(|keyword| keyword.len() >= 2), "{}", rule.id);
        }
    }
}
