//! Reads values that many fields have: texts, numbers, durations, and JSON whose numbers must be exact.

use std::time::Duration;

use serde_json::Value as Json;

use super::{
    super::{
        fields::{Fields, Report, Value},
        tree::{Kind, Node},
    },
    Reader, Shape,
};
use crate::{
    duration,
    limits::MAX_DURATION,
    path::{FieldPath, look_alikes, shown},
};

impl<'n> Reader<'n> {
    pub(super) fn optional_text(&mut self, fields: &mut Fields<'n>, name: &'static str) -> String {
        fields.take_exactly(name).map_or_else(String::new, |value| value.text(&mut self.report))
    }

    /// A list of texts; empty when there is none.
    pub(super) fn texts(&mut self, fields: &mut Fields<'n>, name: &'static str, what: &str) -> Vec<String> {
        let Some(value) = fields.take_exactly(name) else { return Vec::new() };
        value.scalars(&mut self.report, what).iter().map(|text| text.text(&mut self.report)).collect()
    }

    pub(super) fn number(&mut self, value: &Value<'n>) -> Option<f64> {
        let number = match &value.node.kind {
            Kind::Number(number) => number.as_f64(),
            _ => None,
        };
        if number.is_none() {
            value.refuse(&mut self.report, || format!("must be a number from 1{}", value.instead_of_number()));
        }
        number
    }

    /// A time limit, for which other planners write a number of seconds.
    pub(super) fn timeout(&mut self, value: &Value<'n>) -> Option<Duration> {
        match &value.node.kind {
            Kind::Number(number) if self.shape != Shape::Own && number.as_u64().is_some() => {
                number.as_u64().map(Duration::from_secs)
            }
            _ => self.duration(value),
        }
    }

    pub(super) fn duration(&mut self, value: &Value<'n>) -> Option<Duration> {
        let read = match &value.node.kind {
            Kind::Text(text) => duration::parse(text).map_err(|why| about(text, &why)),
            Kind::Number(number) => Err(format!("`{number}` has no unit: write {number}s for seconds")),
            _ => Err("must be a duration, such as 500ms, 10s, 5m or 1h30m".to_owned()),
        };
        read.map_err(|message| value.refuse(&mut self.report, || message)).ok()
    }

    pub(super) fn precise(&mut self, value: Option<Value<'n>>) -> Option<Json> {
        let value = value?;
        self.refuse_imprecise(&value.path, value.node);
        Some(value.node.to_value())
    }

    /// Refuses numbers that would silently become another number.
    pub(super) fn refuse_imprecise(&mut self, path: &FieldPath, node: &Node) {
        match &node.kind {
            Kind::Number(_) => {
                if let Some(message) = imprecise(self.text, node) {
                    self.report.refuse(path, node.offset, || message.to_owned());
                }
            }
            Kind::List(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    self.refuse_imprecise(&path.index(index), entry);
                }
            }
            Kind::Map(entries) => {
                for entry in entries {
                    self.refuse_imprecise(&path.key(entry.key.name.clone()), &entry.value);
                }
            }
            _ => {}
        }
    }
}

/// The problem of a number that is not exactly what its author wrote; `None` when it has none.
pub(in crate::document) fn imprecise(text: &str, node: &Node) -> Option<&'static str> {
    let Kind::Number(number) = &node.kind else { return None };
    let end = |c: char| !c.is_ascii_alphanumeric() && !"+-._".contains(c);
    let rest = &text[node.offset..];
    let written = &rest[..rest.find(end).unwrap_or(rest.len())];
    let digits = written.trim_start_matches(['-', '+']);
    let decimal = written.replace('_', "");
    if number.is_f64()
        && decimal.contains(['.', 'e', 'E'])
        && decimal.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && number.as_f64().is_some_and(|value| !belay_json::is_exact(decimal.trim_start_matches('+'), value))
    {
        return Some("is a number whose digits would be lost: write it as text, in quotes, or with fewer digits");
    }
    // Zero is exact however it is written, and `-0` is the only integer that is a float.
    if !number.is_f64()
        || digits.is_empty()
        || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        || number.as_f64() == Some(0.0)
    {
        return None;
    }
    Some(match digits.starts_with('0') {
        true => {
            "begins with a zero, which not every reader of YAML takes the same way: leave the zero out, or put the number in quotes"
        }
        false => "is an integer of more than 64 bits, which would lose digits: write it as text, in quotes",
    })
}

/// A message about a text: the text, the problem, and the characters in it that resemble others.
pub(super) fn about(text: &str, why: &str) -> String {
    match text.is_empty() {
        true => why.to_owned(),
        false => format!("`{}` {why}{}", shown(text), look_alikes(text)),
    }
}

pub(super) fn milliseconds(value: &Value<'_>, report: &mut Report) -> Option<Duration> {
    let number = match &value.node.kind {
        Kind::Number(number) => number.as_u64(),
        _ => None,
    };
    if number.is_none() {
        value.refuse(report, || format!("must be a whole number of milliseconds{}", value.instead_of_number()));
    }
    let duration = number.map(Duration::from_millis);
    if duration.is_some_and(|duration| duration > MAX_DURATION) {
        let most = MAX_DURATION.as_millis();
        value.refuse(report, || format!("must be at most 365 days, which is {most} milliseconds"));
    }
    duration
}
