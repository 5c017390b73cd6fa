//! How people are shown a text: which characters are seen as they are, and how all others are written. The one list of them, and the one spelling.
//!
//! Names, paths and what programs write are data, and are stored, compared and handed on as they are. Only what a person reads passes one of these
//! functions. A character that is not seen as it is, or that a terminal acts on, is written as `<U+200B>`, a byte that is no text as `<0xFF>`. A text that has
//! such letters itself is told apart: its `<` is written as `<U+003C>`, so that two texts never have one form.
//!
//! Pure.

use std::fmt::Write as _;

/// The most combining marks on one character; more of them would be drawn over the lines above and below.
const MAX_MARKS: usize = 4;

/// Whether a character is seen as it is and has no other effect. Control and format characters (categories Cc and Cf of Unicode 16), line and paragraph
/// separators, variation selectors, invisible letters, and spaces other than the usual one and the ideographic one are not.
pub fn is_plain(character: char) -> bool {
    !character.is_control()
        && (!character.is_whitespace() || matches!(character, ' ' | '\u{3000}'))
        && !matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a text says nothing to its reader: it is empty, or of spaces and characters that are not seen alone.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|character| character.is_whitespace() || !is_plain(character))
}

/// Millionths of a US dollar, as dollars: with as many digits as they have, and cents at least, as prices are written.
pub fn dollars(micros: u64) -> String {
    let digits = format!("{:06}", micros % 1_000_000);
    format!("${}.{:0<2}", micros / 1_000_000, digits.trim_end_matches('0'))
}

/// A text as one line in which everything is seen. Two texts never have one form.
pub fn visible(text: &str) -> String {
    write(text, |_| false, Sign::Written)
}

/// The same for a line of a file: tabs are kept.
pub fn visible_line(text: &str) -> String {
    write(text, |character| character == '\t', Sign::Written)
}

/// The same for a name of any bytes.
pub fn visible_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown += &visible(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(shown, "<0x{byte:02X}>");
        }
    }
    shown
}

/// The beginning of a text for a message, of at most `longest` characters, as [`visible`] writes it.
pub fn shown(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => visible(text),
        Some((end, _)) => visible(&text[..end]) + "…",
    }
}

/// A text that has passed one of the functions above, or has such in it: what is written there stays, and everything else that is not seen is written too.
pub fn visible_again(text: &str) -> String {
    write(text, |_| false, Sign::Kept)
}

/// The same for prose in one line: line breaks and tabs become spaces, and a selector of the coloured form that follows a symbol (`⚠️`) stays, since it
/// changes how that is drawn, and nothing else.
pub fn harmless(text: &str) -> String {
    let spaces: String =
        text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}') { ' ' } else { c }).collect();
    let mut shown = String::with_capacity(text.len());
    let mut rest = spaces.as_str();
    // What stands between selectors that stay.
    while let Some((at, _)) = rest.char_indices().find(|(at, c)| *c == '\u{fe0f}' && rest[..*at].ends_with(is_symbol)) {
        let end = at + '\u{fe0f}'.len_utf8();
        shown += &visible_again(&rest[..at]);
        shown.push('\u{fe0f}');
        rest = &rest[end..];
    }
    shown + &visible_again(rest)
}

/// Whether a terminal acts on a character, or it reorders the line or passes for its end: what may not come through even in what a program printed.
pub fn steers(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The symbols that have a coloured form: arrows, technical and geometric ones, dingbats and pictographs.
fn is_symbol(character: char) -> bool {
    matches!(character, '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{25a0}'..='\u{27bf}' | '\u{2900}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// The treatment of `<U+` and `<0x` in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// The text is data: its `<` is written in numbers.
    Written,
    /// The text has been written already.
    Kept,
}

fn write(text: &str, kept: impl Fn(char) -> bool, sign: Sign) -> String {
    let mut shown = String::with_capacity(text.len());
    // The number of marks on the last character. A mark in first place would be drawn on the preceding text.
    let mut marks = MAX_MARKS;
    for (at, character) in text.char_indices() {
        let mark = is_mark(character);
        let is_sign = sign == Sign::Written && (text[at..].starts_with("<U+") || text[at..].starts_with("<0x"));
        let is_seen = is_plain(character) && !(mark && marks == MAX_MARKS) && !is_sign;
        if is_seen || kept(character) {
            shown.push(character);
            marks = if mark { marks + 1 } else { 0 };
        } else {
            let _ = write!(shown, "<U+{:04X}>", u32::from(character));
            marks = MAX_MARKS;
        }
    }
    shown
}

fn is_mark(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["", "let x = \"é ü 漢字 🦀\";", "a\\b <html> U+0041 \\u{200b}", "Привет", "שלום", "e\u{301}"]
        {
            assert_eq!(visible(text), text);
            assert_eq!(harmless(text), text);
        }
        assert_eq!(visible_line("\tindented"), "\tindented");
        assert_eq!(visible("a\tb\nc"), "a<U+0009>b<U+000A>c");
        assert_eq!(visible("<U+200B> <0xff>"), "<U+003C>U+200B> <U+003C>0xff>");
        assert_eq!(visible_bytes(b"a\xffb\x1b<0x"), "a<0xFF>b<U+001B><U+003C>0x");
        assert_eq!(shown("äöüß\u{202e}", 2), "äö…");
        assert_eq!(shown("\u{202e}", 1), "<U+202E>");
    }

    #[test]
    fn a_text_that_was_written_stays_and_is_one_line() {
        assert_eq!(harmless("a<U+200B>\tb\r\nc\u{200b}"), "a<U+200B> b  c<U+200B>");
        assert_eq!(harmless("⚠\u{fe0f} done ✔\u{fe0f}"), "⚠\u{fe0f} done ✔\u{fe0f}");
        assert_eq!(harmless("a\u{fe0f}⚠\u{fe0f}\u{fe0f}"), "a<U+FE0F>⚠\u{fe0f}<U+FE0F>");
        // A name is another name with the selector, so there it is written out.
        assert_eq!(visible("⚠\u{fe0f}"), "⚠<U+FE0F>");
    }

    #[test]
    fn a_text_of_characters_that_are_not_seen_is_blank() {
        for blank in
            ["", " ", "\t\n\u{85}\u{2028}", "\u{a0}\u{3000}", "\u{feff}", "\u{200b}\u{2060} \u{ad}", "\u{0}\u{1b}"]
        {
            assert!(is_blank(blank), "{blank:?}");
        }
        for said in ["a", " .\n", "\u{feff}x", "⚠\u{fe0f}"] {
            assert!(!is_blank(said), "{said:?}");
        }
    }

    /// Known ways to make text look like other text: escape sequences, line breaks, bidirectional overrides, zero-width characters, tags.
    #[test]
    fn nothing_can_move_hide_or_reorder_what_is_shown() {
        let tricks = [
            "\u{1b}[2J\u{1b}[H",
            "\u{1b}]8;;http://x\u{7}ok\u{1b}]8;;\u{7}",
            "\u{9b}31m",
            "a\u{8}\u{8}b",
            "\u{b}\u{c}\u{7f}\u{85}",
            "exe\u{202e}txt.",
            "\u{202a}\u{202b}\u{202c}\u{202d}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}",
            "a\u{200b}b\u{200c}c\u{200d}d\u{2060}e\u{feff}f\u{ad}g",
            "\u{e0041}\u{e007f}\u{e0100}",
            "\u{3164}\u{115f}\u{ffa0}\u{2800}\u{180e}\u{fe0f}\u{34f}",
            "\u{0}",
            "\u{335}",
            "a\u{301}\u{301}\u{301}\u{301}\u{301}",
            "a\u{a0}b\u{2003}c",
        ];
        for trick in tricks {
            for shown in [visible(trick), visible_line(trick), visible_bytes(trick.as_bytes()), harmless(trick)] {
                assert!(shown.chars().all(is_plain), "{trick:?} became {shown:?}");
                assert!(shown.contains("<U+"), "{trick:?} became {shown:?}");
            }
        }
    }

    /// No control character is plain, nor any character that the standard library escapes as not printable, except combining marks.
    #[test]
    fn no_unprintable_character_is_plain() {
        let unassigned_or_private = |character: char| {
            matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}') || u32::from(character) > 0x2_fa1f
        };
        let format_characters = (0..=0x10_ffff_u32).filter_map(char::from_u32).filter(|character| {
            // `{:?}` escapes what is not printable. Among the assigned blocks that is Cc, Cf, Zl, Zp, odd spaces and holes between letters.
            !character.is_whitespace()
                && !unassigned_or_private(*character)
                && matches!(u32::from(*character), 0..0x300 | 0x2000..0x2070 | 0xfe00..0xfe10 | 0xfff0..0xfffc | 0x1d173..0x1d17b)
                && format!("{character:?}").starts_with("'\\u")
        });
        for character in (0..=0x10_ffff_u32).filter_map(char::from_u32) {
            assert!(!(steers(character) && is_plain(character)), "U+{:04X}", u32::from(character));
        }
        for character in format_characters {
            assert!(!is_plain(character), "U+{:04X}", u32::from(character));
        }
    }

    /// Reads a shown text back: the proof that nothing is lost.
    fn read(shown: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = shown;
        while let Some(first) = rest.chars().next() {
            let number = |prefix: &str| rest.strip_prefix(prefix)?.split_once('>');
            if let Some((digits, after)) = number("<U+") {
                let character = char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap();
                bytes.extend(character.to_string().bytes());
                rest = after;
            } else if let Some((digits, after)) = number("<0x") {
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = after;
            } else {
                bytes.extend(first.to_string().bytes());
                rest = &rest[first.len_utf8()..];
            }
        }
        bytes
    }

    proptest! {
        /// B-30: two names never have one form.
        #[test]
        fn every_name_can_be_read_back(bytes in prop::collection::vec(
            prop_oneof![Just(b'<'), Just(b'U'), Just(b'+'), Just(b'0'), Just(b'x'), Just(b'>'), any::<u8>()], 0..40)) {
            let shown = visible_bytes(&bytes);
            prop_assert!(shown.chars().all(is_plain), "{:?}", shown);
            prop_assert_eq!(read(&shown), bytes);
        }

        #[test]
        fn every_text_can_be_read_back(text in any::<String>()) {
            prop_assert_eq!(read(&visible(&text)), text.as_bytes());
            prop_assert_eq!(read(&visible_line(&text)), text.as_bytes());
            prop_assert!(visible_again(&text).chars().all(is_plain));
            // What is written stays.
            prop_assert_eq!(visible_again(&visible(&text)), visible(&text));
            prop_assert_eq!(harmless(&visible(&text)), visible(&text));
        }
    }
}
