//! The windows of time for which a namespace has a budget: days and months of the calendar, in UTC.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Amounts, Timestamp};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A day.
    Day,
    /// A month.
    Month,
}

/// A window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// When it begins.
    pub start: Timestamp,
    /// When it has ended; the next one begins then.
    pub end: Timestamp,
}

/// The amounts that a call holds of the budget of its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceHold {
    /// The window in which it is counted.
    pub window: Window,
    /// How much it holds.
    pub amounts: Amounts,
}

impl Period {
    /// The window that a time is in.
    pub fn window(self, at: Timestamp) -> Window {
        let day = at.as_micros().div_euclid(MICROS_PER_DAY);
        let (start, end) = match self {
            Self::Day => (day, day + 1),
            Self::Month => {
                let (year, month, _) = civil(day);
                let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                (day_number(year, month), day_number(next.0, next.1))
            }
        };
        let time = |day: i64| Timestamp::from_micros(day.saturating_mul(MICROS_PER_DAY));
        Window { start: time(start), end: time(end) }
    }

    /// The window in which what begins `now` is counted, given the windows of which the store has the amounts. It is the one that `now` is in, unless the
    /// clock was set back to before all of them: the amounts of an earlier one may be removed already, and counting it again from zero would allow twice as
    /// much. Then the earliest window that is kept stays the current one.
    pub fn current(self, now: Timestamp, kept: &[Window]) -> Window {
        let window = self.window(now);
        let earliest = kept.iter().copied().filter(|kept| self.window(kept.start) == *kept).min();
        match earliest {
            Some(earliest) if window < earliest => earliest,
            Some(_) | None => window,
        }
    }

    /// The noun for a window of this length.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// A time as people read it, to the minute: `2026-11-29 00:00 UTC`.
pub(crate) struct Minute(pub(crate) Timestamp);

impl fmt::Display for Minute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let (year, month, day) = civil(micros.div_euclid(MICROS_PER_DAY));
        let minute = micros.rem_euclid(MICROS_PER_DAY) / (60 * MICROS_PER_SECOND);
        write!(f, "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
    }
}

/// The year, the month and the day of the month of a day, by its number since 1970-01-01. The algorithm counts years from March on, so that a leap day is
/// the last one of its year.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

/// The number of the first day of a month since 1970-01-01.
fn day_number(year: i64, month: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * from_march + 2) / 5;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time by its day since 1970-01-01 and its microseconds after that.
    fn at(day: i64, micros: i64) -> Timestamp {
        Timestamp::from_micros(day * MICROS_PER_DAY + micros)
    }

    fn shown(window: Window) -> [String; 2] {
        [window.start, window.end].map(|time| Minute(time).to_string())
    }

    /// B-35: each instant is in one window, and the next begins where one ends.
    #[test]
    fn windows_follow_each_other_without_a_gap() {
        for period in [Period::Day, Period::Month] {
            let mut window = period.window(at(-1000, 0));
            for _ in 0..2000 {
                assert_eq!(period.window(window.start), window);
                let last = Timestamp::from_micros(window.end.as_micros() - 1);
                assert_eq!(period.window(last), window, "the last microsecond belongs to it");
                let next = period.window(window.end);
                assert_eq!(next.start, window.end);
                window = next;
            }
        }
    }

    #[test]
    fn a_day_begins_at_midnight_and_a_month_on_its_first_day() {
        let leap = at(19_782, 5);
        assert_eq!(shown(Period::Day.window(leap)), ["2024-02-29 00:00 UTC", "2024-03-01 00:00 UTC"]);
        assert_eq!(shown(Period::Month.window(leap)), ["2024-02-01 00:00 UTC", "2024-03-01 00:00 UTC"]);
        let december = at(20_453, 0);
        assert_eq!(shown(Period::Month.window(december)), ["2025-12-01 00:00 UTC", "2026-01-01 00:00 UTC"]);
        assert_eq!(shown(Period::Day.window(december)), ["2025-12-31 00:00 UTC", "2026-01-01 00:00 UTC"]);
        let before = Timestamp::from_micros(-1);
        assert_eq!(shown(Period::Month.window(before)), ["1969-12-01 00:00 UTC", "1970-01-01 00:00 UTC"]);
    }

    /// B-35: when the clock is set back, a window whose amounts may be removed is not counted again from zero.
    #[test]
    fn a_window_is_never_counted_twice_when_the_clock_is_set_back() {
        let day = |number| Period::Day.window(at(number, 0));
        let current = |number, kept: &[Window]| Period::Day.current(at(number, 7), kept);
        assert_eq!(current(5, &[]), day(5));
        assert_eq!(current(6, &[day(5)]), day(6), "the next one begins");
        assert_eq!(current(5, &[day(5), day(6)]), day(5), "one that is kept goes on from its amounts");
        assert_eq!(current(6, &[day(5), day(7)]), day(6), "nothing was counted in it yet");
        assert_eq!(current(4, &[day(5), day(6)]), day(5), "one that may be removed is not begun again");
        let month = Period::Month.window(at(4, 0));
        assert_eq!(current(4, &[month]), day(4), "windows of another length say nothing");
    }
}
