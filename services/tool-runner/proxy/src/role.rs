//! The role in which this binary was executed.

use std::sync::atomic::{AtomicBool, Ordering};

/// The `argv[0]` of the proxy. Its standard input is the connection to the runner; its arguments are the user and the group that it becomes.
pub(crate) const PROXY: &str = "belay-network-proxy";

static IS_RUNNER: AtomicBool = AtomicBool::new(false);

/// Records that `main` has asked for the role, and that it is that of a runner.
pub(crate) fn is_runner() {
    IS_RUNNER.store(true, Ordering::Release);
}

/// Whether this program can be executed as the proxy.
pub(crate) fn can_start() -> bool {
    IS_RUNNER.load(Ordering::Acquire)
}
