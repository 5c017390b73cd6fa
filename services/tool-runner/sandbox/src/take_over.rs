//! Detects that this binary was executed again as the launcher.

use std::env;

use crate::{
    attacks, monitor,
    protocol::ATTACKS,
    role::{self, LAUNCHER},
    sys,
};

/// Runs the launcher and does not return, if this process was executed as one.
///
/// Must be the first call of `main`, before any thread is started or descriptor opened. A program without this call cannot launch commands:
/// executing it again would run the whole program.
pub fn take_over_if_asked() {
    let mut args = env::args_os();
    match args.next().as_deref().and_then(|name| name.to_str()) {
        Some(LAUNCHER) => {
            belay_defects::take_over(args.next().as_deref().and_then(|defect| defect.to_str()));
            sys::exit(monitor::serve())
        }
        // The command of the self-test: in the sandbox it is executed from this path.
        Some(ATTACKS) => sys::exit(attacks::run(args)),
        _ => role::is_runner(),
    }
}
