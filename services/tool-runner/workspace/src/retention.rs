//! Tracks which replaced files have to stay for views that may still use them.
//!
//! A mounted overlay keeps showing a file or directory that it has looked up, also after a commit has replaced it. So the replaced files
//! are removed only once every view that began before has ended.

use std::collections::{BTreeSet, VecDeque};

/// The open views and the entries replaced since the oldest began, in one numbering.
#[derive(Debug)]
pub(crate) struct Retention<T> {
    next: u64,
    views: BTreeSet<u64>,
    displaced: VecDeque<(u64, T)>,
}

impl<T> Default for Retention<T> {
    fn default() -> Self {
        Self { next: 0, views: BTreeSet::new(), displaced: VecDeque::new() }
    }
}

impl<T> Retention<T> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Registers a view. Returns the number that it ends with.
    pub(crate) fn begin(&mut self) -> u64 {
        let number = self.number();
        self.views.insert(number);
        number
    }

    /// A view has ended.
    pub(crate) fn end(&mut self, view: u64) {
        self.views.remove(&view);
    }

    /// Something was replaced just now.
    pub(crate) fn displace(&mut self, thing: T) {
        let number = self.number();
        self.displaced.push_back((number, thing));
    }

    /// Removes and returns what no open view may use.
    pub(crate) fn release(&mut self) -> Vec<T> {
        let count = self.releasable();
        self.displaced.drain(..count).map(|(_, thing)| thing).collect()
    }

    /// How many entries [`Retention::release`] would return.
    pub(crate) fn releasable(&self) -> usize {
        let oldest = self.views.first().copied().unwrap_or(u64::MAX);
        self.displaced.partition_point(|(number, _)| *number < oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_files_stay_until_earlier_views_have_ended() {
        let mut retention = Retention::default();
        retention.displace("seen by no view");
        assert_eq!(retention.release(), ["seen by no view"]);
        let old = retention.begin();
        retention.displace("seen by the old view");
        let young = retention.begin();
        retention.displace("seen by both");
        assert_eq!((retention.releasable(), retention.release()), (0, vec![]));
        retention.end(young);
        assert_eq!(retention.release(), Vec::<&str>::new(), "the old view is still open");
        let late = retention.begin();
        retention.end(old);
        assert_eq!(retention.release(), ["seen by the old view", "seen by both"], "the late view began after both");
        retention.displace("seen by the late view");
        retention.end(old);
        assert_eq!(retention.releasable(), 0, "ending a view twice has no effect on others");
        retention.end(late);
        assert_eq!(retention.release(), ["seen by the late view"]);
    }
}
