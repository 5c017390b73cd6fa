//! Durations as authors write them: `500ms`, `10s`, `1h30m`, `90.005s`.

use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The units in the order in which they may follow each other, with their length in nanoseconds.
const UNITS: [(&str, u128); 4] =
    [("h", 3_600 * NANOS_PER_SECOND), ("m", 60 * NANOS_PER_SECOND), ("s", NANOS_PER_SECOND), ("ms", 1_000_000)];

/// The maximum number of digits before the point: with them, a duration in nanoseconds stays far below `u128::MAX`.
const MAX_DIGITS: usize = 15;

/// Parses a duration exactly; the error explains what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let shape = || "is not a duration: write for example 500ms, 10s, 5m or 1h30m".to_owned();
    if text.is_empty() {
        return Err("is empty: write for example 500ms, 10s, 5m or 1h30m".to_owned());
    }
    if text.len() <= MAX_DIGITS && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("has no unit: write {text}s for seconds"));
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(shape)?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        // Each unit once, from the longest down: the iterator never goes back.
        let (_, length) = units.find(|(name, _)| *name == unit).ok_or_else(shape)?;
        nanos = scaled(number, *length).and_then(|part| nanos.checked_add(part)).ok_or_else(shape)?;
        rest = after;
    }
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).map_err(|_| shape())?;
    Ok(Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32))
}

/// A decimal number times a unit, in nanoseconds; `None` when it is not a number, too long, or finer than a nanosecond.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    // No more digits than these can matter.
    if whole.is_empty() || whole.len() > MAX_DIGITS || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let divisor = 10_u128.pow(fraction.len() as u32);
    let parts = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? } * unit;
    parts.is_multiple_of(divisor).then(|| whole * unit + parts / divisor)
}

/// Writes a duration in seconds, exactly: `90.005s`.
pub(crate) fn format(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if nanos == 0 {
        return format!("{seconds}s");
    }
    let fraction = format!("{nanos:09}");
    format!("{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// Serde for a duration as text.
pub(crate) mod text {
    use super::*;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format(*duration))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map_err(|why| D::Error::custom(format_args!("`{text}` {why}")))
    }
}

/// A duration that serialises as text, for use inside other types.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
struct Text(#[serde(with = "text")] Duration);

/// Serde for a duration as text.
pub(crate) mod plain {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        Text(*duration).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Text::deserialize(deserializer)?.0)
    }
}

/// Serde for an optional duration as text.
pub(crate) mod option {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(Text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Text>::deserialize(deserializer)?.map(|text| text.0))
    }
}

/// Serde for durations by name, as texts.
pub(crate) mod map {
    use std::collections::BTreeMap;

    use super::*;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        durations: &BTreeMap<String, Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(durations.iter().map(|(name, duration)| (name, Text(*duration))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Duration>, D::Error> {
        let texts = BTreeMap::<String, Text>::deserialize(deserializer)?;
        Ok(texts.into_iter().map(|(name, text)| (name, text.0)).collect())
    }
}

/// Serde for a list of durations as texts.
pub(crate) mod list {
    use super::*;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(durations: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(durations.iter().copied().map(Text))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Duration>, D::Error> {
        Ok(Vec::<Text>::deserialize(deserializer)?.into_iter().map(|text| text.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_durations_are_parsed() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1h0m0.5s", 3_600_500),
            ("1m1s1ms", 61_001),
            ("90.005s", 90_005),
            ("1.5h", 5_400_000),
            ("0s", 0),
            ("0.0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("0.000000001s"), Ok(Duration::from_nanos(1)));
    }

    #[test]
    fn invalid_durations_are_refused() {
        assert_eq!(parse("30"), Err("has no unit: write 30s for seconds".to_owned()));
        for text in [
            "",
            "s",
            "-1s",
            "+1s",
            "1",
            "1.s",
            ".5s",
            "1..5s",
            "1.2.3s",
            "1 s",
            " 1s",
            "1s ",
            "1d",
            "1S",
            "30m1h",
            "1s1s",
            "1e3s",
            "１s",
            "0.0000000001s",
            "0.000000001ms",
            "99999999999999999999h",
            "999999999999999h999999999999999m1",
            "inf",
            "1s2",
        ] {
            assert!(parse(text).is_err(), "{text:?} was read as {:?}", parse(text));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(seconds in 0_u64..=999_999_999_999_999, nanos in 0_u32..1_000_000_000) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "[0-9.hms]{0,40}|\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
