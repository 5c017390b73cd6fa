//! Wall time, passed in. Waiting goes through tokio's timers, which a simulation controls.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use belay_defects::{Defect, is_planted};
use tokio::time::Instant;

/// Reads the wall time.
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
    #[allow(clippy::disallowed_methods)] // the only place that reads the machine's clock
    fn now_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

/// Smaller differences between the two clocks come from reading them one after the other, in microseconds.
const NOISE: i64 = 1_000;

/// A wall clock that never goes back while the process runs. When the underlying clock is set back, this one continues at the pace of the
/// monotonic clock, so a wait for a point in time takes no longer than intended. When the underlying clock is set forward, this one follows it,
/// because a machine that resumes from sleep looks the same; an earlier step back is deducted first.
#[derive(Debug)]
pub struct SteadyClock {
    below: Arc<dyn Clock>,
    last: Mutex<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The underlying clock's time, in microseconds since the Unix epoch.
    wall: i64,
    monotonic: Instant,
    /// How far this clock is ahead of the underlying one, in microseconds.
    ahead: i64,
}

impl SteadyClock {
    /// Starts at the current time of `below`. On a tokio runtime with simulated time, the pace is the simulation's.
    pub fn new(below: Arc<dyn Clock>) -> Self {
        let last = Reading { wall: below.now_micros(), monotonic: Instant::now(), ahead: 0 };
        Self { below, last: Mutex::new(last) }
    }
}

impl Clock for SteadyClock {
    fn now_micros(&self) -> i64 {
        if is_planted(Defect::WallClockTimers) {
            return self.below.now_micros();
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, monotonic) = (self.below.now_micros(), Instant::now());
        let passed = i64::try_from(monotonic.duration_since(last.monotonic).as_micros()).unwrap_or(i64::MAX);
        let jump = wall.saturating_sub(last.wall).saturating_sub(passed);
        let ahead = if jump.abs() < NOISE { last.ahead } else { last.ahead.saturating_sub(jump).max(0) };
        // Noise must not make it go back, either.
        let now = wall.saturating_add(ahead).max(last.wall.saturating_add(last.ahead));
        *last = Reading { wall, monotonic, ahead };
        now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    const HOUR: i64 = 3_600_000_000;

    /// A wall clock that a test sets; it stands still in between.
    #[derive(Debug, Default)]
    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now_micros(&self) -> i64 {
            self.0.load(Ordering::SeqCst)
        }
    }

    async fn pass(wall: &ManualClock, micros: i64) {
        tokio::time::advance(Duration::from_micros(u64::try_from(micros).unwrap())).await;
        wall.0.fetch_add(micros, Ordering::SeqCst);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_goes_on_at_its_pace() {
        let wall = Arc::new(ManualClock(AtomicI64::new(10 * HOUR)));
        let steady = SteadyClock::new(Arc::<ManualClock>::clone(&wall));
        pass(&wall, 5_000_000).await;
        assert_eq!(steady.now_micros(), 10 * HOUR + 5_000_000);
        wall.0.fetch_sub(HOUR, Ordering::SeqCst);
        assert_eq!(steady.now_micros(), 10 * HOUR + 5_000_000);
        pass(&wall, 3_000_000).await;
        assert_eq!(steady.now_micros(), 10 * HOUR + 8_000_000);
        // It is put right again: no hour is left out, and none comes twice.
        wall.0.fetch_add(HOUR, Ordering::SeqCst);
        pass(&wall, 1_000_000).await;
        assert_eq!(steady.now_micros(), 10 * HOUR + 9_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_set_forward_is_followed() {
        let wall = Arc::new(ManualClock(AtomicI64::new(10 * HOUR)));
        let steady = SteadyClock::new(Arc::<ManualClock>::clone(&wall));
        wall.0.fetch_add(8 * HOUR, Ordering::SeqCst);
        assert_eq!(steady.now_micros(), 18 * HOUR);
        // What goes back and forth within the noise of two readings moves nothing back.
        wall.0.fetch_sub(NOISE / 2, Ordering::SeqCst);
        assert_eq!(steady.now_micros(), 18 * HOUR);
    }
}
