//! The encodings in which a value may occur in output: base64, hex, URL, JSON.

use data_encoding::{HEXLOWER, HEXUPPER};

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The base64 characters that the value determines when `offset` bytes precede it: it may be part of something longer, as in `user:password`.
fn base64_core(value: &[u8], offset: usize, alphabet: &[u8; 64]) -> String {
    let bits = value.len() * 8;
    let first = (6 - (offset * 8) % 6) % 6;
    let bit = |at: usize| usize::from(value[at / 8] >> (7 - at % 8) & 1);
    let characters = (first..bits.saturating_sub(5)).step_by(6);
    characters.map(|at| alphabet[(at..at + 6).fold(0, |sum, at| sum << 1 | bit(at))] as char).collect()
}

/// The value in base64 at any position of the encoded data, in both alphabets. The one or two characters that also depend on neighbouring bytes
/// are left out.
pub(crate) fn base64(value: &[u8]) -> Vec<String> {
    [STANDARD, URL]
        .into_iter()
        .flat_map(|alphabet| (0..3).map(move |offset| base64_core(value, offset, alphabet)))
        .collect()
}

/// Decodes base64 in one of the two alphabets.
pub(crate) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|last| *last != b'=').map_or(0, |last| last + 1);
    let text = &text[..end];
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0);
    for character in text {
        let value = STANDARD
            .iter()
            .position(|known| known == character)
            .or_else(|| URL.iter().position(|known| known == character))?;
        bits = bits << 6 | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

/// Two digits per byte, in lower and upper case.
pub(crate) fn hex(value: &[u8]) -> [String; 2] {
    [HEXLOWER.encode(value), HEXUPPER.encode(value)]
}

/// Percent-encoding: strict, leaving `/`, and as in forms. With upper- and lower-case digits.
pub(crate) fn url(value: &[u8]) -> Vec<String> {
    let spell = |keep: &[u8], space: &str, capital: bool| -> String {
        let one = |byte: &u8| match byte {
            b' ' => space.to_owned(),
            byte if byte.is_ascii_alphanumeric() || keep.contains(byte) => (*byte as char).to_string(),
            byte if capital => format!("%{byte:02X}"),
            byte => format!("%{byte:02x}"),
        };
        value.iter().map(one).collect()
    };
    let mut spellings = Vec::new();
    for capital in [true, false] {
        spellings.push(spell(b"-_.~", "%20", capital));
        spellings.push(spell(b"-_.~/", "%20", capital));
        spellings.push(spell(b"-_.*", "+", capital));
        spellings.push(spell(b"-_.!~*'()", "%20", capital));
    }
    spellings
}

/// The content of a JSON string, plain and with `/` escaped; encoded twice, for JSON within JSON; and ASCII-only, with lower-case digits.
pub(crate) fn json(value: &str) -> Vec<String> {
    let once = inside(value);
    let ascii = once.chars().map(|c| if c.is_ascii() { c.to_string() } else { escape(c) }).collect();
    vec![once.replace('/', "\\/"), inside(&once), ascii, once]
}

fn inside(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn escape(character: char) -> String {
    let mut units = [0; 2];
    character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_holds_the_value_wherever_it_lies() {
        // `printf 'hunter2-secret' | base64`, with 0, 1 and 2 bytes before it.
        let cores = base64(b"hunter2-secret");
        for encoded in ["aHVudGVyMi1zZWNyZXQ=", "eGh1bnRlcjItc2VjcmV0", "eHlodW50ZXIyLXNlY3JldA=="] {
            assert!(
                cores.iter().any(|core| core.len() >= 17 && encoded.contains(core.as_str())),
                "{encoded}: {cores:?}"
            );
        }
        assert_eq!(from_base64(b"aHVudGVyMi1zZWNyZXQ=").unwrap(), b"hunter2-secret");
        assert_eq!(from_base64(b"no base64!"), None);
    }

    #[test]
    fn a_value_has_its_spellings() {
        assert_eq!(hex(b"a\xff"), ["61ff", "61FF"]);
        let urls = url(b"a b/c+");
        assert!(urls.contains(&"a%20b%2Fc%2B".to_owned()) && urls.contains(&"a+b%2Fc%2B".to_owned()), "{urls:?}");
        assert!(urls.contains(&"a%20b/c%2B".to_owned()) && urls.contains(&"a%20b%2fc%2b".to_owned()), "{urls:?}");
        let json = json("a\"/ä");
        assert!(json.contains(&r#"a\"/ä"#.to_owned()) && json.contains(&r#"a\"\/ä"#.to_owned()), "{json:?}");
        assert!(json.contains(&r#"a\"/\u00e4"#.to_owned()) && json.contains(&r#"a\\\"/ä"#.to_owned()), "{json:?}");
    }
}
