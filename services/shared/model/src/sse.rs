//! Server-sent events (WHATWG HTML, "Server-sent events"): bytes in, events out.

use crate::Failure;

/// The largest event, in bytes: arguments of a call that come as one piece may have megabytes.
const MAX_EVENT: usize = 8 << 20;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name; empty where the server gives none.
    pub(crate) name: String,
    /// Its lines of data.
    pub(crate) data: String,
}

/// Splits bytes, in whatever pieces they come, into events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The line that has not ended.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_carriage_return: bool,
    has_begun: bool,
}

impl Events {
    /// The events that end in these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        for &byte in bytes {
            let is_pair = byte == b'\n' && self.after_carriage_return;
            self.after_carriage_return = byte == b'\r';
            if is_pair {
                continue;
            }
            if byte == b'\n' || byte == b'\r' {
                events.extend(self.end_line()?);
            } else if self.line.len() + self.data.len() >= MAX_EVENT {
                return Err(Failure::TooLarge { limit: MAX_EVENT });
            } else {
                self.line.push(byte);
            }
        }
        Ok(events)
    }

    /// The event that the end of the stream cuts, if its data came whole: one server ends with `data: [DONE]` and no blank line.
    pub(crate) fn finish(mut self) -> Result<Option<Event>, Failure> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        self.end_event()
    }

    fn end_line(&mut self) -> Result<Option<Event>, Failure> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.has_begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, rest) = line.split_at(colon);
        let value = rest.strip_prefix(b":").unwrap_or(rest);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = value.to_vec(),
            // A comment, which keeps the connection open, and what only matters to a client that connects again.
            _ => {}
        }
        Ok(None)
    }

    fn end_event(&mut self) -> Result<Option<Event>, Failure> {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if !std::mem::take(&mut self.has_data) {
            return Ok(None);
        }
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| Failure::Malformed { why: "the stream is not UTF-8".to_owned() })
        };
        Ok(Some(Event { name: text(name)?, data: text(data)? }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Events::default();
        let mut all = Vec::new();
        for piece in pieces {
            all.extend(events.push(piece).unwrap());
        }
        all.extend(events.finish().unwrap());
        all.into_iter().map(|event| (event.name, event.data)).collect()
    }

    fn data(text: &str) -> Vec<(String, String)> {
        vec![(String::new(), text.to_owned())]
    }

    #[test]
    fn lines_end_in_three_ways() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("\u{feff}: open{end}event: a{end}data: x{end}data:y{end}{end}{end}data{end}{end}");
            let expected = vec![("a".to_owned(), "x\ny".to_owned()), (String::new(), String::new())];
            assert_eq!(read(&[text.as_bytes()]), expected, "{end:?}");
        }
    }

    #[test]
    fn the_end_of_the_stream_ends_the_last_event() {
        assert_eq!(read(&[b"data: [DONE]"]), data("[DONE]"));
        assert_eq!(read(&[b"data: [DONE]\n"]), data("[DONE]"));
        assert_eq!(read(&[b": nothing\n\n"]), []);
    }

    #[test]
    fn an_event_is_bounded() {
        let mut events = Events::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..9).find_map(|_| events.push(&piece).err());
        assert!(matches!(refused, Some(Failure::TooLarge { .. })));
        let mut events = Events::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        let refused = (0..9).find_map(|_| events.push(&line).err());
        assert!(matches!(refused, Some(Failure::TooLarge { .. })), "of many lines as well");
    }

    #[test]
    fn what_is_not_utf8_is_refused() {
        assert!(matches!(Events::default().push(b"data: \xff\n\n"), Err(Failure::Malformed { .. })));
    }

    proptest! {
        // The pieces in which bytes arrive change nothing, wherever they are cut.
        #[test]
        fn pieces_do_not_matter(text in "(data: [a-zé€\u{1f600}]{0,6}|event: b|: c|id: 1)?(\r\n|\n|\r){0,2}(data:x\r\n\r\n)?", cuts in prop::collection::vec(0_usize..64, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[bytes]));
        }
    }
}
