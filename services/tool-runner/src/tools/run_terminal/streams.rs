//! The output of a command: forwarded while it runs, and kept up to a limit.

use std::io::{self, ErrorKind, PipeReader};

use belay_proto::v1::tool_call_output::Stream;
use belay_sandbox::{Output as CommandOutput, OutputCaps, RetainedOutput};
use tokio::net::unix::pipe::Receiver;

use crate::Output;

/// How many bytes are read at a time.
const READ_BYTES: usize = 16 << 10;

/// Reads both streams to their ends. Output never blocks the command, nor uses more memory than [`OutputCaps`] allows.
pub(super) async fn relay(
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    output: &dyn Output,
) -> io::Result<CommandOutput> {
    let mut both = CommandOutput::default();
    tokio::try_join!(
        follow(stdout, Stream::Stdout, &mut both.stdout, output),
        follow(stderr, Stream::Stderr, &mut both.stderr, output),
    )?;
    Ok(both)
}

/// Reads one stream to its end.
async fn follow(
    pipe: Option<PipeReader>,
    stream: Stream,
    kept: &mut RetainedOutput,
    output: &dyn Output,
) -> io::Result<()> {
    let Some(pipe) = pipe else { return Ok(()) };
    let pipe = Receiver::from_owned_fd(pipe.into())?;
    loop {
        pipe.readable().await?;
        match read(&pipe, stream, kept, output) {
            Ok(0) => return Ok(()),
            // A stream that is always ready yields to other tasks.
            Ok(_) => tokio::task::yield_now().await,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads once. The buffer is on the stack, so a silent command needs none.
fn read(pipe: &Receiver, stream: Stream, kept: &mut RetainedOutput, output: &dyn Output) -> io::Result<usize> {
    let mut piece = [0; READ_BYTES];
    let read = pipe.try_read(&mut piece)?;
    if read > 0 {
        output.write(stream, &piece[..read]);
        keep(kept, &piece[..read], OutputCaps::default());
    }
    Ok(read)
}

/// Keeps the beginning and the end of a stream.
fn keep(kept: &mut RetainedOutput, bytes: &[u8], caps: OutputCaps) {
    kept.total += bytes.len() as u64;
    let (head, rest) = bytes.split_at(bytes.len().min(caps.head - kept.head.len()));
    kept.head.extend_from_slice(head);
    kept.tail.extend(rest);
    kept.tail.drain(..kept.tail.len().saturating_sub(caps.tail));
}

/// The kept output as text, with a line that says how many bytes are missing, if any.
pub(crate) fn text(kept: &RetainedOutput) -> String {
    let tail: Vec<u8> = kept.tail.iter().copied().collect();
    if kept.dropped() == 0 {
        return String::from_utf8_lossy(&[kept.head.as_slice(), &tail].concat()).into_owned();
    }
    let (head, tail) = (String::from_utf8_lossy(&kept.head), String::from_utf8_lossy(&tail));
    format!("{head}\n[{} bytes left out]\n{tail}", kept.dropped())
}

/// Whether [`text`] has something else in place of bytes that are not UTF-8. Where the middle is missing, a character that was cut there is one of these.
pub(super) fn is_lossy(kept: &RetainedOutput) -> bool {
    let tail: Vec<u8> = kept.tail.iter().copied().collect();
    match kept.dropped() {
        0 => std::str::from_utf8(&[kept.head.as_slice(), &tail].concat()).is_err(),
        _ => std::str::from_utf8(&kept.head).is_err() || std::str::from_utf8(&tail).is_err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_kept_and_the_gap_is_reported() {
        let caps = OutputCaps { head: 4, tail: 3 };
        let mut kept = RetainedOutput::default();
        keep(&mut kept, b"abc", caps);
        keep(&mut kept, b"def", caps);
        assert_eq!(text(&kept), "abcdef");
        keep(&mut kept, b"ghij", caps);
        assert_eq!((text(&kept).as_str(), kept.total), ("abcd\n[3 bytes left out]\nhij", 10));
        keep(&mut kept, &[b'x'; 99], caps);
        assert_eq!(text(&kept), "abcd\n[102 bytes left out]\nxxx");
    }

    #[test]
    fn a_character_split_across_reads_stays_whole() {
        let mut kept = RetainedOutput::default();
        keep(&mut kept, &[0xc3], OutputCaps { head: 1, tail: 9 });
        keep(&mut kept, &[0xa9], OutputCaps { head: 1, tail: 9 });
        assert_eq!(text(&kept), "é");
    }
}
