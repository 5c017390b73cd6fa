//! Servers that can be stopped and started again at the same socket.

use std::{path::Path, thread::JoinHandle, time::Duration};

use belay_service_kit::{Access, HostedServices, Shutdown, host, net::UnixSocket};
use tokio::sync::{oneshot, watch};

/// The timeout of every wait, longer than anything takes on the slowest machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// A server on a runtime of its own: stopping it closes its connections at once.
pub(crate) struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    /// `callers` is the principal of all callers.
    pub(crate) async fn start(path: &Path, hosted: HostedServices, callers: Access) -> Self {
        let path = path.to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, listens) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = UnixSocket::bind(&path).unwrap().incoming();
                ready.send(()).unwrap();
                let (_trigger, shutdown) = Shutdown::new();
                let serving = host::serve(incoming, hosted, callers, shutdown);
                tokio::select! {
                    served = serving => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        listens.await.unwrap();
        Self { stop, thread }
    }

    pub(crate) fn stop(self) {
        // An error means that it has already stopped.
        let _ = self.stop.send(());
        self.thread.join().unwrap();
    }
}

/// Waits until the watched state meets a condition.
pub(crate) async fn eventually<T: Clone>(mut told: watch::Receiver<T>, what: &str, is: impl Fn(&T) -> bool) -> T {
    let waited = tokio::time::timeout(TIMEOUT, told.wait_for(|value| is(value))).await;
    waited.unwrap_or_else(|_| panic!("timed out waiting for {what}")).expect("the script outlives the test").clone()
}
