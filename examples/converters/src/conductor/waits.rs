//! Waits: for a time, a signal or a person.

use serde_json::{Value, json};

use crate::plan::duration;

/// The `wait` of a WAIT task: for a duration, until a time, or else for a signal with the task's name.
pub(super) fn wait(parameters: Option<&Value>, name: &str) -> Result<Value, String> {
    let text =
        |key: &str| parameters.and_then(|all| all.get(key)).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(text) = text("duration") {
        let time = seconds(text).and_then(duration).ok_or_else(|| text.to_owned())?;
        return Ok(json!({"for": time}));
    }
    if let Some(text) = text("until") {
        return until(text).map(|time| json!({"until": time})).ok_or_else(|| text.to_owned());
    }
    Ok(json!({"signal": name}))
}

/// A duration such as `1 days 2 hours`, `5m` or `10 seconds`, in seconds.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let (mut total, mut rest) = (0.0, text.trim());
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        total += number
            * match rest[..letters].to_lowercase().as_str() {
                "d" | "day" | "days" => 86_400.0,
                "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
                "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
                "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
                _ => return None,
            };
        rest = rest[letters..].trim_start();
    }
    (total > 0.0).then_some(total)
}

/// A date with time and zone as plans have it. `2026-12-01`, `2026-12-01 09:00` and `2026-12-01 09:00 GMT+02:00` are in UTC where they name no zone.
fn until(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let date = words.next()?;
    let is_date = date.len() == 10
        && date
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() });
    let time = words.next().unwrap_or("00:00");
    let is_time = time.len() == 5
        && time.bytes().enumerate().all(|(at, byte)| if at == 2 { byte == b':' } else { byte.is_ascii_digit() });
    let zone = match words.next().unwrap_or("UTC") {
        "UTC" | "GMT" | "Z" => "Z",
        zone => zone.strip_prefix("GMT").filter(|offset| offset.len() == 6)?,
    };
    (is_date && is_time && words.next().is_none()).then(|| format!("{date}T{time}:00{zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_conductor_writes_them() {
        assert_eq!(seconds("1 days 2 hours"), Some(93_600.0));
        assert_eq!((seconds("5m30s"), seconds("10 seconds")), (Some(330.0), Some(10.0)));
        assert_eq!((seconds("soon"), seconds("")), (None, None));
        assert_eq!(until("2026-12-01 09:00 GMT+02:00").as_deref(), Some("2026-12-01T09:00:00+02:00"));
        assert_eq!(until("2026-12-01").as_deref(), Some("2026-12-01T00:00:00Z"));
        assert_eq!((until("tomorrow"), until("2026-12-01 9h")), (None, None));
        assert_eq!(wait(Some(&json!({"duration": "2 h"})), "w"), Ok(json!({"for": "2h"})));
        assert_eq!(wait(None, "w"), Ok(json!({"signal": "w"})));
        assert!(wait(Some(&json!({"duration": "${x}"})), "w").is_err());
    }
}
