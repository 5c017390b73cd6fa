//! The request to stop a running call.

use std::time::Duration;

use tokio::sync::watch;

/// A request to a running call. A later request can only be a stronger one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// To continue.
    #[default]
    No,
    /// To end: its processes are asked to, and have a while for it.
    Gracefully,
    /// To be ended.
    AtOnce,
}

/// Tells a tool that its call is to end. A tool that has a [`crate::Tool::stop_grace`] then has so long for it.
#[derive(Clone, Debug)]
pub struct StopRequest(watch::Receiver<Stop>);

impl StopRequest {
    pub(crate) fn new(stop: watch::Receiver<Stop>) -> Self {
        Self(stop)
    }

    /// A request that never comes.
    #[must_use]
    pub fn never() -> Self {
        Self(watch::Sender::new(Stop::No).subscribe())
    }

    /// Returns once the call is asked to end. One that is to be ended at once is not asked: its future is dropped.
    pub async fn requested(&mut self) {
        if self.0.wait_for(|asked| *asked == Stop::Gracefully).await.is_err() {
            std::future::pending().await
        }
    }
}

/// Returns once this much is asked.
pub(crate) async fn at_least(stop: &mut watch::Receiver<Stop>, least: Stop) {
    if stop.wait_for(|asked| *asked >= least).await.is_err() {
        // The sender is gone, so no request can come.
        std::future::pending().await
    }
}

/// Returns once a call has to be over that was asked to stop: after this while, or at once.
pub(crate) async fn is_over(mut stop: watch::Receiver<Stop>, grace: Duration) {
    at_least(&mut stop, Stop::Gracefully).await;
    tokio::select! {
        () = at_least(&mut stop, Stop::AtOnce) => {}
        () = tokio::time::sleep(grace) => {}
    }
}
