//! Finds known values in bytes that pass by, in the spellings in which programs write them.

use zeroize::Zeroizing;

use crate::encode;

/// The shortest part of a value in base64 that counts as the value: shorter ones occur by chance.
const SHORTEST_CORE: usize = 8;
/// The most bytes that spell one byte of a value, with the backslashes and line breaks before it.
const MAX_SPELLING: usize = 16;
/// The most backslashes before a character: of JSON in JSON in JSON.
const MAX_BACKSLASHES: usize = 8;

/// Finds values as they are and with each of their characters escaped in some way: `%2F` and `%252F`, `&#47;` and `&#x2F;`, `\u002f`, `\x2f`, `\/`, `=2F`, in upper
/// or lower case; in base64 at any offset and in hexadecimal, also over line breaks. Unlike a [`crate::Redactor`] it knows no other rules. It takes memory in
/// proportion to the values.
pub struct ValueFinder {
    patterns: Vec<Pattern>,
    /// By the first byte of a text: the patterns that may begin there.
    begins: Vec<Vec<u32>>,
    longest: usize,
}

/// A way in which a value is written.
struct Pattern {
    /// The place of its value among those that were given.
    value: usize,
    bytes: Zeroizing<Vec<u8>>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Character by character, each perhaps escaped.
    Text,
    /// As it is, but for line breaks.
    Base64,
    /// Two digits for each byte, but for what stands between them.
    Hexadecimal,
}

/// A value in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundValue {
    /// The place of the value among those that were given.
    pub value: usize,
    /// Its first byte in the text, and the one behind its last.
    pub range: std::ops::Range<usize>,
}

/// The outcome of comparing a pattern with a place of a text.
enum Compared {
    Whole(usize),
    /// The text ends before the pattern does.
    Begun,
    Other,
}

impl std::fmt::Debug for ValueFinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values themselves are never shown.
        f.debug_struct("ValueFinder").field("patterns", &self.patterns.len()).finish_non_exhaustive()
    }
}

impl ValueFinder {
    /// Finds these values. They should have at least 8 bytes: shorter ones occur by chance. `None` if there are none.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut patterns = Vec::new();
        for (value, bytes) in values.into_iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
            let mut add = |bytes: Vec<u8>, kind| patterns.push(Pattern { value, bytes: bytes.into(), kind });
            add(bytes.to_vec(), Kind::Text);
            add(bytes.to_vec(), Kind::Hexadecimal);
            let mut cores = encode::base64(bytes);
            // The two alphabets differ in few of them.
            cores.sort();
            cores.dedup();
            cores
                .into_iter()
                .filter(|core| core.len() >= SHORTEST_CORE)
                .for_each(|core| add(core.into(), Kind::Base64));
        }
        if patterns.is_empty() {
            return None;
        }
        let mut begins = vec![Vec::new(); 256];
        for (place, pattern) in (0..).zip(&patterns) {
            for byte in 0..=u8::MAX {
                if pattern.may_begin_with(byte) {
                    begins.get_mut(usize::from(byte))?.push(place);
                }
            }
        }
        let longest = patterns.iter().map(|pattern| pattern.bytes.len() * MAX_SPELLING).max().unwrap_or(0);
        Some(Self { patterns, begins, longest })
    }

    /// The values in a text, in order and without overlap: of those that begin in one place, the longest.
    pub fn find(&self, text: &[u8]) -> Vec<FoundValue> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let longest = self.compared(text, at).filter_map(|(pattern, compared)| match compared {
                Compared::Whole(end) => Some(FoundValue { value: pattern.value, range: at..end }),
                Compared::Begun | Compared::Other => None,
            });
            match longest.min_by_key(|found| std::cmp::Reverse(found.range.end)) {
                Some(value) => {
                    at = value.range.end;
                    found.push(value);
                }
                None => at += 1,
            }
        }
        found
    }

    /// How many bytes at the end may be the beginning of a value that continues in what follows.
    pub fn pending(&self, text: &[u8]) -> usize {
        let first = text.len().saturating_sub(self.longest);
        let begins = |at: &usize| self.compared(text, *at).any(|(_, compared)| matches!(compared, Compared::Begun));
        (first..text.len()).find(begins).map_or(0, |at| text.len() - at)
    }

    /// How many bytes at the beginning no value begins or continues in that is not whole: what can be shown once its values are replaced.
    pub fn settled(&self, text: &[u8]) -> usize {
        let end = text.len() - self.pending(text);
        // A value that is there may be the beginning of a longer one.
        let over =
            self.find(text).into_iter().map(|found| found.range).find(|found| found.start < end && end < found.end);
        over.map_or(end, |found| found.start)
    }

    fn compared<'a>(&'a self, text: &'a [u8], at: usize) -> impl Iterator<Item = (&'a Pattern, Compared)> {
        let begins = text.get(at).and_then(|byte| self.begins.get(usize::from(*byte)));
        let patterns = begins.into_iter().flatten().filter_map(|place| self.patterns.get(*place as usize));
        patterns.map(move |pattern| (pattern, pattern.compare(text, at)))
    }
}

impl Pattern {
    fn may_begin_with(&self, byte: u8) -> bool {
        let Some(first) = self.bytes.first() else { return false };
        match self.kind {
            Kind::Text => byte.eq_ignore_ascii_case(first) || b"%&\\= ".contains(&byte),
            Kind::Base64 => byte == *first,
            Kind::Hexadecimal => hexadecimal(byte) == Some(first >> 4),
        }
    }

    fn compare(&self, text: &[u8], from: usize) -> Compared {
        let mut at = from;
        for (place, byte) in self.bytes.iter().enumerate() {
            let next = match self.kind {
                Kind::Text => character(text, at, *byte, place + 1 == self.bytes.len()),
                Kind::Base64 => plain(text, at, from, *byte),
                Kind::Hexadecimal => digits(text, at, from, *byte),
            };
            match next {
                Compared::Whole(end) => at = end,
                other => return other,
            }
        }
        Compared::Whole(at)
    }
}

fn hexadecimal(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Skips line breaks, and what `also` has, but not before the first byte.
fn skip(text: &[u8], at: usize, from: usize, also: &[u8]) -> usize {
    let is_skipped = |byte: &&u8| b"\r\n".contains(byte) || also.contains(byte);
    let skipped = text.get(at..).unwrap_or_default().iter().take_while(is_skipped).take(MAX_BACKSLASHES).count();
    if at == from { at } else { at + skipped }
}

fn plain(text: &[u8], at: usize, from: usize, byte: u8) -> Compared {
    let at = skip(text, at, from, b"");
    match text.get(at) {
        None => Compared::Begun,
        Some(found) if *found == byte => Compared::Whole(at + 1),
        Some(_) => Compared::Other,
    }
}

fn digits(text: &[u8], at: usize, from: usize, byte: u8) -> Compared {
    let at = skip(text, at, from, b": -");
    match text.get(at..).unwrap_or_default() {
        [] => Compared::Begun,
        [high] if hexadecimal(*high) == Some(byte >> 4) => Compared::Begun,
        [high, low, ..] if hexadecimal(*high) == Some(byte >> 4) && hexadecimal(*low) == Some(byte & 15) => {
            Compared::Whole(at + 2)
        }
        _ => Compared::Other,
    }
}

/// Compares one character, as it is in either case, or escaped.
fn character(text: &[u8], at: usize, byte: u8, is_last: bool) -> Compared {
    let Some(first) = text.get(at) else { return Compared::Begun };
    let is_equal = first.eq_ignore_ascii_case(&byte) || (byte == b'+' && *first == b' ');
    match is_equal {
        // A character with which escapes begin may stand for itself, or for the first of its own escape.
        true if b"%&\\=".contains(&byte) => match escaped(text, at, byte) {
            Compared::Begun if !is_last => Compared::Begun,
            Compared::Whole(end) => Compared::Whole(end),
            Compared::Begun | Compared::Other => Compared::Whole(at + 1),
        },
        true => Compared::Whole(at + 1),
        false => escaped(text, at, byte),
    }
}

/// Compares one character that is escaped.
fn escaped(text: &[u8], at: usize, byte: u8) -> Compared {
    let rest = text.get(at..).unwrap_or_default();
    let Some(first) = rest.first() else { return Compared::Begun };
    let (skipped, digits): (usize, &[u8]) = match first {
        // Once or more: `%2F`, `%252F`, `%25252F`.
        b'%' => {
            let mut skipped = 1;
            while rest.get(skipped..skipped + 2) == Some(b"25") && skipped < MAX_BACKSLASHES {
                skipped += 2;
            }
            // `%25` is a percent sign itself.
            if byte == b'%' && skipped > 1 {
                return Compared::Whole(at + skipped);
            }
            (skipped, b"")
        }
        b'=' => match rest.get(1..) {
            // A soft line break of quoted-printable.
            Some([b'\r', b'\n', ..]) => return character(text, at + 3, byte, false),
            Some([b'\n', ..]) => return character(text, at + 2, byte, false),
            _ => (1, b""),
        },
        b'&' => return entity(rest, at, byte),
        b'\\' if byte == b'\\' && rest.get(1) == Some(&b'\\') => return Compared::Whole(at + 2),
        b'\\' => {
            let backslashes = rest.iter().take(MAX_BACKSLASHES).take_while(|byte| **byte == b'\\').count();
            match rest.get(backslashes..).unwrap_or_default() {
                [] => return Compared::Begun,
                [b'u', ..] if !byte.eq_ignore_ascii_case(&b'u') => (backslashes + 1, b"00"),
                [b'x', ..] if !byte.eq_ignore_ascii_case(&b'x') => (backslashes + 1, b""),
                [escaped, ..] if escaped.eq_ignore_ascii_case(&byte) => return Compared::Whole(at + backslashes + 1),
                _ => return Compared::Other,
            }
        }
        _ => return Compared::Other,
    };
    escape(rest, skipped, digits, byte, at)
}

/// Compares the digits of an escape: zeros first, then two hexadecimal ones.
fn escape(rest: &[u8], skipped: usize, zeros: &[u8], byte: u8, at: usize) -> Compared {
    let mut place = skipped;
    for zero in zeros {
        match rest.get(place) {
            None => return Compared::Begun,
            Some(found) if found == zero => place += 1,
            Some(_) => return Compared::Other,
        }
    }
    match rest.get(place..).unwrap_or_default() {
        [] => Compared::Begun,
        [high] if hexadecimal(*high) == Some(byte >> 4) || *high == b'2' => Compared::Begun,
        [high, low, ..] if hexadecimal(*high) == Some(byte >> 4) && hexadecimal(*low) == Some(byte & 15) => {
            Compared::Whole(at + place + 2)
        }
        _ => Compared::Other,
    }
}

/// Compares a character of HTML: `&#47;`, `&#x2F;`, `&amp;`.
fn entity(rest: &[u8], at: usize, byte: u8) -> Compared {
    const NAMES: [(u8, &[u8]); 8] = [
        (b'&', b"&amp;"),
        (b'<', b"&lt;"),
        (b'>', b"&gt;"),
        (b'"', b"&quot;"),
        (b'\'', b"&apos;"),
        (b'/', b"&sol;"),
        (b'=', b"&equals;"),
        (b'+', b"&plus;"),
    ];
    let named = NAMES.iter().filter(|(of, _)| *of == byte).map(|(_, name)| name.to_vec());
    let numbers = [
        format!("&#{byte};"),
        format!("&#x{byte:x};"),
        format!("&#0{byte};"),
        format!("&#x0{byte:x};"),
        format!("&#x00{byte:x};"),
    ];
    let mut is_begun = false;
    for spelling in named.chain(numbers.map(String::into_bytes)) {
        let (length, all) = (spelling.len().min(rest.len()), spelling.len());
        let is_equal = rest
            .get(..length)
            .is_some_and(|part| part.eq_ignore_ascii_case(spelling.get(..length).unwrap_or_default()));
        match is_equal {
            true if length == all => return Compared::Whole(at + all),
            true => is_begun = true,
            false => {}
        }
    }
    if is_begun { Compared::Begun } else { Compared::Other }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUE: &[u8] = b"s3cr3t/Value+1=";

    fn finder() -> ValueFinder {
        ValueFinder::new([VALUE]).unwrap()
    }

    #[test]
    fn a_value_is_found_in_the_spellings_of_programs() {
        for text in [
            "x s3cr3t/Value+1= y",
            "token=s3cr3t%2FValue%2B1%3D&x",
            "s3cr3t%2fValue+1=",
            "next=s3cr3t%252FValue%252B1%253D",
            r#"{"a":"s3cr3t\/Value+1="}"#,
            r#"{"a":"s3cr3t/Value\u002b1\u003D"}"#,
            r#"{"a":"{\"b\":\"s3cr3t\\/Value\\u002B1=\"}"}"#,
            "s3cr3t&#x2F;Value&#43;1&#x3D;",
            "s3cr3t&sol;Value&plus;1&equals;",
            "s3cr3t/Value+1=3D",
            "s3cr3t/Va=\r\nlue+1=3D",
            "s3cr3t/Value 1=",
            r"s3cr3t\x2fValue+1=",
            "S3CR3T/VALUE+1=",
            "dXNlcjpzM2NyM3QvVmFsdWUrMT0=",
            "dXNlcjpzM2Ny\r\nM3QvVmFsdWUrMT0=",
            "7333637233742f56616c75652b313d",
            "73 33 63 72 33 74 2F 56 61 6C 75 65 2B 31 3D",
            "73:33:63:72:33:74:2f:56:61:6c:75:65:2b:31:3d",
        ] {
            let found = finder().find(text.as_bytes());
            assert_eq!(found.len(), 1, "{text}");
            // What is left says nothing.
            let rest = [&text[..found[0].range.start], &text[found[0].range.end..]].concat();
            assert!(!rest.contains("Value") && !rest.contains("VmFsd"), "{text}: {rest}");
        }
        assert!(finder().find(b"s3cr3t/Value+2= s3cr3t %2F &#47; \\u002f = \\ % & s3cr3t/Val").is_empty());
        assert!(ValueFinder::new([]).is_none());
        assert!(!format!("{:?}", finder()).contains("s3cr3t"));
    }

    /// A value with the characters with which escapes begin.
    #[test]
    fn a_character_of_escapes_may_stand_for_itself() {
        let finder = ValueFinder::new([b"a=b%c&d\\e-0123=".as_slice()]).unwrap();
        for text in [
            r"a=b%c&d\e-0123=",
            r"a=3Db%c&d\e-0123=3D",
            r"a%3Db%25c%26d%5Ce-0123%3D",
            r"a=b%c&amp;d\\e-0123=",
            r"a\u003db%c\u0026d\\e-0123\u003d",
        ] {
            let text = text.replace(r"\\", r"\");
            assert_eq!(finder.find(text.as_bytes()).len(), 1, "{text}");
            for cut in 0..text.len() {
                let (shown, held) = text.as_bytes().split_at(finder.settled(&text.as_bytes()[..cut]));
                assert_eq!(finder.find(shown).len() + finder.find(held).len(), 1, "{text} at {cut}");
            }
        }
    }

    #[test]
    fn each_value_is_told_apart_and_the_longest_counts() {
        let finder = ValueFinder::new([b"abcdefgh".as_slice(), b"abcdefgh-more"]).unwrap();
        let found: Vec<_> =
            finder.find(b"abcdefgh abcdefgh-more").into_iter().map(|found| (found.value, found.range)).collect();
        assert_eq!(found, [(0, 0..8), (1, 9..22)]);
    }

    #[test]
    fn only_what_may_continue_as_a_value_is_pending() {
        assert_eq!(finder().pending(b"data: {}\n\n"), 0);
        assert_eq!(finder().pending(b"token: s3cr3t/"), 7);
        assert_eq!(finder().pending(b"token: s3cr3t%2"), 8);
        assert_eq!(finder().pending(b"token: s3cr3t&#x"), 9);
        assert_eq!(finder().pending(VALUE.split_last().unwrap().1), VALUE.len() - 1);
    }

    /// A hundred long values take little memory and time.
    #[test]
    fn many_long_values_are_bounded() {
        let values: Vec<Vec<u8>> = (0..100_u8).map(|n| [b'a' + n % 26, n, 7].repeat(2_700)).collect();
        let finder = ValueFinder::new(values.iter().map(Vec::as_slice)).unwrap();
        let bytes: usize = finder.patterns.iter().map(|pattern| pattern.bytes.len()).sum();
        assert!(bytes < 12 * 100 * 8_100, "{bytes}");
        assert_eq!(finder.find(&values[42]).len(), 1);
    }

    fn spelled(spelling: usize) -> String {
        let escape = |c: char| match (spelling % 7, u32::from(c)) {
            (1, code) => format!("%{code:02X}"),
            (2, code) => format!("%25{code:02x}"),
            (3, code) => format!("&#{code};"),
            (4, code) => format!("\\u{code:04x}"),
            (5, code) => format!("={code:02X}"),
            (6, code) => format!("&#x{code:X};"),
            _ => c.to_string(),
        };
        std::str::from_utf8(VALUE)
            .unwrap()
            .chars()
            .map(|c| if c.is_alphanumeric() { c.to_string() } else { escape(c) })
            .collect()
    }

    proptest! {
        /// Wherever a text with the value is cut, what is pending keeps the value together.
        #[test]
        fn a_cut_never_hides_a_value(before in "[a-z3/%&=\\\\ ]{0,20}", spelling in 0_usize..7, cut in 0_usize..90) {
            let text = format!("{before} {} after", spelled(spelling)).into_bytes();
            prop_assert_eq!(finder().find(&text).len(), 1);
            let (first, rest) = text.split_at(cut.min(text.len()));
            let (shown, held) = first.split_at(finder().settled(first));
            let found = finder().find(shown).len() + finder().find(&[held, rest].concat()).len();
            prop_assert_eq!(found, 1, "{:?} | {:?}", String::from_utf8_lossy(shown), String::from_utf8_lossy(held));
        }

        #[test]
        fn no_text_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            for found in finder().find(&text) {
                prop_assert!(found.range.end <= text.len() && found.range.start < found.range.end);
            }
            prop_assert!(finder().pending(&text) <= text.len());
        }
    }
}
