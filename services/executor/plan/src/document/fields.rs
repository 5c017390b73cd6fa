//! Reads the fields of one object: each by its names, once, and none may be left over.

use std::ops::RangeInclusive;

use crate::{
    error::Findings,
    nearest,
    path::{FieldPath, look_alikes, shown},
};

use super::{
    elsewhere::instead,
    finding::Finding,
    locate::other_names,
    tree::{Entry, Kind, Node},
};

/// Collects violations while a document is read.
#[derive(Default)]
pub(super) struct Report {
    pub(super) findings: Findings<Finding>,
}

impl Report {
    pub(super) fn refuse(&mut self, field: &FieldPath, offset: usize, message: impl FnOnce() -> String) {
        self.findings.add(|| Finding { field: field.clone(), message: message(), offset: Some(offset) });
    }
}

/// A value and the path by which its author knows it.
#[derive(Clone)]
pub(super) struct Value<'n> {
    pub(super) path: FieldPath,
    pub(super) node: &'n Node,
}

impl<'n> Value<'n> {
    pub(super) fn refuse(&self, report: &mut Report, message: impl FnOnce() -> String) {
        report.refuse(&self.path, self.node.offset, message);
    }

    /// A text. A number or boolean is reported and converted to text, so that references to it are still resolved.
    pub(super) fn text(&self, report: &mut Report) -> String {
        let scalar = match &self.node.kind {
            Kind::Text(text) => return text.clone(),
            Kind::Bool(value) => value.to_string(),
            Kind::Number(number) => number.to_string(),
            Kind::Null | Kind::List(_) | Kind::Map(_) => {
                self.refuse(report, || "must be text".to_owned());
                return String::new();
            }
        };
        self.refuse(report, || format!("must be text: put it in quotes, \"{scalar}\""));
        scalar
    }

    pub(super) fn flag(&self, report: &mut Report) -> bool {
        if let Kind::Bool(value) = self.node.kind {
            return value;
        }
        let is_quoted = matches!(&self.node.kind, Kind::Text(text) if text == "true" || text == "false");
        self.refuse(report, || format!("must be true or false{}", if is_quoted { ", without quotes" } else { "" }));
        false
    }

    /// A whole number that fits into 32 bits. `range` is what the message says; whether the number is within it is checked elsewhere.
    pub(super) fn whole(&self, report: &mut Report, range: RangeInclusive<u32>) -> Option<u32> {
        let (first, last) = range.into_inner();
        self.whole_number(report, first.into()..=last.into())
    }

    /// The same of one that fits into the bits of the type, of 32 or 64.
    pub(super) fn whole_number<T: TryFrom<u64>>(&self, report: &mut Report, range: RangeInclusive<u64>) -> Option<T> {
        let number = match &self.node.kind {
            Kind::Number(number) => number.as_u64().and_then(|number| T::try_from(number).ok()),
            _ => None,
        };
        if number.is_none() {
            let (first, last) = range.into_inner();
            self.refuse(report, || {
                format!("must be a whole number from {first} to {last}{}", self.instead_of_number())
            });
        }
        number
    }

    /// The end of a message about a text that stands where a number should.
    pub(super) fn instead_of_number(&self) -> String {
        match &self.node.kind {
            Kind::Text(text) if text.parse::<f64>().is_ok() => ", without quotes".to_owned(),
            Kind::Text(text) => look_alikes(text),
            _ => String::new(),
        }
    }

    /// The entries of a list of texts or numbers; none when the value is not a list.
    pub(super) fn scalars(&self, report: &mut Report, what: &str) -> Vec<Value<'n>> {
        let alone = match &self.node.kind {
            Kind::Text(text) => shown(text),
            Kind::Number(number) => number.to_string(),
            Kind::Map(_) => {
                self.refuse(report, || format!("must be a list of {what}"));
                return Vec::new();
            }
            _ => return self.list(report, what),
        };
        self.refuse(report, || format!("must be a list of {what}: write [{alone}]"));
        Vec::new()
    }

    /// The entries of a list; none when the value is not a list.
    pub(super) fn list(&self, report: &mut Report, what: &str) -> Vec<Value<'n>> {
        let Kind::List(entries) = &self.node.kind else {
            let way_out = if matches!(self.node.kind, Kind::Map(_)) { ": write it in a list, [{…}]" } else { "" };
            self.refuse(report, || format!("must be a list of {what}{way_out}"));
            return Vec::new();
        };
        entries.iter().enumerate().map(|(index, node)| Value { path: self.path.index(index), node }).collect()
    }

    /// The fields of an object; `None` when the value is not an object.
    pub(super) fn fields(&self, report: &mut Report, what: &str) -> Option<Fields<'n>> {
        let entries = self.node.entries();
        if entries.is_none() {
            let subject = if self.path == FieldPath::root() { "the plan " } else { "" };
            self.refuse(report, || format!("{subject}must be {what}"));
        }
        Some(Fields { path: self.path.clone(), entries: entries?, known: Vec::new(), others: Vec::new() })
    }
}

/// The fields of one object.
pub(super) struct Fields<'n> {
    path: FieldPath,
    entries: &'n [Entry],
    /// The names that were asked for, those of Belay's own form first when they are suggested.
    known: Vec<&'static str>,
    /// The names that other planners use.
    others: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The field of this name, or of one of the other names that it may have; `None` when it is absent or null.
    pub(super) fn take(&mut self, report: &mut Report, name: &'static str) -> Option<Value<'n>> {
        let mut found = self.take_exactly(name).map(|value| (name, value));
        for &other in other_names(name) {
            self.others.push(other);
            let Some(value) = self.find(other) else { continue };
            match &found {
                Some((first, _)) => value.refuse(report, || format!("duplicates `{first}`: give only one of them")),
                None => found = Some((other, value)),
            }
        }
        found.map(|(_, value)| value)
    }

    /// The field of one of two names, of which no message offers the second; `None` when it is absent or null.
    pub(super) fn take_either(&mut self, report: &mut Report, [name, other]: [&'static str; 2]) -> Option<Value<'n>> {
        if self.entries.iter().any(|entry| entry.key.name == other) {
            self.others.push(other);
        }
        let (first, second) = (self.take_exactly(name), self.find(other));
        match (first, second) {
            (Some(first), Some(second)) if name != other => {
                second.refuse(report, || format!("duplicates `{name}`: give only one of them"));
                Some(first)
            }
            (first, second) => first.or(second),
        }
    }

    /// The field of exactly this name; `None` when it is absent or null.
    pub(super) fn take_exactly(&mut self, name: &'static str) -> Option<Value<'n>> {
        self.known.push(name);
        self.find(name)
    }

    /// The same of a field in which null is a value.
    pub(super) fn take_with_null(&mut self, name: &'static str) -> Option<Value<'n>> {
        self.known.push(name);
        let entry = self.entries.iter().find(|entry| entry.key.name == name)?;
        Some(Value { path: self.path.key(name), node: &entry.value })
    }

    /// The same of a field that the caller refuses: no message offers it.
    pub(super) fn take_refused(&mut self, name: &'static str) -> Option<Value<'n>> {
        let found = self.find(name)?;
        self.others.push(name);
        Some(found)
    }

    fn find(&self, name: &'static str) -> Option<Value<'n>> {
        let entry = self.entries.iter().find(|entry| entry.key.name == name)?;
        let value = Value { path: self.path.key(name), node: &entry.value };
        (!matches!(entry.value.kind, Kind::Null)).then_some(value)
    }

    /// Reports every field that was not taken.
    pub(super) fn finish(self, report: &mut Report) {
        let names = || self.known.iter().chain(&self.others).copied();
        for entry in self.entries {
            let name = entry.key.name.as_str();
            if names().any(|known| known == name) {
                continue;
            }
            let found = (instead(name, &self.known), nearest(name, names()));
            report.refuse(&self.path.key(name.to_owned()), entry.key.offset, || match found {
                (Some(instead), _) => format!("there is no field `{}` here: {instead}", shown(name)),
                (None, Some(near)) => {
                    format!("there is no field `{}` here; did you mean `{near}`?{}", shown(name), look_alikes(name))
                }
                (None, None) => format!(
                    "there is no field `{}` here, only {}{}",
                    shown(name),
                    self.known.join(", "),
                    look_alikes(name)
                ),
            });
        }
    }
}
