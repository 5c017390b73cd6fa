use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

/// The names of calls that were forgotten a short while ago. A request that was held up in the network comes too late to be meant, and
/// must not run the call again.
#[derive(Default)]
pub(super) struct Forgotten {
    names: HashSet<String>,
    in_order: VecDeque<(Instant, String)>,
}

impl Forgotten {
    /// Longer than any network holds a request back.
    const KEPT: Duration = Duration::from_secs(600);
    const MOST: usize = 100_000;

    pub(super) fn add(&mut self, name: String) {
        let now = Instant::now();
        self.names.insert(name.clone());
        self.in_order.push_back((now, name));
        while self.in_order.len() > Self::MOST || self.in_order.front().is_some_and(|(at, _)| now - *at > Self::KEPT) {
            if let Some((_, name)) = self.in_order.pop_front() {
                self.names.remove(&name);
            }
        }
    }

    pub(super) fn holds(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}
