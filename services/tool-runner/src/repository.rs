//! Changes that steer a bare Git repository: a folder with `HEAD`, `objects` and `refs`, whose configuration Git obeys without a `.git`.

use std::collections::{BTreeMap, BTreeSet};

use belay_workspace::RelPath;

use crate::{View, subject::Fact};

/// The flag of such a change.
const FLAG: &str = "bare_repository";

/// What makes a folder a repository.
const MARKS: [&str; 3] = ["HEAD", "objects", "refs"];

/// What of a repository Git executes or obeys.
const OBEYED: [&str; 4] = ["config", "config.worktree", "commondir", "hooks"];

/// Flags the changes in `facts` that steer a bare repository, or make one, as the folders are in `view`.
pub(crate) fn flag(facts: &mut [Fact], view: &dyn View) {
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    let mut is_repository = |folder: &str| {
        let there = |name: &&str| {
            let path = if folder.is_empty() { (*name).to_owned() } else { format!("{folder}/{name}") };
            RelPath::parse(&path).is_ok_and(|path| view.metadata(&path).is_ok())
        };
        *known.entry(folder.to_owned()).or_insert_with(|| MARKS.iter().all(there))
    };
    // A repository that this call completes counts by all of its parts, and one that was there by what is obeyed.
    let made: BTreeSet<String> = facts
        .iter()
        .filter(|fact| fact.before.is_none())
        .filter_map(|fact| folder_of(&fact.path.to_string(), &MARKS))
        .filter(|folder| is_repository(folder))
        .collect();
    for fact in facts {
        let path = fact.path.to_string();
        let steers = folder_of(&path, &OBEYED).is_some_and(|folder| is_repository(&folder));
        let makes = folder_of(&path, &MARKS).is_some_and(|folder| fact.before.is_none() && made.contains(&folder));
        if (steers || makes) && !path.split('/').any(|name| name.eq_ignore_ascii_case(".git")) {
            fact.flags.insert(FLAG);
        }
    }
}

/// The folder in which a path, or a folder around it, has one of the names.
fn folder_of(path: &str, names: &[&str]) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    // `hooks` stands for what is in it; the others are files, or folders whose contents are data.
    let at = match parts.len().checked_sub(2) {
        Some(parent) if parts[parent] == "hooks" && names.contains(&"hooks") => parent,
        _ if names.contains(parts.last()?) => parts.len() - 1,
        _ => return None,
    };
    Some(parts[..at].join("/"))
}
