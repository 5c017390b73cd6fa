//! The output of external agents: command lines of models such as codex or claude, which report their work as lines of JSON, or in plain words.
//!
//! A [`Reader`] makes a [`Report`] of the lines; [`judge`] says whether the agent has done its task, and of which class its failure is. Where no event says it,
//! [`classify`] goes by the exit code and the last lines. Pure: the time of a quota that is given as a date is the caller's to compute.

mod classify;
mod judge;
mod lines;
mod reader;
mod report;
mod status;

pub use classify::{Class, Patterns, classify};
pub use judge::{AgentFailure, Judged, judge};
pub use lines::LastLines;
pub use reader::{Format, Reader};
pub use report::{AgentError, End, Report, Usage};
