//! Times and durations as people read and type them. Times are UTC, as in the events.

use std::time::Duration;

use pbjson_types::Timestamp;

/// A timestamp as the time since 1970; `None` for one before that.
pub(crate) fn since_epoch(time: &Timestamp) -> Option<Duration> {
    Some(Duration::new(time.seconds.try_into().ok()?, time.nanos.try_into().ok()?))
}

/// The time since 1970 as a timestamp.
pub(crate) fn timestamp(time: Duration) -> Timestamp {
    Timestamp { seconds: time.as_secs().try_into().unwrap_or(i64::MAX), nanos: time.subsec_nanos() as i32 }
}

/// A protobuf duration; negative ones count as zero.
pub(crate) fn duration(duration: &pbjson_types::Duration) -> Duration {
    Duration::try_from(*duration).unwrap_or_default()
}

/// From one moment to another; zero when the clocks disagree, `None` when one of them is not known.
pub(crate) fn between(from: Option<&Timestamp>, to: Option<Duration>) -> Option<Duration> {
    Some(to?.saturating_sub(since_epoch(from?)?))
}

/// `2026-11-21 03:04:05Z`.
pub(crate) fn date_and_time(time: &Timestamp) -> String {
    match rfc3339(time) {
        Some(text) => format!("{} {}Z", &text[..10], &text[11..19]),
        None => "-".to_owned(),
    }
}

/// `03:04:05Z`.
pub(crate) fn time_of_day(time: &Timestamp) -> String {
    match rfc3339(time) {
        Some(text) => format!("{}Z", &text[11..19]),
        None => "-".to_owned(),
    }
}

/// `2026-11-21T03:04:05+00:00`; `None` outside of the years that have four digits.
pub(crate) fn rfc3339(time: &Timestamp) -> Option<String> {
    match serde_json::to_value(time) {
        Ok(serde_json::Value::String(text)) if text.is_ascii() && text.as_bytes().get(10) == Some(&b'T') => Some(text),
        _ => None,
    }
}

/// Short, rounded down: `0.4s`, `12s`, `3m 5s`, `2h 10m`, `4d 3h`.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0s".to_owned(),
        0 if duration.as_millis() < 100 => format!("{}ms", duration.as_millis().max(1)),
        0..10 if duration.subsec_millis() >= 100 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        0..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "m"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

/// `just now`, or `12s ago`.
pub(crate) fn ago(since: Duration) -> String {
    match since.as_secs() {
        0 => "just now".to_owned(),
        seconds => format!("{} ago", short(Duration::from_secs(seconds))),
    }
}

fn two(large: u64, unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit} {small}{small_unit}") }
}

/// Reads `2026-12-01T09:00:00Z`, or another time with its offset from UTC.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    let read = serde_json::from_value(serde_json::Value::String(text.trim().to_owned()));
    read.map_err(|_| format!("`{text}` is not a time: write it like 2026-12-01T09:00:00Z or 2026-12-01T10:00:00+01:00"))
}

/// Reads `500ms`, `90s`, `15m`, `1h30m`, `2d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: write it like 90s, 15m, 1h30m or 2d");
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let milliseconds: u64 = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        let part = number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let cases = [
            (0, "0s"),
            (7, "7ms"),
            (400, "0.4s"),
            (1_000, "1s"),
            (9_950, "9.9s"),
            (12_345, "12s"),
            (120_000, "2m"),
            (185_000, "3m 5s"),
            (7_800_000, "2h 10m"),
            (356_400_000, "4d 3h"),
        ];
        for (milliseconds, text) in cases {
            assert_eq!(short(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn durations_are_read_as_they_are_typed() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse("2d"), Ok(Duration::from_secs(172_800)));
        for wrong in ["", "5", "h", "1x", "-1s", "1.5h", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_utc() {
        let time = Timestamp { seconds: 1_795_230_245, nanos: 120_000_000 };
        assert_eq!(date_and_time(&time), "2026-11-21 03:04:05Z");
        assert_eq!(time_of_day(&time), "03:04:05Z");
        assert_eq!(date_and_time(&Timestamp { seconds: i64::MAX, nanos: 0 }), "-");
    }

    #[test]
    fn clocks_that_disagree_give_no_negative_time() {
        let later = Timestamp { seconds: 100, nanos: 0 };
        assert_eq!(between(Some(&later), Some(Duration::from_secs(90))), Some(Duration::ZERO));
        assert_eq!(between(None, Some(Duration::from_secs(90))), None);
    }
}
