//! Cron lines of five fields.

use crate::error::SpecificationError;

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Lines that are written as one word.
const NICKNAMES: [(&str, &str); 6] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A checked cron line: the local times that it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A day has to match both fields, because one of them begins with `*`; otherwise either suffices, as in every cron.
    both_days: bool,
    /// The minute or the hour begins with `*`, so that the line follows the clock through a change of the offset.
    follows_clock: bool,
}

/// A field of a line: its name and its values.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
    /// The value of the first name.
    first_name: u32,
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[], first_name: 0 },
    Field { name: "hour", least: 0, most: 23, names: &[], first_name: 0 },
    Field { name: "day of the month", least: 1, most: 31, names: &[], first_name: 0 },
    Field { name: "month", least: 1, most: 12, names: &MONTHS, first_name: 1 },
    Field { name: "day of the week", least: 0, most: 7, names: &WEEKDAYS, first_name: 0 },
];

impl Cron {
    /// Reads a line.
    pub(crate) fn parse(line: &str) -> Result<Self, SpecificationError> {
        let invalid = |problem: String| SpecificationError::new("cron", problem);
        let trimmed = line.trim();
        let line = match NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(trimmed)) {
            Some((_, line)) => *line,
            None if trimmed.starts_with('@') => {
                let known: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
                return Err(invalid(format!("`{trimmed}` is not known: use five fields, or {}", known.join(", "))));
            }
            None => trimmed,
        };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Ok([minute, hour, day, month, weekday]) = <[&str; 5]>::try_from(fields.as_slice()) else {
            let seconds = if fields.len() == 6 { "; seconds need `interval` instead" } else { "" };
            return Err(invalid(format!(
                "has {} fields, and five are needed: minute, hour, day of the month, month, day of the week, such as `30 2 * * MON-FRI`{seconds}",
                fields.len()
            )));
        };
        let read = |text, field: usize| FIELDS[field].read(text).map_err(invalid);
        let weekdays = read(weekday, 4)?;
        let cron = Self {
            minutes: read(minute, 0)?,
            hours: read(hour, 1)?,
            days: read(day, 2)?,
            months: read(month, 3)?,
            // Seven is a Sunday too.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            both_days: day.starts_with('*') || weekday.starts_with('*'),
            follows_clock: minute.starts_with('*') || hour.starts_with('*'),
        };
        if cron.both_days && !cron.has_a_day() {
            return Err(invalid(format!(
                "`{trimmed}` never fires: no month that it names has such a day; change the day of the month or the month"
            )));
        }
        Ok(cron)
    }

    /// Whether the line follows the clock on the wall: a local time that is skipped does not fire, and one that comes twice fires twice.
    pub(crate) fn follows_clock(&self) -> bool {
        self.follows_clock
    }

    /// Whether a month that is named has a day that is named. The day of the week does not matter: each date comes on each of them.
    fn has_a_day(&self) -> bool {
        const LENGTHS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let first = self.days.trailing_zeros();
        (1..).zip(LENGTHS).any(|(month, length)| has(self.months, month) && first <= length)
    }

    pub(crate) fn matches_date(&self, month: u32, day: u32, weekday: u32) -> bool {
        let (of_month, of_week) = (has(self.days, day), has(self.weekdays, weekday));
        has(self.months, month) && if self.both_days { of_month && of_week } else { of_month || of_week }
    }

    /// The first matching minute of a day at or after this one, both counted from midnight.
    pub(crate) fn minute_from(&self, from: u32) -> Option<u32> {
        let (hour, minute) = (from / 60, from % 60);
        let within = |hour, from| next_of(self.minutes, from).map(|minute| hour * 60 + minute);
        if hour < 24 && has(self.hours, hour) && next_of(self.minutes, minute).is_some() {
            return within(hour, minute);
        }
        within(next_of(self.hours, hour + 1)?, 0)
    }
}

fn has(values: u64, value: u32) -> bool {
    values >> value & 1 == 1
}

/// The least value that is at least `from`.
fn next_of(values: u64, from: u32) -> Option<u32> {
    let left = values.checked_shr(from)?;
    (left != 0).then(|| from + left.trailing_zeros())
}

impl Field {
    /// The values of a list, as bits.
    fn read(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |values, item| Ok(values | self.item(item)?))
    }

    fn item(&self, item: &str) -> Result<u64, String> {
        let Field { name, least, most, .. } = self;
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(step)),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (*least, *most),
            Some((from, to)) => (self.value(from, item)?, self.value(to, item)?),
            None if step.is_some() => {
                return Err(format!(
                    "`{item}` ({name}) has a step without a range: write `{range}-{most}/{}`, or `*/{0}`",
                    step.unwrap_or_default()
                ));
            }
            None => (self.value(range, item)?, self.value(range, item)?),
        };
        if from > to {
            return Err(format!(
                "`{item}` ({name}) goes backwards: write two ranges, `{range_from}-{most},{least}-{range_to}`",
                range_from = from,
                range_to = to
            ));
        }
        let step = match step {
            None => 1,
            Some(step) => match step.parse::<u32>() {
                Ok(step) if (1..=*most).contains(&step) => step,
                _ => return Err(format!("`{item}` ({name}) has the step `{step}`: use 1 to {most}")),
            },
        };
        let step = usize::try_from(step).unwrap_or(1);
        Ok((from..=to).step_by(step).fold(0, |values, value| values | 1 << value))
    }

    fn value(&self, text: &str, item: &str) -> Result<u32, String> {
        let Field { name, least, most, names, first_name } = self;
        let named = (*first_name..).zip(*names).find(|(_, known)| known.eq_ignore_ascii_case(text));
        if let Some((value, _)) = named {
            return Ok(value);
        }
        // `parse` accepts a sign as well.
        let number = if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None };
        if let Some(value) = number.filter(|value| (least..=most).contains(&value)) {
            return Ok(value);
        }
        let or_names = match (names.first(), names.last()) {
            (Some(first), Some(last)) => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        let shown = if text == item { String::new() } else { format!(" in `{item}`") };
        Err(format!(
            "`{text}`{shown} ({name}) is not valid: use `*`, {least} to {most}{or_names}, ranges, lists and steps"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str, field: usize) -> Vec<u32> {
        let bits = FIELDS[field].read(text).unwrap();
        (0..64).filter(|value| has(bits, *value)).collect()
    }

    #[test]
    fn fields_are_lists_of_ranges_with_steps_and_names() {
        assert_eq!(values("*/20", 0), [0, 20, 40]);
        assert_eq!(values("1-10/4,59", 0), [1, 5, 9, 59]);
        assert_eq!(values("mar-May", 3), [3, 4, 5]);
        assert_eq!(values("Mon-Fri", 4), [1, 2, 3, 4, 5]);
        assert_eq!(values("5-7", 4), [5, 6, 7]);
        let sunday = |weekday: u32| Cron::parse("0 0 * * 7").unwrap().matches_date(1, 1, weekday);
        assert!(sunday(0) && !sunday(6), "7 is a Sunday");
    }

    #[test]
    fn a_day_of_the_month_or_of_the_week_suffices_when_both_are_given() {
        let cron = Cron::parse("0 0 13 * FRI").unwrap();
        assert!(cron.matches_date(1, 13, 2) && cron.matches_date(1, 2, 5) && !cron.matches_date(1, 2, 2));
        let cron = Cron::parse("0 0 */13 * FRI").unwrap();
        assert!(
            cron.matches_date(1, 14, 5) && !cron.matches_date(1, 14, 2),
            "a field that begins with `*` is no choice"
        );
    }

    #[test]
    fn minutes_of_a_day_are_found_in_order() {
        let cron = Cron::parse("15,45 8-9 * * *").unwrap();
        let minute = |hour: u32, minute: u32| hour * 60 + minute;
        assert_eq!(cron.minute_from(0), Some(minute(8, 15)));
        assert_eq!(cron.minute_from(minute(8, 15)), Some(minute(8, 15)));
        assert_eq!(cron.minute_from(minute(8, 46)), Some(minute(9, 15)));
        assert_eq!(cron.minute_from(minute(9, 46)), None);
        assert_eq!(cron.minute_from(minute(23, 59) + 1), None);
    }

    #[test]
    fn a_bad_line_is_refused_with_its_field_and_what_to_write() {
        for (line, expected) in [
            ("", "has 0 fields, and five are needed"),
            ("* * * *", "has 4 fields"),
            (
                "0 * * * * *",
                "has 6 fields, and five are needed: minute, hour, day of the month, month, day of the week, such as `30 2 * * MON-FRI`; seconds need `interval` instead",
            ),
            ("60 * * * *", "`60` (minute) is not valid: use `*`, 0 to 59, ranges, lists and steps"),
            ("+5 * * * *", "`+5` (minute) is not valid"),
            ("* 24 * * *", "`24` (hour)"),
            ("* * 0 * *", "`0` (day of the month)"),
            ("* * L * *", "`L` (day of the month)"),
            ("* * * FOO *", "`FOO` (month) is not valid: use `*`, 1 to 12 or JAN to DEC"),
            ("* * * * FRI-MON", "`FRI-MON` (day of the week) goes backwards: write two ranges, `5-7,0-1`"),
            ("5/10 * * * *", "`5/10` (minute) has a step without a range: write `5-59/10`, or `*/10`"),
            ("*/0 * * * *", "has the step `0`: use 1 to 59"),
            ("1,,2 * * * *", "`` in `` (minute)"),
            ("0 0 30 2 *", "`0 0 30 2 *` never fires"),
            ("0 0 31 4,6,9,11 *", "never fires"),
            ("@reboot", "`@reboot` is not known"),
        ] {
            let error = Cron::parse(line).unwrap_err();
            assert_eq!(error.field, "cron");
            let expected = expected.replace("`` in ``", "``");
            assert!(error.problem.contains(&expected), "{line}: {}", error.problem);
        }
        assert!(Cron::parse("0 0 29 2 *").is_ok(), "leap years have it");
        assert!(Cron::parse("0 0 30 2 MON").is_ok(), "the Mondays of February");
    }
}
