//! Makes the `:authority` of requests on a unix socket one that the HTTP/2 implementation accepts.
//!
//! gRPC's C core (Python, Ruby, PHP, C++) sends a socket's percent-encoded path as `:authority`, grpc-java the path itself. Neither is an
//! authority by RFC 3986, so `h2` resets the stream with PROTOCOL_ERROR before any service sees the request
//! (<https://github.com/hyperium/h2/pull/487> has been open for years). On a unix socket the value means nothing, so the bytes that are
//! not allowed in it are replaced in position, one for one: no length changes, and the header table of the connection stays what both sides
//! expect. A value in Huffman code is left as it is: its bytes are not characters, and no known client encodes a path that way.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tonic::transport::server::Connected;

use crate::peer::Peer;

/// A connection on a unix socket whose requests have an acceptable `:authority`.
#[derive(Debug)]
pub struct NormalizedStream {
    stream: UnixStream,
    normalizer: Normalizer,
    peer: Peer,
}

impl NormalizedStream {
    /// Wraps a connection that has just been accepted.
    pub fn new(stream: UnixStream) -> Self {
        Self { peer: Peer::of(&stream), stream, normalizer: Normalizer::default() }
    }
}

impl Connected for NormalizedStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for NormalizedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let this = &mut *self;
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        if matches!(polled, Poll::Ready(Ok(()))) {
            this.normalizer.pass(&mut buf.filled_mut()[before..]);
        }
        polled
    }
}

impl AsyncWrite for NormalizedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The client's connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Frame types and flags (RFC 9113, section 6).
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// `:authority` in HPACK's static table (RFC 7541, appendix A).
const AUTHORITY_INDEX: u64 = 1;
const AUTHORITY: &[u8] = b":authority";

/// Follows a client's bytes from the first on, in pieces of any size, and replaces what an authority must not contain.
#[derive(Debug, Default)]
struct Normalizer {
    position: Position,
    /// The header block that is being read; it may continue in CONTINUATION frames.
    block: Block,
}

#[derive(Debug)]
enum Position {
    /// So many bytes of the preface have been seen.
    Preface(usize),
    /// In a frame's header.
    Header { bytes: [u8; 9], filled: usize },
    /// Before a header block: whether the length of the padding comes first, how many bytes of priority follow, how many bytes are left
    /// up to the padding, and how many of padding.
    Before { padded: bool, priority: usize, left: usize, padding: usize },
    /// In a header block of so many bytes, with so much padding behind it.
    Fragment { left: usize, padding: usize },
    /// In bytes that need no change.
    Skip(usize),
    /// Not HTTP/2: everything passes as it is.
    Other,
}

impl Default for Position {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl Position {
    const FRAME: Self = Self::Header { bytes: [0; 9], filled: 0 };

    fn skip(left: usize) -> Self {
        if left == 0 { Self::FRAME } else { Self::Skip(left) }
    }

    fn fragment(left: usize, padding: usize) -> Self {
        if left == 0 { Self::skip(padding) } else { Self::Fragment { left, padding } }
    }

    fn before(padded: bool, priority: usize, left: usize, padding: usize) -> Self {
        match (padded, priority.min(left)) {
            (false, 0) => Self::fragment(left, padding),
            (_, priority) => Self::Before { padded, priority, left, padding },
        }
    }
}

impl Normalizer {
    fn pass(&mut self, mut bytes: &mut [u8]) {
        while let Some(&first) = bytes.first() {
            let taken = match &mut self.position {
                Position::Other => return,
                Position::Preface(seen) => {
                    if first != PREFACE[*seen] {
                        self.position = Position::Other;
                        return;
                    }
                    *seen += 1;
                    if *seen == PREFACE.len() {
                        self.position = Position::FRAME;
                    }
                    1
                }
                Position::Header { bytes: header, filled } => {
                    header[*filled] = first;
                    *filled += 1;
                    if *filled == header.len() {
                        let header = *header;
                        self.begin_frame(header);
                    }
                    1
                }
                Position::Before { padded, priority, left, padding } => {
                    let (padded, priority, left, padding) = (*padded, *priority, *left - 1, *padding);
                    self.position = if padded {
                        let padding = usize::from(first).min(left);
                        Position::before(false, priority, left - padding, padding)
                    } else {
                        Position::before(false, priority - 1, left, padding)
                    };
                    1
                }
                Position::Fragment { left, padding } => {
                    let (now, padding) = ((*left).min(bytes.len()), *padding);
                    let left = *left - now;
                    self.block.pass(&mut bytes[..now]);
                    self.position =
                        if left == 0 { Position::skip(padding) } else { Position::Fragment { left, padding } };
                    now
                }
                Position::Skip(left) => {
                    let now = (*left).min(bytes.len());
                    let left = *left - now;
                    self.position = Position::skip(left);
                    now
                }
            };
            bytes = &mut bytes[taken..];
        }
    }

    fn begin_frame(&mut self, header: [u8; 9]) {
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let flags = header[4];
        self.position = match header[3] {
            HEADERS => {
                self.block = Block::default();
                let priority = if flags & PRIORITY == 0 { 0 } else { 5 };
                Position::before(flags & PADDED != 0 && length > 0, priority, length, 0)
            }
            CONTINUATION => Position::fragment(length, 0),
            _ => Position::skip(length),
        };
    }
}

/// Follows the representations of a header block (RFC 7541, section 6), in pieces of any size.
#[derive(Debug, Default)]
enum Block {
    /// Before a representation.
    #[default]
    Start,
    /// In the rest of an integer: its use, and the part of its value read so far.
    Integer { what: IntegerUse, value: u64, shift: u32 },
    /// Before the length of a name that is spelt out.
    NameLength,
    /// In a name: how much is left, how much of `:authority` it has matched, and whether it can still be that.
    Name { left: u64, matched: usize, matches: bool },
    /// Before the length of a value.
    ValueLength { authority: bool },
    /// In a value.
    Value { left: u64, rewrite: bool },
    /// Not HPACK: the rest of the block passes as it is.
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum IntegerUse {
    /// Not needed: an indexed header, or a new size of the table.
    Skip,
    /// The index of a name.
    NameIndex,
    NameLength {
        huffman: bool,
    },
    ValueLength {
        authority: bool,
        huffman: bool,
    },
}

impl Block {
    fn pass(&mut self, mut bytes: &mut [u8]) {
        while let Some(&first) = bytes.first() {
            let taken = match *self {
                Self::Lost => return,
                Self::Start => {
                    *self = match first {
                        0x80.. => Self::integer(IntegerUse::Skip, first, 7),
                        0x40..=0x7f => Self::integer(IntegerUse::NameIndex, first, 6),
                        0x20..=0x3f => Self::integer(IntegerUse::Skip, first, 5),
                        0x00..=0x1f => Self::integer(IntegerUse::NameIndex, first, 4),
                    };
                    1
                }
                Self::Integer { what, value, shift } => {
                    // 2⁵⁶ is more than any length: what goes on beyond it is not an integer.
                    if shift > 49 {
                        *self = Self::Lost;
                        return;
                    }
                    let value = value + (u64::from(first & 0x7f) << shift);
                    *self = if first & 0x80 == 0 {
                        Self::after(what, value)
                    } else {
                        Self::Integer { what, value, shift: shift + 7 }
                    };
                    1
                }
                Self::NameLength => {
                    *self = Self::integer(IntegerUse::NameLength { huffman: first & 0x80 != 0 }, first, 7);
                    1
                }
                Self::ValueLength { authority } => {
                    *self = Self::integer(IntegerUse::ValueLength { authority, huffman: first & 0x80 != 0 }, first, 7);
                    1
                }
                Self::Name { left, matched, matches } => {
                    let matches = matches && AUTHORITY.get(matched) == Some(&first);
                    *self = match left - 1 {
                        0 => Self::ValueLength { authority: matches && matched + 1 == AUTHORITY.len() },
                        left => Self::Name { left, matched: matched + 1, matches },
                    };
                    1
                }
                Self::Value { left, rewrite } => {
                    let now = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    if rewrite {
                        bytes[..now].iter_mut().filter(|byte| !is_allowed(**byte)).for_each(|byte| *byte = b'-');
                    }
                    let left = left - now as u64;
                    *self = if left == 0 { Self::Start } else { Self::Value { left, rewrite } };
                    now
                }
            };
            bytes = &mut bytes[taken..];
        }
    }

    /// An integer that begins in the low bits of a byte (RFC 7541, section 5.1).
    fn integer(what: IntegerUse, first: u8, prefix: u32) -> Self {
        let most = (1_u8 << (prefix - 1)) | ((1_u8 << (prefix - 1)) - 1);
        match first & most {
            value if value == most => Self::Integer { what, value: u64::from(most), shift: 0 },
            value => Self::after(what, u64::from(value)),
        }
    }

    fn after(what: IntegerUse, value: u64) -> Self {
        match (what, value) {
            (IntegerUse::Skip, _) => Self::Start,
            (IntegerUse::NameIndex, 0) => Self::NameLength,
            (IntegerUse::NameIndex, index) => Self::ValueLength { authority: index == AUTHORITY_INDEX },
            (IntegerUse::NameLength { .. }, 0) => Self::ValueLength { authority: false },
            (IntegerUse::NameLength { huffman }, left) => Self::Name { left, matched: 0, matches: !huffman },
            (IntegerUse::ValueLength { .. }, 0) => Self::Start,
            (IntegerUse::ValueLength { authority, huffman }, left) => {
                Self::Value { left, rewrite: authority && !huffman }
            }
        }
    }
}

/// Whether a byte may stand in `host:port`, names and addresses alike.
fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.extend(payload);
        frame
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE.to_vec(), frames.concat()].concat()
    }

    /// `:authority` by its index in the static table, with incremental indexing, as the C core writes it.
    fn authority(value: &str) -> Vec<u8> {
        let mut bytes = vec![0x41];
        match u8::try_from(value.len()) {
            Ok(length @ 0..127) => bytes.push(length),
            _ => bytes.extend([0x7f, u8::try_from(value.len() - 127).unwrap()]),
        }
        bytes.extend(value.as_bytes());
        bytes
    }

    /// The same bytes whatever the pieces in which they come.
    fn passed(bytes: &[u8]) -> Vec<u8> {
        let whole = {
            let mut bytes = bytes.to_vec();
            Normalizer::default().pass(&mut bytes);
            bytes
        };
        for size in [1, 2, 3, 7, 10] {
            let (mut pieces, mut normalizer) = (bytes.to_vec(), Normalizer::default());
            pieces.chunks_mut(size).for_each(|piece| normalizer.pass(piece));
            assert_eq!(pieces, whole, "in pieces of {size}");
        }
        whole
    }

    #[test]
    fn a_path_becomes_a_name_of_the_same_length() {
        let long = format!("%2Fvar%2F{}", "x".repeat(140));
        for (sent, seen) in [
            ("%2Ftmp%2Fs%20x.sock", "-2Ftmp-2Fs-20x.sock"),
            ("/run/belay.sock", "-run-belay.sock"),
            (&long, &long.replace('%', "-")),
            ("localhost", "localhost"),
            ("[::1]:7777", "[::1]:7777"),
        ] {
            let header = |value: &str| {
                // Indexed fields around it, and a value of another header that looks the same.
                let mut block = vec![0x83, 0x86];
                block.extend(authority(value));
                block.extend([0x04, 0x03]);
                block.extend(b"/%2");
                connection(&[frame(4, 0, &[]), frame(HEADERS, 4, &block), frame(0, 1, b"%2F/ stays")])
            };
            assert_eq!(passed(&header(sent)), header(seen), "{sent}");
        }
    }

    #[test]
    fn padding_priority_and_continuations_are_followed() {
        let block = authority("/s");
        let padded: Vec<u8> = [&[2][..], &block, b"//"].concat();
        let prior: Vec<u8> = [&[0, 0, 0, 0, b'/'][..], &block].concat();
        let (head, tail) = block.split_at(3);
        let both: Vec<u8> = [&[1, 0, 0, 0, 0, b'/'][..], &block, b"/"].concat();
        let sent = connection(&[
            frame(HEADERS, 4 | PADDED | PRIORITY, &both),
            frame(HEADERS, 4 | PADDED, &padded),
            frame(HEADERS, 4 | PRIORITY, &prior),
            frame(HEADERS, 0, head),
            frame(CONTINUATION, 4, tail),
        ]);
        let text = String::from_utf8_lossy(&passed(&sent)).into_owned();
        assert_eq!(text.matches("-s").count(), 3, "{text:?}");
        assert!(text.contains("A\u{2}-\0"), "the fourth is in two frames: {text:?}");
        assert_eq!(text.matches('/').count(), 6, "the preface's, the padding and the priority stay: {text:?}");
    }

    #[test]
    fn a_name_that_is_spelt_out_is_seen() {
        let block = |value: &[u8]| [&[0x00, 10][..], AUTHORITY, &[2], value, &[0x00, 2], b":p", &[1], b"/"].concat();
        let sent = connection(&[frame(HEADERS, 4, &block(b"/s"))]);
        assert_eq!(passed(&sent), connection(&[frame(HEADERS, 4, &block(b"-s"))]));
    }

    #[test]
    fn huffman_code_and_other_protocols_pass_unchanged() {
        let huffman = connection(&[frame(HEADERS, 4, &[0x41, 0x82, b'/', b'%'])]);
        assert_eq!(passed(&huffman), huffman);
        let other = b"GET /%2F HTTP/1.1\r\nHost: /\r\n\r\n".to_vec();
        assert_eq!(passed(&other), other);
    }

    #[test]
    fn nonsense_is_survived() {
        let endless = connection(&[frame(HEADERS, 4, &[0xff; 200])]);
        assert_eq!(passed(&endless), endless);
        let mut state = 1_u32;
        for _ in 0..2000 {
            let noise: Vec<u8> = (0..300)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            let sent = connection(&[frame(HEADERS, noise[0], &noise), noise.clone()]);
            assert_eq!(passed(&sent).len(), sent.len());
        }
    }
}
