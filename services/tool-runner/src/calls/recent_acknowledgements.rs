use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

/// Names of recently acknowledged calls, each with the fencing token of the executor that acknowledged it. They reject a request of that
/// executor that was delayed in the network and would run the call again. A request with a newer token is accepted: its executor may have
/// restored its journal from a backup and lost the acknowledgement.
#[derive(Default)]
pub(super) struct RecentAcknowledgements {
    names: HashMap<String, i64>,
    in_order: VecDeque<(Instant, String)>,
}

impl RecentAcknowledgements {
    /// Longer than a network delays a request.
    const RETENTION: Duration = Duration::from_secs(600);
    const MAX_ENTRIES: usize = 100_000;

    pub(super) fn add(&mut self, name: String, token: i64) {
        let now = Instant::now();
        self.names.insert(name.clone(), token);
        self.in_order.push_back((now, name));
        while self.in_order.len() > Self::MAX_ENTRIES
            || self.in_order.front().is_some_and(|(at, _)| now - *at > Self::RETENTION)
        {
            if let Some((_, name)) = self.in_order.pop_front() {
                self.names.remove(&name);
            }
        }
    }

    /// Whether a request with this token is older than the acknowledgement.
    pub(super) fn outdates(&self, name: &str, token: i64) -> bool {
        self.names.get(name).is_some_and(|acknowledged| token <= *acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_late_unless_its_token_is_newer() {
        let mut recent = RecentAcknowledgements::default();
        recent.add("a".into(), 7);
        assert_eq!([6, 7, 8].map(|token| recent.outdates("a", token)), [true, true, false]);
        assert!(!recent.outdates("b", 7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_forgotten_after_its_time_and_not_before() {
        let mut recent = RecentAcknowledgements::default();
        recent.add("a".into(), 7);
        tokio::time::advance(RecentAcknowledgements::RETENTION).await;
        recent.add("b".into(), 7);
        assert!(recent.outdates("a", 7) && recent.outdates("b", 7));
        tokio::time::advance(Duration::from_millis(1)).await;
        recent.add("c".into(), 7);
        assert!(!recent.outdates("a", 7) && recent.outdates("b", 7));
    }

    #[tokio::test]
    async fn the_oldest_names_are_forgotten_when_there_are_too_many() {
        let mut recent = RecentAcknowledgements::default();
        for number in 0..RecentAcknowledgements::MAX_ENTRIES {
            recent.add(number.to_string(), 7);
        }
        assert!(recent.outdates("0", 7));
        recent.add("one more".into(), 7);
        assert!(!recent.outdates("0", 7) && recent.outdates("1", 7));
    }
}
