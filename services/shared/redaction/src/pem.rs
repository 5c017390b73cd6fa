//! Private keys between `-----BEGIN …` and `-----END …`, over many lines or on one.

use crate::bytes::is_line_end;

/// The keyword of a search.
pub(crate) const KEYWORD: &str = "-----begin ";
/// The maximum distance from the first line to the last, in bytes. A 16384-bit RSA key takes 12.5 KiB.
pub(crate) const LONGEST: usize = 16 * 1024;
/// The minimum length of a base64 word that counts as part of a key.
const WORD: usize = 16;

/// The body of the key whose first line begins at `at`; `None` when there is none.
pub(crate) fn body(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let start = at + header(&text[at..])?;
    let rest = &text[start..text.len().min(start + LONGEST)];
    // Where another one begins first, this one was cut off.
    let until = find(rest, b"-----BEGIN ").unwrap_or(rest.len());
    let end = match find(&rest[..until], b"-----END ") {
        Some(end) if is_key(&rest[..end]) => end,
        Some(_) => return None,
        None => cut_short(&rest[..until]),
    };
    let body = &rest[..end];
    let before = body.len() - body.trim_ascii_start().len();
    let body = body.trim_ascii();
    (!body.is_empty()).then_some((start + before, start + before + body.len()))
}

/// The start of the last private key whose end is not in the text yet.
pub(crate) fn open(text: &[u8]) -> Option<usize> {
    let from = text.len().saturating_sub(LONGEST + 64);
    let at =
        text[from..].windows(5).enumerate().rev().filter(|(_, window)| *window == b"-----").map(|(at, _)| from + at);
    for at in at {
        if text[at..].starts_with(b"-----END ") {
            return None;
        }
        // An incomplete first line may still become one.
        let cut_off = !text[at..].iter().skip(5).any(|byte| *byte == b'-' || is_line_end(*byte));
        let begins = b"-----BEGIN ".starts_with(&text[at..text.len().min(at + 11)]) && cut_off;
        match header(&text[at..]) {
            Some(length) if text.len() - at - length < LONGEST => return Some(at),
            Some(_) => return None,
            None if begins => return Some(at),
            None => {}
        }
    }
    None
}

/// The length of the first line, if it is a private key's.
fn header(text: &[u8]) -> Option<usize> {
    let label = text.strip_prefix(b"-----BEGIN ")?;
    let length = label.iter().take(64).position(|byte| *byte == b'-')?;
    let label = &label[..length];
    let private = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
    let closed = text[11 + length..].starts_with(b"-----");
    (private && closed).then_some(11 + length + 5)
}

/// Whether the text between the two lines is a key, and not code that searches for one.
fn is_key(body: &[u8]) -> bool {
    let mut words = words(body).peekable();
    words.peek().is_some() && (words.clone().any(is_word) || words.all(|word| word.iter().all(|b| is_base64(*b))))
}

/// The end of a key without a last line: all base64 words, and the shorter rest of the last line.
fn cut_short(rest: &[u8]) -> usize {
    let offset = |word: &[u8]| word.as_ptr() as usize - rest.as_ptr() as usize + word.len();
    let mut end = 0;
    for word in words(rest) {
        if !word.iter().all(|byte| is_base64(*byte)) || (word.len() < WORD && end == 0) {
            break;
        }
        end = offset(word);
        if word.len() < WORD {
            break;
        }
    }
    end
}

fn is_word(word: &[u8]) -> bool {
    let longest = word.split(|byte| !is_base64(*byte)).map(<[u8]>::len).max();
    longest.is_some_and(|longest| longest >= WORD)
}

/// What white space and written-out line ends (`\n`) separate.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let parts = text.split(|byte| byte.is_ascii_whitespace() || *byte == b'\\');
    parts
        .enumerate()
        .map(move |(index, part)| {
            // The letter behind a backslash is part of the escape.
            let escaped =
                index > 0 && part.as_ptr() as usize > text.as_ptr() as usize && before(text, part) == Some(b'\\');
            if escaped { part.get(1..).unwrap_or_default() } else { part }
        })
        .filter(|part| !part.is_empty())
}

fn before(text: &[u8], part: &[u8]) -> Option<u8> {
    let at = part.as_ptr() as usize - text.as_ptr() as usize;
    at.checked_sub(1).and_then(|at| text.get(at)).copied()
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
