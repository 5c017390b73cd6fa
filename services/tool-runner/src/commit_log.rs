//! The commits that were made while calls ran in a workspace: for receipts, and for what a call has to be told it conflicts with.
//!
//! The workspace itself sees by the times of change that a touched path is no longer what it was. It does not see that a folder on the way
//! was replaced by another one, whose files may be older than the call. Here it is seen for every commit of Belay's.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use belay_grant::{Change, ChangeKind};

/// How many paths are remembered of commits, about 10 MiB: of older ones only that they were made. What they conflict with is then found
/// by the times of change alone.
const MAX_PATHS: usize = 100_000;

/// How many commits a receipt names.
const MAX_NAMED: usize = 16;

/// The commits of a workspace since the oldest call began that is still running in it.
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
    number: u64,
    call: Arc<str>,
    touched: Vec<Touched>,
}

/// A path that a commit changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    path: String,
    /// What is at the path came, went or became another: all below it is touched too. Otherwise a folder's mode alone changed.
    whole: bool,
}

/// The commits beside a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// The calls that committed last, at most 16, the latest last.
    pub(crate) calls: Vec<String>,
    /// How many commits there were.
    pub(crate) count: u64,
}

/// What a call touched that another call's commit has touched since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The paths, as the call touches them.
    pub(crate) paths: Vec<String>,
    /// Whose commits.
    pub(crate) calls: Vec<String>,
}

/// The paths that changes touch.
pub(crate) fn touched(changes: &[Change]) -> Vec<Touched> {
    let folder_mode = |change: &Change| change.kind == ChangeKind::Modified && change.what.starts_with("folder ");
    changes.iter().map(|change| Touched { path: change.path.clone(), whole: !folder_mode(change) }).collect()
}

impl Default for CommitLog {
    fn default() -> Self {
        Self { next: 0, calls: BTreeSet::new(), commits: VecDeque::new(), paths: 0, max_paths: MAX_PATHS }
    }
}

impl CommitLog {
    /// A call begins. Returns the number by which its commits are looked up, and with which it ends.
    pub(crate) fn begin(&mut self) -> u64 {
        self.next += 1;
        self.calls.insert(self.next);
        self.next
    }

    /// A call has ended: what nobody needs any more is forgotten.
    pub(crate) fn end(&mut self, since: u64) {
        self.calls.remove(&since);
        let oldest = self.calls.first().copied().unwrap_or(u64::MAX);
        while let Some(record) = self.commits.pop_front_if(|record| record.number < oldest) {
            self.paths -= record.touched.len();
        }
    }

    /// The commit of a call is in place.
    pub(crate) fn committed(&mut self, call: &str, touched: Vec<Touched>) {
        if self.calls.is_empty() {
            return;
        }
        self.next += 1;
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
    pub(crate) fn beside(&self, since: u64) -> Beside {
        let mut calls: Vec<String> =
            self.since(since).rev().take(MAX_NAMED).map(|record| record.call.to_string()).collect();
        calls.reverse();
        Beside { calls, count: self.since(since).count() as u64 }
    }

    /// What of `touched` was touched since a call began; `None` if nothing was.
    pub(crate) fn overlap(&self, since: u64, touched: &[Touched]) -> Option<Overlap> {
        let ours: BTreeMap<&str, bool> = touched.iter().map(|touched| (touched.path.as_str(), touched.whole)).collect();
        let (mut paths, mut calls) = (BTreeSet::new(), Vec::new());
        for record in self.since(since) {
            let met: Vec<&str> = record.touched.iter().flat_map(|theirs| meets(&ours, theirs)).collect();
            if !met.is_empty() && !calls.contains(&record.call) {
                calls.push(Arc::clone(&record.call));
            }
            paths.extend(met);
        }
        let paths: Vec<String> = paths.into_iter().map(str::to_owned).collect();
        let calls = calls.iter().map(|call: &Arc<str>| call.to_string()).collect();
        (!paths.is_empty()).then_some(Overlap { paths, calls })
    }

    /// Whose commits since a call began touched one of these paths, or something above or below it.
    pub(crate) fn committers(&self, since: u64, paths: &[String]) -> Vec<String> {
        let touched: Vec<Touched> = paths.iter().map(|path| Touched { path: path.clone(), whole: true }).collect();
        self.overlap(since, &touched).map(|overlap| overlap.calls).unwrap_or_default()
    }
}

/// Which of our paths another call's change meets.
fn meets<'o>(ours: &BTreeMap<&'o str, bool>, theirs: &Touched) -> Vec<&'o str> {
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

/// The folders above a path.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(paths: &[&str]) -> Vec<Touched> {
        let touched =
            |path: &&str| Touched { path: path.trim_end_matches('*').to_owned(), whole: !path.ends_with('*') };
        paths.iter().map(touched).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn whoever_touches_a_path_its_folder_or_what_is_in_it_first_wins() {
        // `*` stands for a folder's mode.
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
    fn only_commits_since_the_call_began_count() {
        let mut log = CommitLog::default();
        log.committed("before anybody", touches(&["f"]));
        let old = log.begin();
        log.committed("one", touches(&["f"]));
        let young = log.begin();
        log.committed("two", touches(&["g"]));
        log.committed("one", touches(&["g"]));
        assert_eq!(log.beside(old), Beside { calls: names(&["one", "two", "one"]), count: 3 });
        assert_eq!(log.beside(young), Beside { calls: names(&["two", "one"]), count: 2 });
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
        let beside = log.beside(since);
        assert_eq!((beside.calls.len(), beside.count), (16, 40));
        assert_eq!((beside.calls.first().unwrap().as_str(), beside.calls.last().unwrap().as_str()), ("c24", "c39"));
        assert_eq!(log.paths, 10);
        assert_eq!(
            (log.overlap(since, &touches(&["f29"])), log.overlap(since, &touches(&["f30"])).is_some()),
            (None, true)
        );
        log.end(since);
        assert_eq!((log.commits.len(), log.paths), (0, 0));
    }
}
