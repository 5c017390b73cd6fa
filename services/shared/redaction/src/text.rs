//! Redacts text.

use crate::{FoundSecret, REDACTED, Redactor};

/// A redacted text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedText {
    /// With [`REDACTED`] in place of secrets.
    pub text: String,
    /// The hidden secrets, in order.
    pub found: Vec<FoundSecret>,
}

impl Redactor {
    /// Redacts a text. Idempotent.
    pub fn redact_text(&self, text: &str) -> RedactedText {
        let found = self.scan(text.as_bytes());
        let shown = replaced(text.as_bytes(), 0, text.len(), &found);
        // Secrets end at character boundaries, so the lossy conversion never replaces anything.
        RedactedText {
            text: String::from_utf8(shown).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
            found,
        }
    }

    /// Bytes without their secrets: a whole file, or output that has ended. For output that continues there is [`Stream`](crate::Stream).
    pub fn redact_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        replaced(bytes, 0, bytes.len(), &self.scan(bytes))
    }
}

/// The part of the text from `from` to `to` with what was found there replaced.
pub(crate) fn replaced(text: &[u8], from: usize, to: usize, found: &[FoundSecret]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(to.saturating_sub(from));
    let mut at = from;
    for found in found.iter().filter(|found| found.end > from && found.start < to) {
        shown.extend_from_slice(&text[at..found.start.max(from)]);
        shown.extend_from_slice(REDACTED.as_bytes());
        at = found.end.min(to);
    }
    shown.extend_from_slice(&text[at..to]);
    shown
}
