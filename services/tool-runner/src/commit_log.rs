//! The commits made in a workspace while calls run in it: for receipts and for conflicts.
//!
//! The workspace itself detects by change times that a touched path is no longer the same. It cannot detect that a parent directory was
//! replaced by another one with older files; this log detects that for commits of Belay.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use belay_grant::{Change, ChangeKind};

/// How many paths of commits are kept, about 10 MiB. For older commits only their number is kept; conflicts with them are found by change
/// times alone.
const MAX_PATHS: usize = 100_000;

/// How many commits a receipt names.
const MAX_NAMED: usize = 16;

/// The commits in a workspace since the start of its oldest running call.
#[derive(Debug)]
pub(crate) struct CommitLog {
    next: u64,
    calls: BTreeSet<u64>,
    commits: VecDeque<Record>,
    paths: usize,
    max_paths: usize,
}

#[derive(Debug)]
struct Record {
    /// The number of the last call that began before it.
    number: u64,
    call: Arc<str>,
    touched: Vec<ChangedPath>,
}

/// A path that a commit changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangedPath {
    path: String,
    /// Whether the entry itself was created, removed or replaced, which touches everything below it. Otherwise only the mode of a directory
    /// changed.
    whole: bool,
}

/// The commits made while a call ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConcurrentCommits {
    /// The latest calls that committed, at most 16, in order.
    pub(crate) calls: Vec<String>,
    /// How many commits were made.
    pub(crate) count: u64,
}

/// The paths that both a call and another call's commit have touched since the first began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The paths, as the call touches them.
    pub(crate) paths: Vec<String>,
    /// The calls that made those commits.
    pub(crate) calls: Vec<String>,
}

/// The paths that changes touch.
pub(crate) fn touched(changes: &[Change]) -> Vec<ChangedPath> {
    let folder_mode = |change: &Change| change.kind == ChangeKind::Modified && change.what.starts_with("folder ");
    changes.iter().map(|change| ChangedPath { path: change.path.clone(), whole: !folder_mode(change) }).collect()
}

impl Default for CommitLog {
    fn default() -> Self {
        Self { next: 0, calls: BTreeSet::new(), commits: VecDeque::new(), paths: 0, max_paths: MAX_PATHS }
    }
}

impl CommitLog {
    /// Registers a running call. Returns the number that its commits are looked up by and that it ends with.
    pub(crate) fn begin(&mut self) -> u64 {
        self.next += 1;
        self.calls.insert(self.next);
        self.next
    }

    /// Removes a call, and the commits that no running call needs any more.
    pub(crate) fn end(&mut self, since: u64) {
        self.calls.remove(&since);
        let oldest = self.calls.first().copied().unwrap_or(u64::MAX);
        while let Some(record) = self.commits.pop_front_if(|record| record.number < oldest) {
            self.paths -= record.touched.len();
        }
    }

    /// Records a commit.
    pub(crate) fn committed(&mut self, call: &str, touched: Vec<ChangedPath>) {
        if self.calls.is_empty() {
            return;
        }
        self.paths += touched.len();
        self.commits.push_back(Record { number: self.next, call: call.into(), touched });
        for record in &mut self.commits {
            if self.paths <= self.max_paths {
                break;
            }
            self.paths -= record.touched.len();
            record.touched = Vec::new();
        }
    }

    fn since(&self, since: u64) -> impl DoubleEndedIterator<Item = &Record> {
        let first = self.commits.partition_point(|record| record.number < since);
        self.commits.range(first..)
    }

    /// The commits since a call began.
    pub(crate) fn concurrent(&self, since: u64) -> ConcurrentCommits {
        let mut calls: Vec<String> =
            self.since(since).rev().take(MAX_NAMED).map(|record| record.call.to_string()).collect();
        calls.reverse();
        ConcurrentCommits { calls, count: self.since(since).count() as u64 }
    }

    /// The paths of `touched` that commits have touched since a call began; `None` if there are none.
    pub(crate) fn overlap(&self, since: u64, touched: &[ChangedPath]) -> Option<Overlap> {
        let ours: BTreeMap<&str, bool> = touched.iter().map(|touched| (touched.path.as_str(), touched.whole)).collect();
        let (mut paths, mut calls) = (BTreeSet::new(), Vec::new());
        for record in self.since(since) {
            let met: Vec<&str> = record.touched.iter().flat_map(|theirs| overlapping(&ours, theirs)).collect();
            if !met.is_empty() && !calls.contains(&record.call) {
                calls.push(Arc::clone(&record.call));
            }
            paths.extend(met);
        }
        let paths: Vec<String> = paths.into_iter().map(str::to_owned).collect();
        let calls = calls.iter().map(|call: &Arc<str>| call.to_string()).collect();
        (!paths.is_empty()).then_some(Overlap { paths, calls })
    }

    /// The calls whose commits since a call began touched one of these paths, a parent or a child of one.
    pub(crate) fn committers(&self, since: u64, paths: &[String]) -> Vec<String> {
        let touched: Vec<ChangedPath> =
            paths.iter().map(|path| ChangedPath { path: path.clone(), whole: true }).collect();
        self.overlap(since, &touched).map(|overlap| overlap.calls).unwrap_or_default()
    }
}

/// Our paths that overlap with another call's change.
fn overlapping<'o>(ours: &BTreeMap<&'o str, bool>, theirs: &ChangedPath) -> Vec<&'o str> {
    let same = ours.get_key_value(theirs.path.as_str()).map(|(path, _)| *path);
    let above = ancestors(&theirs.path).filter_map(|above| ours.get_key_value(above)).filter(|(_, whole)| **whole);
    let below = || {
        let prefix = format!("{}/", theirs.path);
        let from = ours.range::<str, _>((std::ops::Bound::Included(&*prefix), std::ops::Bound::Unbounded));
        from.take_while(|(path, _)| path.starts_with(&prefix)).map(|(path, _)| *path).collect::<Vec<_>>()
    };
    let below = if theirs.whole { below() } else { Vec::new() };
    same.into_iter().chain(above.map(|(path, _)| *path)).chain(below).collect()
}

/// The parent directories of a path.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(paths: &[&str]) -> Vec<ChangedPath> {
        let touched =
            |path: &&str| ChangedPath { path: path.trim_end_matches('*').to_owned(), whole: !path.ends_with('*') };
        paths.iter().map(touched).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_commit_to_a_path_its_parent_or_its_child_conflicts() {
        // `*` marks a change of a directory's mode.
        for (theirs, ours, met) in [
            ("d/x", "d/x", Some("d/x")),
            ("d", "d/x", Some("d/x")),
            ("d/x", "d", Some("d")),
            ("d/x/y", "d", Some("d")),
            ("d/x", "d/y", None),
            ("d", "d2/x", None),
            ("d.x", "d/x", None),
            ("d*", "d*", Some("d")),
            ("d*", "d/x", None),
            ("d/x", "d*", None),
            ("d*", "d", Some("d")),
        ] {
            let mut log = CommitLog::default();
            let since = log.begin();
            log.committed("other", touches(&[theirs]));
            let overlap = log.overlap(since, &touches(&["a", ours, "z"]));
            let expected = met.map(|met| Overlap { paths: names(&[met]), calls: names(&["other"]) });
            assert_eq!(overlap, expected, "{theirs} before {ours}");
        }
    }

    #[test]
    fn only_the_mode_of_a_folder_touches_nothing_below_it() {
        let change = |kind, what: &str| Change {
            path: "d".into(),
            path_digest: String::new(),
            kind,
            gravity: belay_grant::Gravity::Modified,
            protection: String::new(),
            before: String::new(),
            after: String::new(),
            what: what.into(),
            flags: vec![],
            folder: None,
        };
        for (kind, what, whole) in [
            (ChangeKind::Modified, "folder 0755", false),
            (ChangeKind::Created, "folder 0755", true),
            (ChangeKind::Deleted, "folder 0755", true),
            (ChangeKind::Modified, "file 0644", true),
        ] {
            let expected = ChangedPath { path: "d".into(), whole };
            assert_eq!(touched(&[change(kind, what)]), [expected], "{kind:?} {what}");
        }
    }

    #[test]
    fn only_commits_since_the_call_began_count() {
        let mut log = CommitLog::default();
        log.committed("earlier", touches(&["f"]));
        let old = log.begin();
        log.committed("one", touches(&["f"]));
        let young = log.begin();
        log.committed("two", touches(&["g"]));
        log.committed("one", touches(&["g"]));
        assert_eq!(log.concurrent(old), ConcurrentCommits { calls: names(&["one", "two", "one"]), count: 3 });
        assert_eq!(log.concurrent(young), ConcurrentCommits { calls: names(&["two", "one"]), count: 2 });
        assert_eq!(log.overlap(young, &touches(&["f"])), None);
        assert_eq!(log.committers(old, &names(&["g", "f"])), names(&["one", "two"]));
        log.end(old);
        assert_eq!((log.commits.len(), log.paths), (2, 2));
        log.end(young);
        assert_eq!((log.commits.len(), log.paths), (0, 0));
    }

    #[test]
    fn receipts_and_memory_are_bounded() {
        let mut log = CommitLog { max_paths: 10, ..CommitLog::default() };
        let since = log.begin();
        for n in 0..40 {
            log.committed(&format!("c{n}"), touches(&[&format!("f{n}")]));
        }
        let concurrent = log.concurrent(since);
        assert_eq!((concurrent.calls.len(), concurrent.count), (16, 40));
        assert_eq!(
            (concurrent.calls.first().unwrap().as_str(), concurrent.calls.last().unwrap().as_str()),
            ("c24", "c39")
        );
        assert_eq!(log.paths, 10);
        assert_eq!(
            (log.overlap(since, &touches(&["f29"])), log.overlap(since, &touches(&["f30"])).is_some()),
            (None, true)
        );
        log.end(since);
        assert_eq!((log.commits.len(), log.paths), (0, 0));
    }
}
