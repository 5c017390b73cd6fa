//! Shared by streaming watch methods: the heartbeat interval, and what ends a wait.

use std::time::Duration;

use tonic::Status;

use crate::{Shutdown, status};

/// How often a watch sends a heartbeat when the request names no interval.
const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(15);
/// The shortest interval that a request may name.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
/// The longest interval that a request may name.
const MAX_HEARTBEAT: Duration = Duration::from_secs(600);

/// The interval of a watch's heartbeats, from the request's `heartbeat_interval`.
///
/// # Errors
/// INVALID_ARGUMENT when it is shorter than 100 ms or longer than 10 minutes.
pub fn heartbeat_interval(requested: Option<&pbjson_types::Duration>) -> Result<Duration, Status> {
    let Some(requested) = requested else { return Ok(DEFAULT_HEARTBEAT) };
    let interval = belay_proto::to_duration(requested).filter(|it| (MIN_HEARTBEAT..=MAX_HEARTBEAT).contains(it));
    interval.ok_or_else(|| status::invalid("heartbeat_interval", "must be between 100 ms and 10 minutes").into())
}

/// The end of a watch's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There is something to send.
    Changed,
    /// The service is shutting down: the watch ends.
    Stopping,
    /// A heartbeat is due.
    Quiet,
}

/// Waits until `changed` completes, the service stops, or a heartbeat is due, whichever comes first.
pub async fn wake(changed: impl Future<Output = ()>, shutdown: &Shutdown, heartbeat: Duration) -> Wake {
    tokio::select! {
        biased;
        () = changed => Wake::Changed,
        () = shutdown.requested() => Wake::Stopping,
        () = tokio::time::sleep(heartbeat) => Wake::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn an_interval_is_within_bounds() {
        let read = |seconds, nanos| heartbeat_interval(Some(&pbjson_types::Duration { seconds, nanos }));
        assert_eq!(heartbeat_interval(None).unwrap(), DEFAULT_HEARTBEAT);
        assert_eq!(read(0, 100_000_000).unwrap(), MIN_HEARTBEAT);
        assert_eq!(read(600, 0).unwrap(), MAX_HEARTBEAT);
        for (seconds, nanos) in [(0, 0), (0, 99_999_999), (600, 1), (-1, 0)] {
            let refused = read(seconds, nanos).unwrap_err();
            assert!(refused.message().starts_with("heartbeat_interval: "), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_comes_before_a_stop_and_a_stop_before_a_heartbeat() {
        let (trigger, stop) = Shutdown::new();
        assert_eq!(wake(pending(), &stop, MIN_HEARTBEAT).await, Wake::Quiet);
        trigger.pull();
        assert_eq!(wake(ready(()), &stop, MIN_HEARTBEAT).await, Wake::Changed);
        assert_eq!(wake(pending(), &stop, MIN_HEARTBEAT).await, Wake::Stopping);
    }
}
