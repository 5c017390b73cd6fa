//! The parts of an execution under way that a person or a program wants to see.

use std::time::Duration;

use crate::render::result::lines::EventShape;

/// The execution to watch, and how.
pub(crate) struct Attendance {
    /// The execution's full name.
    pub(crate) name: String,
    /// Events after this one are shown; 0 for all.
    pub(crate) after: i64,
    /// Whether this process drives the execution if no server does.
    pub(crate) drive: bool,
    /// Whether a person at the terminal is asked for decisions.
    pub(crate) asks: bool,
    /// The longest wait; `None` for no limit.
    pub(crate) max_wait: Option<Duration>,
    /// How events are printed as lines for programs.
    pub(crate) shape: EventShape,
    /// Whether every event is a line, with the arguments and the result of each call.
    pub(crate) verbose: bool,
}
