//! Removes the values of credentials from what a host answers.

use std::sync::Arc;

use belay_redaction::ValueFinder;
use http::HeaderValue;

use crate::filter::{BoxError, Filter, Window};

/// The values of a call, and what commands see in their place.
#[derive(Debug)]
pub(crate) struct Values {
    finder: ValueFinder,
    /// The placeholder of each value of its own length.
    placeholders: Vec<(zeroize::Zeroizing<Vec<u8>>, String)>,
}

impl Values {
    /// The values with their placeholders. `None`: there are none.
    pub(crate) fn new<'a>(values: impl Iterator<Item = (&'a [u8], &'a str)> + Clone) -> Option<Self> {
        let finder = ValueFinder::new(values.clone().map(|(value, _)| value))?;
        let of_one_length = values.filter(|(value, placeholder)| value.len() == placeholder.len());
        let placeholders = of_one_length.map(|(value, placeholder)| (value.to_vec().into(), placeholder.to_owned()));
        Some(Self { finder, placeholders: placeholders.collect() })
    }

    /// Replaces each value in a text that is whole. The length stays.
    pub(crate) fn replace(&self, text: &mut [u8]) {
        let found: Vec<_> = self.finder.find(text).collect();
        for range in found {
            let Some(value) = text.get_mut(range) else { continue };
            match self.placeholders.iter().find(|(known, _)| known.as_slice() == value) {
                Some((_, placeholder)) => value.copy_from_slice(placeholder.as_bytes()),
                None => value.fill(b'*'),
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

    /// Adds bytes, and returns those that pass now.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let text = self.window.add(piece);
        let mut end = text.len() - self.values.finder.pending(text);
        // A value that is there may be the beginning of a longer one.
        if let Some(found) = self.values.finder.find(text).find(|found| found.start < end && end < found.end) {
            end = found.start;
        }
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
