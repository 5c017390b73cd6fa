//! Makes untrusted text safe to show on a terminal.
//!
//! The party that wants an approval also wrote the text that is shown. All of it passes [`visible`], which escapes everything that moves the
//! cursor, or hides, reorders or recolours other text.

use std::fmt::Write as _;

/// Untrusted text as one line in which everything is visible: characters that a terminal or browser would act on or not show, and line breaks,
/// are written as `<U+XXXX>`.
pub(crate) fn visible(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same for a line of a file; tabs are kept.
pub(crate) fn visible_line(text: &str) -> String {
    escaped(text, |character| character == '\t')
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    // The number of marks on the last character. A mark in first place would be drawn on the preceding text.
    let mut marks = MAX_MARKS;
    for character in text.chars() {
        let mark = is_mark(character);
        if (is_plain(character) && !(mark && marks == MAX_MARKS)) || kept(character) {
            shown.push(character);
            marks = if mark { marks + 1 } else { 0 };
        } else {
            write!(shown, "<U+{:04X}>", u32::from(character)).expect("a string grows");
            marks = MAX_MARKS;
        }
    }
    shown
}

/// The maximum number of combining marks on one character; more of them would be drawn over the lines above and below.
const MAX_MARKS: usize = 4;

fn is_mark(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// The first `longest` characters, and the number of characters left out.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} … {} more characters", &text[..end], number(text[end..].chars().count())),
    }
}

/// A number with thousands separators.
pub(crate) fn number(n: usize) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut shown = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !shown.is_empty() {
            shown.push(',');
        }
        shown.extend(group.iter().map(|&digit| char::from(digit)));
    }
    shown
}

/// Whether a character is visible and has no other effect. Control and format characters (categories Cc and Cf), line and paragraph separators,
/// variation selectors, invisible letters, and spaces other than the usual one are not plain.
fn is_plain(character: char) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["", "let x = \"é ü 漢字 🦀\";", "a\\b <U+0041>", "Привет", "שלום"] {
            assert_eq!(visible(text), text);
        }
        assert_eq!(visible("e\u{301}"), "e\u{301}", "an accent on a letter");
        assert_eq!(visible_line("\tindented"), "\tindented");
        assert_eq!(visible("a\tb"), "a<U+0009>b");
    }

    /// Known ways to make text look like other text: escape sequences, line breaks, bidirectional overrides, zero-width characters, tags.
    #[test]
    fn nothing_can_move_hide_or_reorder_what_is_shown() {
        let tricks = [
            "\u{1b}[2J\u{1b}[H",
            "\u{1b}]8;;http://x\u{7}ok\u{1b}]8;;\u{7}",
            "\u{9b}31m",
            "ok\rno",
            "a\nb",
            "a\u{8}\u{8}b",
            "\u{b}\u{c}\u{7f}\u{85}",
            "exe\u{202e}txt.",
            "\u{202a}\u{202b}\u{202c}\u{202d}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}",
            "a\u{200b}b\u{200c}c\u{200d}d\u{2060}e\u{feff}f\u{ad}g",
            "\u{2028}\u{2029}",
            "\u{e0041}\u{e007f}\u{e0100}",
            "\u{3164}\u{115f}\u{ffa0}\u{2800}\u{180e}\u{fe0f}",
            "\u{0}",
            "\u{335}",
            "a\u{301}\u{301}\u{301}\u{301}\u{301}",
            "a\u{a0}b\u{2003}c",
        ];
        for trick in tricks {
            for shown in [visible(trick), visible_line(trick)] {
                assert!(shown.chars().all(is_plain), "{trick:?} became {shown:?}");
                assert!(shown.contains("<U+"), "{trick:?} became {shown:?}");
            }
        }
        assert_eq!(visible("exe\u{202e}txt\u{1b}"), "exe<U+202E>txt<U+001B>");
    }

    /// No control character is plain, nor any character that the standard library escapes as not printable, except combining marks.
    #[test]
    fn no_unprintable_character_is_plain() {
        let spaces = |character: char| character.is_whitespace();
        let unassigned_or_private = |character: char| {
            matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}') || u32::from(character) > 0x2_fa1f
        };
        let format_characters = (0..=0x10_ffff_u32).filter_map(char::from_u32).filter(|character| {
            // `{:?}` escapes what is not printable. Among the assigned blocks that is Cc, Cf, Zl, Zp, odd spaces and holes between letters.
            !spaces(*character)
                && !unassigned_or_private(*character)
                && matches!(u32::from(*character), 0..0x300 | 0x2000..0x2070 | 0xfe00..0xfe10 | 0xfff0..0xfffc | 0x1d173..0x1d17b)
                && format!("{character:?}").starts_with("'\\u")
        });
        for character in format_characters {
            assert!(!is_plain(character), "U+{:04X}", u32::from(character));
        }
    }

    #[test]
    fn long_text_is_cut_at_a_character_and_says_so() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 2), "äö … 2 more characters");
        assert_eq!(
            [0, 12, 123, 1_234, 123_456, 1_234_567].map(number),
            ["0", "12", "123", "1,234", "123,456", "1,234,567"]
        );
    }
}
