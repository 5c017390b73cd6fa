//! Detects that this binary was executed again, to fork launchers.

use std::env;

use crate::{
    attacks, fork_server,
    protocol::ATTACKS,
    role::{self, LAUNCHER},
    sys,
};

/// Forks launchers and does not return, if this process was executed for that.
///
/// Must be the first call of `main`, before any thread is started or descriptor opened. A program without this call cannot launch commands:
/// executing it again would run the whole program.
pub fn take_over_if_asked() {
    let mut args = env::args_os();
    match args.next().as_deref().and_then(|name| name.to_str()) {
        Some(LAUNCHER) => sys::exit(fork_server::serve()),
        // The command of the self-test: in the sandbox it is executed from this path.
        Some(ATTACKS) => sys::exit(attacks::run(args)),
        _ => role::is_runner(),
    }
}
