//! One page of an execution's artifacts.

use std::collections::{BTreeSet, HashMap};

use belay_execution::Event;
use belay_proto::v1;
use belay_redaction::Redactor;
use prost::Message as _;

use super::{ArtifactId, Entry, Graph, Made, wanted::Wanted};

/// Some artifacts, with what is known of them before their events are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    ids: Vec<ArtifactId>,
    entries: HashMap<u64, Entry>,
}

impl Selection {
    /// The selection of these artifacts, as far as there are such.
    pub(crate) fn of(graph: &Graph, ids: impl IntoIterator<Item = ArtifactId>) -> Self {
        let mut selection = Self::default();
        for id in ids {
            if let Some(entry) = graph.entry(id.sequence).filter(|entry| entry.has(id)) {
                selection.entries.entry(id.sequence).or_insert_with(|| entry.clone());
                selection.ids.push(id);
            }
        }
        selection
    }

    /// The number of artifacts.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The selection in parts of at most `size` artifacts.
    pub(crate) fn parts(&self, size: usize) -> impl Iterator<Item = Self> {
        self.ids.chunks(size).map(|ids| {
            let entries = ids.iter().filter_map(|id| Some((id.sequence, self.entries.get(&id.sequence)?.clone())));
            Self { ids: ids.to_vec(), entries: entries.collect() }
        })
    }

    /// The sequences of the events that say what they are.
    pub(crate) fn sequences(&self) -> BTreeSet<u64> {
        self.entries.iter().flat_map(|(sequence, entry)| entry.sequences(*sequence)).collect()
    }

    /// The artifacts; `None` for one that the events do not have.
    pub(crate) fn made(&self, events: &HashMap<u64, Event>) -> impl Iterator<Item = Option<Made>> {
        self.ids.iter().map(|id| self.entries.get(&id.sequence)?.made(*id, events))
    }
}

/// A page while it is gathered: it is given the artifacts of which [`Wanted::may_have`] holds, in order.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    execution: &'a str,
    redactor: &'a Redactor,
    wanted: Wanted,
    size: usize,
    max_bytes: usize,
    found: Vec<v1::Artifact>,
    bytes: usize,
    last: Option<ArtifactId>,
    is_full: bool,
}

impl<'a> Page<'a> {
    /// An empty page of `size` artifacts of the execution with this name, of `max_bytes` unless one alone has more.
    pub(crate) fn new(
        execution: &'a str,
        redactor: &'a Redactor,
        wanted: Wanted,
        size: usize,
        max_bytes: usize,
    ) -> Self {
        Self { execution, redactor, wanted, size, max_bytes, found: Vec::new(), bytes: 0, last: None, is_full: false }
    }

    /// Which artifacts it has to be given next.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// How many wanted artifacts decide the rest of the page: those that it has room for, and one that shows that there is a next page.
    pub(crate) fn missing(&self) -> usize {
        self.size - self.found.len() + 1
    }

    /// Takes the next artifact. Returns whether the page is full.
    pub(crate) fn apply(&mut self, made: &Made) -> bool {
        self.wanted.after = Some(made.id);
        if !self.wanted.has(made) {
            return false;
        }
        let artifact = made.message(self.execution, self.redactor);
        self.bytes += artifact.encoded_len();
        if self.found.len() == self.size || self.bytes > self.max_bytes && !self.found.is_empty() {
            self.is_full = true;
            return true;
        }
        self.last = Some(made.id);
        self.found.push(artifact);
        false
    }

    /// The page. `unlisted` is how many files no artifact stands for.
    pub(crate) fn response(self, unlisted: u64) -> v1::ListArtifactsResponse {
        let next = self.last.filter(|_| self.is_full);
        v1::ListArtifactsResponse {
            artifacts: self.found,
            next_page_token: next.map(|next| next.to_string()).unwrap_or_default(),
            unlisted_file_count: if self.is_full { 0 } else { i64::try_from(unlisted).unwrap_or(i64::MAX) },
        }
    }
}
