//! Reads the output of a command with bounded memory and without blocking the command.

use std::{
    collections::VecDeque,
    io::{self, PipeReader, Read as _},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::running::{Outcome, RunningCommand};

/// The limits of kept output.
#[derive(Clone, Copy, Debug)]
pub struct OutputCaps {
    /// Bytes kept of the beginning of a stream.
    pub head: usize,
    /// Bytes kept of its end, where error messages are.
    pub tail: usize,
}

impl Default for OutputCaps {
    /// 512 KiB of each end.
    fn default() -> Self {
        Self { head: 512 << 10, tail: 512 << 10 }
    }
}

/// The kept output of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedOutput {
    /// Its beginning.
    pub head: Vec<u8>,
    /// Its end, beyond the head.
    pub tail: VecDeque<u8>,
    /// All bytes the command wrote.
    pub total: u64,
}

impl RetainedOutput {
    /// Bytes that were dropped between head and tail.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// The kept output as text. Invalid UTF-8 becomes replacement characters.
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

/// The kept output of both streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The standard output.
    pub stdout: RetainedOutput,
    /// The standard error.
    pub stderr: RetainedOutput,
}

impl RunningCommand {
    /// Reads the remaining streams to their ends, keeping `caps` of each, and waits for the command. [`RunningCommand::tear_down`] waits for
    /// its launcher.
    ///
    /// # Errors
    /// When a stream or the connection to the launcher cannot be read.
    pub fn collect(&mut self, caps: OutputCaps) -> io::Result<(Outcome, Output)> {
        let mut output = Output::default();
        let mut open: Vec<(PipeReader, &mut RetainedOutput)> = Vec::new();
        open.extend(self.stdout.take().map(|stream| (stream, &mut output.stdout)));
        open.extend(self.stderr.take().map(|stream| (stream, &mut output.stderr)));
        let mut buffer = vec![0; 64 << 10];
        while !open.is_empty() {
            for n in ready(&open)?.into_iter().rev() {
                let (stream, kept) = &mut open[n];
                match stream.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                    Ok(0) => drop(open.remove(n)),
                    Ok(read) => kept.add(&buffer[..read], caps),
                }
            }
        }
        Ok((self.wait()?, output))
    }
}

/// The streams that are readable or have ended.
fn ready(streams: &[(PipeReader, &mut RetainedOutput)]) -> io::Result<Vec<usize>> {
    let mut fds: Vec<_> = streams.iter().map(|(stream, _)| PollFd::new(stream, PollFlags::IN)).collect();
    match poll(&mut fds, None) {
        Err(Errno::INTR) => Ok(Vec::new()),
        polled => {
            polled?;
            Ok((0..fds.len()).filter(|n| !fds[*n].revents().is_empty()).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_both_ends_and_counts_the_rest() {
        let caps = OutputCaps { head: 4, tail: 3 };
        let mut kept = RetainedOutput::default();
        for piece in ["ab", "cdef", "ghij", "k"] {
            kept.add(piece.as_bytes(), caps);
        }
        assert_eq!((kept.text().as_str(), kept.total, kept.dropped()), ("abcdijk", 11, 4));
    }

    #[test]
    fn drops_nothing_within_the_limits() {
        let mut kept = RetainedOutput::default();
        kept.add(b"whole", OutputCaps { head: 3, tail: 3 });
        assert_eq!((kept.text().as_str(), kept.dropped()), ("whole", 0));
    }
}
