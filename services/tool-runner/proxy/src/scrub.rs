//! Removes the values of credentials from what a host answers.

use std::sync::Arc;

use belay_redaction::{FoundValue, ValueFinder};
use http::HeaderValue;

use crate::filter::{BoxError, Filter, Window};

/// The values of a call, and what commands see in their place.
#[derive(Debug)]
pub(crate) struct Values {
    finder: ValueFinder,
    /// The placeholders, in the order of the values.
    placeholders: Vec<String>,
}

impl Values {
    /// The values with their placeholders. `None`: there are none.
    pub(crate) fn new<'a>(values: impl Iterator<Item = (&'a [u8], &'a str)> + Clone) -> Option<Self> {
        let finder = ValueFinder::new(values.clone().map(|(value, _)| value))?;
        Some(Self { finder, placeholders: values.map(|(_, placeholder)| placeholder.to_owned()).collect() })
    }

    /// Replaces each value in a text that is whole. The length stays.
    pub(crate) fn replace(&self, text: &mut [u8]) {
        for FoundValue { value, range } in self.finder.find(text) {
            let Some(found) = text.get_mut(range) else { continue };
            match self.placeholders.get(value) {
                Some(placeholder) if placeholder.len() == found.len() => found.copy_from_slice(placeholder.as_bytes()),
                _ => found.fill(b'*'),
            }
        }
    }

    /// A header without values.
    pub(crate) fn header(&self, value: &HeaderValue) -> HeaderValue {
        let mut bytes = value.as_bytes().to_vec();
        self.replace(&mut bytes);
        let mut replaced = HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| HeaderValue::from_static("*"));
        replaced.set_sensitive(value.is_sensitive());
        replaced
    }
}

/// Replaces the values in bytes that arrive in pieces.
#[derive(Debug)]
pub(crate) struct Scrubber {
    values: Arc<Values>,
    /// What may be the beginning of a value.
    window: Window,
}

impl Scrubber {
    pub(crate) fn new(values: Arc<Values>) -> Self {
        Self { values, window: Window::default() }
    }

    /// One for other bytes of the same host.
    pub(crate) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.values))
    }

    /// Adds bytes, and returns those that pass now.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let text = self.window.add(piece);
        let end = self.values.finder.settled(text);
        if let Some(whole) = text.get_mut(..end) {
            self.values.replace(whole);
        }
        self.window.release(end)
    }

    /// Ends the text, and returns the rest.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let text = self.window.add(&[]);
        let end = text.len();
        self.values.replace(text);
        self.window.release(end)
    }
}

impl Filter for Scrubber {
    fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, BoxError> {
        Ok(self.push(piece))
    }

    fn finish(&mut self) -> Vec<u8> {
        self.finish()
    }

    fn held(&self) -> usize {
        self.window.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "ghp_0123456789abcdef";
    const PLACEHOLDER: &str = "ghp_AAAABBBBCCCCDDDD";

    fn values() -> Arc<Values> {
        let all = [(VALUE.as_bytes(), PLACEHOLDER), ("longer/than its".as_bytes(), "short")];
        Arc::new(Values::new(all.into_iter()).unwrap())
    }

    #[test]
    fn a_value_is_replaced_by_its_placeholder_and_its_spellings_by_stars() {
        let mut text = br#"{"a":"ghp_0123456789abcdef","b":"longer\/than its","c":"longer%2Fthan%20its"}"#.to_vec();
        let length = text.len();
        values().replace(&mut text);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.len(), length);
        assert_eq!(text, format!(r#"{{"a":"{PLACEHOLDER}","b":"{}","c":"{}"}}"#, "*".repeat(16), "*".repeat(19)));
    }

    /// Wherever a text is cut into two or three pieces, no value passes and the length stays.
    #[test]
    fn no_cut_lets_a_value_pass() {
        let text = format!("x={VALUE}{VALUE};Basic dXNlcjpnaHBfMDEyMzQ1Njc4OWFiY2RlZg==;ghp_0123");
        for first in 0..=text.len() {
            for second in (first..=text.len()).step_by(7) {
                let mut scrubber = Scrubber::new(values());
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| scrubber.push(piece.as_bytes())).collect();
                shown.extend(scrubber.finish());
                let shown = String::from_utf8(shown).unwrap();
                assert_eq!(shown.len(), text.len(), "{first} {second}");
                // The few bytes of a beginning that were shown before it was one.
                let spellings = [&VALUE[3..], "wMTIzNDU2Nzg5YWJjZGVm"];
                assert!(spellings.iter().all(|spelling| !shown.contains(spelling)), "{first} {second}: {shown}");
                assert!(shown.ends_with(";ghp_0123"), "{shown}");
            }
        }
    }

    #[test]
    fn a_value_that_begins_a_longer_one_waits_for_it() {
        let all = [(b"abcdefgh".as_slice(), "x"), (b"abcdefgh-abcdefgh".as_slice(), "y")];
        let mut scrubber = Scrubber::new(Arc::new(Values::new(all.into_iter()).unwrap()));
        let shown =
            [scrubber.push(b"1 abcdefgh"), scrubber.push(b"-abcd"), scrubber.push(b"efgh 2"), scrubber.finish()];
        assert_eq!(shown.concat(), b"1 ***************** 2");
    }

    #[test]
    fn what_cannot_be_the_beginning_of_a_value_is_not_held() {
        let mut scrubber = Scrubber::new(values());
        assert_eq!(scrubber.push(b"data: {\"text\": \"Hello\"}\n\n"), b"data: {\"text\": \"Hello\"}\n\n");
        // Nor is what says too little of one.
        assert_eq!(scrubber.push(b"xgh"), b"xgh");
        assert_eq!(scrubber.push(b"p"), b"p");
        assert_eq!(scrubber.push(b"_0"), b"");
        assert_eq!(scrubber.push(&VALUE.as_bytes()[5..]), b"_AAAABBBBCCCCDDDD");
    }
}
