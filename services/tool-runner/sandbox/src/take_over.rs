//! Detects that this binary was executed again as the launcher.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{attacks, monitor, protocol::ATTACKS, sys};

/// The `argv[0]` of the launcher. Its standard input is the connection to the runner.
pub(crate) const LAUNCHER: &str = "belay-sandbox-launcher";

static CALLED: AtomicBool = AtomicBool::new(false);

/// Runs the launcher and does not return, if this process was executed as one.
///
/// Must be the first call of `main`, before any thread is started or descriptor opened. A program without this call cannot launch commands:
/// executing it again would run the whole program.
pub fn take_over_if_asked() {
    let mut args = env::args_os();
    match args.next().as_deref().and_then(|name| name.to_str()) {
        Some(LAUNCHER) => sys::exit(monitor::serve()),
        // The command of the self-test: in the sandbox it is executed from this path.
        Some(ATTACKS) => sys::exit(attacks::run(args)),
        _ => CALLED.store(true, Ordering::Release),
    }
}

/// Whether this program can be executed as the launcher.
pub(crate) fn ready() -> bool {
    CALLED.load(Ordering::Acquire)
}
