//! Specifications of schedules, and what is wrong with one.

use jiff::tz::TimeZone;

use crate::{cron::Cron, error::SpecificationError, firing, local_time};

/// The length of a schedule's name: the ids of its executions are longer by a time, and have at most 64 characters.
pub const MAX_NAME_LEN: usize = 39;
/// The longest interval, jitter and catch-up window, in seconds: 365 days.
pub const MAX_DURATION: i64 = 365 * 86_400;
/// The shortest catch-up window, in seconds: a busy executor must not lose a firing.
pub const MIN_CATCH_UP: i64 = 10;
/// The catch-up window that is not given, in seconds: a day.
const DEFAULT_CATCH_UP: i64 = 86_400;
/// How many times of a cron line are looked at for the shortest interval between two, when there is jitter.
const GAPS: usize = 400;

/// The policy for a firing while an execution of the schedule has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The new one is left out.
    #[default]
    Skip,
    /// The new one waits until the others have ended.
    Queue,
    /// The others are cancelled, and the new one starts when they have ended.
    CancelOlder,
    /// The new one starts beside the others.
    Allow,
}

/// A specification that is not checked. Durations are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The name of the schedule.
    pub name: String,
    /// A cron line; or there is an interval.
    pub cron: Option<String>,
    /// The interval; or there is a cron line.
    pub interval: Option<i64>,
    /// The time from which intervals are counted, in seconds since the Unix epoch; without one, the epoch.
    pub anchor: Option<i64>,
    /// The IANA name of the zone that a cron line is read in; empty: UTC.
    pub time_zone: String,
    /// The longest delay that is added to a nominal time.
    pub jitter: i64,
    /// The policy for firings that overlap.
    pub overlap: Overlap,
    /// How late a firing may start; `None`: a day.
    pub catch_up: Option<i64>,
}

#[derive(Clone, Debug)]
enum Timing {
    Cron { cron: Cron, zone: TimeZone },
    Interval { interval: i64, anchor: i64 },
}

/// A checked specification.
#[derive(Clone, Debug)]
pub struct Specification {
    name: String,
    timing: Timing,
    jitter: i64,
    overlap: Overlap,
    catch_up: i64,
}

/// Checks the name of a schedule.
///
/// # Errors
/// [`SpecificationError`] when no schedule can have it.
pub fn check_name(name: &str) -> Result<(), SpecificationError> {
    let is_valid = (1..=MAX_NAME_LEN).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-');
    if is_valid {
        return Ok(());
    }
    let problem = format!(
        "`{name}` is not valid: use 1 to {MAX_NAME_LEN} lower-case letters, digits and `-`, beginning with a letter or a digit"
    );
    Err(SpecificationError::new("schedule_id", problem))
}

impl Draft {
    /// Checks everything. `now` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// [`SpecificationError`] with the first field that is not valid.
    pub fn check(&self, now: i64) -> Result<Specification, SpecificationError> {
        check_name(&self.name)?;
        let timing = self.timing()?;
        let catch_up = self.catch_up.unwrap_or(DEFAULT_CATCH_UP);
        if !(MIN_CATCH_UP..=MAX_DURATION).contains(&catch_up) {
            let problem = format!("is {catch_up} s: use {MIN_CATCH_UP} s to 365 days, or leave it out for a day");
            return Err(SpecificationError::new("catch_up_window", problem));
        }
        let specification =
            Specification { name: self.name.clone(), timing, jitter: self.jitter, overlap: self.overlap, catch_up };
        if specification.next_after(now).is_none() {
            let line = self.cron.as_deref().unwrap_or_default();
            return Err(SpecificationError::new("cron", format!("`{line}` does not fire within the next nine years")));
        }
        specification.check_jitter(now)?;
        Ok(specification)
    }

    fn timing(&self) -> Result<Timing, SpecificationError> {
        match (&self.cron, self.interval) {
            (None, None) => {
                Err(SpecificationError::new("cron", "is needed, or `interval`: say when the schedule fires"))
            }
            (Some(_), Some(_)) => {
                Err(SpecificationError::new("interval", "cannot be given together with `cron`: leave one of them out"))
            }
            (Some(line), None) => {
                if self.anchor.is_some() {
                    let problem = "belongs to `interval`, and a cron line names its times itself: leave it out";
                    return Err(SpecificationError::new("anchor_time", problem));
                }
                let cron = Cron::parse(line)?;
                let zone = if self.time_zone.is_empty() { TimeZone::UTC } else { local_time::zone(&self.time_zone)? };
                Ok(Timing::Cron { cron, zone })
            }
            (None, Some(interval)) => {
                if !(1..=MAX_DURATION).contains(&interval) {
                    let problem = format!("is {interval} s: use 1 s to 365 days");
                    return Err(SpecificationError::new("interval", problem));
                }
                if !self.time_zone.is_empty() {
                    let problem = "belongs to `cron`: an interval counts elapsed time, which is the same in every zone; leave it out";
                    return Err(SpecificationError::new("time_zone", problem));
                }
                Ok(Timing::Interval { interval, anchor: self.anchor.unwrap_or(0) })
            }
        }
    }
}

impl Specification {
    /// The name of the schedule.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policy for firings that overlap.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// How late a firing may start, in seconds.
    #[must_use]
    pub fn catch_up(&self) -> i64 {
        self.catch_up
    }

    /// The longest delay that is added to a nominal time, in seconds.
    #[must_use]
    pub fn jitter(&self) -> i64 {
        self.jitter
    }

    /// The first nominal time after `after`, in seconds since the Unix epoch; `None` at the end of the calendar.
    #[must_use]
    pub fn next_after(&self, after: i64) -> Option<i64> {
        match &self.timing {
            Timing::Cron { cron, zone } => local_time::next_match(cron, zone, after),
            Timing::Interval { interval, anchor } => {
                let passed = after.checked_sub(*anchor)?.div_euclid(*interval);
                anchor.checked_add(passed.checked_add(1)?.checked_mul(*interval)?)
            }
        }
    }

    /// The nominal times after `after`, at most `limit`.
    pub fn upcoming(&self, after: i64, limit: usize) -> impl Iterator<Item = i64> + '_ {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last)).take(limit)
    }

    /// When a nominal time is due: delayed by its share of the jitter.
    #[must_use]
    pub fn due(&self, nominal: i64) -> i64 {
        nominal.saturating_add(firing::delay(&self.name, nominal, self.jitter))
    }

    fn check_jitter(&self, now: i64) -> Result<(), SpecificationError> {
        let jitter = self.jitter;
        if jitter == 0 {
            return Ok(());
        }
        if !(0..=MAX_DURATION).contains(&jitter) {
            return Err(SpecificationError::new("jitter", format!("is {jitter} s: use 0 s to 365 days")));
        }
        let times: Vec<i64> = self.upcoming(now, GAPS).collect();
        let shortest = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(i64::MAX);
        if jitter > shortest {
            let problem = format!(
                "is {jitter} s, longer than the {shortest} s between two firings, so that one could come after the next: use at most {shortest} s"
            );
            return Err(SpecificationError::new("jitter", problem));
        }
        Ok(())
    }
}
