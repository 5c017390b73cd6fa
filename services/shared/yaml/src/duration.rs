//! Durations as authors write them: a whole number and a unit.

/// The units with their seconds.
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];

/// Parses a duration such as `90s`, `15m`, `24h` or `7d` to seconds; `None` when it is not valid or overflows.
pub fn seconds(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number = &text[..text.len() - unit.len_utf8()];
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(*length)
}
