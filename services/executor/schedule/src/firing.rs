//! Firings, and the ids of the executions that they start.

use jiff::{Timestamp, tz::Offset};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// The reason for a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// Its time has come.
    Schedule,
    /// A person has asked for the times of a range that is over.
    Backfill,
    /// A person has asked for it now.
    Trigger,
}

/// A start of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Firing {
    /// The nominal time, in seconds since the Unix epoch. Of a trigger, when it was asked for.
    pub nominal: i64,
    /// The reason.
    pub origin: Origin,
}

impl Firing {
    /// The id of its execution: `nightly-20260329t003000z`. A backfill of a time has the id that the schedule itself would have given, so that
    /// a time whose execution is there is not carried out again; a trigger has one of its own.
    #[must_use]
    pub fn execution_id(&self, schedule: &str) -> String {
        // At the end, where no name of another schedule can lead to the same id.
        let suffix = if self.origin == Origin::Trigger { "-trigger" } else { "" };
        format!("{schedule}-{}{suffix}", compact(self.nominal))
    }
}

/// A time in UTC with the letters of an id.
fn compact(seconds: i64) -> String {
    let at = Offset::UTC.to_datetime(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX));
    format!("{:04}{:02}{:02}t{:02}{:02}{:02}z", at.year(), at.month(), at.day(), at.hour(), at.minute(), at.second())
}

/// The delay of a nominal time: from 0 to less than `jitter` seconds, the same whenever and wherever it is asked for.
pub(crate) fn delay(schedule: &str, nominal: i64, jitter: i64) -> i64 {
    let Some(jitter) = u64::try_from(jitter).ok().filter(|jitter| *jitter > 0) else { return 0 };
    let hash = XxHash3_64::oneshot(format!("{schedule}\n{nominal}").as_bytes());
    i64::try_from(hash % jitter).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_derived_and_fit() {
        let id = |origin| Firing { nominal: 1_774_744_200, origin }.execution_id("nightly");
        assert_eq!(id(Origin::Schedule), "nightly-20260329t003000z");
        assert_eq!(id(Origin::Backfill), id(Origin::Schedule));
        assert_eq!(id(Origin::Trigger), "nightly-20260329t003000z-trigger");
        let longest = "a".repeat(crate::MAX_NAME_LEN);
        let firing = Firing { nominal: 0, origin: Origin::Trigger };
        assert!(firing.execution_id(&longest).len() <= 64);
    }

    #[test]
    fn delays_are_the_same_each_time_and_spread() {
        let delays: Vec<i64> = (0..200).map(|n| delay("nightly", n * 60, 30)).collect();
        assert_eq!(delays, (0..200).map(|n| delay("nightly", n * 60, 30)).collect::<Vec<_>>());
        assert!(delays.iter().all(|delay| (0..30).contains(delay)));
        assert!((0..30).all(|second| delays.contains(&second)), "{delays:?}");
        assert_eq!(delay("nightly", 5, 0), 0);
    }
}
