//! The texts in messages that people, plans, tools and policies have written, and in which secrets are hidden.

use std::collections::BTreeMap;

/// A text in a message, by the mark of its field: `Text` in `belay/v1/options.proto`.
#[derive(Debug)]
pub enum Text<'a> {
    /// Words.
    Words(&'a mut String),
    /// A whole value.
    Value(&'a mut String),
    /// A JSON value as text.
    Json(&'a mut String),
    /// A JSON Schema as text.
    Schema(&'a mut String),
    /// Labels.
    Labels(&'a mut BTreeMap<String, String>),
}

/// Receives each text of a message.
pub type Each<'a> = &'a mut dyn FnMut(Text<'_>);

/// A message with texts. The implementations are generated from the option `(belay.v1.text)` of the fields, so that none is left out.
pub trait Texts {
    /// Visits the texts, at any depth. Names, ids, digests and numbers are not texts: Belay compares them.
    fn texts(&mut self, each: Each<'_>);
}

#[allow(clippy::single_match)]
mod generated {
    use super::{Each, Text, Texts};

    include!(concat!(env!("OUT_DIR"), "/texts.rs"));
}
