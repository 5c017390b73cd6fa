//! Sizes in bytes, as text.

/// The units with their bytes, the largest first.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Parses a size such as `8GiB` or `512 MiB`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)))?;
    let number = number.trim_end();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Formats bytes in the largest unit that divides them.
pub(crate) fn shown(bytes: u64) -> String {
    match UNITS.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}

/// A time in seconds, in the largest unit that fits.
pub(crate) fn shown_time(seconds: u64) -> String {
    match seconds {
        _ if seconds.is_multiple_of(86_400) => format!("{}d", seconds / 86_400),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_with_a_unit() {
        assert_eq!((bytes("8GiB"), bytes("512 MiB"), bytes("4KiB")), (Some(8 << 30), Some(512 << 20), Some(4096)));
        for wrong in ["", "GiB", "8", "8GB", "8 gib", "-1GiB", "1.5GiB", "99999999999TiB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!((shown(8 << 30), shown(1536 << 20), shown(1000)), ("8GiB".into(), "1536MiB".into(), "1000".into()));
    }
}
