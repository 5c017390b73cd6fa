//! How this binary, executed again, knows that it is to be the launcher.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{attacks, monitor, order::ATTACKS, sys};

/// The name (`argv[0]`) under which the binary is the launcher. Its standard input is the connection to the runner then.
pub(crate) const LAUNCHER: &str = "belay-sandbox-launcher";

static CALLED: AtomicBool = AtomicBool::new(false);

/// Makes this process the launcher if it was executed to be that, and does not come back then.
///
/// Has to be the first call of `main`, before any thread is started or any descriptor opened. Nothing can be launched from a program
/// that did not call it: executing that again would just be the whole program again.
pub fn take_over_if_asked() {
    let mut args = env::args_os();
    match args.next().as_deref().and_then(|name| name.to_str()) {
        Some(LAUNCHER) => sys::exit(monitor::serve()),
        // The self-test's command, inside of the sandbox: there it is executed from this path.
        Some(ATTACKS) => sys::exit(attacks::run(args)),
        _ => CALLED.store(true, Ordering::Release),
    }
}

/// Whether executing this program again gives a launcher.
pub(crate) fn ready() -> bool {
    CALLED.load(Ordering::Acquire)
}
