//! What can be shown of the files that an effect changes: texts, before and after, by digest.

use std::collections::BTreeSet;

use belay_workspace::{Content as Holds, Digest, Node};

use crate::{
    View,
    subject::{Fact, prefixed},
};

/// The most bytes of one file that are shown.
const LARGEST_FILE: u64 = 256 << 10;
/// The most bytes of all files together.
const LARGEST_ALL: usize = 4 << 20;

/// A content by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// `sha256:…` over `data`.
    pub(crate) digest: String,
    pub(crate) data: Vec<u8>,
}

/// The contents to show, in the order of the paths, until there are enough. `base` is a view in which nothing was changed.
///
/// What cannot be read, or is no longer what the facts say, is left out: the facts are what counts, and show that it was.
pub(crate) fn collect(facts: &[Fact], base: &dyn View, view: &dyn View) -> Vec<Content> {
    let mut contents: Vec<Content> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for fact in facts {
        for (node, from) in [(&fact.before, base), (&fact.after, view)] {
            let Some((node, size, expected)) = node.as_ref().and_then(file) else { continue };
            let fits = size <= LARGEST_FILE && total + usize::try_from(size).unwrap_or(usize::MAX) <= LARGEST_ALL;
            if !fits || !seen.insert(expected) {
                continue;
            }
            let Ok(data) = from.read(&node.path, 0, Some(LARGEST_FILE)) else { continue };
            if Digest::of(&data) != expected || !is_text(&data) {
                continue;
            }
            total += data.len();
            contents.push(Content { digest: prefixed(&expected), data });
        }
    }
    contents
}

fn file(node: &Node) -> Option<(&Node, u64, Digest)> {
    match node.content {
        Holds::File { size, digest } => Some((node, size, digest)),
        Holds::Directory | Holds::Symlink { .. } | Holds::Special { .. } => None,
    }
}

fn is_text(data: &[u8]) -> bool {
    !data.contains(&0) && std::str::from_utf8(data).is_ok()
}
