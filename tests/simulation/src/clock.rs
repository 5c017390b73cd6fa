//! The process's clock, stopped, so that nothing depends on how fast the simulation runs.
//!
//! Belay is handed its clock and turmoil drives tokio's, but libraries beneath them read the machine's: hyper for its `date`
//! header, h2 for the age of a reset stream, turmoil for the present when no runtime is entered. This crate defines libc's
//! `clock_gettime`, which std calls; see [`crate::entropy`] for why its definition is the one that counts.
//!
//! Until [`stop`] is called the kernel answers as ever, and of processor time it always does.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// When the clock stands still, in seconds since the Unix epoch (2026-01-01T00:00:00Z): the start of every simulation.
pub const EPOCH_SECONDS: u32 = 1_767_225_600;

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Stops the clock of this process, for good.
pub fn stop() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// libc's clock_gettime(2): [`EPOCH_SECONDS`], or the kernel's answer while the clock runs.
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
        // SAFETY: the caller's promise.
        unsafe { time.write(libc::timespec { tv_sec: EPOCH_SECONDS.into(), tv_nsec: 0 }) };
        return 0;
    }
    // SAFETY: the system call with the caller's own arguments.
    let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    // The system call answers 0 or -1.
    if answer == 0 { 0 } else { -1 }
}
