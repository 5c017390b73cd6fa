//! Events about a wait.

use crate::Timestamp;

/// What happens to a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEvent {
    /// It began. It holds none of the plan's `parallelism` slots.
    Started(WaitCondition),
    /// It ended.
    Ended(WaitEnd),
}

/// What a wait waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitCondition {
    /// A point in time.
    Time {
        /// When it ends.
        until: Timestamp,
    },
    /// A signal.
    Signal {
        /// The signal's name.
        signal: String,
        /// When the step's time limit ends the wait; `None` means no limit.
        until: Option<Timestamp>,
    },
}

impl WaitCondition {
    /// The signal that it waits for.
    pub fn signal(&self) -> Option<&str> {
        match self {
            Self::Time { .. } => None,
            Self::Signal { signal, .. } => Some(signal),
        }
    }

    /// When the wait ends, if nothing ends it before.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Time { until } => Some(*until),
            Self::Signal { until, .. } => *until,
        }
    }
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The time has come.
    Elapsed,
    /// The signal came.
    Signalled {
        /// The sequence number of the event that brought it.
        sequence: u64,
    },
    /// The step's time limit ran out first.
    TimedOut,
    /// The execution was stopped.
    Cancelled,
}
