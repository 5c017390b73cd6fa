//! Detects that this binary was executed again as the proxy.

use std::env;

use crate::{
    process,
    role::{self, PROXY},
};

/// Runs the proxy and does not return, if this process was executed as one.
///
/// Must be among the first calls of `main`, before any thread is started or descriptor opened. A program without this call cannot start a proxy: executing it
/// again would run the whole program.
pub fn take_over_if_asked() {
    let mut args = env::args_os();
    if args.next().is_some_and(|name| name == PROXY) {
        std::process::exit(process::run(args));
    }
    role::is_runner();
}
