//! Which displaced files and folders have to stay for views that may still look at them.
//!
//! A mounted overlay goes on showing the file or the whole folder that it has looked up, also after a commit has put another in its place.
//! So what a commit displaced is removed only when every view has ended that began before.

use std::collections::{BTreeSet, VecDeque};

/// The open views and what was displaced since the oldest of them began, numbered in one order.
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

    /// A view begins. Returns the number with which it ends.
    pub(crate) fn begin(&mut self) -> u64 {
        let number = self.number();
        self.views.insert(number);
        number
    }

    /// A view has ended: nobody looks through it any more.
    pub(crate) fn end(&mut self, view: u64) {
        self.views.remove(&view);
    }

    /// Something was displaced, before now.
    pub(crate) fn displace(&mut self, thing: T) {
        let number = self.number();
        self.displaced.push_back((number, thing));
    }

    /// Takes out what no open view began before.
    pub(crate) fn release(&mut self) -> Vec<T> {
        let count = self.releasable();
        self.displaced.drain(..count).map(|(_, thing)| thing).collect()
    }

    /// How many things [`Retention::release`] would take out.
    pub(crate) fn releasable(&self) -> usize {
        let oldest = self.views.first().copied().unwrap_or(u64::MAX);
        self.displaced.partition_point(|(number, _)| *number < oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_displaced_stays_until_the_views_from_before_have_ended() {
        let mut retention = Retention::default();
        retention.displace("nobody saw it");
        assert_eq!(retention.release(), ["nobody saw it"]);
        let old = retention.begin();
        retention.displace("seen by the old view");
        let young = retention.begin();
        retention.displace("seen by both");
        assert_eq!((retention.releasable(), retention.release()), (0, vec![]));
        retention.end(young);
        assert_eq!(retention.release(), Vec::<&str>::new(), "the old view is still there");
        let late = retention.begin();
        retention.end(old);
        assert_eq!(retention.release(), ["seen by the old view", "seen by both"], "the late view began after both");
        retention.displace("seen by the late view");
        retention.end(old);
        assert_eq!(retention.releasable(), 0, "ending twice ends nobody else's");
        retention.end(late);
        assert_eq!(retention.release(), ["seen by the late view"]);
    }
}
