//! Compares acknowledged rows with the rows found after a restart.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::trace;

/// Records what was acknowledged and collects violations, outside the simulated machines, so that no crash affects it. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Checker(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    acknowledged: BTreeMap<u64, String>,
    recoveries: u64,
    violations: Vec<String>,
}

impl Checker {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one insertion or addition: a panic elsewhere leaves nothing half-done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an acknowledgement to a client: from now on, `key` must exist with `value`.
    pub fn acknowledged(&self, key: u64, value: impl Display) {
        trace::event(format_args!("{key} is acknowledged"));
        trace::count("acknowledged");
        self.state().acknowledged.insert(key, value.to_string());
    }

    /// Checks the rows of a restarted store. Rows that were never acknowledged may exist or not.
    pub fn recovered(&self, found: &BTreeMap<u64, String>) {
        trace::event(format_args!("the store is up with {} rows", found.len()));
        trace::count("recoveries");
        let mut state = self.state();
        state.recoveries += 1;
        let broken: Vec<String> = state
            .acknowledged
            .iter()
            .filter_map(|(key, promised)| match found.get(key) {
                None => Some(format!("acknowledged row {key} is gone")),
                Some(value) if value != promised => Some(format!("acknowledged row {key} was {promised}, is {value}")),
                Some(_) => None,
            })
            .collect();
        drop(state);
        for violation in broken {
            self.violation(violation);
        }
    }

    /// The number of restarts of a store so far.
    pub fn recoveries(&self) -> u64 {
        self.state().recoveries
    }

    /// Records a violation. The verdict lists it once, however often it is recorded.
    pub fn violation(&self, what: impl Display) {
        let what = what.to_string();
        trace::event(format_args!("VIOLATION: {what}"));
        let violations = &mut self.state().violations;
        if !violations.contains(&what) {
            violations.push(what);
        }
    }

    /// `Err` with every violation, one per line.
    ///
    /// # Errors
    /// When there is a violation.
    pub fn verdict(&self) -> Result<(), String> {
        match self.state().violations.as_slice() {
            [] => Ok(()),
            violations => Err(violations.join("\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(u64, &str)]) -> BTreeMap<u64, String> {
        rows.iter().map(|(key, value)| (*key, value.to_string())).collect()
    }

    #[test]
    fn unacknowledged_rows_may_be_there_or_not() {
        let checker = Checker::default();
        checker.acknowledged(1, "a");
        checker.recovered(&rows(&[(1, "a"), (2, "b")]));
        checker.recovered(&rows(&[(1, "a")]));
        assert_eq!((checker.verdict(), checker.recoveries()), (Ok(()), 2));
    }

    #[test]
    fn a_lost_row_and_a_changed_row_are_violations() {
        let checker = Checker::default();
        checker.acknowledged(1, "a");
        checker.acknowledged(2, "b");
        checker.recovered(&rows(&[(2, "c")]));
        let verdict = "acknowledged row 1 is gone\nacknowledged row 2 was b, is c";
        assert_eq!(checker.verdict(), Err(verdict.to_owned()));
    }
}
