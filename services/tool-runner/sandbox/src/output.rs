//! Reading a command's output without letting it fill the memory or stop for a full pipe.

use std::{
    collections::VecDeque,
    io::{self, PipeReader, Read as _},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::running::{Outcome, Running};

/// How many bytes of a stream are kept.
#[derive(Clone, Copy, Debug)]
pub struct OutputCaps {
    /// Bytes kept of its beginning.
    pub head: usize,
    /// Bytes kept of its end, where errors are told.
    pub tail: usize,
}

impl Default for OutputCaps {
    /// 512 KiB of each end.
    fn default() -> Self {
        Self { head: 512 << 10, tail: 512 << 10 }
    }
}

/// What was kept of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Its beginning.
    pub head: Vec<u8>,
    /// Its end, as far as the head does not hold it.
    pub tail: VecDeque<u8>,
    /// All bytes the command wrote.
    pub total: u64,
}

impl Kept {
    /// Bytes that were dropped between head and tail.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// What was kept, as text. Bytes that are no UTF-8 become replacement characters.
    #[must_use]
    pub fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        String::from_utf8_lossy(&[&self.head, front, back].concat()).into_owned()
    }

    fn add(&mut self, bytes: &[u8], caps: OutputCaps) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(caps.head - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        self.tail.drain(..self.tail.len().saturating_sub(caps.tail));
    }
}

/// What was kept of both streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The standard output.
    pub stdout: Kept,
    /// The standard error.
    pub stderr: Kept,
}

impl Running {
    /// Reads both streams to their ends, keeping `caps` of each, and waits for the command.
    ///
    /// # Errors
    /// When a stream or the connection to the launcher cannot be read.
    pub fn collect(mut self, caps: OutputCaps) -> io::Result<(Outcome, Output)> {
        let mut output = Output::default();
        let mut open = [true; 2];
        while open != [false; 2] {
            for (n, stream) in ready(&[(&self.stdout, open[0]), (&self.stderr, open[1])])? {
                let mut buffer = [0; 64 << 10];
                let read = match (&*stream).read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                };
                open[n] = read > 0;
                let kept = if n == 0 { &mut output.stdout } else { &mut output.stderr };
                kept.add(&buffer[..read], caps);
            }
        }
        Ok((self.wait()?, output))
    }
}

/// Those of the open streams that have something to say, or have ended.
fn ready<'a>(streams: &[(&'a PipeReader, bool); 2]) -> io::Result<Vec<(usize, &'a PipeReader)>> {
    let open: Vec<_> = (0..).zip(streams).filter(|(_, (_, open))| *open).map(|(n, (stream, _))| (n, *stream)).collect();
    let mut fds: Vec<_> = open.iter().map(|(_, stream)| PollFd::new(*stream, PollFlags::IN)).collect();
    match poll(&mut fds, None) {
        Err(Errno::INTR) => Ok(Vec::new()),
        polled => {
            polled?;
            Ok(open.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|(stream, _)| *stream).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_both_ends_and_counts_the_rest() {
        let caps = OutputCaps { head: 4, tail: 3 };
        let mut kept = Kept::default();
        for piece in ["ab", "cdef", "ghij", "k"] {
            kept.add(piece.as_bytes(), caps);
        }
        assert_eq!((kept.text().as_str(), kept.total, kept.dropped()), ("abcdijk", 11, 4));
    }

    #[test]
    fn drops_nothing_of_what_fits() {
        let mut kept = Kept::default();
        kept.add(b"whole", OutputCaps { head: 3, tail: 3 });
        assert_eq!((kept.text().as_str(), kept.dropped()), ("whole", 0));
    }
}
