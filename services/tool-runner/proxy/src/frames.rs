//! The frames of a WebSocket from a host (RFC 6455, section 5.2), whose payloads lose the values of credentials also where a value lies over several frames.

use std::{collections::VecDeque, io};

use crate::scrub::Scrubber;

/// The bits of the first byte that only extensions use: none was asked for.
const RESERVED: u8 = 0x70;
/// The bit of the second byte that only clients set.
const MASKED: u8 = 0x80;
/// The first of the opcodes that are of no message.
const CONTROL: u8 = 8;

/// Takes values out of the frames that a host sends.
pub(crate) struct FrameScrubber {
    scrubber: Scrubber,
    /// Takes values out of control frames, each by itself.
    of_control: Scrubber,
    state: State,
    /// What is sent next, in order.
    queue: VecDeque<Segment>,
    /// Payload without values that has not been sent.
    payload: VecDeque<u8>,
}

enum State {
    /// The bytes of a header so far.
    Header(Vec<u8>),
    /// The payload that is still to come, and whether it is of a control frame.
    Payload(u64, bool),
}

enum Segment {
    /// A header, or a whole control frame.
    Ready(Vec<u8>),
    /// So many bytes of payload.
    Payload(u64),
}

impl FrameScrubber {
    pub(crate) fn new(scrubber: Scrubber) -> Self {
        Self {
            of_control: scrubber.another(),
            scrubber,
            state: State::Header(Vec::new()),
            queue: VecDeque::new(),
            payload: VecDeque::new(),
        }
    }

    /// Adds bytes, and returns those that pass now.
    ///
    /// # Errors
    /// When they are no frames without extensions.
    pub(crate) fn push(&mut self, mut piece: &[u8]) -> io::Result<Vec<u8>> {
        while !piece.is_empty() {
            match &mut self.state {
                State::Header(header) => {
                    let (byte, rest) = piece.split_first().map_or((0, piece), |(byte, rest)| (*byte, rest));
                    piece = rest;
                    header.push(byte);
                    if let Some(length) = payload_length(header)? {
                        let is_control = header.first().is_some_and(|first| first & 0x0f >= CONTROL);
                        self.queue.push_back(Segment::Ready(std::mem::take(header)));
                        if !is_control {
                            self.queue.push_back(Segment::Payload(length));
                        }
                        self.state = State::Payload(length, is_control);
                    }
                }
                State::Payload(left, is_control) => {
                    let length = piece.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (now, rest) = piece.split_at(length);
                    piece = rest;
                    *left -= length as u64;
                    match is_control {
                        true => self.queue.push_back(Segment::Ready(self.of_control.push(now))),
                        false => self.payload.extend(self.scrubber.push(now)),
                    }
                }
            }
            if let State::Payload(0, is_control) = self.state {
                if is_control {
                    self.queue.push_back(Segment::Ready(self.of_control.finish()));
                }
                self.state = State::Header(Vec::new());
            }
        }
        Ok(self.passing())
    }

    /// Ends the frames, and returns the rest.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.payload.extend(self.scrubber.finish());
        self.passing()
    }

    /// What is complete, in order: payload that is held stops everything behind it.
    fn passing(&mut self) -> Vec<u8> {
        let mut passing = Vec::new();
        while let Some(segment) = self.queue.front_mut() {
            match segment {
                Segment::Ready(bytes) => passing.append(bytes),
                Segment::Payload(left) => {
                    let length = self.payload.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    passing.extend(self.payload.drain(..length));
                    *left -= length as u64;
                    if *left > 0 {
                        break;
                    }
                }
            }
            self.queue.pop_front();
        }
        passing
    }
}

/// The length of the payload, once the header is complete.
fn payload_length(header: &[u8]) -> io::Result<Option<u64>> {
    let [first, second, rest @ ..] = header else { return Ok(None) };
    if first & RESERVED != 0 {
        return Err(io::Error::other("the host sends WebSocket frames of an extension that was not asked for"));
    }
    if second & MASKED != 0 {
        return Err(io::Error::other("the host sends masked WebSocket frames"));
    }
    Ok(match second {
        126 => rest.first_chunk().map(|bytes| u64::from(u16::from_be_bytes(*bytes))),
        127 => rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)),
        length => Some(u64::from(*length)),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::scrub::Values;

    const VALUE: &str = "ghp_0123456789abcdef";

    fn frames() -> FrameScrubber {
        let values = Values::new([(VALUE.as_bytes(), "ghp_AAAABBBBCCCCDDDD")].into_iter()).unwrap();
        FrameScrubber::new(Scrubber::new(Arc::new(values)))
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let length = match payload.len() {
            length @ ..126 => vec![length as u8],
            length @ ..65_536 => [&[126], &(length as u16).to_be_bytes()[..]].concat(),
            length => [&[127], &(length as u64).to_be_bytes()[..]].concat(),
        };
        [&[first][..], &length, payload].concat()
    }

    /// A value over several frames, with a ping in between, cut anywhere.
    #[test]
    fn a_value_is_taken_out_over_frames_and_pieces() {
        let (one, two) = VALUE.split_at(11);
        let sent = [
            frame(0x01, format!("auth={one}").as_bytes()),
            frame(0x89, b"ping"),
            frame(0x80, format!("{two} end").as_bytes()),
            frame(0x82, &vec![7; 70_000]),
            frame(0x8a, VALUE.as_bytes()),
            frame(0x81, b"last"),
        ]
        .concat();
        let expected = [
            frame(0x01, b"auth=ghp_AAAABBB"),
            frame(0x89, b"ping"),
            frame(0x80, b"BCCCCDDDD end"),
            frame(0x82, &vec![7; 70_000]),
            frame(0x8a, b"ghp_AAAABBBBCCCCDDDD"),
            frame(0x81, b"last"),
        ]
        .concat();
        for size in [1, 2, 3, 7, 64, 100_000] {
            let mut frames = frames();
            let mut seen: Vec<u8> = sent.chunks(size).flat_map(|piece| frames.push(piece).unwrap()).collect();
            seen.extend(frames.finish());
            assert!(seen == expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_whole_message_waits_for_nothing() {
        let message = frame(0x81, b"{\"text\": \"Hello\"}");
        assert_eq!(frames().push(&message).unwrap(), message);
    }

    #[test]
    fn what_is_no_plain_frame_ends_the_connection() {
        assert!(frames().push(&frame(0xc1, b"compressed")).is_err());
        assert!(frames().push(&[0x81, 0x84, 0, 0, 0, 0, 1, 2, 3, 4]).is_err());
    }
}
