//! Retry policies: the number of attempts, and the delays between them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;

/// The number of attempts, and the delays between them. The default is one attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The number of attempts, including the first.
    pub max_attempts: u32,
    /// How long to wait before each further attempt.
    pub backoff: Backoff,
    /// Exception for failures by a rate limit.
    #[serde(default, skip_serializing_if = "RateLimit::is_default")]
    pub rate_limit: RateLimit,
    /// Whether the failure of a program is classified by its exit code and by what it printed last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_output: bool,
}

/// The reaction to a failure by a rate limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RateLimit {
    /// The same as after every other failure.
    #[default]
    AsOthers,
    /// There is no further attempt: whoever started the execution knows when there is room again.
    Never(Never),
    /// The execution is paused until the time that the failure names, or for [`QUEUE_DELAY`]; then it resumes automatically, with another attempt.
    QueueForLater(QueueForLater),
    /// These delays before each further attempt; an entry that is missing counts as the last one.
    #[serde(with = "duration::list")]
    Delays(Vec<Duration>),
}

/// The word `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Never {
    /// `never`.
    Never,
}

/// The word `queue_for_later`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueForLater {
    /// `queue_for_later`.
    QueueForLater,
}

/// How long an execution is paused by a rate limit that does not say when there is room again: as long as the longest delay of the profile `supervisor`.
pub const QUEUE_DELAY: Duration = Duration::from_secs(300);

impl RateLimit {
    /// Whether the execution is paused meanwhile.
    pub fn queues_for_later(&self) -> bool {
        matches!(self, Self::QueueForLater(_))
    }

    fn is_default(&self) -> bool {
        *self == Self::AsOthers
    }
}

/// A retry policy that has a name: the numbers of a planner whose plans expect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// 3 retries after 5, 15 and 45 s, by a rate limit after 60, 120 and 300 s; programs are classified by what they print.
    Supervisor,
    /// 2 retries after 2 and 4 s, doubling up to 30 s; none by a rate limit, whose quota reaches the caller as it is.
    QuotaAware,
    /// 3 retries after 1, 2 and 4 s.
    Executor,
    /// 3 attempts; 2ⁿ s before retry n.
    Agent,
}

impl Profile {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 4] = [
        ("supervisor", Self::Supervisor),
        ("quota_aware", Self::QuotaAware),
        ("executor", Self::Executor),
        ("agent", Self::Agent),
    ];

    /// Its numbers.
    pub fn policy(self) -> RetryPolicy {
        let seconds = |delays: &[u64]| delays.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        let doubling = |initial: u64| Backoff::Exponential {
            initial: Duration::from_secs(initial),
            factor: DEFAULT_FACTOR,
            max: DEFAULT_MAX,
        };
        let others = RetryPolicy::default();
        match self {
            Self::Supervisor => RetryPolicy {
                max_attempts: 4,
                backoff: Backoff::List(seconds(&[5, 15, 45])),
                rate_limit: RateLimit::Delays(seconds(&[60, 120, 300])),
                by_output: true,
            },
            Self::QuotaAware => RetryPolicy {
                max_attempts: 3,
                backoff: doubling(2),
                rate_limit: RateLimit::Never(Never::Never),
                ..others
            },
            Self::Executor => RetryPolicy { max_attempts: 4, backoff: Backoff::List(seconds(&[1, 2, 4])), ..others },
            Self::Agent => RetryPolicy { max_attempts: 3, backoff: doubling(2), ..others },
        }
    }
}

/// How long to wait before each further attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Backoff {
    /// The delays one by one; an entry that is missing counts as one second.
    #[serde(with = "duration::list")]
    List(Vec<Duration>),
    /// `min(initial · factorⁿ, max)` before retry `n`, counted from 0.
    Exponential {
        /// The delay before the first retry.
        #[serde(with = "duration::text")]
        initial: Duration,
        /// The factor by which each further delay is multiplied.
        factor: f64,
        /// The longest delay.
        #[serde(with = "duration::text")]
        max: Duration,
    },
}

/// The delay when a list of delays has too few entries.
const MISSING_DELAY: Duration = Duration::from_secs(1);

impl Backoff {
    /// The backoff of a retry policy that has none: 1 s, 2 s, 4 s, … up to 30 s.
    pub const DEFAULT: Backoff =
        Backoff::Exponential { initial: DEFAULT_INITIAL, factor: DEFAULT_FACTOR, max: DEFAULT_MAX };
}

/// The defaults of the first delay, the factor and the longest delay.
pub(crate) const DEFAULT_INITIAL: Duration = Duration::from_secs(1);
pub(crate) const DEFAULT_FACTOR: f64 = 2.0;
pub(crate) const DEFAULT_MAX: Duration = Duration::from_secs(30);

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 1, backoff: Backoff::List(Vec::new()), rate_limit: RateLimit::AsOthers, by_output: false }
    }
}

impl RetryPolicy {
    /// The delay before retry number `retry`, counted from 0, after a failure by a rate limit; `None` when there is no further attempt.
    pub fn delay_after_rate_limit(&self, retry: u32) -> Option<Duration> {
        match &self.rate_limit {
            RateLimit::AsOthers => Some(self.delay(retry)),
            RateLimit::Never(_) => None,
            RateLimit::QueueForLater(_) => Some(QUEUE_DELAY),
            RateLimit::Delays(delays) => {
                let place = usize::try_from(retry).unwrap_or(usize::MAX);
                Some(delays.get(place).or(delays.last()).copied().unwrap_or_else(|| self.delay(retry)))
            }
        }
    }

    /// The delay before retry number `retry`, counted from 0; see [`Backoff::delay`].
    pub fn delay(&self, retry: u32) -> Duration {
        self.backoff.delay(retry)
    }
}

impl Backoff {
    /// The delay before retry number `retry`, counted from 0. Defined for every number and every policy, even an invalid one; on overflow it is the
    /// longest delay.
    pub fn delay(&self, retry: u32) -> Duration {
        match self {
            Self::List(delays) => {
                usize::try_from(retry).ok().and_then(|n| delays.get(n)).copied().unwrap_or(MISSING_DELAY)
            }
            Self::Exponential { initial, factor, max } => {
                let growth = factor.powi(i32::try_from(retry).unwrap_or(i32::MAX));
                Duration::try_from_secs_f64(initial.as_secs_f64() * growth).map_or(*max, |delay| delay.min(*max))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exponential(initial: Duration, factor: f64, max: Duration) -> RetryPolicy {
        let backoff = Backoff::Exponential { initial, factor, max };
        RetryPolicy { max_attempts: 5, backoff, ..RetryPolicy::default() }
    }

    fn seconds(policy: &RetryPolicy, retries: u32) -> Vec<f64> {
        (0..retries).map(|retry| policy.delay(retry).as_secs_f64()).collect()
    }

    // S4-21: delays are taken one by one; a missing entry is one second; one attempt unless said otherwise.
    #[test]
    fn a_list_is_followed_and_then_a_second() {
        let policy = RetryPolicy {
            max_attempts: 4,
            backoff: Backoff::List(vec![Duration::from_millis(250), Duration::from_secs(4)]),
            ..RetryPolicy::default()
        };
        assert_eq!(seconds(&policy, 4), [0.25, 4.0, 1.0, 1.0]);
        assert_eq!(policy.delay(u32::MAX), Duration::from_secs(1));
        assert_eq!(RetryPolicy::default().max_attempts, 1);
        assert_eq!(RetryPolicy::default().delay(0), Duration::from_secs(1));
    }

    // S0-08, S1-11, S2-FR-065: the sources' sequences come out exactly.
    #[test]
    fn exponential_delays_are_exact_and_capped() {
        let second = Duration::from_secs(1);
        assert_eq!(seconds(&exponential(2 * second, 2.0, 30 * second), 5), [2.0, 4.0, 8.0, 16.0, 30.0]);
        assert_eq!(seconds(&exponential(5 * second, 3.0, 3_600 * second), 3), [5.0, 15.0, 45.0]);
        assert_eq!(seconds(&exponential(second, 2.0, 30 * second), 3), [1.0, 2.0, 4.0]);
        assert_eq!(seconds(&exponential(60 * second, 1.0, 90 * second), 2), [60.0, 60.0]);
    }

    /// S0-02, S0-08, S0-10, S1-11 to S1-13, S1-37, S2-FR-065, S3-03, S3-06: the numbers of each planner.
    #[test]
    fn profiles_have_the_numbers_of_their_planners() {
        let told = |profile: Profile| {
            let policy = profile.policy();
            let retries = policy.max_attempts - 1;
            let limited = (0..retries).map(|retry| policy.delay_after_rate_limit(retry).map(|delay| delay.as_secs()));
            (seconds(&policy, retries), limited.collect::<Vec<_>>())
        };
        let all = |delays: &[u64]| delays.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(told(Profile::Supervisor), (vec![5.0, 15.0, 45.0], all(&[60, 120, 300])));
        assert_eq!(told(Profile::QuotaAware), (vec![2.0, 4.0], vec![None, None]));
        assert_eq!(seconds(&Profile::QuotaAware.policy(), 6), [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
        assert_eq!(told(Profile::Executor), (vec![1.0, 2.0, 4.0], all(&[1, 2, 4])));
        assert_eq!(told(Profile::Agent), (vec![2.0, 4.0], all(&[2, 4])));
        assert!(Profile::Supervisor.policy().by_output && !Profile::QuotaAware.policy().by_output);
    }

    proptest! {
        #[test]
        fn any_policy_answers_for_any_retry(initial: Duration, factor: f64, max: Duration, retry: u32) {
            prop_assert!(exponential(initial, factor, max).delay(retry) <= max);
        }

        #[test]
        fn delays_never_shrink(initial in 1_u64..100_000, factor in 1.0_f64..10.0, max in 1_u64..10_000_000, retry in 0_u32..10_000) {
            let policy = exponential(Duration::from_millis(initial), factor, Duration::from_millis(max));
            prop_assert!(policy.delay(retry) <= policy.delay(retry + 1));
        }
    }
}
