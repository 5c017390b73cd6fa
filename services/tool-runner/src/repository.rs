//! Flags changes to what Git runs or obeys although its path does not say so: a bare repository, which is a directory with `HEAD`, `objects` and
//! `refs` whose configuration Git obeys without a `.git`; and what the configuration of a repository names.

mod git_config;
mod named;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use belay_workspace::RelPath;

use crate::{View, facts::Fact};

/// The flag.
const FLAG: &str = "bare_repository";

/// The entries that make a directory a repository.
const MARKS: [&str; 3] = ["HEAD", "objects", "refs"];

/// The entries of a repository that Git executes or obeys.
const OBEYED: [&str; 4] = ["config", "config.worktree", "commondir", "hooks"];

/// Flags the changes in `facts`, judged by `view`. `root` is the path of the workspace outside of the sandbox.
pub(crate) fn flag(facts: &mut [Fact], view: &dyn View, root: &Path) {
    flag_bare(facts, view);
    named::flag(facts, view, root);
}

/// Whether [`flag_as_before`] has to be called as well.
pub(crate) fn changes_configuration(facts: &[Fact]) -> bool {
    named::changes_configuration(facts)
}

/// Flags the changes in `facts` to what a configuration named before the call, in the unmodified view `base`.
pub(crate) fn flag_as_before(facts: &mut [Fact], base: &dyn View, root: &Path) {
    named::flag(facts, base, root);
}

/// Flags the changes in `facts` that create a bare repository, or change what Git obeys in one.
fn flag_bare(facts: &mut [Fact], view: &dyn View) {
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    let mut is_repository = |folder: &str| {
        let there = |name: &&str| {
            let path = if folder.is_empty() { (*name).to_owned() } else { format!("{folder}/{name}") };
            RelPath::parse(&path).is_ok_and(|path| view.metadata(&path).is_ok())
        };
        *known.entry(folder.to_owned()).or_insert_with(|| MARKS.iter().all(there))
    };
    // For a repository that this call completes, every part is flagged; for an existing one, only what Git obeys.
    let made: BTreeSet<String> = facts
        .iter()
        .filter(|fact| fact.before.is_none())
        .filter_map(|fact| folder_of(&fact.path.written(), &MARKS))
        .filter(|folder| is_repository(folder))
        .collect();
    for fact in facts {
        let path = fact.path.written();
        let steers = folder_of(&path, &OBEYED).is_some_and(|folder| is_repository(&folder));
        let makes = folder_of(&path, &MARKS).is_some_and(|folder| fact.before.is_none() && made.contains(&folder));
        if (steers || makes) && !path.split('/').any(|name| name.eq_ignore_ascii_case(".git")) {
            fact.flags.insert(FLAG);
        }
    }
}

/// The directory that holds the path, or the parent of it, under one of the names.
fn folder_of(path: &str, names: &[&str]) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    // `hooks` includes its entries; the others are files, or directories whose content is data.
    let at = match parts.len().checked_sub(2) {
        Some(parent) if parts[parent] == "hooks" && names.contains(&"hooks") => parent,
        _ if names.contains(parts.last()?) => parts.len() - 1,
        _ => return None,
    };
    Some(parts[..at].join("/"))
}
