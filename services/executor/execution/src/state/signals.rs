//! Signals that came before a step waited for them.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

use crate::Json;

/// How many signals an execution keeps that no step has taken. More would be a sender that nobody waits for.
pub const MAX_SIGNALS: usize = 1000;

/// Signals by name, the oldest first, each with the sequence number of its event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Signals {
    by_name: BTreeMap<String, VecDeque<(u64, Json)>>,
    count: usize,
}

impl Signals {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn push(&mut self, name: &str, sequence: u64, payload: Json) {
        self.by_name.entry(name.to_owned()).or_default().push_back((sequence, payload));
        self.count += 1;
    }

    /// The sequence number of the oldest signal with this name.
    pub(crate) fn first(&self, name: &str) -> Option<u64> {
        self.by_name.get(name)?.front().map(|(sequence, _)| *sequence)
    }

    /// Takes the oldest signal with this name, if it is the one with this sequence number.
    pub(crate) fn take(&mut self, name: &str, sequence: u64) -> Option<Json> {
        let kept = self.by_name.get_mut(name)?;
        let (_, payload) = kept.pop_front_if(|(first, _)| *first == sequence)?;
        if kept.is_empty() {
            self.by_name.remove(name);
        }
        self.count -= 1;
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_that_of_what_is_kept() {
        let mut signals = Signals::default();
        for (name, sequence) in [("go", 3), ("go", 4), ("stop", 5)] {
            signals.push(name, sequence, Json::from_text("null"));
        }
        assert_eq!(signals.take("go", 4), None, "the oldest first");
        assert!(signals.take("go", 3).is_some() && signals.take("stop", 5).is_some());
        assert_eq!((signals.len(), signals.first("go"), signals.first("stop")), (1, Some(4), None));
    }
}
