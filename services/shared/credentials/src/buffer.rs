//! Memory for a value that is being read.

use std::{io, os::fd::AsFd};

use belay_network::MAX_SECRET;
use rustix::io::Errno;
use zeroize::Zeroizing;

/// The most bytes that a source may have: a value, and blanks around it.
pub(crate) const MAX_READ: usize = MAX_SECRET + 1024;

/// A buffer of a fixed length. It is never moved in memory, which would leave a copy, and is overwritten when it is dropped.
pub(crate) struct Buffer {
    bytes: Zeroizing<Vec<u8>>,
    filled: usize,
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOnce {
    /// There were bytes.
    Bytes,
    /// There are none now.
    NothingYet,
    /// There are no more.
    End,
    /// The buffer is full.
    Full,
}

impl Buffer {
    /// A buffer for a value, and for one byte more, which shows that it is too long.
    pub(crate) fn of_value() -> Self {
        Self::new(MAX_READ + 1)
    }

    /// A buffer for this many bytes.
    pub(crate) fn new(length: usize) -> Self {
        Self { bytes: Zeroizing::new(vec![0; length]), filled: 0 }
    }

    /// Reads once.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn read_once(&mut self, from: impl AsFd) -> io::Result<ReadOnce> {
        if self.filled == self.bytes.len() {
            return Ok(ReadOnce::Full);
        }
        loop {
            match rustix::io::read(from.as_fd(), &mut self.bytes[self.filled..]) {
                Ok(0) => return Ok(ReadOnce::End),
                Ok(count) => {
                    self.filled += count;
                    return Ok(ReadOnce::Bytes);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(ReadOnce::NothingYet),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The bytes that were read, in the same memory.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut *self.bytes);
        bytes.truncate(self.filled);
        bytes
    }
}
