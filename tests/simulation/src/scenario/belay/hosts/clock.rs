//! The time on the machines, and the true time.

use belay_service_kit::Clock;

use crate::machine;

/// The wall clock of the executing machine, which may be wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct WallClock;

impl Clock for WallClock {
    fn now_micros(&self) -> i64 {
        now_micros() + machine::clock_ahead()
    }
}

/// The true time in microseconds since the Unix epoch, whatever the machine's wall clock says.
pub(in super::super) fn now_micros() -> i64 {
    let since_epoch = turmoil::since_epoch().unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).expect("a simulation ends before the year 292471")
}
