//! A page of an execution's artifacts.

use std::collections::{BTreeSet, HashMap};

use belay_execution::Event;

use super::{Artifact, ArtifactId, Entry, Graph, filter::ArtifactFilter};

/// Some artifacts, with what is known of them before their events are read.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    ids: Vec<ArtifactId>,
    entries: HashMap<u64, Entry>,
}

impl Selection {
    /// The selection of these artifacts, as far as there are such.
    pub fn of(graph: &Graph, ids: impl IntoIterator<Item = ArtifactId>) -> Self {
        let mut selection = Self::default();
        for id in ids {
            if let Some(entry) = graph.entry(id.sequence).filter(|entry| entry.has(id)) {
                selection.entries.entry(id.sequence).or_insert_with(|| entry.clone());
                selection.ids.push(id);
            }
        }
        selection
    }

    /// Whether there are no artifacts.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The number of artifacts.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// The selection in parts of at most `size` artifacts.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Self> {
        self.ids.chunks(size).map(|ids| {
            let entries = ids.iter().filter_map(|id| Some((id.sequence, self.entries.get(&id.sequence)?.clone())));
            Self { ids: ids.to_vec(), entries: entries.collect() }
        })
    }

    /// The sequences of the events that say what they are.
    pub fn sequences(&self) -> BTreeSet<u64> {
        self.entries.iter().flat_map(|(sequence, entry)| entry.sequences(*sequence)).collect()
    }

    /// The artifacts; `None` for one that the events do not have.
    pub fn artifacts(&self, events: &HashMap<u64, Event>) -> impl Iterator<Item = Option<Artifact>> {
        self.ids.iter().map(|id| self.entries.get(&id.sequence)?.artifact(*id, events))
    }
}

/// A page while it is gathered: it is given the artifacts of which [`ArtifactFilter::may_have`] holds, in order. `T` is an artifact as the page shows it.
#[derive(Debug)]
pub struct Page<T> {
    filter: ArtifactFilter,
    size: usize,
    max_bytes: usize,
    found: Vec<T>,
    bytes: usize,
    last: Option<ArtifactId>,
    is_full: bool,
}

/// A complete page.
#[derive(Clone, Debug, PartialEq)]
pub struct ArtifactPage<T> {
    /// The artifacts.
    pub artifacts: Vec<T>,
    /// The artifact after which the next page begins, unless this is the last.
    pub next: Option<ArtifactId>,
    /// How many files no artifact stands for; 0 before the last page.
    pub unlisted: u64,
}

impl<T> Page<T> {
    /// An empty page of `size` artifacts, of `max_bytes` unless one alone has more.
    pub fn new(filter: ArtifactFilter, size: usize, max_bytes: usize) -> Self {
        Self { filter, size, max_bytes, found: Vec::new(), bytes: 0, last: None, is_full: false }
    }

    /// The filter of the artifacts that come next.
    pub fn filter(&self) -> &ArtifactFilter {
        &self.filter
    }

    /// How many matching artifacts decide the rest of the page: those that it has room for, and one that shows that there is a next page.
    pub fn missing(&self) -> usize {
        self.size - self.found.len() + 1
    }

    /// Takes the next artifact; `show` turns one that matches into its form on the page, and returns the size of that in bytes. Returns whether the page is full.
    pub fn apply(&mut self, artifact: &Artifact, show: impl FnOnce(&Artifact) -> (T, usize)) -> bool {
        self.filter.after = Some(artifact.id);
        if !self.filter.has(artifact) {
            return false;
        }
        let (shown, bytes) = show(artifact);
        self.bytes += bytes;
        if self.found.len() == self.size || self.bytes > self.max_bytes && !self.found.is_empty() {
            self.is_full = true;
            return true;
        }
        self.last = Some(artifact.id);
        self.found.push(shown);
        false
    }

    /// The page. `unlisted` is how many files no artifact stands for.
    pub fn finish(self, unlisted: u64) -> ArtifactPage<T> {
        let next = self.last.filter(|_| self.is_full);
        ArtifactPage { artifacts: self.found, next, unlisted: if self.is_full { 0 } else { unlisted } }
    }
}
