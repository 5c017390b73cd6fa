//! Counts what happens.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::Attributes;

/// A counter of this process, with one count for each value of its attribute.
#[derive(Debug)]
pub struct Counter {
    /// The attribute's name; `None` for a counter with a single count.
    attribute: Option<&'static str>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counter {
    /// A counter with a single count, which is exported from the start as 0.
    pub fn new() -> Self {
        Self { attribute: None, counts: Mutex::new([("", 0)].into()) }
    }

    /// A counter with one count for each value of this attribute, which are exported from the start as 0.
    pub fn by(attribute: &'static str, values: &[&'static str]) -> Self {
        Self { attribute: Some(attribute), counts: Mutex::new(values.iter().map(|value| (*value, 0)).collect()) }
    }

    /// Counts one.
    pub fn add(&self, value: &'static str) {
        self.add_many(value, 1);
    }

    /// Counts this many.
    pub fn add_many(&self, value: &'static str, count: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = counts.entry(value).or_default();
        *counted = counted.saturating_add(count);
    }

    /// Counts one, in a counter with a single count.
    pub fn increment(&self) {
        self.add("");
    }

    /// The counts.
    pub fn read(&self) -> Vec<(Attributes, u64)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let attributes = |value| self.attribute.map(|name| (name, value)).into_iter().collect();
        counts.iter().map(|(value, count)| (attributes(*value), *count)).collect()
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_counted_is_there_from_the_start() {
        let plain = Counter::new();
        assert_eq!(plain.read(), [(vec![], 0)]);
        plain.increment();
        plain.increment();
        assert_eq!(plain.read(), [(vec![], 2)]);
        let by_color = Counter::by("color", &["red", "green"]);
        by_color.add("red");
        by_color.add_many("blue", 3);
        let expected = [("blue", 3), ("green", 0), ("red", 1)];
        assert_eq!(by_color.read(), expected.map(|(color, count)| (vec![("color", color)], count)));
    }
}
