//! System calls without a safe wrapper in a crate.
#![allow(unsafe_code)]

use std::io;

/// Closes every descriptor beyond the standard ones: those that the runner's own parent left open.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: takes three integers. It is called before anything in this process has opened a descriptor, so nothing owns those that are closed.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ignores the signals that end a group of services: the proxy ends with its runner, whose commands may still use their network while it stops.
pub(crate) fn ignore_requests_to_end() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: takes two integers, and no handler is installed. It cannot fail for these signals.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
