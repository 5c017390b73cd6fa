//! Graceful shutdown: streams end, no new request is accepted, and requests that do not finish in time are dropped.

use tokio::sync::watch;

/// Requests the shutdown.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Observes whether the shutdown was requested. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// A new pair.
    pub fn new() -> (Trigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (Trigger(sender), Self(receiver))
    }

    /// Returns when the trigger is pulled or dropped.
    pub async fn requested(&self) {
        // An error means that the trigger was dropped.
        drop(self.0.clone().wait_for(|stop| *stop).await);
    }

    /// Whether the shutdown is requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl Trigger {
    /// Pulls the trigger.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

/// Returns the number of the first SIGINT or SIGTERM.
///
/// # Errors
/// When the operating system refuses the handlers.
pub async fn signal() -> std::io::Result<i32> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        biased;
        _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
        _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
    })
}
