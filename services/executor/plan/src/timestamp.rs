//! Points in time as authors write them: RFC 3339, such as `2026-12-01T09:00:00Z`.

use chrono::{DateTime, SecondsFormat};

/// Microseconds since the Unix epoch; the error explains what to write instead.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    DateTime::parse_from_rfc3339(text).map(|time| time.timestamp_micros()).map_err(|_| {
        let what = if text.is_empty() { "is empty" } else { "is not a point in time" };
        format!("{what}: {SHAPE}")
    })
}

/// The form in which to write a time.
pub(crate) const SHAPE: &str =
    "write the date, the time and the offset from UTC, such as 2026-12-01T09:00:00Z or 2026-12-01T10:00:00+01:00";

/// Writes a point in time exactly, in UTC.
pub(crate) fn format(micros: i64) -> String {
    let time = DateTime::from_timestamp_micros(micros).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// For serde: a point in time that may be absent.
pub(crate) mod option {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(micros: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        match micros {
            Some(micros) => serializer.serialize_some(&super::format(*micros)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| super::parse(&text).map_err(|why| D::Error::custom(format!("`{text}` {why}")))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_comes_back_as_it_was() {
        for (written, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-12-01T09:00:00Z", 1_796_115_600_000_000),
            ("2026-12-01T10:00:00+01:00", 1_796_115_600_000_000),
            ("2026-12-01T09:00:00.000001Z", 1_796_115_600_000_001),
        ] {
            assert_eq!(parse(written), Ok(micros), "{written}");
            assert_eq!(parse(&format(micros)), Ok(micros), "{written}");
        }
        assert_eq!(format(1_796_115_600_000_000), "2026-12-01T09:00:00Z");
    }

    #[test]
    fn anything_else_is_refused() {
        for written in ["", "tomorrow", "2026-12-01", "2026-12-01T09:00:00", "2026-02-30T09:00:00Z", "09:00"] {
            assert!(parse(written).is_err_and(|why| why.contains("2026-12-01T09:00:00Z")), "{written}");
        }
    }
}
