//! Text that cannot fake the screen it is shown on.
//!
//! What is approved was written by the one who wants it approved. Everything of theirs that a person sees goes through [`visible`]: it leaves
//! nothing in place that moves the cursor, hides, reorders or recolours what stands around it.

use std::fmt::Write as _;

/// One line of foreign text with everything in it visible: what a terminal or a page would act on, or would not show, stands as
/// `<U+XXXX>`. So does a line break.
pub(crate) fn visible(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same for a line of a file, in which a tab is what it is.
pub(crate) fn visible_line(text: &str) -> String {
    escaped(text, |character| character == '\t')
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    // How many marks the last character has taken; a mark in the first place would be drawn on what stands before the text.
    let mut marks = MOST_MARKS;
    for character in text.chars() {
        let mark = is_mark(character);
        if (is_plain(character) && !(mark && marks == MOST_MARKS)) || kept(character) {
            shown.push(character);
            marks = if mark { marks + 1 } else { 0 };
        } else {
            write!(shown, "<U+{:04X}>", u32::from(character)).expect("a string grows");
            marks = MOST_MARKS;
        }
    }
    shown
}

/// How many combining marks one character may carry; more of them are drawn over the lines above and below.
const MOST_MARKS: usize = 4;

fn is_mark(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// The first `longest` characters, and how many more there were.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} … {} more characters", &text[..end], number(text[end..].chars().count())),
    }
}

/// A number with its thousands set off.
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

/// Whether a character is seen where it stands and does nothing else. Unicode's controls, its format characters (category Cf), line and
/// paragraph separators, variation selectors, the letters that are drawn as nothing and spaces that look like the usual one are not plain.
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

    /// Every way that is known to write text which looks like other text: escape sequences, line breaks, bidirectional overrides, what
    /// has no width, tags.
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

    /// What the standard library knows to be a control is never plain, and neither is anything that it would itself write as an escape
    /// because it is not printable and not a mere mark on a letter.
    #[test]
    fn no_character_that_cannot_be_printed_is_taken_for_plain() {
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
