//! Schedules as their users see them.

mod clocks;
mod decisions;
mod offsets;
mod refusals;

use belay_schedule::{Draft, Specification};
use jiff::{Timestamp, tz::TimeZone};

/// A time as `2026-03-29T00:30:00Z`, in seconds.
fn at(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_second()
}

fn cron(line: &str, zone: &str) -> Draft {
    Draft { name: "s".into(), cron: Some(line.into()), time_zone: zone.into(), ..Draft::default() }
}

fn every(seconds: i64) -> Draft {
    Draft { name: "s".into(), interval: Some(seconds), ..Draft::default() }
}

fn checked(draft: &Draft) -> Specification {
    draft.check(0).unwrap()
}

/// The next times after one, on the clock of a zone: `03-29 03:00+02`.
fn fires(line: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let time_zone = TimeZone::get(zone).unwrap();
    let specification = checked(&cron(line, zone));
    let shown = |second: i64| {
        let instant = Timestamp::from_second(second).unwrap();
        let (local, offset) = (time_zone.to_datetime(instant), time_zone.to_offset(instant));
        format!("{}{offset}", local.strftime("%m-%d %H:%M"))
    };
    specification.upcoming(at(after), count).map(shown).collect()
}
