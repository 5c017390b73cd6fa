//! Shortens what is shown.
//!
//! The party that wants an approval also wrote the text that is shown. All of it passes `belay_text`, which writes out everything that moves the
//! cursor, or hides, reorders or recolours other text.

/// The first `longest` characters, and the number of characters left out.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} … {} more characters", &text[..end], number(text[end..].chars().count())),
    }
}

/// A number with thousands separators.
pub(crate) fn number(n: usize) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut shown = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !shown.is_empty() {
            shown.push(',');
        }
        shown.extend(group.iter().map(|&digit| char::from(digit)));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character_and_says_so() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 2), "äö … 2 more characters");
        assert_eq!(
            [0, 12, 123, 1_234, 123_456, 1_234_567].map(number),
            ["0", "12", "123", "1,234", "123,456", "1,234,567"]
        );
    }
}
