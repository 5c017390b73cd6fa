//! Reads JSON that comes from outside, without losing anything of it.
//!
//! [`read`] gives exactly the value that the text has, or refuses the text: a name that an object has twice, a number whose digits would be lost, bytes that
//! are no UTF-8. What serde_json alone would make of these is another value, and nobody would notice.

use std::io;

use serde_json::{Map, Number, Value};
use thiserror::Error;

/// The deepest nesting of arrays and objects: as deep as serde_json reads, and so what everything behind a reader can pass on.
pub const MAX_DEPTH: usize = 127;

/// Why a text is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}{message}, at line {line} column {column}", if .pointer.is_empty() { String::new() } else { format!("{}: ", .pointer) })]
pub struct InvalidJson {
    /// Where in the value, as a JSON pointer (RFC 6901); empty for the value as a whole.
    pub pointer: String,
    /// The problem, and what to do.
    pub message: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// The value of a text. A byte order mark at its beginning is ignored.
///
/// # Errors
/// [`InvalidJson`] at the first place that is not JSON, or that has no exact value.
pub fn read(text: &str) -> Result<Value, InvalidJson> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut reader = Reader { text, at: start, path: Vec::new() };
    reader.skip_blanks();
    let value = reader.value()?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return Err(reader.refused(reader.at, "has more text behind the value: remove it".to_owned()));
    }
    Ok(value)
}

/// The value of bytes, which have to be UTF-8.
///
/// # Errors
/// As [`read`].
pub fn read_bytes(bytes: &[u8]) -> Result<Value, InvalidJson> {
    match std::str::from_utf8(bytes) {
        Ok(text) => read(text),
        Err(error) => {
            let valid = error.valid_up_to();
            let text = std::str::from_utf8(&bytes[..valid]).unwrap_or_default();
            let reader = Reader { text, at: valid, path: Vec::new() };
            let message = format!("has a byte that is not UTF-8 (0x{:02x}): write the text in UTF-8", bytes[valid]);
            Err(reader.refused(valid, message))
        }
    }
}

/// Whether a value has at most so many levels of arrays and objects.
pub fn has_levels(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| has_levels(item, levels - 1)),
        Value::Object(members) => levels > 0 && members.values().all(|member| has_levels(member, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// How many bytes a value has as compact JSON, without writing it.
pub fn size(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("a value has text keys only, and counting does not fail");
    count.0
}

/// Whether a value is nested deeper than [`MAX_DEPTH`], so that readers of its text would refuse it.
pub fn is_too_deep(value: &Value) -> bool {
    !has_levels(value, MAX_DEPTH)
}

/// The same for the text of a value.
pub fn is_too_deep_text(json: &str) -> bool {
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' if depth == MAX_DEPTH => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

struct Reader<'t> {
    text: &'t str,
    /// The offset of what is read next, in bytes.
    at: usize,
    /// The names and positions of the arrays and objects that are open.
    path: Vec<String>,
}

impl Reader<'_> {
    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn refused(&self, at: usize, message: String) -> InvalidJson {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let count = |number: usize| u32::try_from(number + 1).unwrap_or(u32::MAX);
        let line = before.bytes().filter(|byte| *byte == b'\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().trim_start_matches('\u{feff}').chars().count();
        let pointer = self.path.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")));
        InvalidJson { pointer: pointer.collect(), message, line: count(line), column: count(column) }
    }

    /// Refuses a text that is no JSON: its line says more than the names around the place.
    fn not_json(&self, at: usize, why: &str) -> InvalidJson {
        InvalidJson { pointer: String::new(), ..self.refused(at, format!("is not JSON: {why}")) }
    }

    /// Refuses what stands next, where something else was expected.
    fn unexpected<T>(&self, expected: &str) -> Result<T, InvalidJson> {
        let found = match self.text[self.at..].chars().next() {
            None => "the end of the text".to_owned(),
            Some(letter) => format!("`{}`", letter.escape_debug()),
        };
        Err(self.not_json(self.at, &format!("{found} stands where {expected} is expected")))
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
    }

    fn takes(&mut self, byte: u8) -> bool {
        let takes = self.rest().first() == Some(&byte);
        self.at += usize::from(takes);
        takes
    }

    fn value(&mut self) -> Result<Value, InvalidJson> {
        for (word, value) in [("null", Value::Null), ("true", true.into()), ("false", false.into())] {
            let rest = &self.text[self.at..];
            if rest.starts_with(word) && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                self.at += word.len();
                return Ok(value);
            }
        }
        match self.rest().first() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'[') => self.nested(Self::array),
            Some(b'{') => self.nested(Self::object),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            _ => self.unexpected("a value"),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Value, InvalidJson>) -> Result<Value, InvalidJson> {
        if self.path.len() == MAX_DEPTH {
            return Err(self.refused(self.at, format!("is nested deeper than {MAX_DEPTH} levels: flatten it")));
        }
        self.at += 1;
        self.skip_blanks();
        self.path.push(String::new());
        let value = read(self)?;
        self.path.pop();
        Ok(value)
    }

    fn named(&mut self, name: impl Into<String>) {
        *self.path.last_mut().expect("an array or an object is open") = name.into();
    }

    fn array(&mut self) -> Result<Value, InvalidJson> {
        let mut items = Vec::new();
        if self.takes(b']') {
            return Ok(items.into());
        }
        loop {
            self.named(items.len().to_string());
            items.push(self.value()?);
            self.skip_blanks();
            if self.takes(b']') {
                return Ok(items.into());
            }
            if !self.takes(b',') {
                return self.unexpected("`,` or `]`");
            }
            self.skip_blanks();
        }
    }

    fn object(&mut self) -> Result<Value, InvalidJson> {
        let mut members = Map::new();
        if self.takes(b'}') {
            return Ok(members.into());
        }
        loop {
            let at = self.at;
            if self.rest().first() != Some(&b'"') {
                return self.unexpected("a name in quotes");
            }
            let name = self.string()?;
            self.named(name.clone());
            if members.contains_key(&name) {
                return Err(self.refused(at, "is given twice in one object: remove one of them".to_owned()));
            }
            self.skip_blanks();
            if !self.takes(b':') {
                return self.unexpected("`:`");
            }
            self.skip_blanks();
            let value = self.value()?;
            members.insert(name, value);
            self.skip_blanks();
            if self.takes(b'}') {
                return Ok(members.into());
            }
            if !self.takes(b',') {
                return self.unexpected("`,` or `}`");
            }
            self.skip_blanks();
        }
    }

    /// A text with its quotes. Its end is found here; serde_json reads the escapes.
    fn string(&mut self) -> Result<String, InvalidJson> {
        let (start, bytes) = (self.at, self.rest());
        let mut end = 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => {
                    return Err(self.not_json(start, "a text has no closing quote"));
                }
            }
        }
        self.at = start + end + 1;
        serde_json::from_str(&self.text[start..self.at]).map_err(|error| {
            let message = error.to_string();
            let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
            self.not_json(start, &format!("{what} in a text"))
        })
    }

    fn number(&mut self) -> Result<Number, InvalidJson> {
        let start = self.at;
        let digits = |reader: &mut Self| {
            let count = reader.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
            reader.at += count;
            count
        };
        self.takes(b'-');
        let leading = self.rest().first() == Some(&b'0');
        let whole = digits(self);
        if whole == 0 || (leading && whole > 1) {
            self.at = start;
            return Err(self.not_json(start, "a number begins with one digit that is not 0, or with 0 alone"));
        }
        let mut is_whole = true;
        if self.takes(b'.') {
            is_whole = false;
            if digits(self) == 0 {
                return self.unexpected("a digit");
            }
        }
        if self.takes(b'e') || self.takes(b'E') {
            is_whole = false;
            let _ = self.takes(b'+') || self.takes(b'-');
            if digits(self) == 0 {
                return self.unexpected("a digit");
            }
        }
        let written = &self.text[start..self.at];
        if is_whole {
            let number = written.parse::<u64>().map(Number::from).or_else(|_| written.parse::<i64>().map(Number::from));
            return number.map_err(|_| {
                self.refused(
                    start,
                    format!(
                        "is a whole number beyond 64 bits, whose digits would be lost: give it as text, \"{written}\""
                    ),
                )
            });
        }
        let value: Option<f64> = written.parse().ok().filter(|value: &f64| value.is_finite());
        match value.filter(|value| is_exact(written, *value)).and_then(Number::from_f64) {
            Some(number) => Ok(number),
            None => {
                let message = format!(
                    "is a number whose digits would be lost: give it as text, \"{written}\", or with fewer digits"
                );
                Err(self.refused(start, message))
            }
        }
    }
}

/// Whether a number that is written with a point or an exponent, as JSON has them, comes back with all its digits when it is kept as this one.
pub fn is_exact(written: &str, kept: f64) -> bool {
    // As it is written again: of two shortest forms of a number, writers choose different ones.
    Number::from_f64(kept).is_some_and(|number| decimal(&number.to_string()) == decimal(written))
}

/// A number as its sign, its digits without zeros at either end, and the power of ten that they are multiplied with. Two texts of one number have the same.
fn decimal(written: &str) -> (bool, String, i128) {
    let (mantissa, exponent) = written.split_once(['e', 'E']).unwrap_or((written, "0"));
    let (negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return (negative, String::new(), 0);
    }
    // An exponent that is too long to read is far beyond every number that has a value.
    let exponent: i128 = exponent.parse().unwrap_or(i128::MAX / 2);
    let dropped = (digits.len() - significant.len()) as i128 - fraction.len() as i128;
    (negative, significant.to_owned(), exponent.saturating_add(dropped))
}

#[cfg(test)]
mod tests;
