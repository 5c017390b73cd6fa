//! Secrets with a known value, because the platform itself issued them.

use std::{collections::BTreeSet, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use thiserror::Error;

use crate::encode;

/// The minimum length of a value, in bytes: shorter ones occur in every text.
const SHORTEST: usize = 4;
/// The maximum length of a value, in bytes: a stream has to buffer as much as its longest encoding.
const LONGEST: usize = 16 * 1024;
/// The minimum length of an encoding, and of one line of a value with several lines.
const SHORTEST_SPELLING: usize = 6;
/// From this length on, a single line of a value counts as a secret of its own.
const SHORTEST_LINE: usize = 16;

/// Why a value cannot be searched for.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LiteralRefusal {
    /// It would occur in ordinary text.
    #[error(
        "secret number {index} has {length} bytes, and only one of {SHORTEST} or more can be kept out of what is shown: use a longer one"
    )]
    TooShort {
        /// The index of the value, from 0.
        index: usize,
        /// How long it is.
        length: usize,
    },
    /// A stream would have to buffer too much.
    #[error(
        "secret number {index} has {length} bytes, and only one of {LONGEST} or fewer can be kept out of what is shown: hand it over as a file"
    )]
    TooLong {
        /// The index of the value, from 0.
        index: usize,
        /// How long it is.
        length: usize,
    },
}

/// Up to so many bytes of values each has all its spellings: about twenty. Values beyond that are looked for as they are and as JSON
/// writes them, so that memory stays in proportion to what was seen.
const ALL_SPELLINGS: usize = 256 * 1024;

/// The values in all their encodings.
///
/// In layers, each with its own automaton: a new value creates a small layer, and layers of similar size are merged. So adding values one by one
/// does not rebuild everything each time, and a text passes few searches.
#[derive(Clone)]
pub(crate) struct Literals {
    layers: Vec<Arc<Layer>>,
    /// The values' bytes together.
    bytes: usize,
}

struct Layer {
    spellings: BTreeSet<Vec<u8>>,
    finder: AhoCorasick,
    longest: usize,
    longest_of_lines: usize,
}

impl std::fmt::Debug for Literals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values themselves are never shown.
        let spellings: usize = self.layers.iter().map(|layer| layer.spellings.len()).sum();
        f.debug_struct("Literals").field("spellings", &spellings).finish_non_exhaustive()
    }
}

impl Layer {
    fn new(spellings: BTreeSet<Vec<u8>>) -> Self {
        let several_lines = |spelling: &&Vec<u8>| spelling.iter().any(|byte| crate::bytes::is_line_end(*byte));
        let longest = spellings.iter().map(Vec::len).max().unwrap_or(0);
        let longest_of_lines = spellings.iter().filter(several_lines).map(Vec::len).max().unwrap_or(0);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings);
        Self { finder: finder.expect("spellings of bounded length fit"), spellings, longest, longest_of_lines }
    }
}

impl Literals {
    /// Adds values to the earlier ones; returns `None` when there are none at all.
    pub(crate) fn new<L: AsRef<[u8]>>(
        earlier: Option<&Self>,
        values: impl IntoIterator<Item = L>,
    ) -> Result<Option<Self>, LiteralRefusal> {
        let mut literals = earlier.cloned().unwrap_or_else(|| Self { layers: Vec::new(), bytes: 0 });
        let mut spellings = BTreeSet::new();
        for (index, value) in values.into_iter().enumerate() {
            let value = value.as_ref();
            match value.len() {
                length if length < SHORTEST => return Err(LiteralRefusal::TooShort { index, length }),
                length if length > LONGEST => return Err(LiteralRefusal::TooLong { index, length }),
                length => {
                    literals.bytes += length;
                    spell(value, literals.bytes <= ALL_SPELLINGS, &mut spellings);
                }
            }
        }
        if !spellings.is_empty() {
            while let Some(layer) = literals.layers.pop_if(|layer| layer.spellings.len() <= 2 * spellings.len()) {
                spellings.extend(layer.spellings.iter().cloned());
            }
            literals.layers.push(Arc::new(Layer::new(spellings)));
        }
        Ok((!literals.layers.is_empty()).then_some(literals))
    }

    /// Their positions. Matches of two layers may overlap.
    pub(crate) fn find(&self, text: &[u8]) -> impl Iterator<Item = (usize, usize)> {
        self.layers.iter().flat_map(move |layer| layer.finder.find_iter(text).map(|found| (found.start(), found.end())))
    }

    /// The longest encoding, and the longest with several lines.
    pub(crate) fn longest(&self) -> (usize, usize) {
        let of = |length: fn(&Layer) -> usize| self.layers.iter().map(|layer| length(layer)).max().unwrap_or(0);
        (of(|layer| layer.longest), of(|layer| layer.longest_of_lines))
    }
}

fn spell(value: &[u8], all: bool, spellings: &mut BTreeSet<Vec<u8>>) {
    spellings.insert(value.to_vec());
    // A file's last line end is seldom written along.
    let value = value.trim_ascii_end();
    if value.len() >= SHORTEST {
        spellings.insert(value.to_vec());
    }
    let mut add = |spelling: String| {
        if spelling.len() >= SHORTEST_SPELLING {
            spellings.insert(spelling.into_bytes());
        }
    };
    if all {
        encode::base64(value).into_iter().for_each(&mut add);
        encode::hex(value).into_iter().for_each(&mut add);
        encode::url(value).into_iter().for_each(&mut add);
    }
    if let Ok(text) = std::str::from_utf8(value) {
        encode::json(text).into_iter().for_each(&mut add);
        let lines = text.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE && line.len() < text.len());
        lines.filter(|line| !line.starts_with("-----")).for_each(|line| add(line.to_owned()));
    }
}
