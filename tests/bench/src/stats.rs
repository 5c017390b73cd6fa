//! Percentiles and medians.

/// The smallest value that at least `percent` % of all values do not exceed (nearest rank); nothing when there are no values.
///
/// # Panics
/// When `percent` is above 100.
pub fn percentile(values: &mut [u64], percent: usize) -> Option<u64> {
    assert!(percent <= 100, "{percent} is no percentage");
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied()
}

/// The value in the middle, or the mean of the two that are; nothing when there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], upper) } else { upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let mut hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut hundred, 50), Some(50));
        assert_eq!(percentile(&mut hundred, 99), Some(99));
        assert_eq!(percentile(&mut hundred, 100), Some(100));
        assert_eq!(percentile(&mut [10, 30, 20], 50), Some(20));
        assert_eq!(percentile(&mut [7], 0), Some(7));
        assert_eq!(percentile(&mut [], 50), None);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
