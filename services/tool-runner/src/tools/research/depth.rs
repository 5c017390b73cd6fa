//! How much a call looks at. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::question::Form;

/// How deep a call looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Depth {
    Shallow,
    #[default]
    Medium,
    Deep,
}

/// What one call may use. The user guide has these numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The most findings.
    pub(super) findings: usize,
    /// The forms in which the question is asked, the strictest first.
    pub(super) forms: &'static [Form],
    /// Whether the forms after the first that finds something are asked, too.
    pub(super) asks_all_forms: bool,
    /// The most files of the workspace that are read.
    pub(super) files: u64,
    /// The most bytes of these files.
    pub(super) bytes: u64,
    /// The most questions to the search endpoint.
    pub(super) searches: usize,
    /// The most results of the search endpoint that are used.
    pub(super) results: usize,
    /// The most pages that are read.
    pub(super) pages: usize,
    /// The longest time that files are read in, so that the answer comes before the call's time is over.
    pub(super) reading: Duration,
}

/// The share of a call's time in which files are read.
const SHARE_OF_READING: u32 = 2;

impl Depth {
    /// The bounds of a call with this time limit.
    pub(super) fn bounds(self, limit: Duration) -> Bounds {
        let bounds = match self {
            Self::Shallow => Bounds {
                findings: 5,
                forms: &[Form::Phrase, Form::All, Form::Any],
                asks_all_forms: false,
                files: 2_000,
                bytes: 8 << 20,
                searches: 1,
                results: 5,
                pages: 0,
                reading: Duration::from_secs(15),
            },
            Self::Medium => Bounds {
                findings: 10,
                forms: &[Form::Phrase, Form::All, Form::Any],
                asks_all_forms: true,
                files: 10_000,
                bytes: 32 << 20,
                searches: 1,
                results: 10,
                pages: 3,
                reading: Duration::from_secs(60),
            },
            Self::Deep => Bounds {
                findings: 25,
                forms: &[Form::Phrase, Form::All, Form::Any, Form::Beginnings],
                asks_all_forms: true,
                files: 50_000,
                bytes: 128 << 20,
                searches: 2,
                results: 20,
                pages: 8,
                reading: Duration::from_secs(300),
            },
        };
        Bounds { reading: bounds.reading.min(limit / SHARE_OF_READING), ..bounds }
    }
}
