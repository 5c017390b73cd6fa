//! Local times of a zone, and what a cron line means where its offset changes.
//!
//! Between two changes the offset is fixed, and a local time is one instant. Where the clock is set forward, local times are missing; where it is set
//! back, they come twice. A line whose minute or hour begins with `*` follows the clock: missing times do not fire, repeated ones fire each time. Any
//! other line means its times: one that is missing fires at the end of the gap, one that is repeated fires the first time alone.

use jiff::{
    Timestamp,
    civil::Date,
    tz::{Offset, TimeZone, TimeZoneDatabase},
};

use crate::{cron::Cron, error::SpecificationError};

/// How many days are looked at for the next local time: leap days are eight years apart around 2100.
const MAX_DAYS: i32 = 9 * 366;
const DAY: i64 = 86_400;

/// Finds a zone in the bundled database, so that every machine has the same rules.
pub(crate) fn zone(name: &str) -> Result<TimeZone, SpecificationError> {
    let database = TimeZoneDatabase::bundled();
    if let Ok(zone) = database.get(name) {
        return Ok(zone);
    }
    let lower = name.to_lowercase();
    let close = database
        .available()
        .map(|known| (strsim::jaro_winkler(&known.as_str().to_lowercase(), &lower), known.as_str().to_owned()))
        .filter(|(likeness, _)| *likeness > 0.85)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let close = close.map(|(_, known)| format!("; did you mean `{known}`?")).unwrap_or_default();
    let problem = format!(
        "`{name}` is not a time zone: use a name of the IANA database, such as `Europe/Berlin` or `UTC`{close}"
    );
    Err(SpecificationError::new("time_zone", problem))
}

/// The first instant after `after` at which a line fires in a zone, in seconds; `None` when there is none in nine years.
pub(crate) fn next_match(cron: &Cron, zone: &TimeZone, after: i64) -> Option<i64> {
    let end = after + i64::from(MAX_DAYS) * DAY;
    // The segment of a fixed offset that the search is in begins at or before `from`.
    let mut from = after + 1;
    while from < end {
        let start = Timestamp::from_second(from).ok()?;
        let offset = i64::from(zone.to_offset(start).seconds());
        let change = zone.following(start).next().map(|change| change.timestamp().as_second());
        let stop = change.unwrap_or(i64::MAX);
        let mut local = from + offset;
        if !cron.follows_clock() {
            local = local.max(repeated_until(zone, start, offset).unwrap_or(i64::MIN));
        }
        if let Some(found) = local_match(cron, local).map(|local| local - offset).filter(|found| *found < stop) {
            return Some(found);
        }
        let next = change?;
        let after_change = i64::from(zone.to_offset(Timestamp::from_second(next).ok()?).seconds());
        if !cron.follows_clock()
            && local_match(cron, next + offset).is_some_and(|missing| missing < next + after_change)
        {
            return Some(next);
        }
        from = next;
    }
    None
}

/// The local time up to which those since the last change of the offset have been there before; `None` when it was not set back.
fn repeated_until(zone: &TimeZone, at: Timestamp, offset: i64) -> Option<i64> {
    let next_second = Timestamp::from_second(at.as_second() + 1).ok()?;
    let change = zone.preceding(next_second).next()?.timestamp().as_second();
    let before = i64::from(zone.to_offset(Timestamp::from_second(change - 1).ok()?).seconds());
    (before > offset).then_some(change + before)
}

/// The first matching local time at or after this one, both in seconds since the local 1970.
fn local_match(cron: &Cron, from: i64) -> Option<i64> {
    // Lines name whole minutes.
    let minutes = from.div_euclid(60) + i64::from(from.rem_euclid(60) != 0);
    let first_day = minutes.div_euclid(24 * 60);
    let mut minute = u32::try_from(minutes.rem_euclid(24 * 60)).ok()?;
    let mut date = date_of(first_day)?;
    for day in first_day..first_day + i64::from(MAX_DAYS) {
        let (month, of_month) = (u32::try_from(date.month()).ok()?, u32::try_from(date.day()).ok()?);
        let weekday = u32::try_from(date.weekday().to_sunday_zero_offset()).ok()?;
        if cron.matches_date(month, of_month, weekday)
            && let Some(found) = cron.minute_from(minute)
        {
            return Some(day * DAY + i64::from(found) * 60);
        }
        minute = 0;
        date = date.tomorrow().ok()?;
    }
    None
}

fn date_of(day: i64) -> Option<Date> {
    Some(Offset::UTC.to_datetime(Timestamp::from_second(day.checked_mul(DAY)?).ok()?).date())
}
