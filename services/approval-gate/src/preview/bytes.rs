//! Converts contents to text that can be compared line by line and in which every byte is visible.

use std::{borrow::Cow, fmt::Write as _};

use belay_redaction::Redactor;

/// The number of bytes in a line of a hex dump.
const ROW: usize = 16;

/// A content as text, and whether that is a hex dump.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentText<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) is_dump: bool,
}

/// UTF-8 stays as it is. A few bytes that do not belong in text are written as `<0xNN>` by [`visible_line`], so that a stray byte hides nothing. With many of them,
/// the content is shown as a hex dump with secrets redacted.
pub(super) fn as_text<'a>(redactor: &Redactor, content: &'a [u8]) -> ContentText<'a> {
    let foreign: usize = content.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    let controls = content.iter().filter(|&&byte| is_foreign_control(byte)).count();
    if (foreign + controls) * 4 > content.len() {
        return ContentText { text: dump(redactor, content).into(), is_dump: true };
    }
    if let Ok(text) = std::str::from_utf8(content)
        && !text.contains(is_stand_in)
    {
        return ContentText { text: text.into(), is_dump: false };
    }
    let mut text = String::with_capacity(content.len() + foreign * 3);
    for chunk in content.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_stand_in(character) {
                text.extend(character.encode_utf8(&mut [0; 4]).bytes().map(stand_in));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(stand_in));
    }
    ContentText { text: text.into(), is_dump: false }
}

/// The character for a byte that is no text, until the text is shown: one for private use, of which nobody makes any. A content that has such characters has
/// their bytes instead, so that each stands for a byte.
fn stand_in(byte: u8) -> char {
    char::from_u32(STAND_INS + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The first of 256 characters at the end of the last plane.
const STAND_INS: u32 = 0x10_ff00;

fn is_stand_in(character: char) -> bool {
    u32::from(character) >= STAND_INS
}

/// A line of a text as people are shown it: bytes that are no text as `<0xNN>`, and everything else that is not seen as `belay_text` writes it.
pub(super) fn visible_line(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for part in line.split_inclusive(is_stand_in) {
        let byte = part.chars().next_back().filter(|last| is_stand_in(*last));
        shown += &belay_text::visible_line(part.trim_end_matches(is_stand_in));
        if let Some(byte) = byte {
            let _ = write!(shown, "<0x{:02X}>", u32::from(byte) - STAND_INS);
        }
    }
    shown
}

fn is_foreign_control(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b)
}

/// `00000010  7f 45 4c 46 …  .ELF…`, one line for sixteen bytes.
fn dump(redactor: &Redactor, content: &[u8]) -> String {
    // Maps each byte to the character with its number, so that the redactor finds secrets in ASCII, and back.
    let spelled: String = content.iter().copied().map(char::from).collect();
    let hidden = redactor.redact_text(&spelled).text;
    let bytes: Vec<u8> = hidden.chars().map(|character| u8::try_from(character).unwrap_or(b'?')).collect();
    let mut text = String::with_capacity(bytes.len() * 5);
    for (row, bytes) in bytes.chunks(ROW).enumerate() {
        write!(text, "{:08x} ", row * ROW).expect("a string grows");
        for at in 0..ROW {
            match bytes.get(at) {
                Some(byte) => write!(text, " {byte:02x}").expect("a string grows"),
                None => text.push_str("   "),
            }
        }
        text.push_str("  ");
        text.extend(bytes.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as people are shown it, with its end.
    fn visible_but_for_the_end(line: &str) -> String {
        let text = line.strip_suffix('\n');
        visible_line(text.unwrap_or(line)) + text.map_or("", |_| "\n")
    }

    fn shown(content: &[u8]) -> (String, bool) {
        let shown = as_text(&Redactor::new(), content);
        let lines: Vec<String> = shown.text.split_inclusive('\n').map(visible_but_for_the_end).collect();
        (lines.concat(), shown.is_dump)
    }

    #[test]
    fn a_stray_byte_hides_nothing_of_a_text() {
        assert_eq!(shown(b"plain\n"), ("plain\n".into(), false));
        assert_eq!(shown(b"caf\xe9 is latin\nrm -rf x\n"), ("caf<0xE9> is latin\nrm -rf x\n".into(), false));
        assert_eq!(shown(b"nul \0 here\n"), ("nul <U+0000> here\n".into(), false));
        assert_eq!(shown(b""), (String::new(), false));
    }

    #[test]
    fn binary_content_is_shown_as_a_hex_dump() {
        let (text, is_dump) = shown(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03");
        assert!(is_dump);
        assert_eq!(
            text,
            "00000000  7f 45 4c 46 02 01 01 00 00 00 00 00 00 00 00 00  .ELF............\n\
             00000010  03                                               .\n"
        );
    }
}
