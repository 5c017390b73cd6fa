//! Blocking work that ends early once its call is cancelled or its time is up.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use belay_sqlite::Lane;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{cancel_requested, work::StopCause};
use crate::stop::Stop;

/// Runs work that polls its argument, which returns true once the call is cancelled or its time is up. Returns when the work has ended, also with why it was
/// asked to; it may have been done all the same.
pub(super) async fn until_stopped<T: Send + 'static>(
    lane: &Lane,
    work: impl FnOnce(belay_workspace::Stop<'_>) -> T + Send + 'static,
    cancelled: &mut watch::Receiver<Stop>,
    deadline: Instant,
) -> (T, Option<StopCause>) {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let mut working = pin!(lane.run(move || work(&|| asked.load(Ordering::Relaxed))));
    let why = tokio::select! {
        biased;
        done = &mut working => return (done, None),
        () = cancel_requested(cancelled) => StopCause::Cancelled,
        () = sleep_until(deadline) => StopCause::TimedOut,
    };
    stop.store(true, Ordering::Relaxed);
    (working.await, Some(why))
}
