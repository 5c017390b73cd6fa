//! Decides whether a value in a secret's position is a secret: placeholders, references and code are not.

use crate::{encode::from_base64, names};

/// Accepts any value.
pub(crate) fn any(_: &[u8]) -> bool {
    true
}

/// Anything but a placeholder or a reference.
pub(crate) fn given(value: &[u8]) -> bool {
    !is_placeholder(value)
}

/// Stands where a secret would, under a name that ends like a secret's, and is none: the working directory under `PWD`, and the version of
/// a package that is called something like `pbkdf2-password`.
pub(crate) fn is_harmless_under(name: &str, value: &[u8]) -> bool {
    let is_rooted = value.starts_with(b"/") || value.starts_with(b"~");
    (is_rooted && names::is_directory(name)) || is_version(value)
}

/// `1.2.1`, `^10.2.0`, `>=1.4`, `2.0.0-beta.1`: two to four numbers of at most five digits.
fn is_version(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    let numbers = text.trim_start_matches(['^', '~', '>', '<', '=', 'v', ' ']);
    let end = numbers.find(['-', '+']).unwrap_or(numbers.len());
    let suffix = &numbers[end..];
    let parts: Vec<&str> = numbers[..end].split('.').collect();
    let is_number = |part: &&str| (1..=5).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    // What follows is short words: `-beta.1`, not half a token.
    let is_short = suffix.split(['-', '+', '.']).all(|word| word.len() <= 8);
    (2..=4).contains(&parts.len()) && parts.iter().all(is_number) && suffix.len() <= 24 && is_short
}

/// Several capitalized words in one, such as a password. A type name looks the same, but has a telling word.
pub(crate) fn words(value: &[u8]) -> bool {
    const OF_TYPES: &[&str] = &[
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "credential",
        "string",
        "str",
        "text",
        "type",
        "field",
        "input",
        "hash",
        "value",
        "option",
        "optional",
        "config",
        "policy",
        "error",
        "request",
        "response",
        "form",
        "schema",
        "props",
        "manager",
        "service",
        "provider",
        "handler",
        "encoder",
        "hasher",
        "validator",
        "generator",
        "box",
        "array",
        "bytes",
        "buffer",
        "char",
        "object",
        "key",
        "auth",
        "user",
        "must",
        "required",
        "invalid",
        "incorrect",
        "reset",
        "change",
        "changed",
        "new",
        "current",
        "not",
        "is",
        "your",
        "enter",
        "null",
        "none",
        "list",
        "map",
        "any",
        "data",
        "model",
        "entity",
        "column",
        "callback",
        "function",
        "factory",
        "builder",
        "reader",
        "source",
        "store",
    ];
    let text = String::from_utf8_lossy(value);
    let mut words: Vec<String> = Vec::new();
    for letter in text.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_lowercase().collect()),
        }
    }
    !is_placeholder(value) && !words.iter().any(|word| OF_TYPES.contains(&word.as_str()))
}

/// The right side of a quoted assignment.
pub(crate) fn quoted(value: &[u8]) -> bool {
    !is_placeholder(value) && !is_code(value) && !is_path(value) && !is_prose(value) && !is_type(value)
}

/// The right side of `NAME=` in an environment.
pub(crate) fn environment(value: &[u8]) -> bool {
    !is_placeholder(value) && !is_code(value) && !is_path(value)
}

/// Whether a shell or an interpreter would run the value rather than keep it: who decides about a file has to see it. A passphrase of words and
/// signs is shown too, if it stands in quotes: what is hidden for its name alone may be anything.
fn is_code(value: &[u8]) -> bool {
    let has = |what: &str| value.windows(what.len()).any(|window| window == what.as_bytes());
    let blank = value.iter().any(u8::is_ascii_whitespace);
    let signs = value.iter().any(|byte| b";|&<>()$`{}".contains(byte));
    // A substitution, and a call with a text.
    (blank && signs) || ["$(", "${", "`", "<(", "('", "(\"", "(\\\"", "()."].iter().any(|what| has(what))
}

/// Checks a value that follows a flag, perhaps in a sentence.
pub(crate) fn flag(value: &[u8]) -> bool {
    quoted(value) && (value.len() >= 12 || value.iter().any(|b| !b.is_ascii_alphabetic() && !b"-_.,:".contains(b)))
}

/// An unquoted right side, perhaps in code or in a sentence.
pub(crate) fn plain(value: &[u8]) -> bool {
    let value = value.strip_suffix(b".").unwrap_or(value);
    if is_placeholder(value) || is_path(value) || is_type(value) || b"&*@!|>%-.".contains(&value[0]) {
        return false;
    }
    let digits = count(value, u8::is_ascii_digit);
    if value.iter().all(|b| is_word(*b) || b"-.:".contains(b)) {
        let several_words = value.iter().any(|b| b"_-.:".contains(b));
        return match several_words {
            true => value.len() >= 16 && (digits >= 4 || mixed(value)) && !is_lookup(value),
            false => digits >= 1,
        };
    }
    digits >= 1 || value.iter().any(|b| b"!@#$^*+=~%?".contains(b))
}

/// Long and random-looking: letters of both cases and digits.
pub(crate) fn random(value: &[u8]) -> bool {
    let (upper, lower) = (count(value, u8::is_ascii_uppercase), count(value, u8::is_ascii_lowercase));
    let digits = count(value, u8::is_ascii_digit);
    upper >= 3 && lower >= 3 && digits >= 2 && !is_placeholder(value) && !is_path(value)
}

/// A token, not a word: digits, or letters of both cases beyond a capital at the beginning.
pub(crate) fn mixed(value: &[u8]) -> bool {
    let inner = value.get(1..).unwrap_or_default();
    !is_placeholder(value)
        && (inner.iter().any(u8::is_ascii_digit)
            || (inner.iter().any(u8::is_ascii_uppercase) && inner.iter().any(u8::is_ascii_lowercase)))
}

/// Letters of both cases behind the prefix, as almost every token of 20 and more random letters has: a name of lower-case words has not.
pub(crate) fn both_cases(value: &[u8]) -> bool {
    // Vendors' prefixes have at most this many bytes, and one case.
    let value = value.get(4..).unwrap_or_default();
    value.iter().any(u8::is_ascii_uppercase) && value.iter().any(u8::is_ascii_lowercase)
}

/// Letters of both cases, and not `getUserOrders`: in words most letters and the next are lower-case, in random ones every sixth.
pub(crate) fn no_words(value: &[u8]) -> bool {
    let lower = value.windows(2).filter(|pair| pair.iter().all(u8::is_ascii_lowercase)).count();
    both_cases(value) && lower * 2 <= value.len()
}

/// A digit, which a constant's name in capitals seldom has.
pub(crate) fn any_digit(value: &[u8]) -> bool {
    value.iter().any(u8::is_ascii_digit)
}

/// Checks a value that follows `Authorization:`.
pub(crate) fn header(value: &[u8]) -> bool {
    // A sentence about the header has spaces and no parameters.
    let sentence = value.contains(&b' ') && !value.contains(&b'=');
    mixed(value) && !sentence && !is_path(value)
}

/// Base64 of `user:password`.
pub(crate) fn basic_credentials(value: &[u8]) -> bool {
    from_base64(value)
        .is_some_and(|text| text.contains(&b':') && text.iter().all(|b| (0x20..0x7f).contains(b) || *b >= 0x80))
}

/// Entropy in bits per character.
pub(crate) fn entropy(value: &[u8]) -> f64 {
    let mut counts = [0_usize; 256];
    for byte in value {
        counts[usize::from(*byte)] += 1;
    }
    let length = value.len() as f64;
    let bits = |count: usize| (count as f64 / length) * (length / count as f64).log2();
    counts.into_iter().filter(|count| *count > 0).map(bits).sum()
}

/// A placeholder: a reference that is resolved later, a blank to fill in, an already redacted value.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    /// The delimiters of blanks and templates.
    const ENCLOSED: &[(&str, &str)] =
        &[("<", ">"), ("[", "]"), ("{", "}"), ("%(", ")s"), ("%", "%"), ("__", "__"), ("#{", "}"), ("@{", "}")];
    /// The prefixes of references, whose end may have been truncated.
    const OPENED: &[&str] = &["${", "$(", "{{", "<%", "your_", "your-", "xxxx"];
    const WORDS: &[&str] = &["%s", "%v", "%d", "%q", "{0}", "null", "none", "nil", "true", "false", "undefined"];
    let text = String::from_utf8_lossy(value.trim_ascii()).to_ascii_lowercase();
    text.len() < 2
        || text.contains("redacted")
        || text.ends_with("...")
        || WORDS.contains(&text.as_str())
        || OPENED.iter().any(|open| text.starts_with(open))
        || ENCLOSED.iter().any(|(open, close)| text.starts_with(open) && text.ends_with(close))
        || is_variable(text.as_bytes())
        || is_mask(&text)
}

/// `$DB_PASSWORD`, and not `$2b$…`.
fn is_variable(text: &[u8]) -> bool {
    let name = text.strip_prefix(b"$").filter(|name| name.first().is_some_and(|first| !first.is_ascii_digit()));
    name.is_some_and(|name| name.iter().all(|byte| is_word(*byte) || b"{}:-().".contains(byte)))
}

/// Whether a value is a character again and again, or mostly asterisks or dots. Digits are not a mask: `11111111` is a possible password.
fn is_mask(text: &str) -> bool {
    let first = text.chars().next().unwrap_or_default();
    let masks = text.chars().filter(|c| ['*', '•'].contains(c)).count();
    masks * 2 > text.chars().count() || (!first.is_ascii_digit() && text.chars().all(|c| c == first))
}

/// Whether a value is a reference and nothing else: `${secret:NAME}`, `${step.output}`.
pub(crate) fn is_reference(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| is_word(byte) || b".:-[]".contains(&byte)))
}

/// A file path or a URL. Secrets in URLs have rules of their own.
fn is_path(value: &[u8]) -> bool {
    let begins = |starts: &[&str]| starts.iter().any(|start| value.starts_with(start.as_bytes()));
    // Base64 can begin with a slash, too.
    let rooted = value.starts_with(b"/") && count(value, |byte| *byte == b'/') >= 2;
    let of_path = value.iter().all(|byte| is_word(*byte) || b"/.-~*@".contains(byte));
    begins(&["http://", "https://", "file:"]) || (of_path && (rooted || begins(&["./", "../", "~/"])))
}

/// A sentence: a message or a description. A passphrase of some words has no capital, no full stop, and is no longer than six.
fn is_prose(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let is_plain = |word: &&str| {
        word.trim_end_matches(['.', ',', ':', '!', '?', ')'])
            .trim_start_matches('(')
            .chars()
            .all(|c| c.is_alphabetic() || "'’-/%{}".contains(c))
    };
    let is_sentence = words.len() >= 7 || text.starts_with(char::is_uppercase) || text.ends_with(['.', '!', '?', ':']);
    words.len() >= 3 && is_sentence && words.iter().filter(|word| is_plain(word)).count() * 3 >= words.len() * 2
}

/// The name of a type or of an algorithm.
fn is_type(value: &[u8]) -> bool {
    const TYPES: &[&str] = &[
        "string",
        "str",
        "text",
        "number",
        "integer",
        "boolean",
        "bool",
        "object",
        "array",
        "bytes",
        "password",
        "token",
        "secret",
        "secretstr",
        "required",
        "optional",
        "uint8array",
        "uint256",
        "int32",
        "int64",
        "float64",
        "sha256",
        "sha512",
        "sha-256",
        "sha1",
        "hmac-sha256",
        "hmac-sha1",
        "ed25519",
        "x25519",
        "secp256k1",
        "es256",
        "rs256",
        "hs256",
        "eddsa",
        "aes-256-gcm",
        "aes256",
        "utf-8",
        "utf8",
        "base64",
        "base58",
        "bcrypt",
        "argon2id",
        "argon2",
        "pbkdf2",
        "oauth2",
        "bearer",
        "jwt",
        "basic",
        "api_key",
        "apikey",
        "cl100k_base",
        "o200k_base",
        "varchar",
        "field",
        "hidden",
        "write",
        "read",
        "env",
        "keyword",
        "identifier",
    ];
    std::str::from_utf8(value).is_ok_and(|text| TYPES.contains(&text.to_ascii_lowercase().as_str()))
}

/// Code that gets a value from somewhere: `os.environ`, `self.token2`, `config::secret`.
fn is_lookup(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    let identifier = |part: &str| part.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    // A token has more digits than a name.
    if count(value, u8::is_ascii_digit) > 2 {
        return false;
    }
    let parts: Vec<&str> = text.split(['.', ':']).filter(|part| !part.is_empty()).collect();
    parts.len() >= 2
        && parts.len() <= 5
        && parts.iter().all(|part| identifier(part) && part.len() <= 24 && part.bytes().all(is_word))
}

fn count(value: &[u8], what: impl Fn(&u8) -> bool) -> usize {
    value.iter().filter(|byte| what(byte)).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_blanks_are_placeholders() {
        for value in [
            "",
            "x",
            "${secret:DB}",
            "${DB_PASSWORD}",
            "$DB_PASSWORD",
            "$(cat file)",
            "<password>",
            "{{ password }}",
            "%s",
            "********",
            "xxxxxxxx",
            "[REDACTED]",
            "null",
            "None",
            "your_api_key",
            "%(password)s",
            "sk-...",
            "%DB_PASSWORD%",
        ] {
            assert!(is_placeholder(value.as_bytes()), "{value}");
        }
        for value in ["hunter2", "$2b$10$abc", "p$ss", "11111111", "changeme", "a{b}"] {
            assert!(!is_placeholder(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn entropy_is_bits_a_character() {
        assert_eq!(entropy(b"aaaa"), 0.0);
        assert_eq!(entropy(b"abcd"), 2.0);
        assert!((entropy(b"0123456789abcdef") - 4.0).abs() < 1e-9);
    }
}
