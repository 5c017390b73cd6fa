//! The file contents, before and after an effect, that an approval can show, by digest.

use std::collections::BTreeSet;

use belay_grant::{CallWords, Change, digest_of};
use belay_policy::Gravity;
use belay_workspace::{Content as Holds, Digest, Node};

use crate::{
    View,
    changes::gravity,
    facts::{Fact, prefixed},
};

/// The largest file that is kept, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The limit for all files together, in bytes: what the gate accepts.
const MAX_ALL_BYTES: u64 = 24 << 20;

/// A content by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// `sha256:…` over `data`.
    pub(crate) digest: String,
    pub(crate) data: Vec<u8>,
}

/// Collects contents up to the limits. `base` is an unmodified view.
///
/// Protected and flagged files come first, then files that existed before, then new ones; within a rank, small files come before large
/// ones, so that one file does not crowd out others. A file that cannot be read, or whose content no longer matches the facts, is left out;
/// the facts show that it changed.
pub(crate) fn collect(facts: &[Fact], base: &dyn View, view: &dyn View) -> Vec<Content> {
    let mut ordered: Vec<(&Fact, u64)> = facts.iter().map(|fact| (fact, size(fact))).collect();
    ordered.sort_by_cached_key(|(fact, size)| (rank(fact), *size));
    let mut contents: Vec<Content> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for (fact, _) in ordered {
        for (node, from) in [(&fact.before, base), (&fact.after, view)] {
            let Some((node, size, expected)) = node.as_ref().and_then(file) else { continue };
            if size > MAX_FILE_BYTES || total + size > MAX_ALL_BYTES || seen.contains(&expected) {
                continue;
            }
            let Ok(data) = from.read(&node.path, 0, Some(MAX_FILE_BYTES)) else { continue };
            if Digest::of(&data) != expected {
                continue;
            }
            seen.insert(expected);
            total += data.len() as u64;
            contents.push(Content { digest: prefixed(&expected), data });
        }
    }
    contents
}

/// The paths that people are not shown in full, as contents: who may decide can have them, by the digests in the subject.
pub(crate) fn hidden_paths(changes: &[Change]) -> impl Iterator<Item = Content> {
    let hidden = changes.iter().filter(|change| change.flags.iter().any(|flag| flag == Change::HIDDEN_NAME));
    hidden.map(|change| {
        let data = change.path.clone().into_bytes();
        Content { digest: digest_of(&data), data }
    })
}

/// The words of a call of which something is hidden, as a content.
pub(crate) fn hidden_words(words: &CallWords) -> Content {
    let data = words.canonical_bytes();
    Content { digest: digest_of(&data), data }
}

/// 0: always needs approval. 1: existed before. 2: new.
fn rank(fact: &Fact) -> u8 {
    match gravity(fact) {
        Gravity::Protected(_) | Gravity::Flagged => 0,
        Gravity::Deleted | Gravity::Modified => 1,
        Gravity::Remarkable | Gravity::Created => 2,
    }
}

/// The bytes of both sides of a change.
fn size(fact: &Fact) -> u64 {
    [&fact.before, &fact.after].into_iter().filter_map(|node| file(node.as_ref()?)).map(|(_, size, _)| size).sum()
}

fn file(node: &Node) -> Option<(&Node, u64, Digest)> {
    match node.content {
        Holds::File { size, digest } => Some((node, size, digest)),
        Holds::Directory | Holds::Symlink { .. } | Holds::Special { .. } => None,
    }
}
