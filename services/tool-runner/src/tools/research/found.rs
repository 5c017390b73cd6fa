//! What has been found in one place.

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use belay_redaction::Redactor;

use super::{
    depth::Bounds,
    findings::{Candidate, Finding, extract},
    index::{Hit, Index, IndexError},
    left_out::{LeftOut, Place, Reason},
    masked::masked,
    question::{Form, Question},
    walk::Reading,
};
use crate::{ToolFailure, digests::content_digest};

/// Why a place was not searched.
#[derive(Debug)]
pub(super) enum Problem {
    /// The call was stopped.
    Stopped(ToolFailure),
    Index(IndexError),
}

impl Problem {
    /// As the failure of a call. An index in memory does not fail.
    pub(super) fn into_failure(self) -> ToolFailure {
        match self {
            Self::Stopped(failure) => failure,
            Self::Index(error) => ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, error.to_string()),
        }
    }
}

impl From<ToolFailure> for Problem {
    fn from(failure: ToolFailure) -> Self {
        Self::Stopped(failure)
    }
}

impl From<IndexError> for Problem {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

/// What has been found in one place, and what was looked at.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) findings: Vec<Finding>,
    pub(super) left_out: LeftOut,
    /// The files that were searched, and their bytes.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// The results of the search endpoint, and the pages that were read.
    pub(super) results: u64,
    pub(super) pages: u64,
}

impl Found {
    /// Adds what was found in another place.
    pub(super) fn append(&mut self, other: Self) {
        let Self { findings, left_out, files, bytes, results, pages } = other;
        self.findings.extend(findings);
        self.left_out.append(left_out);
        self.files += files;
        self.bytes += bytes;
        self.results += results;
        self.pages += pages;
    }

    /// Cites a file that now holds these bytes, unless it is another one than was searched.
    pub(super) fn cite(
        &mut self,
        place: &Place,
        at: String,
        candidate: Candidate,
        bytes: &[u8],
        redactor: &Redactor,
        question: &Question,
    ) {
        let cited = extract(&masked(redactor, bytes), &candidate.hit, question)
            .filter(|_| content_digest(bytes) == candidate.hit.digest);
        match cited {
            Some((extract, lines)) => self.findings.push(Finding {
                place: place.clone(),
                at,
                title: None,
                lines: Some(lines),
                digest: candidate.hit.digest,
                extract,
                form: Some(candidate.form),
                score: candidate.score,
            }),
            None => self.left_out.add(place, Reason::Changed, at),
        }
    }
}

/// How many more pieces than findings each form is asked for: several may be of one document.
const PIECES_OF_FINDING: usize = 4;

/// Asks an index the question in its forms, as deep as the call goes.
///
/// # Errors
/// When the call was stopped, or the index cannot be read.
pub(super) fn asked(
    index: &Index,
    question: &Question,
    bounds: &Bounds,
    reading: &Reading,
) -> Result<Vec<(Form, Vec<Hit>)>, Problem> {
    let mut lists = Vec::new();
    for (form, query) in question.asked(bounds.forms) {
        reading.stop.check()?;
        let hits = index.search(&query, bounds.findings * PIECES_OF_FINDING)?;
        if !hits.is_empty() {
            lists.push((form, hits));
            if !bounds.asks_all_forms {
                break;
            }
        }
    }
    Ok(lists)
}
