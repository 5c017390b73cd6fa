//! Work that a signal ends.

use std::future::Future;

use crate::{failure::Failure, signals::Signals};

/// Returns the work's outcome, or a quiet failure after a signal.
pub(crate) async fn unless_stopped<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        stop = signals.next() => Err(Failure::Quiet(stop.exit())),
        done = work => Ok(done),
    }
}
