//! Spans, metrics, and which services do not answer.

pub(crate) mod availability;
pub(crate) mod measures;
pub(crate) mod metrics;
pub(crate) mod trace;
