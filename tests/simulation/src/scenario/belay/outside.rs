//! The world outside of Belay, which no crash rolls back: what the tools' bodies really did, and when.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_tool_runner::Recovery;
use serde_json::Value;

use super::hosts;
use crate::trace;

/// One run of a tool's body.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// The call's name.
    pub(super) call: String,
    pub(super) arguments: Value,
    /// Microseconds since the Unix epoch.
    pub(super) began: i64,
    /// Whether the body reached its end, and that was a success. One that was stopped or lost its machine never did.
    pub(super) succeeded: Option<bool>,
}

/// Every run of every body, by its number. Clones are one world.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside(Arc<Mutex<Vec<Run>>>);

impl Outside {
    fn runs(&self) -> MutexGuard<'_, Vec<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A body begins; returns its run's number.
    pub(super) fn begin(&self, call: &str, recovery: Recovery, arguments: &Value) -> usize {
        let mut runs = self.runs();
        let number = runs.len();
        trace::event(format_args!("run {number} of {recovery:?} {call}"));
        trace::count("runs of a tool");
        runs.push(Run {
            call: call.to_owned(),
            arguments: arguments.clone(),
            began: hosts::now_micros(),
            succeeded: None,
        });
        number
    }

    /// A body reaches its end.
    pub(super) fn end(&self, number: usize, succeeded: bool) {
        self.runs()[number].succeeded = Some(succeeded);
    }

    /// Everything that happened.
    pub(super) fn all(&self) -> Vec<Run> {
        self.runs().clone()
    }
}
