//! Finds known values in bytes that pass by, and replaces them without changing the length.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use zeroize::Zeroize as _;

use crate::literals::spell;

/// Finds values in all their spellings: as they are, and in base64, hex, URLs and JSON. Unlike a [`crate::Redactor`] it knows no other rules.
pub struct ValueFinder {
    finder: AhoCorasick,
    spellings: Vec<Vec<u8>>,
}

impl std::fmt::Debug for ValueFinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values themselves are never shown.
        f.debug_struct("ValueFinder").field("spellings", &self.spellings.len()).finish_non_exhaustive()
    }
}

impl ValueFinder {
    /// Finds these values. They should have at least 8 bytes: shorter ones occur by chance. `None` if there are none.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut spellings = BTreeSet::new();
        values.into_iter().for_each(|value| spell(value, true, &mut spellings));
        if spellings.is_empty() {
            return None;
        }
        let spellings: Vec<Vec<u8>> = spellings.into_iter().collect();
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings).ok()?;
        Some(Self { finder, spellings })
    }

    /// The positions of the values, in order and without overlap.
    pub fn find<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = std::ops::Range<usize>> + use<'_, 't> {
        self.finder.find_iter(text).map(|found| found.start()..found.end())
    }

    /// How many bytes at the end may be the beginning of a value that continues in what follows.
    pub fn pending(&self, text: &[u8]) -> usize {
        let begins = |spelling: &Vec<u8>| {
            let longest = spelling.len().saturating_sub(1).min(text.len());
            (1..=longest).rev().find(|length| text.ends_with(spelling.get(..*length).unwrap_or_default()))
        };
        self.spellings.iter().filter_map(begins).max().unwrap_or(0)
    }
}

impl Drop for ValueFinder {
    fn drop(&mut self) {
        // The automaton has copies of its own, which cannot be reached.
        self.spellings.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUE: &[u8] = b"s3cr3t/Value+1";

    #[test]
    fn a_value_is_found_in_its_spellings() {
        let finder = ValueFinder::new([VALUE]).unwrap();
        for text in
            ["x s3cr3t/Value+1 y", "token=s3cr3t%2FValue%2B1", r#"{"a":"s3cr3t\/Value+1"}"#, "QTpzM2NyM3QvVmFsdWUrMQ=="]
        {
            assert_eq!(finder.find(text.as_bytes()).count(), 1, "{text}");
        }
        assert_eq!(finder.find(b"s3cr3t/Value+2 s3cr3t").count(), 0);
        assert!(ValueFinder::new([]).is_none());
        assert!(!format!("{finder:?}").contains("s3cr3t"));
    }

    #[test]
    fn only_what_may_continue_as_a_value_is_pending() {
        let finder = ValueFinder::new([VALUE]).unwrap();
        assert_eq!(finder.pending(b"data: {}\n\n"), 0);
        assert_eq!(finder.pending(b"token: s3cr3t/"), 7);
        assert_eq!(finder.pending(VALUE.split_last().unwrap().1), VALUE.len() - 1);
    }

    proptest! {
        /// Wherever a text with the value is cut, what is pending keeps the value together.
        #[test]
        fn a_cut_never_hides_a_value(before in "[a-z3/ ]{0,20}", cut in 0_usize..60) {
            let finder = ValueFinder::new([VALUE]).unwrap();
            let text = [before.as_bytes(), VALUE, b" after"].concat();
            let (first, rest) = text.split_at(cut.min(text.len()));
            let pending = finder.pending(first);
            let (shown, held) = first.split_at(first.len() - pending);
            let found = finder.find(first).count() + finder.find(&[held, rest].concat()).count();
            prop_assert!(found >= 1, "{:?} | {:?}", shown, held);
        }
    }
}
