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
    /// The latest acknowledgement of each name. One that is older than [`Self::RETENTION`] counts as forgotten, also while it is still here.
    names: HashMap<String, AcknowledgedCall>,
    in_order: VecDeque<(Instant, String)>,
}

struct AcknowledgedCall {
    at: Instant,
    token: i64,
}

impl RecentAcknowledgements {
    /// Longer than a network delays a request, and shorter than the executor reserves the name of a deleted execution.
    const RETENTION: Duration = Duration::from_secs(600);
    const MAX_ENTRIES: usize = 100_000;

    pub(super) fn add(&mut self, name: String, token: i64) {
        let at = Instant::now();
        self.names.insert(name.clone(), AcknowledgedCall { at, token });
        self.in_order.push_back((at, name));
        self.remove_outdated(at);
    }

    /// How much longer a request with this token is rejected because it is older than the acknowledgement; `None` if it is accepted.
    pub(super) fn rejects_for(&mut self, name: &str, token: i64) -> Option<Duration> {
        let now = Instant::now();
        self.remove_outdated(now);
        let acknowledged = self.names.get(name).filter(|acknowledged| token <= acknowledged.token)?;
        Some(Self::RETENTION.saturating_sub(now - acknowledged.at))
    }

    fn remove_outdated(&mut self, now: Instant) {
        while self.in_order.len() > Self::MAX_ENTRIES
            || self.in_order.front().is_some_and(|(at, _)| now - *at > Self::RETENTION)
        {
            let Some((at, name)) = self.in_order.pop_front() else { return };
            // A name that was acknowledged again later stays until that is outdated.
            if self.names.get(&name).is_some_and(|acknowledged| acknowledged.at == at) {
                self.names.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejects(recent: &mut RecentAcknowledgements, name: &str) -> bool {
        recent.rejects_for(name, 7).is_some()
    }

    #[tokio::test]
    async fn a_request_is_late_unless_its_token_is_newer() {
        let mut recent = RecentAcknowledgements::default();
        recent.add("a".into(), 7);
        assert_eq!([6, 7, 8].map(|token| recent.rejects_for("a", token).is_some()), [true, true, false]);
        assert!(!rejects(&mut recent, "b"));
    }

    /// B-26: nothing else is acknowledged meanwhile, as on a runner that nobody uses.
    #[tokio::test(start_paused = true)]
    async fn a_name_is_forgotten_after_its_time_and_not_before() {
        let mut recent = RecentAcknowledgements::default();
        recent.add("a".into(), 7);
        assert_eq!(recent.rejects_for("a", 7), Some(RecentAcknowledgements::RETENTION));
        tokio::time::advance(RecentAcknowledgements::RETENTION).await;
        assert_eq!(recent.rejects_for("a", 7), Some(Duration::ZERO));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!rejects(&mut recent, "a"));
        assert!(recent.names.is_empty() && recent.in_order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_acknowledged_again_is_remembered_from_then_on() {
        let mut recent = RecentAcknowledgements::default();
        recent.add("a".into(), 7);
        tokio::time::advance(RecentAcknowledgements::RETENTION / 2).await;
        recent.add("a".into(), 7);
        tokio::time::advance(RecentAcknowledgements::RETENTION).await;
        assert!(rejects(&mut recent, "a"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!rejects(&mut recent, "a"));
    }

    #[tokio::test]
    async fn the_oldest_names_are_forgotten_when_there_are_too_many() {
        let mut recent = RecentAcknowledgements::default();
        for number in 0..RecentAcknowledgements::MAX_ENTRIES {
            recent.add(number.to_string(), 7);
        }
        assert!(rejects(&mut recent, "0"));
        recent.add("one more".into(), 7);
        assert!(!rejects(&mut recent, "0") && rejects(&mut recent, "1"));
    }
}
