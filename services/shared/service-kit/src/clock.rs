//! Wall time, handed in. Waiting goes through tokio's timers, which a simulation controls by itself.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Tells the wall time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Microseconds since the Unix epoch.
    fn now_micros(&self) -> i64;

    /// The wall time as the standard library has it.
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(u64::try_from(self.now_micros()).unwrap_or(0))
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the one place that asks the machine
    fn now_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}
