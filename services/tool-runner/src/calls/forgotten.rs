use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

/// The names of calls that were forgotten a short while ago, each with the fencing token of the owner that acknowledged it. A request of this
/// owner that was delayed in the network must not run the call again. A later owner does not know of the acknowledgement, because its journal
/// was restored from a backup: its request is meant.
#[derive(Default)]
pub(super) struct Forgotten {
    names: HashMap<String, i64>,
    in_order: VecDeque<(Instant, String)>,
}

impl Forgotten {
    /// Longer than any network holds a request back.
    const KEPT: Duration = Duration::from_secs(600);
    const MOST: usize = 100_000;

    pub(super) fn add(&mut self, name: String, token: i64) {
        let now = Instant::now();
        self.names.insert(name.clone(), token);
        self.in_order.push_back((now, name));
        while self.in_order.len() > Self::MOST || self.in_order.front().is_some_and(|(at, _)| now - *at > Self::KEPT) {
            if let Some((_, name)) = self.in_order.pop_front() {
                self.names.remove(&name);
            }
        }
    }

    /// Whether a request of the owner with this token is late.
    pub(super) fn holds(&self, name: &str, token: i64) -> bool {
        self.names.get(name).is_some_and(|acknowledged| token <= *acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_late_unless_a_later_owner_sends_it() {
        let mut forgotten = Forgotten::default();
        forgotten.add("a".into(), 7);
        assert_eq!([6, 7, 8].map(|token| forgotten.holds("a", token)), [true, true, false]);
        assert!(!forgotten.holds("b", 7));
    }
}
