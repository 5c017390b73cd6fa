//! Faults that come again and again, and expose some bugs.

use std::time::Duration;

use super::site::{EXECUTOR, GATE, RUNNER};
use crate::fault::Fault;
use crate::machine::Disk;

pub(super) const EXECUTOR_OUTAGES: Option<(u32, Fault)> =
    Some((4, Fault::PowerLoss { host: EXECUTOR, down: Duration::from_millis(600) }));
pub(super) const EXECUTOR_KILLS: Option<(u32, Fault)> = Some((6, Fault::Kill { host: EXECUTOR }));
pub(super) const RUNNER_KILLS: Option<(u32, Fault)> = Some((6, Fault::Kill { host: RUNNER }));
pub(super) const GATE_KILLS: Option<(u32, Fault)> = Some((4, Fault::Kill { host: GATE }));

/// A part of the runner's disk is full again and again.
pub(super) const fn often_full(disk: Disk) -> Option<(u32, Fault)> {
    often_full_for(8, disk, Duration::from_millis(250))
}

/// The same as many times, each time this long.
pub(super) const fn often_full_for(times: u32, disk: Disk, lasts: Duration) -> Option<(u32, Fault)> {
    Some((times, Fault::Disk { host: RUNNER, disk, lasts }))
}

/// A wall clock is set forward by 30 hours and put right again and again.
pub(super) const fn often_ahead(host: &'static str) -> Option<(u32, Fault)> {
    Some((12, Fault::Clock { host, ahead: 30 * 3600, lasts: Duration::from_millis(300) }))
}
