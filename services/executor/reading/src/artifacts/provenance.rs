//! Provenance: the artifacts that an artifact derives from, and those that derive from it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem::size_of,
};

use super::{ArtifactId, Entry, filter::ArtifactFilter};

/// How many bytes of an artifact's message are not its path and what it derives from, at most.
const FIXED_BYTES: usize = 1_024;

/// An estimate of the memory that an element of a map takes beside what is in it.
const ELEMENT_BYTES: usize = 48;

/// The artifacts of an execution, and how they derive from each other. The files of one call share what they derive from.
#[derive(Debug, Default)]
pub struct Graph {
    /// The artifacts that each event made, for the events that made any.
    entries: BTreeMap<u64, Entry>,
    /// The events whose artifacts derive from the output of this one, ascending.
    by_output: HashMap<u64, Vec<u64>>,
    replaced_by: HashMap<ArtifactId, ArtifactId>,
}

/// The lineage of an artifact in one direction, the nearest first.
#[derive(Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The artifacts in it.
    pub artifacts: Vec<ArtifactId>,
    /// Whether there is more at its far end.
    pub is_truncated: bool,
}

impl Graph {
    /// Takes what the event with this sequence made, in the order of the events. Returns the memory that it takes, in bytes.
    pub fn add(&mut self, sequence: u64, entry: Entry) -> usize {
        for output in &*entry.outputs {
            self.by_output.entry(*output).or_default().push(sequence);
        }
        let mut bytes =
            size_of::<Entry>() + ELEMENT_BYTES + entry.outputs.len() * (2 * size_of::<u64>() + ELEMENT_BYTES);
        for (id, file) in entry.ids(sequence).zip(entry.files()) {
            bytes += size_of_val(file);
            if let Some(replaced) = file.replaces {
                self.replaced_by.insert(replaced, id);
                bytes += 2 * size_of::<ArtifactId>() + ELEMENT_BYTES;
            }
        }
        self.entries.insert(sequence, entry);
        bytes
    }

    /// The artifacts that the event with this sequence made.
    pub fn entry(&self, sequence: u64) -> Option<&Entry> {
        self.entries.get(&sequence)
    }

    /// Whether there is such an artifact.
    pub fn has(&self, id: ArtifactId) -> bool {
        self.entries.get(&id.sequence).is_some_and(|entry| entry.has(id))
    }

    /// The artifacts that may match, in order: whether their paths match is in the events.
    pub fn candidates(&self, filter: &ArtifactFilter) -> impl Iterator<Item = ArtifactId> {
        let from = filter.after.map_or(0, ArtifactId::sequence);
        let entries = self.entries.range(from..).filter(|(_, entry)| filter.may_have(entry));
        let ids = entries.flat_map(|(sequence, entry)| entry.ids(*sequence));
        ids.filter(|id| filter.after.is_none_or(|after| *id > after))
    }

    /// The artifacts that it derives from: at most `max`, whose messages have at most `max_bytes`, or one alone. `name_bytes` is the length of a
    /// name.
    pub fn ancestors(&self, of: ArtifactId, max: usize, max_bytes: usize, name_bytes: usize) -> Lineage {
        let parents = |id: ArtifactId, into: &mut dyn FnMut(ArtifactId)| {
            let Some(entry) = self.entries.get(&id.sequence) else { return };
            entry.outputs.iter().for_each(|output| into(ArtifactId::output(*output)));
            let file = id.file.checked_sub(1).and_then(|index| entry.files().get(index as usize));
            file.and_then(|file| file.replaces).into_iter().for_each(into);
        };
        self.within(walk(of, max, parents), max_bytes, name_bytes)
    }

    /// The artifacts that derive from it, within the same bounds.
    pub fn descendants(&self, of: ArtifactId, max: usize, max_bytes: usize, name_bytes: usize) -> Lineage {
        let children = |id: ArtifactId, into: &mut dyn FnMut(ArtifactId)| {
            let events = self.by_output.get(&id.sequence).filter(|_| id.file == 0);
            for &sequence in events.into_iter().flatten() {
                self.entries[&sequence].ids(sequence).for_each(&mut *into);
            }
            self.replaced_by.get(&id).copied().into_iter().for_each(into);
        };
        self.within(walk(of, max, children), max_bytes, name_bytes)
    }

    fn within(&self, mut found: Lineage, max_bytes: usize, name_bytes: usize) -> Lineage {
        let mut bytes = 0;
        let fits = |id: &&ArtifactId| {
            let entry = &self.entries[&id.sequence];
            let file = id.file.checked_sub(1).and_then(|index| entry.files().get(index as usize));
            let path = file.map_or(0, |file| file.path_bytes as usize);
            bytes += FIXED_BYTES + path + (entry.outputs.len() + 1) * (name_bytes + 4);
            bytes <= max_bytes
        };
        let fitting = found.artifacts.iter().take_while(fits).count().max(1);
        if fitting < found.artifacts.len() {
            found.artifacts.truncate(fitting);
            found.is_truncated = true;
        }
        found
    }
}

/// The artifacts that are reached from one, level by level, each level in order; of a level that has too many, the first.
fn walk(from: ArtifactId, max: usize, next: impl Fn(ArtifactId, &mut dyn FnMut(ArtifactId))) -> Lineage {
    let mut seen: HashSet<ArtifactId> = [from].into();
    let (mut artifacts, mut is_truncated) = (Vec::new(), false);
    let mut level = vec![from];
    while !level.is_empty() && !is_truncated {
        let room = max - artifacts.len();
        let mut found = BTreeSet::new();
        for id in level {
            next(id, &mut |reached| {
                if !seen.contains(&reached) && found.insert(reached) && found.len() > room {
                    found.pop_last();
                    is_truncated = true;
                }
            });
        }
        level = found.into_iter().collect();
        seen.extend(&level);
        artifacts.extend(&level);
    }
    Lineage { artifacts, is_truncated }
}
