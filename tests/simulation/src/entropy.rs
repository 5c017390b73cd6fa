//! Makes the process's randomness a function of the seed.
//!
//! This crate defines libc's `getrandom` and `getentropy`. A definition in the executable comes before the one in libc, for
//! callers that link to the symbol and for those that look it up with `dlsym` alike. That covers std (the keys of every
//! `HashMap`, and through them tokio's `select!` and scheduling seeds), the `getrandom` crate 0.3 and 0.4 (`dlsym`) and what
//! stands on them, such as `rand::rng()`; SQLite asks [`crate::vfs`], which asks here. It does not cover the `getrandom`
//! crate 0.2, which makes the system call itself, nor generators that read the clock or addresses.
//!
//! Until [`seed`] is called, the kernel's randomness is used.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// The most `getentropy` hands out in one call, in bytes (getentropy(3)).
const GETENTROPY_MAX: usize = 256;

static GENERATOR: Mutex<Option<SmallRng>> = Mutex::new(None);

fn generator() -> MutexGuard<'static, Option<SmallRng>> {
    // A generator has no state that a panic could leave half-changed.
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on all randomness of this process is a function of `seed`.
///
/// A thread that already has a `HashMap` keeps its keys: start the simulation in a new thread after this call.
pub fn seed(seed: u64) {
    *generator() = Some(SmallRng::seed_from_u64(seed));
}

/// Fills `bytes` from the same generator as `getrandom`.
pub fn fill(bytes: &mut [u8]) {
    ::getrandom::fill(bytes).expect("getrandom without flags fails only for a bad address");
}

/// Whether `dlsym` finds this crate's `getrandom`.
pub fn is_interposed() -> bool {
    // SAFETY: the name is a C string, and the address that comes back is compared, never called.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getrandom".as_ptr()) };
    std::ptr::eq(found, getrandom as *const c_void)
}

/// Writes `length` bytes to `buffer` if there is a seed; returns whether it did.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
unsafe fn fill_raw(buffer: *mut u8, length: usize) -> bool {
    let mut generator = generator();
    let Some(random) = generator.as_mut() else { return false };
    let mut chunk = [0; 64];
    for start in (0..length).step_by(chunk.len()) {
        let size = chunk.len().min(length - start);
        random.fill_bytes(&mut chunk[..size]);
        // SAFETY: start + size <= length, and a caller's buffer is not this stack array.
        unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), buffer.add(start), size) };
    }
    true
}

/// libc's getrandom(2): the seed's bytes, or the kernel's while there is no seed.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    // SAFETY: the caller's promise is the one that is asked for.
    if unsafe { fill_raw(buffer.cast(), length) } {
        return length.try_into().expect("no allocation is larger than isize::MAX");
    }
    // SAFETY: the system call with the caller's own arguments.
    let written = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
    written as isize
}

/// libc's getentropy(3): the seed's bytes, or the kernel's while there is no seed.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getentropy(buffer: *mut c_void, length: usize) -> c_int {
    if length > GETENTROPY_MAX {
        // SAFETY: errno of this thread is always writable.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    // SAFETY: the caller's promise is the one that is asked for; up to 256 bytes come whole (getrandom(2)).
    match unsafe { getrandom(buffer, length, 0) } {
        written if written == length as isize => 0,
        _ => -1,
    }
}
