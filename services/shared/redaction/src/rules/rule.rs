//! A rule.

use crate::values;

/// A pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Short and stable: findings have it.
    pub(crate) id: &'static str,
    /// The pattern is searched for only around one of these, case-insensitive.
    pub(crate) keywords: &'static [&'static str],
    /// The shape. It sees one line, knows ASCII only, and its first group that takes part is the secret; the whole without groups. A
    /// group called `name` is what the secret is assigned to.
    pub(crate) regex: &'static str,
    /// The position of the keyword in the pattern.
    pub(crate) at: KeywordPosition,
    /// The texts of which one must follow the keyword closely; empty means no condition. They avoid most searches in prose.
    pub(crate) then: &'static [u8],
    /// The minimum entropy of the secret, in bits per character; 0 accepts any.
    pub(crate) entropy: f64,
    /// Rejects matches that are not secrets.
    pub(crate) accept: fn(&[u8]) -> bool,
}

/// The position of a keyword in a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeywordPosition {
    /// It begins the secret, at a word boundary.
    Start,
    /// It is somewhere in the pattern, at most this number of bytes after its beginning.
    Within(usize),
}

impl Rule {
    /// A token with a characteristic prefix.
    pub(super) const fn prefixed(id: &'static str, keywords: &'static [&'static str], regex: &'static str) -> Self {
        Self { id, keywords, regex, at: KeywordPosition::Start, then: b"", entropy: 0.0, accept: values::any }
    }

    /// A secret that is recognized by its context.
    pub(super) const fn around(
        id: &'static str,
        keywords: &'static [&'static str],
        reach: usize,
        regex: &'static str,
    ) -> Self {
        Self { id, keywords, regex, at: KeywordPosition::Within(reach), then: b"", entropy: 0.0, accept: values::given }
    }

    pub(super) const fn accept(self, accept: fn(&[u8]) -> bool) -> Self {
        Self { accept, ..self }
    }

    pub(super) const fn then(self, then: &'static [u8]) -> Self {
        Self { then, ..self }
    }

    pub(super) const fn entropy(self, entropy: f64) -> Self {
        Self { entropy, ..self }
    }
}
