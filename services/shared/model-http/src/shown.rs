//! The parts of an answer that are shown while it comes.

use belay_model::Delta;

use crate::key::Key;

/// Takes the parts of an answer that are to be shown.
pub type Show<'a> = &'a (dyn Fn(Delta) + Send + Sync);

/// Hides the key in what is shown, also where it comes in several parts: what may be the beginning of it is held until more has come.
pub(crate) struct ShownParts<'a> {
    key: Option<&'a Key<'a>>,
    show: Show<'a>,
    text: String,
    reasoning: String,
}

impl<'a> ShownParts<'a> {
    pub(crate) fn new(key: Option<&'a Key<'a>>, show: Show<'a>) -> Self {
        Self { key, show, text: String::new(), reasoning: String::new() }
    }

    /// Shows a part, as far as it can be shown now.
    pub(crate) fn take(&mut self, delta: Delta) {
        let Some(key) = self.key else { return (self.show)(delta) };
        match delta {
            Delta::Text(part) => self.text.push_str(&part),
            Delta::Reasoning(part) => self.reasoning.push_str(&part),
            Delta::Call(mut tool) => {
                key.hide(&mut tool);
                return (self.show)(Delta::Call(tool));
            }
        }
        self.show_all_but(key.longest().saturating_sub(1));
    }

    /// The answer has ended: shows the rest.
    pub(crate) fn end(mut self) {
        self.show_all_but(0);
    }

    fn show_all_but(&mut self, held: usize) {
        for (text, delta) in [
            (&mut self.text, Delta::Text as fn(String) -> Delta),
            (&mut self.reasoning, Delta::Reasoning as fn(String) -> Delta),
        ] {
            if let Some(key) = self.key {
                key.hide(text);
            }
            let end = text.floor_char_boundary(text.len().saturating_sub(held));
            if end > 0 {
                (self.show)(delta(text.drain(..end).collect()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use belay_network::{Placement, Secret};

    use super::*;

    /// A server that repeats the key is not shown doing so, wherever the parts are cut.
    #[test]
    fn a_key_is_hidden_in_parts() {
        let (placement, secret) = (
            Placement::Header { name: "authorization".into(), prefix: "Bearer ".into() },
            Secret::new(b"sk-hush-hush".to_vec()).unwrap(),
        );
        let key = Key { placement: &placement, secret: &secret };
        let text = "é the key is sk-hush-hush, and sk-hush-hus is not";
        for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let seen = Mutex::new(Vec::new());
            let show = |delta| seen.lock().unwrap().push(delta);
            let mut shown = ShownParts::new(Some(&key), &show);
            shown.take(Delta::Text(text[..cut].to_owned()));
            shown.take(Delta::Reasoning("sk-".to_owned()));
            shown.take(Delta::Text(text[cut..].to_owned()));
            shown.take(Delta::Reasoning("hush-hush".to_owned()));
            shown.end();
            let (mut texts, mut reasonings) = (String::new(), String::new());
            for delta in seen.into_inner().unwrap() {
                match delta {
                    Delta::Text(part) => texts.push_str(&part),
                    Delta::Reasoning(part) => reasonings.push_str(&part),
                    Delta::Call(tool) => panic!("{tool}"),
                }
            }
            assert_eq!(texts, "é the key is [REDACTED], and sk-hush-hus is not", "cut at {cut}");
            assert_eq!(reasonings, "[REDACTED]");
        }
    }
}
