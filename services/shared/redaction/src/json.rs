//! Redacts JSON, and restores it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{REDACTED, Redactor, names, values};

/// A redacted value, and the parts that restore the original.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactedJson {
    /// With [`REDACTED`] in place of secrets.
    pub shown: Value,
    /// The hidden parts, for sealing. Empty when there are none.
    pub hidden: Vec<Hidden>,
}

/// A hidden part of a value.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hidden {
    /// Its position in the redacted value: a JSON Pointer (RFC 6901).
    pub pointer: String,
    /// Its original value.
    pub original: Value,
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Hidden values must not appear in logs either.
        f.debug_struct("Hidden").field("pointer", &self.pointer).finish_non_exhaustive()
    }
}

/// The hidden parts do not belong to the value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the value has nothing at `{pointer}` to restore: it is not the one that was redacted")]
pub struct NotRestored {
    /// Where nothing is.
    pub pointer: String,
}

/// Visits every string of a value that is no name of a member.
pub fn each_string(value: &mut Value, each: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_string(item, each)),
        Value::Object(members) => members.values_mut().for_each(|member| each_string(member, each)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The exact value that [`Redactor::redact_json`] was given.
///
/// # Errors
/// [`NotRestored`] when the value is not the redacted one.
pub fn restore(mut shown: Value, hidden: Vec<Hidden>) -> Result<Value, NotRestored> {
    for Hidden { pointer, original } in hidden {
        match shown.pointer_mut(&pointer) {
            Some(place) => *place = original,
            None => return Err(NotRestored { pointer }),
        }
    }
    Ok(shown)
}

/// The parts of a value at these JSON pointers, in which `*` stands for every member or item, each with its own pointer. What lies in another such part is
/// not repeated.
pub fn marked<'v, P: AsRef<str>>(value: &'v Value, pointers: &[P]) -> Vec<(String, &'v Value)> {
    fn visit<'v>(value: &'v Value, place: String, marks: &[&[String]], found: &mut Vec<(String, &'v Value)>) {
        if marks.iter().any(|mark| mark.is_empty()) {
            return found.push((place, value));
        }
        let below = |token: &str| -> Vec<&[String]> {
            let fits = |mark: &&&[String]| mark[0] == "*" || mark[0] == token;
            marks.iter().filter(fits).map(|mark| &mark[1..]).collect()
        };
        let mut descend = |token: String, member: &'v Value| {
            let marks = below(&token);
            if !marks.is_empty() {
                visit(member, format!("{place}/{}", token.replace('~', "~0").replace('/', "~1")), &marks, found);
            }
        };
        match value {
            Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| descend(index.to_string(), item)),
            Value::Object(members) => members.iter().for_each(|(name, member)| descend(name.clone(), member)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let marks: Vec<Vec<String>> = pointers.iter().map(|pointer| tokens(pointer.as_ref())).collect();
    let mut found = Vec::new();
    if !marks.is_empty() {
        visit(value, String::new(), &marks.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut found);
    }
    found
}

/// Every text and number in a value that is secret as a whole, and every name of a member; numbers as JSON writes them.
pub fn leaves(value: &Value, each: &mut dyn FnMut(String)) {
    match value {
        Value::String(text) if text != REDACTED => each(text.clone()),
        Value::Number(number) => each(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, each)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            each(name.clone());
            leaves(member, each);
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

impl Redactor {
    /// The value without its secrets: those in its texts and names, the whole of each member whose name says secret, what follows a flag
    /// that says so in a list, and the whole of what `schema_secret_pointers` name. In such a pointer `*` stands for every member or item.
    ///
    /// References that are resolved elsewhere (`${secret:NAME}`, `${step.output}`), `null`, truth values and empty texts stay.
    pub fn redact_json<P: AsRef<str>>(&self, value: &Value, schema_secret_pointers: &[P]) -> RedactedJson {
        let secret: Vec<Vec<String>> = schema_secret_pointers.iter().map(|pointer| tokens(pointer.as_ref())).collect();
        let mut walk = Walk { redactor: self, secret, path: Vec::new(), hidden: Vec::new() };
        let shown = walk.shown(value);
        RedactedJson { shown, hidden: walk.hidden }
    }
}

struct Walk<'a> {
    redactor: &'a Redactor,
    secret: Vec<Vec<String>>,
    path: Vec<String>,
    hidden: Vec<Hidden>,
}

impl Walk<'_> {
    fn shown(&mut self, value: &Value) -> Value {
        if self.is_marked() && !is_harmless(value) {
            return self.hide(value, REDACTED.into());
        }
        match value {
            Value::String(text) if self.redactor.is_whole(text) && text != REDACTED => {
                self.hide(value, REDACTED.into())
            }
            Value::Number(number) if self.redactor.is_whole(&number.to_string()) => self.hide(value, REDACTED.into()),
            Value::String(text) => {
                let redacted = self.redactor.redact_text(text);
                match redacted.found.is_empty() {
                    true => value.clone(),
                    false => self.hide(value, redacted.text.into()),
                }
            }
            Value::Array(items) => self.items(items),
            Value::Object(members) => self.members(members),
            // A number can be a secret only by its name, or by its value.
            Value::Number(number) => match self.redactor.redact_text(&number.to_string()).found.is_empty() {
                true => value.clone(),
                false => self.hide(value, REDACTED.into()),
            },
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }

    fn items(&mut self, items: &[Value]) -> Value {
        let mut after_flag = false;
        let mut shown = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let secret = after_flag && item.as_str().is_some_and(|text| !text.starts_with('-'));
            shown.push(self.below(index.to_string(), item, secret));
            after_flag = item.as_str().is_some_and(names::is_secret_flag);
        }
        Value::Array(shown)
    }

    fn members(&mut self, members: &Map<String, Value>) -> Value {
        if members.keys().any(|name| !self.redactor.scan(name.as_bytes()).is_empty()) {
            return self.renamed(members);
        }
        // {"name": "DB_PASSWORD", "value": "…"}, as environments and headers are written.
        let label =
            ["name", "key"].iter().filter_map(|name| members.get(*name)?.as_str()).find(|name| names::is_secret(name));
        let (named, label) = (label.is_some(), label.unwrap_or_default());
        let mut shown = Map::new();
        for (name, value) in members {
            let secret = names::is_secret(name) || (named && name == "value");
            let secret = secret && !is_harmless_under(if names::is_secret(name) { name } else { label }, value);
            shown.insert(name.clone(), self.below(name.clone(), value, secret));
        }
        Value::Object(shown)
    }

    /// An object with a secret among its names: what is shown has other names, so the whole of it is hidden.
    fn renamed(&mut self, members: &Map<String, Value>) -> Value {
        let mut inner =
            Walk { redactor: self.redactor, secret: self.secret.clone(), path: self.path.clone(), hidden: Vec::new() };
        let mut shown = Map::new();
        for (name, value) in members {
            let secret = names::is_secret(name) && !is_harmless_under(name, value);
            let value = inner.below(name.clone(), value, secret);
            let plain = self.redactor.redact_text(name).text;
            let mut unique = plain.clone();
            for number in 2.. {
                if !shown.contains_key(&unique) && (unique == *name || !members.contains_key(&unique)) {
                    break;
                }
                unique = format!("{plain} ({number})");
            }
            shown.insert(unique, value);
        }
        self.hide(&Value::Object(members.clone()), Value::Object(shown))
    }

    fn below(&mut self, token: String, value: &Value, secret: bool) -> Value {
        self.path.push(token);
        let shown = match secret && !is_harmless(value) {
            true => self.hide(value, REDACTED.into()),
            false => self.shown(value),
        };
        self.path.pop();
        shown
    }

    fn hide(&mut self, original: &Value, shown: Value) -> Value {
        let pointer =
            self.path.iter().map(|token| format!("/{}", token.replace('~', "~0").replace('/', "~1"))).collect();
        self.hidden.push(Hidden { pointer, original: original.clone() });
        shown
    }

    fn is_marked(&self) -> bool {
        let same = |(token, marked): (&String, &String)| marked == "*" || token == marked;
        self.secret.iter().any(|marked| marked.len() == self.path.len() && self.path.iter().zip(marked).all(same))
    }
}

/// A pointer's tokens, unescaped.
fn tokens(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect()
}

/// A working directory or a version, under a name with a secret's suffix.
fn is_harmless_under(name: &str, value: &Value) -> bool {
    value.as_str().is_some_and(|text| values::is_harmless_under(name, text.as_bytes()))
}

/// Says nothing, though it stands where a secret would.
fn is_harmless(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::String(text) => text.is_empty() || text == REDACTED || values::is_reference(text),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Number(_) => false,
    }
}
