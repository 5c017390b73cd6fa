//! What can be shown of the files that an effect changes: their bytes, before and after, by digest.

use std::collections::BTreeSet;

use belay_policy::Gravity;
use belay_workspace::{Content as Holds, Digest, Node};

use crate::{
    View,
    subject::{Fact, kind_for_policy, prefixed},
};

/// The most bytes of one file that are kept to be shown.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The most bytes of all files together: what the gate takes.
const MAX_ALL_BYTES: u64 = 24 << 20;

/// A content by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// `sha256:…` over `data`.
    pub(crate) digest: String,
    pub(crate) data: Vec<u8>,
}

/// The contents to show, until there are enough. `base` is a view in which nothing was changed.
///
/// Protected and flagged files come first, then what was there before, then what is new; of equally grave ones the small come before the
/// large, so that no file takes the place of another. What cannot be read, or is no longer what the facts say, is left out: the facts are
/// what counts, and show that it was.
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

/// What asks whatever the settings say; what was there before; what is new.
fn rank(fact: &Fact) -> u8 {
    let flags: Vec<String> = fact.flags.iter().map(|&flag| flag.to_owned()).collect();
    match Gravity::of(&fact.path.to_string(), kind_for_policy(fact.kind), &flags) {
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
