//! The key of a server, and where it stands in a request.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use belay_network::{Placement, Secret};
use reqwest::header::{HeaderName, HeaderValue};

/// The text in place of a key that a server has repeated.
const HIDDEN: &str = "[REDACTED]";

pub(crate) struct Key<'a> {
    pub(crate) placement: &'a Placement,
    pub(crate) secret: &'a Secret,
}

impl Key<'_> {
    /// The header with the key, which no log shows.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = match self.placement {
            Placement::Header { name, prefix } => (name.as_str(), [prefix.as_bytes(), self.secret.expose()].concat()),
            Placement::Basic { user } => {
                let pair = [user.as_bytes(), b":", self.secret.expose()].concat();
                ("authorization", format!("Basic {}", STANDARD.encode(pair)).into_bytes())
            }
            Placement::Query { .. } => return None,
        };
        // A credential's name and value have been checked where they were read.
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_bytes(&value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }

    /// The parameter with the key.
    pub(crate) fn parameter(&self) -> Option<(&str, String)> {
        let Placement::Query { name } = self.placement else { return None };
        Some((name, String::from_utf8_lossy(self.secret.expose()).into_owned()))
    }

    /// Replaces the key where it stands: as it is, and as it stands in a header or a URL.
    pub(crate) fn hide(&self, text: &mut String) {
        for form in self.forms() {
            if text.contains(&form) {
                *text = text.replace(&form, HIDDEN);
            }
        }
    }

    /// The length of the longest form that is replaced, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.forms().iter().map(String::len).max().unwrap_or_default()
    }

    fn forms(&self) -> Vec<String> {
        let Ok(secret) = std::str::from_utf8(self.secret.expose()) else { return Vec::new() };
        let mut forms = vec![secret.to_owned()];
        match self.placement {
            Placement::Header { .. } => {}
            Placement::Basic { user } => forms.push(STANDARD.encode(format!("{user}:{secret}"))),
            Placement::Query { .. } => forms.extend([in_query(secret, false), in_query(secret, true)]),
        }
        forms
    }
}

/// A text as it stands in a query: all but letters, digits, `-`, `.`, `_` and `*` as two hexadecimal digits, which servers write in either case.
fn in_query(text: &str, is_lower: bool) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => char::from(byte).to_string(),
        _ if is_lower => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hidden_in_every_form_that_it_was_sent_in() {
        let secret = Secret::new(b"a+b/c=d0123".to_vec()).unwrap();
        let hidden = |placement: &Placement, text: &str| {
            let mut text = text.to_owned();
            Key { placement, secret: &secret }.hide(&mut text);
            text
        };
        let header = Placement::Header { name: "x".to_owned(), prefix: String::new() };
        assert_eq!(hidden(&header, "x: a+b/c=d0123, twice a+b/c=d0123"), "x: [REDACTED], twice [REDACTED]");
        let basic = Placement::Basic { user: "me".to_owned() };
        assert_eq!(hidden(&basic, "Basic bWU6YStiL2M9ZDAxMjM="), "Basic [REDACTED]");
        let query = Placement::Query { name: "key".to_owned() };
        let sent = Key { placement: &query, secret: &secret };
        assert_eq!(sent.parameter().unwrap().1, "a+b/c=d0123");
        for text in ["?key=a%2Bb%2Fc%3Dd0123", "?key=a%2bb%2fc%3dd0123", "?key=a+b/c=d0123"] {
            assert_eq!(hidden(&query, text), "?key=[REDACTED]", "{text}");
        }
    }
}
