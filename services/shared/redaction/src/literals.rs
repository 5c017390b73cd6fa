//! Secrets that are known exactly, since the platform itself handed them out.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use thiserror::Error;

use crate::encode;

/// The shortest value that is taken, in bytes: shorter ones stand in every text.
const SHORTEST: usize = 4;
/// The longest value that is taken, in bytes: a stream has to hold back as much as its longest spelling.
const LONGEST: usize = 16 * 1024;
/// The shortest spelling other than the value itself. A line of a value with several lines has to be as long, too.
const SHORTEST_SPELLING: usize = 6;
/// From this length on a single line of a value is a secret by itself.
const SHORTEST_LINE: usize = 16;

/// Why a value cannot be looked for.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LiteralRefused {
    /// It would be found in ordinary text.
    #[error(
        "secret number {index} has {length} bytes, and only one of {SHORTEST} or more can be kept out of what is shown: use a longer one"
    )]
    TooShort {
        /// Which of the values, from 0.
        index: usize,
        /// How long it is.
        length: usize,
    },
    /// A stream would have to hold back too much.
    #[error(
        "secret number {index} has {length} bytes, and only one of {LONGEST} or fewer can be kept out of what is shown: hand it over as a file"
    )]
    TooLong {
        /// Which of the values, from 0.
        index: usize,
        /// How long it is.
        length: usize,
    },
}

/// The values in all their spellings.
pub(crate) struct Literals {
    spellings: BTreeSet<Vec<u8>>,
    finder: AhoCorasick,
}

impl std::fmt::Debug for Literals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values themselves are never shown.
        f.debug_struct("Literals").field("spellings", &self.spellings.len()).finish_non_exhaustive()
    }
}

impl Literals {
    /// These values besides the earlier ones; nothing when there are none at all.
    pub(crate) fn new<L: AsRef<[u8]>>(
        earlier: Option<&Self>,
        values: impl IntoIterator<Item = L>,
    ) -> Result<Option<Self>, LiteralRefused> {
        let mut spellings = earlier.map(|earlier| earlier.spellings.clone()).unwrap_or_default();
        for (index, value) in values.into_iter().enumerate() {
            let value = value.as_ref();
            match value.len() {
                length if length < SHORTEST => return Err(LiteralRefused::TooShort { index, length }),
                length if length > LONGEST => return Err(LiteralRefused::TooLong { index, length }),
                _ => spell(value, &mut spellings),
            }
        }
        if spellings.is_empty() {
            return Ok(None);
        }
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings);
        Ok(Some(Self { finder: finder.expect("spellings of bounded length fit"), spellings }))
    }

    /// Where they stand.
    pub(crate) fn find(&self, text: &[u8]) -> impl Iterator<Item = (usize, usize)> {
        self.finder.find_iter(text).map(|found| (found.start(), found.end()))
    }

    /// The longest spelling, and the longest with several lines.
    pub(crate) fn longest(&self) -> (usize, usize) {
        let several_lines = |spelling: &&Vec<u8>| spelling.iter().any(|byte| crate::engine::is_line_end(*byte));
        let longest = self.spellings.iter().map(Vec::len).max().unwrap_or(0);
        (longest, self.spellings.iter().filter(several_lines).map(Vec::len).max().unwrap_or(0))
    }
}

fn spell(value: &[u8], spellings: &mut BTreeSet<Vec<u8>>) {
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
    encode::base64(value).into_iter().for_each(&mut add);
    encode::hex(value).into_iter().for_each(&mut add);
    encode::url(value).into_iter().for_each(&mut add);
    if let Ok(text) = std::str::from_utf8(value) {
        encode::json(text).into_iter().for_each(&mut add);
        let lines = text.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE && line.len() < text.len());
        lines.filter(|line| !line.starts_with("-----")).for_each(|line| add(line.to_owned()));
    }
}
