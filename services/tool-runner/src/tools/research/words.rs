//! Words of documents and questions, and the pieces in which a document is indexed. Pure.
//!
//! The index has two columns of words. `text` is the text as it is: FTS5's `unicode61` takes letters and digits as words and separates at everything else, so that the
//! parts of `snake_case`, `kebab-case` and `a::b` are words that stand next to each other. `parts` has the names with capitals inside, split where a reader sees a
//! new word (`getUserName`, `HTTPServer`), since the tokenizer sees one word there. `porter` around it takes the ends of English words away, so that a question about
//! `approvals` finds `approve`; names lose the same ends on both sides and are found as before. The tokenizer `trigram` would find any part of a name, but not words of two letters, makes an
//! index several times as large, and ranks `cat` in `concatenate` as the word.
//!
//! Chinese, Japanese and Korean have no spaces between words: each of their characters is a word, and a word of a question is a phrase of them.

/// The longest piece, in bytes, and in lines.
const MAX_PIECE: usize = 2_000;
const MAX_LINES: usize = 40;
/// From this many bytes on, a piece ends before an empty line.
const ENOUGH: usize = 800;

/// A piece of a document: what one finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its first byte.
    pub(super) start: usize,
    /// Its bytes.
    pub(super) length: usize,
    /// The number of its first line, from 1.
    pub(super) line: usize,
}

/// The pieces of a document: whole lines, but for those that are longer than a piece.
pub(super) fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut open = Piece { start: 0, length: 0, line: 1 };
    let mut lines_open = 0;
    for (line, text) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        let is_full = open.length + text.len() > MAX_PIECE || lines_open == MAX_LINES;
        let is_empty = text.iter().all(u8::is_ascii_whitespace);
        if open.length > 0 && (is_full || is_empty && open.length >= ENOUGH) {
            pieces.push(open);
            open = Piece { start: open.start + open.length, length: 0, line };
            lines_open = 0;
        }
        let mut rest = text;
        while rest.len() > MAX_PIECE {
            let length = cut(rest, MAX_PIECE);
            pieces.push(Piece { length, ..open });
            open = Piece { start: open.start + length, length: 0, line };
            rest = &rest[length..];
        }
        open.length += rest.len();
        lines_open += 1;
    }
    if open.length > 0 {
        pieces.push(open);
    }
    pieces
}

/// The most bytes up to `most` after which no character of UTF-8 is cut.
pub(super) fn cut(bytes: &[u8], most: usize) -> usize {
    if bytes.len() <= most {
        return bytes.len();
    }
    let is_inside = |at: usize| bytes[at] & 0b1100_0000 == 0b1000_0000;
    (most.saturating_sub(3)..=most).rev().find(|at| !is_inside(*at)).unwrap_or(most).max(1)
}

/// Whether a character is part of a word. Combining accents are, as for the tokenizer.
pub(super) fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || ('\u{300}'..='\u{36f}').contains(&character)
}

/// Whether a character of a writing without spaces is a word of its own.
fn is_word(character: char) -> bool {
    matches!(character,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// The text with spaces around characters that are words.
pub(super) fn spaced(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut spaced = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if is_word(character) {
            spaced.extend([' ', character, ' ']);
        } else {
            spaced.push(character);
        }
    }
    spaced
}

/// The names in a text that have capitals inside, split before them; nothing else of the text.
pub(super) fn split_names(text: &str) -> String {
    let mut parts = String::new();
    for word in text.split(|character| !is_of_word(character)).filter(|word| !word.is_empty()) {
        let split = split_case(word);
        if split.len() > word.len() {
            parts.push_str(&split);
            parts.push('\n');
        }
    }
    parts
}

/// The text with a space before each capital that begins a word inside of a name: after a small letter or a digit, or before a small letter in a row of capitals.
pub(super) fn split_case(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut split = String::with_capacity(text.len() + 8);
    for (at, character) in characters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| characters[at]);
        let after = characters.get(at + 1);
        let begins = character.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || before.is_uppercase() && after.is_some_and(|after| after.is_lowercase())
            });
        if begins {
            split.push(' ');
        }
        split.push(*character);
    }
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_where_a_reader_sees_a_word() {
        for (name, split) in [
            ("getUserName", "get User Name"),
            ("HTTPServer", "HTTP Server"),
            ("snake_case", "snake_case"),
            ("sha256Of", "sha256 Of"),
            ("ALL", "ALL"),
            ("éÉcole", "é École"),
        ] {
            assert_eq!(split_case(name), split);
        }
        assert_eq!(split_names("let userName = plain(HTTPServer)"), "user Name\nHTTP Server\n");
        assert_eq!((spaced("設定file"), spaced("plain")), (" 設  定 file".to_owned(), "plain".to_owned()));
    }

    #[test]
    fn pieces_are_whole_lines_and_have_everything_once() {
        let line = "x".repeat(99) + "\n";
        for text in [
            String::new(),
            "one".to_owned(),
            line.repeat(100),
            "a\n".repeat(1000),
            format!("{}\n\n{}", line.repeat(9), line.repeat(9)),
            format!("short\n{}é{}\nshort\n", "y".repeat(1999), "z".repeat(5000)),
        ] {
            let pieces = pieces(text.as_bytes());
            let mut at = 0;
            for piece in &pieces {
                assert_eq!(piece.start, at);
                assert!(piece.length > 0 && piece.length <= MAX_PIECE);
                let of_piece = &text.as_bytes()[at..at + piece.length];
                assert!(std::str::from_utf8(of_piece).is_ok(), "no character is cut");
                assert_eq!(piece.line, text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1);
                at += piece.length;
            }
            assert_eq!(at, text.len());
        }
        let paragraphs = format!("{}\n{}", line.repeat(9), line.repeat(9));
        assert_eq!(pieces(paragraphs.as_bytes())[1].line, 10, "a piece ends before an empty line");
    }

    #[test]
    fn a_cut_is_before_a_character() {
        assert_eq!((cut("aé".as_bytes(), 2), cut("aé".as_bytes(), 3), cut(b"\x80\x80\x80\x80\x80", 4)), (1, 3, 4));
    }
}
