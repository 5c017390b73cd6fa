//! Untrusted text for messages.

/// The maximum number of characters shown.
const MAX_CHARS: usize = 200;

/// The text in one line and bounded, with misleading characters escaped.
pub fn shown(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars().take(MAX_CHARS) {
        match character {
            '\n' => shown.push_str("\\n"),
            misleading if misleads(misleading) => shown.extend(misleading.escape_unicode()),
            other => shown.push(other),
        }
    }
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether a character breaks a line, turns the direction of reading, or has no width.
pub fn misleads(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
