//! When a server wants to be asked again.

use std::time::{Duration, UNIX_EPOCH};

/// The longest time that a server can have us wait: beyond it, its words are a mistake, or a quota that a person has to know of.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Reads the headers `retry-after-ms` and `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3). `now` is in seconds since the Unix epoch. A time that is
/// over means now; what cannot be read means nothing.
pub fn retry_after<'a>(header: impl Fn(&str) -> Option<&'a str>, now: i64) -> Option<Duration> {
    let milliseconds = header("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok());
    let seconds = |text: &str| match text.parse::<f64>() {
        Ok(seconds) => Some(seconds),
        Err(_) => Some((of_date(text)? - now).max(0) as f64),
    };
    let seconds =
        milliseconds.map(|n| n / 1000.0).or_else(|| header("retry-after").map(str::trim).and_then(seconds))?;
    (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(MAX_RETRY_AFTER.as_secs_f64())))
}

/// The seconds since the Unix epoch of a date.
fn of_date(text: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str, now: i64) -> Option<f64> {
        retry_after(|asked| (asked == name).then_some(value), now).map(|time| time.as_secs_f64())
    }

    #[test]
    fn all_forms_are_read() {
        assert_eq!(of("retry-after", "7", 0), Some(7.0));
        assert_eq!(of("retry-after", " 1.5 ", 0), Some(1.5));
        assert_eq!(of("retry-after-ms", "250", 0), Some(0.25));
        assert_eq!(of("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", 784_111_770), Some(7.0));
        assert_eq!(of("retry-after", "Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_800 - 60), Some(60.0));
        assert_eq!(of("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", 1_800_000_000), Some(0.0), "it is over");
        let both = |asked: &str| Some(if asked == "retry-after-ms" { "100" } else { "9" });
        assert_eq!(retry_after(both, 0), Some(Duration::from_millis(100)));
    }

    #[test]
    fn nonsense_means_nothing_and_too_long_is_bounded() {
        for text in [
            "soon",
            "-1",
            "NaN",
            "inf",
            "",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
        ] {
            assert_eq!(of("retry-after", text, 0), None, "{text}");
        }
        assert_eq!(of("retry-after", "1e300", 0), Some(86_400.0));
    }
}
