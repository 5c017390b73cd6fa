//! Stops the process's clock, so that nothing depends on how fast the simulation runs.
//!
//! Belay takes its clock as an argument and turmoil drives tokio's, but libraries below them read the machine's: hyper for its `date` header, h2
//! for the age of a reset stream, turmoil for the current time outside a runtime. This crate defines libc's `clock_gettime`, which std calls;
//! [`crate::entropy`] explains why its definition takes precedence.
//!
//! Until [`stop`] is called, and always for processor time, the kernel's clock is used.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// The time of the stopped clock, in seconds since the Unix epoch (2026-01-01T00:00:00Z): the start of every simulation.
pub const EPOCH_SECONDS: u32 = 1_767_225_600;

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Stops the clock of this process, for good.
pub fn stop() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// libc's clock_gettime(2): [`EPOCH_SECONDS`], or the kernel's time while the clock runs.
///
/// # Safety
/// `time` must be valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    let is_time_of_day = matches!(
        clock,
        libc::CLOCK_REALTIME
            | libc::CLOCK_REALTIME_COARSE
            | libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
    );
    if STOPPED.load(Ordering::Relaxed) && is_time_of_day {
        // SAFETY: guaranteed by the caller.
        unsafe { time.write(libc::timespec { tv_sec: EPOCH_SECONDS.into(), tv_nsec: 0 }) };
        return 0;
    }
    // SAFETY: the system call with the caller's own arguments.
    let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    // The system call returns 0 or -1.
    if answer == 0 { 0 } else { -1 }
}
