//! The changes of a call, as the subject of an approval lists them: judged on the paths as they are, the gravest first, plain creations grouped by folder. Pure.
//!
//! The gate, its lists and its clients get the paths with secrets redacted. So nothing is judged, ordered or grouped there.

use std::collections::{BTreeMap, HashSet};

use belay_grant::{Change, ChangeKind, Folder, Gravity, Subject};
use belay_policy::protection;
use belay_workspace::RelPath;

use crate::{facts::Fact, secrets::CallSecrets};

/// Up to this number, plain creations are shown one by one; beyond it they are grouped by folder.
const MAX_UNGROUPED_CREATIONS: usize = 20;

/// A folder with fewer new files is not grouped.
const MIN_GROUP: usize = 4;

/// The changes of a call, and the folders that they are shown with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The gravest first, then by path.
    pub(crate) list: Vec<Change>,
    pub(crate) folders: Vec<Folder>,
}

/// Flags the changes whose paths people are not shown in full, because they have secrets of the call or are too long.
pub(crate) fn flag_hidden(facts: &mut [Fact], secrets: &CallSecrets) {
    for fact in facts {
        let path = fact.path.written();
        if path.chars().count() > Subject::MAX_PATH_CHARS || secrets.text(&path) != path {
            fact.flags.insert(Change::HIDDEN_NAME);
        }
    }
}

/// Puts the gravest first; equally grave ones stay in the order of their paths.
pub(crate) fn order(facts: &mut [Fact]) {
    facts.sort_by_cached_key(gravity);
}

/// How grave it is, by the names themselves.
pub(crate) fn gravity(fact: &Fact) -> belay_policy::Gravity {
    let flags: Vec<String> = fact.flags.iter().map(|&flag| flag.to_owned()).collect();
    belay_policy::Gravity::of(&fact.path.as_text(), kind_for_policy(fact.kind), &flags)
}

/// The facts, in the order that [`order`] gave them, as a subject lists them.
pub(crate) fn changes(facts: &[Fact]) -> Changes {
    let change = |fact: &Fact| Change {
        path: fact.path.written(),
        path_digest: String::new(),
        kind: fact.kind,
        gravity: signed(gravity(fact)),
        protection: protection(&fact.path.as_text()).unwrap_or_default().to_owned(),
        before: fact.digest_before(),
        after: fact.digest_after(),
        what: fact.what(),
        flags: fact.flags.iter().map(|&flag| flag.to_owned()).collect(),
        folder: None,
    };
    let mut list: Vec<Change> = facts.iter().map(change).collect();
    let folders = group(&mut list);
    Changes { list, folders }
}

/// A change that is judged by its path as it is shown: what must never be. Only a planted defect does it.
pub(crate) fn judged_as_shown(change: Change, shown: &str) -> Change {
    let flags: Vec<String> = change.flags.into_iter().filter(|flag| flag != Change::HIDDEN_NAME).collect();
    let gravity = signed(belay_policy::Gravity::of(shown, kind_for_policy(change.kind), &flags));
    let protection = protection(shown).unwrap_or_default().to_owned();
    Change { gravity, protection, flags, ..change }
}

fn signed(gravity: belay_policy::Gravity) -> Gravity {
    match gravity {
        belay_policy::Gravity::Protected(_) => Gravity::Protected,
        belay_policy::Gravity::Flagged => Gravity::Flagged,
        belay_policy::Gravity::Deleted => Gravity::Deleted,
        belay_policy::Gravity::Modified => Gravity::Modified,
        belay_policy::Gravity::Remarkable => Gravity::Remarkable,
        belay_policy::Gravity::Created => Gravity::Created,
    }
}

pub(crate) fn kind_for_policy(kind: ChangeKind) -> belay_policy::ChangeKind {
    match kind {
        ChangeKind::Created => belay_policy::ChangeKind::Created,
        ChangeKind::Modified => belay_policy::ChangeKind::Modified,
        ChangeKind::Deleted => belay_policy::ChangeKind::Deleted,
    }
}

/// The path of a change as rules about names see it.
pub(crate) fn judged(written: &str) -> String {
    RelPath::parse(written).map_or_else(|_| written.to_owned(), |path| path.as_text())
}

/// The path of a change in a message.
pub(crate) fn displayed(written: &str) -> String {
    belay_text::visible(written)
}

/// Puts many plain creations into the outermost folders in which nothing else changes, and returns these.
fn group(changes: &mut [Change]) -> Vec<Folder> {
    let first = changes.partition_point(|change| change.gravity < Gravity::Created);
    if changes.len() - first <= MAX_UNGROUPED_CREATIONS {
        return Vec::new();
    }
    let (others, created) = changes.split_at_mut(first);
    let mixed: HashSet<&str> = others.iter().flat_map(|change| folders(&change.path)).collect();
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, change) in created.iter().enumerate() {
        // A new folder belongs to its own group.
        let mut around = folders(&change.path).chain([change.path.as_str()]);
        if let Some(folder) = around.find(|folder| !mixed.contains(folder)) {
            groups.entry(folder.to_owned()).or_default().push(place);
        }
    }
    let mut listed = Vec::new();
    for (path, group) in groups.into_iter().filter(|(_, group)| group.len() >= MIN_GROUP) {
        let index = u32::try_from(listed.len()).expect("a subject has fewer changes");
        group.iter().for_each(|place| created[*place].folder = Some(index));
        listed.push(Folder { path, changes: u32::try_from(group.len()).expect("a subject has fewer changes") });
    }
    listed
}

/// The folders around a path, the outermost first.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use belay_redaction::Redactor;

    use super::*;

    fn fact(path: &str, kind: ChangeKind, flags: &[&'static str]) -> Fact {
        let path = RelPath::parse(path).unwrap();
        let mut fact = Fact::new(&path, None, None);
        (fact.kind, fact.flags) = (kind, flags.iter().copied().collect());
        fact
    }

    fn created(path: &str) -> Fact {
        fact(path, ChangeKind::Created, &[])
    }

    fn listed(mut facts: Vec<Fact>) -> Changes {
        facts.sort_by(|a, b| a.path.cmp(&b.path));
        order(&mut facts);
        changes(&facts)
    }

    /// B-18: the gravest change comes first, however many harmless ones sort before it, and says why it is protected.
    #[test]
    fn the_gravest_comes_first() {
        let mut facts: Vec<Fact> =
            (0..300).map(|n| fact(&format!("+{n:03}"), ChangeKind::Created, &["executable"])).collect();
        facts.extend([
            fact("a/.git/config", ChangeKind::Modified, &[]),
            fact("b", ChangeKind::Deleted, &[]),
            fact("c", ChangeKind::Modified, &[]),
            created("d"),
            fact("z", ChangeKind::Created, &["link_leaves"]),
        ]);
        let Changes { list, folders } = listed(facts);
        let first: Vec<_> = list.iter().take(5).map(|change| (change.path.as_str(), change.gravity)).collect();
        let (protected, flagged, deleted, modified) =
            (Gravity::Protected, Gravity::Flagged, Gravity::Deleted, Gravity::Modified);
        assert_eq!(
            first,
            [
                ("a/.git/config", protected),
                ("z", flagged),
                ("b", deleted),
                ("c", modified),
                ("+000", Gravity::Remarkable)
            ]
        );
        assert_eq!(list.last().map(|change| change.gravity), Some(Gravity::Created));
        assert!(!list[0].protection.is_empty() && list[1..].iter().all(|change| change.protection.is_empty()));
        assert_eq!(folders, []);
    }

    /// S2-X-17: many plain creations are shown folder by folder, each in the outermost in which nothing else happens.
    #[test]
    fn creations_are_grouped_by_folder() {
        let mut facts: Vec<Fact> = (0..401).map(|n| created(&format!("build/d{}/o{n:03}", n % 3))).collect();
        facts.extend([created("build"), fact("lib/gone", ChangeKind::Deleted, &[])]);
        facts.extend((0..5).map(|n| created(&format!("lib/new/{n}"))));
        facts.extend([created("one"), created("two/x")]);
        let Changes { list, folders } = listed(facts);
        let folder = |path: &str, changes| Folder { path: path.into(), changes };
        assert_eq!(folders, [folder("build", 402), folder("lib/new", 5)]);
        let alone: Vec<_> =
            list.iter().filter(|change| change.folder.is_none()).map(|change| change.path.as_str()).collect();
        assert_eq!(alone, ["lib/gone", "one", "two/x"]);
        for (index, folder) in (0..).zip(&folders) {
            let inside = list.iter().filter(|change| change.folder == Some(index)).count();
            assert_eq!(inside, folder.changes as usize, "{}", folder.path);
        }
        let few = listed((0..20).map(|n| created(&format!("d/{n:02}"))).collect());
        assert_eq!(few.folders, [], "few are shown one by one");
    }

    /// B-03: what people are not shown in full is flagged, and judged by its true name all the same.
    #[test]
    fn a_name_that_is_not_shown_in_full_is_flagged() {
        let secrets = CallSecrets::with(Redactor::new());
        let long = vec!["d".repeat(200); 6].join("/");
        let token = ["gh", "p_", "0123456789abcdefghijABCDEFGHIJ456789"].concat();
        let mut facts = vec![
            created(&long),
            created("plain"),
            created(&format!("{token}/src/a.rs")),
            created(&format!("{token}/.envrc")),
        ];
        flag_hidden(&mut facts, &secrets);
        let hidden: Vec<_> = facts.iter().map(|fact| fact.flags.contains(Change::HIDDEN_NAME)).collect();
        assert_eq!(hidden, [true, false, true, true]);
        let Changes { list, .. } = listed(facts);
        let gravities: Vec<_> = list.iter().map(|change| change.gravity).collect();
        assert_eq!(gravities, [Gravity::Protected, Gravity::Flagged, Gravity::Flagged, Gravity::Created]);
    }

    /// A rule about names sees letters that a person would be shown escaped, and two names are never one.
    #[test]
    fn names_are_judged_and_listed_as_they_are() {
        for name in ["a\u{200b}b", "a\nb", "a\\u{200b}b", "hex:00ff", "\u{1b}[2K.envrc"] {
            let path = RelPath::parse(
                &RelPath::parse(name).map_or_else(|_| "hex:6865783a30306666".into(), |path| path.written()),
            )
            .unwrap();
            let written = path.written();
            assert_eq!(RelPath::parse(&written).unwrap(), path, "{written}");
            assert_eq!(judged(&written), path.as_text());
            assert!(!displayed(&written).chars().any(char::is_control), "{written:?}");
        }
        assert_eq!(judged("hex:ff2e656e767263"), "\\xff.envrc");
    }
}
