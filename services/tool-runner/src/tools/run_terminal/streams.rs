//! What a command says: handed on while it says it, and kept as far as it fits.

use std::io::{self, ErrorKind, PipeReader, Read as _};

use belay_proto::v1::tool_call_output::Stream;
use belay_sandbox::{Kept, Output as Both, OutputCaps};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::Output;

/// How much is read at a time, in bytes.
const PIECE: usize = 64 << 10;

/// Reads both streams to their ends. Nothing a command says makes it wait, or takes more memory than the caps of [`OutputCaps`].
pub(super) fn relay(stdout: Option<PipeReader>, stderr: Option<PipeReader>, output: &dyn Output) -> io::Result<Both> {
    let mut both = Both::default();
    let mut open: Vec<(PipeReader, Stream, &mut Kept)> = Vec::new();
    open.extend(stdout.map(|pipe| (pipe, Stream::Stdout, &mut both.stdout)));
    open.extend(stderr.map(|pipe| (pipe, Stream::Stderr, &mut both.stderr)));
    let mut piece = vec![0; PIECE];
    while !open.is_empty() {
        for n in ready(&open)?.into_iter().rev() {
            let (pipe, stream, kept) = &mut open[n];
            match pipe.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(0) => drop(open.remove(n)),
                Ok(read) => {
                    output.write(*stream, &piece[..read]);
                    keep(kept, &piece[..read], OutputCaps::default());
                }
            }
        }
    }
    Ok(both)
}

/// Which of the streams have something to say, or have ended.
fn ready(open: &[(PipeReader, Stream, &mut Kept)]) -> io::Result<Vec<usize>> {
    let mut fds: Vec<_> = open.iter().map(|(pipe, ..)| PollFd::new(pipe, PollFlags::IN)).collect();
    match poll(&mut fds, None) {
        Err(Errno::INTR) => Ok(Vec::new()),
        polled => {
            polled?;
            Ok((0..fds.len()).filter(|n| !fds[*n].revents().is_empty()).collect())
        }
    }
}

/// Keeps the beginning and the end of a stream.
fn keep(kept: &mut Kept, bytes: &[u8], caps: OutputCaps) {
    kept.total += bytes.len() as u64;
    let (head, rest) = bytes.split_at(bytes.len().min(caps.head - kept.head.len()));
    kept.head.extend_from_slice(head);
    kept.tail.extend(rest);
    kept.tail.drain(..kept.tail.len().saturating_sub(caps.tail));
}

/// What was kept, as text, with a line that says how much is missing where something is.
pub(super) fn text(kept: &Kept) -> String {
    let tail: Vec<u8> = kept.tail.iter().copied().collect();
    if kept.dropped() == 0 {
        return String::from_utf8_lossy(&[kept.head.as_slice(), &tail].concat()).into_owned();
    }
    let (head, tail) = (String::from_utf8_lossy(&kept.head), String::from_utf8_lossy(&tail));
    format!("{head}\n[{} bytes left out]\n{tail}", kept.dropped())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_kept_and_the_gap_is_named() {
        let caps = OutputCaps { head: 4, tail: 3 };
        let mut kept = Kept::default();
        keep(&mut kept, b"abc", caps);
        keep(&mut kept, b"def", caps);
        assert_eq!(text(&kept), "abcdef");
        keep(&mut kept, b"ghij", caps);
        assert_eq!((text(&kept).as_str(), kept.total), ("abcd\n[3 bytes left out]\nhij", 10));
        keep(&mut kept, &[b'x'; 99], caps);
        assert_eq!(text(&kept), "abcd\n[102 bytes left out]\nxxx");
    }

    #[test]
    fn a_character_that_two_pieces_share_stays_whole() {
        let mut kept = Kept::default();
        keep(&mut kept, &[0xc3], OutputCaps { head: 1, tail: 9 });
        keep(&mut kept, &[0xa9], OutputCaps { head: 1, tail: 9 });
        assert_eq!(text(&kept), "é");
    }
}
