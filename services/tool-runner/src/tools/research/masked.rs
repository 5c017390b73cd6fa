//! Documents without what looks like a secret. Pure.

use std::borrow::Cow;

use belay_redaction::Redactor;

/// A document in which each secret is `*`, at the same places and in the same lines: neither an index nor an extract has it.
pub(super) fn masked<'a>(redactor: &Redactor, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    let text = same_places(bytes);
    if !redactor.may_hide(&text) {
        return Cow::Borrowed(bytes);
    }
    let mut masked = bytes.to_vec();
    for secret in redactor.redact_text(&text).found {
        for byte in masked.iter_mut().take(secret.end).skip(secret.start) {
            if !matches!(byte, b'\n' | b'\r') {
                *byte = b'*';
            }
        }
    }
    Cow::Owned(masked)
}

/// The text of these bytes, in which each character stands where its bytes do.
fn same_places(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n('?', chunk.invalid().len()));
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_where_it_stands() {
        let redactor = Redactor::new();
        let key = "MIIEpAIBAAKCAQEA7Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0Zx0\n".repeat(3);
        let text = format!("one é\n-----BEGIN RSA PRIVATE KEY-----\n{key}-----END RSA PRIVATE KEY-----\ntwo\n");
        let shown = String::from_utf8(masked(&redactor, text.as_bytes()).into_owned()).unwrap();
        assert_eq!((shown.len(), shown.lines().count()), (text.len(), text.lines().count()));
        assert!(shown.ends_with("-----END RSA PRIVATE KEY-----\ntwo\n") && !shown.contains("MIIE"), "{shown}");
        let latin = b"caf\xe9 token ghp_0123456789abcdefghijABCDEFGHIJ012345 here";
        let shown = masked(&redactor, latin);
        assert!(shown.starts_with(b"caf\xe9 token ****") && shown.ends_with(b"* here") && shown.len() == latin.len());
        assert!(matches!(masked(&redactor, b"plain"), Cow::Borrowed(_)));
    }
}
