//! Arguments that name outputs of other steps: `${STEP.result.path}`.
//!
//! `STEP` is a step's id, the first part of the path is `result` (or `output`: the same thing), `outputs`, `results`, `state` or `failure`, and then come `.name`, `[0]` or
//! `["odd key"]`. `${a.result ?? b.result ?? 0}` is the first that leads somewhere and not to null, else the JSON value at its end. A string that is exactly one reference takes the type of what it names; inside a longer string the value is written
//! out, strings as they are and everything else as compact JSON. `$${` stands for a literal `${`. Keys of objects and the arguments that a
//! step lists as verbatim are never templates, and what a reference brings in is never looked at for further references.

mod condition;
mod reference;
mod resolve;
mod step_value;

use serde_json::Value;

use crate::{
    limits::MAX_DEPTH,
    path::{FieldPath, Segment},
};
pub(crate) use belay_json::size as json_size;
pub use condition::{Condition, ConditionValues};
use reference::Piece;
pub(crate) use reference::{Choice, Reference};
pub use resolve::UnresolvedReference;
pub(crate) use resolve::type_name;
pub use step_value::StepValue;

/// A JSON value whose strings may name outputs of steps. Every reference in it is well-formed; whether the steps exist is the plan's
/// to check.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    source: Value,
    sites: Vec<Site>,
}

/// A string that is not simply itself.
#[derive(Clone, Debug, PartialEq)]
struct Site {
    path: FieldPath,
    text: Text,
}

#[derive(Clone, Debug, PartialEq)]
enum Text {
    /// The whole string is one reference, or a choice of several.
    Whole(Choice),
    /// Literal text and references in turn; at least one reference or one escaped `${`.
    Mixed(Vec<Piece>),
}

/// A problem with one string of a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct TemplateError {
    /// Where the string stands inside the value, as an RFC 6901 JSON pointer.
    pub path: String,
    /// The problem, and what to write instead.
    pub message: String,
    /// The same place, for messages that speak of the whole plan.
    pub(crate) field: FieldPath,
}

impl Template {
    /// Reads the references of a value. Every string that cannot be understood is an error of its own; so is nesting that is deeper than
    /// [`MAX_DEPTH`].
    ///
    /// # Errors
    /// Every [`TemplateError`], in the order of the value.
    pub fn parse(value: &Value) -> Result<Self, Vec<TemplateError>> {
        Self::parse_except(value, &[])
    }

    /// The same, except that the members of these names of an object are taken verbatim, with everything in them.
    ///
    /// # Errors
    /// Every [`TemplateError`], in the order of the value.
    pub fn parse_except(value: &Value, verbatim: &[String]) -> Result<Self, Vec<TemplateError>> {
        let (template, errors) = Self::read(value, verbatim);
        if errors.is_empty() { Ok(template) } else { Err(errors) }
    }

    /// The references of every string that can be understood, and the errors of the others.
    pub(crate) fn read(value: &Value, verbatim: &[String]) -> (Self, Vec<TemplateError>) {
        let mut parser = Parser { verbatim, ..Parser::default() };
        parser.visit(value);
        (Self { source: value.clone(), sites: parser.sites }, parser.errors)
    }

    /// Whether the value names no step, so that what it resolves to is known before anything runs. It may still hold an escaped `${`,
    /// which [`Template::resolve`] writes out.
    pub fn is_constant(&self) -> bool {
        self.references().next().is_none()
    }

    /// Whether the value is a string that is exactly one reference, and takes the type of what that names.
    pub(crate) fn is_one_reference(&self) -> bool {
        self.source.is_string() && matches!(&self.sites[..], [Site { text: Text::Whole(_), .. }])
    }

    /// The value as it was written, references and escapes included.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Steps that are named, each with the value of it that is named, once for each time it is named.
    pub fn values(&self) -> impl Iterator<Item = (&str, StepValue)> {
        self.references().map(|(_, reference)| (reference.step(), reference.value()))
    }

    /// The strings that contain a reference, as RFC 6901 JSON pointers in the order of the value. What stands there is known only once
    /// the steps have run.
    pub fn reference_paths(&self) -> Vec<String> {
        self.sites.iter().filter(|site| site.references().next().is_some()).map(|site| site.path.pointer()).collect()
    }

    /// The strings that name inputs of the plan, as RFC 6901 JSON pointers, each with the name of an input.
    pub fn named_inputs(&self) -> impl Iterator<Item = (String, &str)> {
        self.references().filter_map(|(path, reference)| Some((path.pointer(), reference.input()?)))
    }

    /// Each reference with the place of the string that contains it.
    pub(crate) fn references(&self) -> impl Iterator<Item = (&FieldPath, &Reference)> {
        self.sites.iter().flat_map(|site| site.references().map(|reference| (&site.path, reference)))
    }
}

impl Site {
    fn references(&self) -> impl Iterator<Item = &Reference> {
        let (whole, pieces) = match &self.text {
            Text::Whole(choice) => (Some(choice), &[][..]),
            Text::Mixed(pieces) => (None, &pieces[..]),
        };
        let choices = whole.into_iter().chain(pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Choice(choice) => Some(choice),
        }));
        choices.flat_map(|choice| choice.references())
    }
}

/// The walk over a value that collects its templates.
#[derive(Default)]
struct Parser<'a> {
    /// The names of members right below the root whose strings are not templates.
    verbatim: &'a [String],
    path: FieldPath,
    sites: Vec<Site>,
    errors: Vec<TemplateError>,
}

impl Parser<'_> {
    fn visit(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.visit_text(text),
            Value::Array(_) | Value::Object(_) if self.path.segments().len() == MAX_DEPTH => {
                self.refuse(format!("is nested deeper than {MAX_DEPTH} levels: flatten it, or pass it as text"));
            }
            Value::Array(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    self.visit_at(Segment::Index(index), entry);
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    self.visit_at(Segment::Key(key.clone().into()), field);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn visit_at(&mut self, segment: Segment, value: &Value) {
        self.path.push(segment);
        self.visit(value);
        self.path.pop();
    }

    fn visit_text(&mut self, text: &str) {
        if !text.contains("${") || self.is_verbatim() {
            return;
        }
        match reference::pieces(text) {
            Ok(mut pieces) => {
                let text = match pieces.pop() {
                    Some(Piece::Choice(choice)) if pieces.is_empty() => Text::Whole(choice),
                    last => {
                        pieces.extend(last);
                        Text::Mixed(pieces)
                    }
                };
                self.sites.push(Site { path: self.path.clone(), text });
            }
            Err(message) => self.refuse(message),
        }
    }

    fn is_verbatim(&self) -> bool {
        matches!(self.path.segments(), [Segment::Key(name), ..] if self.verbatim.iter().any(|verbatim| verbatim == name))
    }

    fn refuse(&mut self, message: String) {
        self.errors.push(TemplateError { path: self.path.pointer(), message, field: self.path.clone() });
    }
}

#[cfg(test)]
mod tests;
