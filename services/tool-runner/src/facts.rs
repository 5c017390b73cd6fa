//! The actions of a call, path by path, from the manifest of its effect. Pure.

use std::collections::{BTreeMap, BTreeSet};

use belay_grant::ChangeKind;
use belay_workspace::{Act, Content, Digest, Flag, Manifest, Node, RelPath};

/// A call's action on one path. A directory that is created or removed has one fact per path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) path: RelPath,
    pub(crate) kind: ChangeKind,
    /// The node before.
    pub(crate) before: Option<Node>,
    /// The node after.
    pub(crate) after: Option<Node>,
    /// The new permission bits of a directory that keeps its content.
    pub(crate) mode: Option<u32>,
    pub(crate) flags: BTreeSet<&'static str>,
}

impl Fact {
    pub(crate) fn new(path: &RelPath, before: Option<&Node>, after: Option<&Node>) -> Self {
        let kind = match (before, after) {
            (None, Some(_)) => ChangeKind::Created,
            (Some(_), None) => ChangeKind::Deleted,
            (Some(_), Some(_)) | (None, None) => ChangeKind::Modified,
        };
        let (before, after) = (before.cloned(), after.cloned());
        Self { path: path.clone(), kind, before, after, mode: None, flags: BTreeSet::new() }
    }

    /// The content's digest before; empty for what is not a file or was not there.
    pub(crate) fn digest_before(&self) -> String {
        file_digest(self.before.as_ref())
    }

    /// The content's digest after.
    pub(crate) fn digest_after(&self) -> String {
        file_digest(self.after.as_ref())
    }

    /// The entry that is there then, in words.
    pub(crate) fn what(&self) -> String {
        match (&self.after, &self.before, self.mode) {
            (None, None, Some(mode)) => format!("folder {mode:04o}"),
            (Some(node), ..) | (None, Some(node), _) => describe(node),
            (None, None, None) => String::new(),
        }
    }
}

/// The facts of a manifest, sorted by path.
pub(crate) fn facts(manifest: &Manifest) -> Vec<Fact> {
    let mut facts = BTreeMap::new();
    for change in &manifest.changes {
        if let Act::Meta { new, .. } = change.act {
            let fact = Fact { mode: Some(new), ..Fact::new(&change.path, None, None) };
            facts.insert(change.path.clone(), fact);
        }
        let before: BTreeMap<_, _> = change.before.iter().map(|node| (&node.path, node)).collect();
        let after: BTreeMap<_, _> = change.after.iter().map(|node| (&node.path, node)).collect();
        for path in before.keys().chain(after.keys()).copied() {
            let (before, after) = (before.get(path).copied(), after.get(path).copied());
            if before != after {
                facts.entry(path.clone()).or_insert_with(|| Fact::new(path, before, after));
            }
        }
        for flagged in &change.flags {
            // A flagged path is shown even if nothing else about it changes.
            let fact = facts.entry(flagged.path.clone()).or_insert_with(|| {
                let find = |nodes: &BTreeMap<&RelPath, &Node>| nodes.get(&flagged.path).copied().cloned();
                Fact::new(&flagged.path, find(&before).as_ref(), find(&after).as_ref())
            });
            fact.flags.insert(name_of(flagged.flag));
        }
    }
    facts.into_values().collect()
}

fn name_of(flag: Flag) -> &'static str {
    match flag {
        Flag::Executable => "executable",
        Flag::SetIdStripped => "set_id_stripped",
        Flag::MadeWritable => "made_writable",
        Flag::LinkLeaves => "link_leaves",
        Flag::OddName => "odd_name",
        Flag::CaseCollision => "case_collision",
    }
}

fn describe(node: &Node) -> String {
    match &node.content {
        Content::File { .. } => format!("file {:04o}", node.mode),
        Content::Directory => format!("folder {:04o}", node.mode),
        Content::Symlink { target } => format!("link to {}", target.escape_ascii()),
        Content::Special { special } => special.name().to_owned(),
    }
}

fn file_digest(node: Option<&Node>) -> String {
    match node.map(|node| &node.content) {
        Some(Content::File { digest, .. }) => prefixed(digest),
        _ => String::new(),
    }
}

/// A digest as the contract writes it.
pub(crate) fn prefixed(digest: &Digest) -> String {
    format!("sha256:{digest}")
}
