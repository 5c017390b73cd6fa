//! The role in which this binary was executed.

use std::sync::atomic::{AtomicBool, Ordering};

/// The `argv[0]` of the fork server, and of the launchers that it forks. Its standard input is the connection to the runner.
pub(crate) const LAUNCHER: &str = "belay-sandbox-launcher";

static IS_RUNNER: AtomicBool = AtomicBool::new(false);

/// Records that `main` has asked for the role, and that it is that of a runner.
pub(crate) fn is_runner() {
    IS_RUNNER.store(true, Ordering::Release);
}

/// Whether this program can be executed to fork launchers.
pub(crate) fn can_launch() -> bool {
    IS_RUNNER.load(Ordering::Acquire)
}
