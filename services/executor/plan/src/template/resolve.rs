//! Putting the outputs in the place of the references.

use std::borrow::Cow;

use belay_json::{MAX_DEPTH, is_too_deep};
use serde_json::Value;

use super::{
    Site, StepValue, Template, Text,
    reference::{Accessor, Choice, Piece, Reference},
};
use crate::{
    limits::MAX_RESOLVED_BYTES,
    nearest,
    path::{FieldPath, Segment, shown},
};

/// A reference that leads nowhere, or to more than fits. The message holds names and types, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnresolvedReference {
    /// The value does not exist.
    #[error("Cannot resolve path: {path} ({found})")]
    Missing {
        /// The whole reference, without `${` and `}`.
        path: String,
        /// Description of the value that was there instead.
        found: String,
    },
    /// The values that the step reads became longer than [`MAX_RESOLVED_BYTES`].
    #[error(
        "Cannot resolve path: {path} (with it what the step reads exceeds {MAX_RESOLVED_BYTES} bytes: name a smaller part of the output)"
    )]
    TooLarge {
        /// The reference at which the limit was exceeded.
        path: String,
    },
    /// The value around the references became nested deeper than JSON is read.
    #[error("With its references resolved it is nested deeper than {MAX_DEPTH} levels: name a part of the output")]
    TooDeep,
}

impl Template {
    /// The value with every reference replaced. `output` gives what a step has, `None` when it has none. What it gives
    /// is taken as it is: text in it that looks like a reference stays text.
    ///
    /// # Errors
    /// The reference that leads nowhere or brings in too much, or [`UnresolvedReference::TooDeep`].
    pub fn resolve<'a>(
        &self,
        output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
    ) -> Result<Value, UnresolvedReference> {
        self.resolve_with(output, Err)
    }

    /// The same, with null in the place of each string in which a reference leads nowhere and nothing takes its place.
    ///
    /// # Errors
    /// [`UnresolvedReference::TooLarge`] when the references bring in more than [`MAX_RESOLVED_BYTES`], [`UnresolvedReference::TooDeep`] when the value becomes
    /// deeper than JSON is read.
    pub fn resolve_or_null<'a>(
        &self,
        output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
    ) -> Result<Value, UnresolvedReference> {
        self.resolve_with(output, |unresolved| match unresolved {
            UnresolvedReference::Missing { .. } => Ok(Value::Null),
            UnresolvedReference::TooLarge { .. } | UnresolvedReference::TooDeep => Err(unresolved),
        })
    }

    /// The value with every reference replaced; `otherwise` gives the value of a string in which one cannot be.
    fn resolve_with<'a>(
        &self,
        output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
        otherwise: impl Fn(UnresolvedReference) -> Result<Value, UnresolvedReference>,
    ) -> Result<Value, UnresolvedReference> {
        let (mut resolved, mut room) = (self.source.clone(), MAX_RESOLVED_BYTES);
        for site in &self.sites {
            *slot(&mut resolved, &site.path) = site.resolve(Absent::Final, output, &mut room).or_else(&otherwise)?;
        }
        if !self.sites.is_empty() && is_too_deep(&resolved) {
            return Err(UnresolvedReference::TooDeep);
        }
        Ok(resolved)
    }

    /// The value with every reference replaced that leads somewhere, and whether others remain: a string with one of those is as it was written. What
    /// the references bring in takes its bytes from `room`; one for which there is too little remains.
    pub fn resolve_known<'a>(
        &self,
        output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
        room: &mut usize,
    ) -> (Value, bool) {
        let (mut resolved, mut others_remain) = (self.source.clone(), false);
        for site in &self.sites {
            match site.resolve(Absent::NotYet, output, room) {
                Ok(value) => *slot(&mut resolved, &site.path) = value,
                Err(_) => others_remain = true,
            }
        }
        (resolved, others_remain)
    }
}

/// The meaning of a reference that leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// There will never be anything: what comes after `??` takes its place.
    Final,
    /// There may be something later: nothing takes its place.
    NotYet,
}

impl Site {
    fn resolve<'a>(
        &self,
        absent: Absent,
        output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
        room: &mut usize,
    ) -> Result<Value, UnresolvedReference> {
        match &self.text {
            Text::Whole(choice) => Ok(chosen(choice, absent, output, room)?.into_owned()),
            Text::Mixed(pieces) => Ok(Value::String(written(pieces, absent, output, room)?)),
        }
    }
}

/// Literal text and what the references name, one after the other.
fn written<'a>(
    pieces: &[Piece],
    absent: Absent,
    output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
    room: &mut usize,
) -> Result<String, UnresolvedReference> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Choice(choice) => match &*chosen(choice, absent, output, room)? {
                Value::String(string) => text.push_str(string),
                other => text.push_str(&other.to_string()),
            },
        }
    }
    Ok(text)
}

/// The value of a choice: the first that is there and not null, else its default. Without a default it is null where one of the references leads to that.
pub(super) fn chosen<'a>(
    choice: &Choice,
    absent: Absent,
    output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
    room: &mut usize,
) -> Result<Cow<'a, Value>, UnresolvedReference> {
    let (mut first_missing, mut has_null) = (None, false);
    let is_alone = choice.references().len() == 1 && choice.default().is_none();
    for reference in choice.references() {
        match find(reference, output) {
            Ok(value) if is_alone || !value.is_null() => {
                spend(room, belay_json::size(&value), reference)?;
                return Ok(value);
            }
            Ok(_) => has_null = true,
            Err(missing) if absent == Absent::NotYet => return Err(missing),
            Err(missing) => first_missing = first_missing.or(Some(missing)),
        }
    }
    match (choice.default(), first_missing) {
        (Some(default), _) => Ok(Cow::Owned(default.clone())),
        (None, Some(missing)) if !has_null => Err(missing),
        (None, _) => Ok(Cow::Owned(Value::Null)),
    }
}

fn spend(room: &mut usize, size: usize, reference: &Reference) -> Result<(), UnresolvedReference> {
    *room = room.checked_sub(size).ok_or_else(|| UnresolvedReference::TooLarge { path: reference.to_string() })?;
    Ok(())
}

/// The place in the value that the template was read from.
fn slot<'v>(value: &'v mut Value, path: &FieldPath) -> &'v mut Value {
    path.segments().iter().fold(value, |value, segment| match segment {
        Segment::Key(key) => &mut value[&**key],
        Segment::Index(index) => &mut value[*index],
    })
}

/// Finds the value that a reference names.
fn find<'a>(
    reference: &Reference,
    output: &dyn Fn(&str, StepValue) -> Option<Cow<'a, Value>>,
) -> Result<Cow<'a, Value>, UnresolvedReference> {
    let missing = |found: String| UnresolvedReference::Missing { path: reference.to_string(), found };
    let step = reference.step();
    let what = if reference.value() == StepValue::Outputs { "outputs" } else { "output" };
    match output(step, reference.value()).ok_or_else(|| missing(format!("step `{step}` has no {what}")))? {
        Cow::Borrowed(value) => descend(value, reference).map(Cow::Borrowed).map_err(missing),
        Cow::Owned(value) if reference.path().is_empty() => Ok(Cow::Owned(value)),
        Cow::Owned(value) => descend(&value, reference).map(|found| Cow::Owned(found.clone())).map_err(missing),
    }
}

/// Follows the path of a reference into an output; the error says what was there.
fn descend<'v>(output: &'v Value, reference: &Reference) -> Result<&'v Value, String> {
    let mut value = output;
    for (depth, accessor) in reference.path().iter().enumerate() {
        value =
            child(value, accessor).ok_or_else(|| dead_end(value, accessor, &reference.prefix(depth).to_string()))?;
    }
    Ok(value)
}

fn child<'v>(value: &'v Value, accessor: &Accessor) -> Option<&'v Value> {
    match (value, accessor) {
        (Value::Object(fields), Accessor::Name(name)) => fields.get(name),
        (Value::Array(entries), Accessor::Index(index)) => entries.get(*index),
        // `list.0` is how the JSON form of plans writes an index.
        (Value::Array(entries), Accessor::Name(name)) => entries.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Most keys that a message lists.
const MAX_KEYS_SHOWN: usize = 5;

fn dead_end(value: &Value, accessor: &Accessor, place: &str) -> String {
    match (value, accessor) {
        (Value::Object(fields), Accessor::Name(name)) => {
            if let Some(near) = nearest(name, fields.keys().map(String::as_str)) {
                return format!("`{place}` has no `{}`; did you mean `{}`?", shown(name), shown(near));
            }
            let keys: Vec<String> = fields.keys().take(MAX_KEYS_SHOWN).map(|key| shown(key)).collect();
            let more = if fields.len() > keys.len() { ", …" } else { "" };
            match keys.is_empty() {
                true => format!("`{place}` is an empty object"),
                false => format!("`{place}` has no `{}`, only {}{more}", shown(name), keys.join(", ")),
            }
        }
        (Value::Array(entries), Accessor::Index(_)) => match entries.len() {
            0 => format!("`{place}` is an empty list"),
            1 => format!("`{place}` is a list with 1 entry, which is [0]"),
            length => format!("`{place}` is a list with {length} entries, [0] to [{}]", length - 1),
        },
        _ => format!("`{place}` is {}", type_name(value)),
    }
}

/// The type of a value, for messages.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
