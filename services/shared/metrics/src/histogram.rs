//! How durations are distributed.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::Attributes;

/// The upper bounds of the buckets, in seconds: a call that reads a file takes milliseconds, a person may take a week.
const BOUNDS: [f64; 18] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0,
    604_800.0,
];

/// Recorded durations, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// How many durations are in each bucket; the last has those above all bounds.
    buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all.
    pub sum: f64,
}

impl Distribution {
    fn record(&mut self, seconds: f64) {
        self.buckets[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }

    /// The bounds of all buckets but the last, which has none.
    pub fn bounds(&self) -> &'static [f64] {
        &BOUNDS
    }

    /// How many durations are in each bucket, above the bound before it and up to its own.
    pub fn counts(&self) -> &[u64] {
        &self.buckets
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// A histogram of this process, with one distribution for each value of its attribute.
#[derive(Debug)]
pub struct Histogram {
    attribute: &'static str,
    distributions: Mutex<BTreeMap<&'static str, Distribution>>,
}

impl Histogram {
    /// A histogram with one distribution for each value of this attribute.
    pub fn by(attribute: &'static str) -> Self {
        Self { attribute, distributions: Mutex::default() }
    }

    /// Records a duration.
    pub fn record(&self, value: &'static str, duration: Duration) {
        let mut distributions = self.distributions.lock().unwrap_or_else(PoisonError::into_inner);
        distributions.entry(value).or_default().record(duration.as_secs_f64());
    }

    /// The distributions.
    pub fn read(&self) -> Vec<(Attributes, Distribution)> {
        let distributions = self.distributions.lock().unwrap_or_else(PoisonError::into_inner);
        distributions.iter().map(|(value, recorded)| (vec![(self.attribute, *value)], recorded.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::by("status");
        for millis in [0, 5, 6, 1_000, 700_000_000] {
            histogram.record("done", Duration::from_millis(millis));
        }
        histogram.record("failed", Duration::from_secs(2));
        let read = histogram.read();
        assert_eq!(read.len(), 2);
        let (attributes, done) = &read[0];
        assert_eq!(attributes, &[("status", "done")]);
        let counts = done.counts();
        assert_eq!((counts[0], counts[1], counts[7], counts[BOUNDS.len()]), (2, 1, 1, 1));
        assert_eq!((done.count(), done.sum), (5, 700_001.011));
        assert_eq!(done.bounds().len() + 1, counts.len());
        assert!(done.bounds().is_sorted());
    }
}
