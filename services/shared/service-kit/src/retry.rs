//! The delays between the tries of what fails for a while.

use std::time::Duration;

use crate::Ids;

/// Delays that double from the first to the longest, each with jitter: clients that were cut off at the same moment do not come back at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    first: Duration,
    longest: Duration,
    next: Duration,
    at_least: Duration,
}

impl Retry {
    /// For requests to another service of the same installation: 50 ms to 2 s.
    pub const RPC: Self = Self::new(Duration::from_millis(50), Duration::from_secs(2));

    /// Delays from about `first` to about `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, at_least: Duration::ZERO }
    }

    /// It worked: the next delay is the first again.
    pub const fn succeeded(&mut self) {
        self.next = self.first;
    }

    /// The next delay is at least this long, because a service has asked for it.
    pub fn at_least(&mut self, delay: Duration) {
        self.at_least = self.at_least.max(delay);
    }

    /// The next delay: between half and all of its step, or as much longer than [`Self::at_least`] as that.
    pub fn delay(&mut self, ids: &Ids) -> Duration {
        let step = self.next;
        self.next = (self.next * 2).min(self.longest);
        let least = std::mem::take(&mut self.at_least).max(step / 2);
        least + ids.up_to(step / 2)
    }

    /// Waits for the next delay.
    pub async fn pause(&mut self, ids: &Ids) {
        tokio::time::sleep(self.delay(ids)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry() -> Retry {
        Retry::new(Duration::from_millis(50), Duration::from_secs(2))
    }

    #[test]
    fn delays_double_up_to_the_longest_and_begin_again() {
        let (ids, mut retry) = (Ids::seeded(1), retry());
        let mut step = Duration::from_millis(50);
        for _ in 0..20 {
            let delay = retry.delay(&ids);
            assert!((step / 2..=step).contains(&delay), "{delay:?} in the step of {step:?}");
            step = (step * 2).min(Duration::from_secs(2));
        }
        retry.succeeded();
        assert!(retry.delay(&ids) <= Duration::from_millis(50));
    }

    #[test]
    fn delays_differ_and_a_seed_gives_the_same() {
        let delays = |seed| {
            let (ids, mut retry) = (Ids::seeded(seed), retry());
            (0..10).map(|_| retry.delay(&ids)).collect::<Vec<_>>()
        };
        assert_eq!(delays(7), delays(7));
        assert_ne!(delays(7), delays(8));
    }

    #[test]
    fn a_service_is_not_asked_before_the_delay_that_it_names() {
        let (ids, mut retry) = (Ids::seeded(1), retry());
        retry.at_least(Duration::from_secs(7));
        let delay = retry.delay(&ids);
        assert!((Duration::from_secs(7)..Duration::from_secs(8)).contains(&delay), "{delay:?}");
        assert!(retry.delay(&ids) <= Duration::from_millis(100), "it holds for one delay");
    }
}
