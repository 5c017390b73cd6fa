//! Untrusted text for messages.

/// The maximum number of characters shown.
const MAX_CHARS: usize = 200;

/// The beginning of a text in one line, with what cannot be seen written out.
pub fn shown(text: &str) -> String {
    belay_text::shown(text, MAX_CHARS)
}
