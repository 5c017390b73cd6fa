//! The shapes of secrets: one line each, in the fields that gitleaks gives a rule.

mod assigned;
mod services;
mod structure;

use crate::values;

/// One shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Short and stable: it stands in what was found.
    pub(crate) id: &'static str,
    /// The shape is looked for only around one of these, in any case of letters.
    pub(crate) keywords: &'static [&'static str],
    /// The shape. It sees one line, knows ASCII only, and its first group that takes part is the secret; the whole without groups. A
    /// group called `name` is what the secret is assigned to.
    pub(crate) regex: &'static str,
    /// How the keyword stands in the shape.
    pub(crate) at: At,
    /// One of these stands soon behind the keyword; empty where nothing has to. It spares most looks at words in prose.
    pub(crate) then: &'static [u8],
    /// Bits a character that the secret has at least; 0 takes any.
    pub(crate) entropy: f64,
    /// What looks right and is not a secret is refused here.
    pub(crate) accept: fn(&[u8]) -> bool,
}

/// How a keyword stands in a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// It begins the secret: what stands before it is not part of a word.
    Start,
    /// It stands somewhere in the shape, at most so many bytes after its beginning.
    Within(usize),
}

impl Rule {
    /// A token that says by its first characters what it is.
    const fn prefixed(id: &'static str, keywords: &'static [&'static str], regex: &'static str) -> Self {
        Self { id, keywords, regex, at: At::Start, then: b"", entropy: 0.0, accept: values::any }
    }

    /// A secret that is known by what stands around it.
    const fn around(id: &'static str, keywords: &'static [&'static str], reach: usize, regex: &'static str) -> Self {
        Self { id, keywords, regex, at: At::Within(reach), then: b"", entropy: 0.0, accept: values::given }
    }

    const fn accept(self, accept: fn(&[u8]) -> bool) -> Self {
        Self { accept, ..self }
    }

    const fn then(self, then: &'static [u8]) -> Self {
        Self { then, ..self }
    }

    const fn entropy(self, entropy: f64) -> Self {
        Self { entropy, ..self }
    }
}

/// All rules. Where two find the same place the earlier one gives its name.
pub(crate) fn all() -> impl Iterator<Item = Rule> {
    services::RULES.iter().chain(structure::RULES).chain(assigned::RULES).copied()
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
