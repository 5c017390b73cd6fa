//! Private keys between `-----BEGIN …` and `-----END …`, over many lines or on one.

use belay_defects::{Defect, is_planted};

use crate::bytes::is_line_end;

/// The name of what is found here.
pub(crate) const RULE: &str = "private-key";

/// The keyword of a search.
pub(crate) const KEYWORD: &str = "-----begin ";
/// The maximum distance from the first line to the last, in bytes. A 16384-bit RSA key takes 12.5 KiB.
pub(crate) const LONGEST: usize = 16 * 1024;
/// The minimum length of the base64 of a line that counts as part of a key; the last line may be shorter.
const WORD: usize = 16;

/// The places of the key whose first line begins at `at`, in order: the lines of base64 between the two lines, and nothing else.
pub(crate) fn bodies(text: &[u8], at: usize) -> Vec<(usize, usize)> {
    let Some(length) = header(&text[at..]) else { return Vec::new() };
    let start = at + length;
    let rest = &text[start..text.len().min(start + LONGEST)];
    // Where another one begins first, this one was cut off.
    let until = find(rest, b"-----BEGIN ").unwrap_or(rest.len());
    match find(&rest[..until], b"-----END ") {
        Some(end) if is_planted(Defect::CodeHiddenAsKey) => vec![(start, start + end)],
        Some(end) => runs(&rest[..end]).into_iter().map(|(from, to)| (start + from, start + to)).collect(),
        None => {
            let body = &rest[..cut_short(&rest[..until])];
            let before = body.len() - body.trim_ascii_start().len();
            let body = body.trim_ascii();
            let place = (start + before, start + before + body.len());
            if body.is_empty() { Vec::new() } else { vec![place] }
        }
    }
}

/// The runs of a key's lines. What stands between them may be anything: a person who reads the file has to see it.
fn runs(body: &[u8]) -> Vec<(usize, usize)> {
    let offset = |word: &[u8]| word.as_ptr() as usize - body.as_ptr() as usize;
    let lines: Vec<Option<&[u8]>> = lines(body).filter(|words| !words.is_empty()).map(|words| line(&words)).collect();
    let lengths: Vec<usize> = lines.iter().flatten().map(|word| word.len()).collect();
    let width = lengths.iter().copied().filter(|length| *length >= WORD).max().unwrap_or(0);
    // Base64 has slashes, and so have paths, which are seldom as long as the lines around them.
    let is_usual =
        |length: usize| [64, 76].contains(&length) || lengths.iter().filter(|one| **one == length).count() > 1;
    let is_path = |word: &[u8]| word.iter().filter(|byte| **byte == b'/').count() >= 3 && !is_usual(word.len());
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut joins = false;
    for (place, word) in lines.iter().enumerate() {
        // The last line is shorter; OpenPGP has a checksum of five letters after it.
        let is_last =
            || lines[place + 1..].iter().all(|next| next.is_some_and(|next| next.len() == 5 && next[0] == b'='));
        let part =
            word.filter(|word| (word.len() >= WORD && !is_path(word)) || (joins && word.len() <= width && is_last()));
        match (part, runs.last_mut()) {
            (Some(word), Some((_, end))) if joins => *end = offset(word) + word.len(),
            (Some(word), _) => runs.push((offset(word), offset(word) + word.len())),
            (None, _) => {}
        }
        joins = part.is_some();
    }
    runs
}

/// The words of each line.
fn lines(body: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let mut rest = words(body).peekable();
    let end = |word: &[u8]| word.as_ptr() as usize + word.len();
    std::iter::from_fn(move || {
        let mut line = vec![rest.next()?];
        // Between two words of a line there are blanks, and no line end, written out or not.
        while let Some(next) = rest.next_if(|next| {
            let from = end(line[line.len() - 1]) - body.as_ptr() as usize;
            let to = next.as_ptr() as usize - body.as_ptr() as usize;
            body[from..to].iter().all(|byte| matches!(byte, b' ' | b'\t'))
        }) {
            line.push(next);
        }
        Some(line)
    })
}

/// The base64 of a line that has nothing else but signs around it: a comment's, a string's, a list's.
fn line<'a>(words: &[&'a [u8]]) -> Option<&'a [u8]> {
    let mut told = words.iter().filter(|word| word.iter().any(u8::is_ascii_alphanumeric));
    let only = told.next().filter(|_| told.next().is_none())?;
    let is_sign = |byte: &u8| !is_base64(*byte);
    let start = only.iter().position(|byte| !is_sign(byte))?;
    let end = only.iter().rposition(|byte| !is_sign(byte))? + 1;
    Some(&only[start..end]).filter(|word| word.iter().all(|byte| is_base64(*byte)))
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

/// The words between white space and written-out line ends (`\n`).
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
