//! The process at the other end of a unix socket as a descriptor, for which no crate has a safe call.
#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use tokio::net::UnixStream;

/// The process that has made a connection. `None` where the kernel does not say: before Linux 6.5.
///
/// # Errors
/// When the process is gone.
pub(crate) fn peer_process(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut process: c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<c_int>()).map_err(io::Error::other)?;
    // SAFETY: both pointers are valid for the call, and the kernel writes at most `length` bytes, the size of `process`.
    let asked = unsafe {
        let (socket, level) = (stream.as_raw_fd(), libc::SOL_SOCKET);
        libc::getsockopt(socket, level, libc::SO_PEERPIDFD, (&raw mut process).cast(), &raw mut length)
    };
    if asked == 0 && process >= 0 {
        // SAFETY: the kernel has just made this descriptor for us and no other code knows it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(process) }));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) { Ok(None) } else { Err(error) }
}
