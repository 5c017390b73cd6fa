//! What an artifact derives from, and what derives from it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{ArtifactId, Content, Made};

/// How many bytes of an artifact's message are not its path and what it derives from, at most.
const FIXED_BYTES: usize = 1_024;

/// How the artifacts of an execution derive from each other. The files of one call share what they derive from.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The outputs that an event's artifacts derive from, and the lengths of the paths of its files; none for an output.
    events: HashMap<u64, (Arc<[u64]>, Vec<u32>)>,
    /// The events whose artifacts derive from the output of this one, ascending.
    by_output: HashMap<u64, Vec<u64>>,
    replaces: HashMap<ArtifactId, ArtifactId>,
    replaced_by: HashMap<ArtifactId, ArtifactId>,
}

/// The lineage of an artifact in one direction, the nearest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    pub(crate) artifacts: Vec<ArtifactId>,
    pub(crate) is_truncated: bool,
}

impl Graph {
    /// Takes the next artifact, in the order in which they are made.
    pub(crate) fn add(&mut self, made: &Made) {
        let sequence = made.id.sequence;
        let (_, files) = self.events.entry(sequence).or_insert_with(|| {
            for output in &*made.outputs {
                self.by_output.entry(*output).or_default().push(sequence);
            }
            (Arc::clone(&made.outputs), Vec::new())
        });
        match &made.content {
            Content::Output(_) => {}
            Content::File(file) => files.push(u32::try_from(file.path.len()).unwrap_or(u32::MAX)),
        }
        if let Some(replaced) = made.replaces {
            self.replaces.insert(made.id, replaced);
            self.replaced_by.insert(replaced, made.id);
        }
    }

    /// Whether there is such an artifact.
    pub(crate) fn has(&self, id: ArtifactId) -> bool {
        self.events.get(&id.sequence).is_some_and(|(_, files)| match id.file {
            0 => files.is_empty(),
            file => file as usize <= files.len(),
        })
    }

    /// What it derives from: at most `max` artifacts whose messages have at most `max_bytes`, or one alone. `name_bytes` is the length of a name.
    pub(crate) fn ancestors(&self, of: ArtifactId, max: usize, max_bytes: usize, name_bytes: usize) -> Lineage {
        let parents = |id: ArtifactId, into: &mut dyn FnMut(ArtifactId)| {
            let outputs = self.events.get(&id.sequence).map(|(outputs, _)| &**outputs);
            outputs.unwrap_or_default().iter().for_each(|output| into(ArtifactId::output(*output)));
            self.replaces.get(&id).copied().into_iter().for_each(into);
        };
        self.within(walk(of, max, parents), max_bytes, name_bytes)
    }

    /// What derives from it, within the same bounds.
    pub(crate) fn descendants(&self, of: ArtifactId, max: usize, max_bytes: usize, name_bytes: usize) -> Lineage {
        let children = |id: ArtifactId, into: &mut dyn FnMut(ArtifactId)| {
            let events = self.by_output.get(&id.sequence).filter(|_| id.file == 0);
            for &sequence in events.into_iter().flatten() {
                match self.events.get(&sequence).map_or(0, |(_, files)| files.len()) {
                    0 => into(ArtifactId::output(sequence)),
                    files => (1..).take(files).for_each(|file| into(ArtifactId { sequence, file })),
                }
            }
            self.replaced_by.get(&id).copied().into_iter().for_each(into);
        };
        self.within(walk(of, max, children), max_bytes, name_bytes)
    }

    fn within(&self, mut found: Lineage, max_bytes: usize, name_bytes: usize) -> Lineage {
        let mut bytes = 0;
        let fits = |id: &&ArtifactId| {
            let (outputs, files) = &self.events[&id.sequence];
            let path = id.file.checked_sub(1).and_then(|file| files.get(file as usize)).copied().unwrap_or(0);
            bytes += FIXED_BYTES + path as usize + (outputs.len() + 1) * (name_bytes + 4);
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
