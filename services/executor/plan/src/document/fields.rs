//! Reads the fields of one object: each by its names, once, and none may be left over.

use crate::{
    error::Findings,
    nearest,
    path::{FieldPath, shown},
};

use super::{
    finding::Finding,
    locate::OTHER_NAMES,
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
        self.refuse(report, || "must be true or false".to_owned());
        false
    }

    /// A whole number that fits into 32 bits.
    pub(super) fn whole(&self, report: &mut Report) -> Option<u32> {
        let number = match &self.node.kind {
            Kind::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
            _ => None,
        };
        if number.is_none() {
            self.refuse(report, || format!("must be a whole number from 0 to {}", u32::MAX));
        }
        number
    }

    /// The entries of a list; none when the value is not a list.
    pub(super) fn list(&self, report: &mut Report, what: &str) -> Vec<Value<'n>> {
        let Kind::List(entries) = &self.node.kind else {
            self.refuse(report, || format!("must be a list of {what}"));
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
        Some(Fields { path: self.path.clone(), entries: entries?, known: Vec::new() })
    }
}

/// The fields of one object.
pub(super) struct Fields<'n> {
    path: FieldPath,
    entries: &'n [Entry],
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The field of this name, or of the other name that it may have; `None` when it is absent or null.
    pub(super) fn take(&mut self, report: &mut Report, name: &'static str) -> Option<Value<'n>> {
        let other = OTHER_NAMES.iter().find(|(main, _)| *main == name).map(|(_, other)| *other);
        let ours = self.take_exactly(name);
        let theirs = other.and_then(|other| self.take_exactly(other));
        if let (Some(_), Some(theirs)) = (&ours, &theirs) {
            theirs.refuse(report, || format!("duplicates `{name}`: give only one of them"));
        }
        ours.or(theirs)
    }

    /// The field of exactly this name; `None` when it is absent or null.
    pub(super) fn take_exactly(&mut self, name: &'static str) -> Option<Value<'n>> {
        self.known.push(name);
        let entry = self.entries.iter().find(|entry| entry.key.name == name)?;
        let value = Value { path: self.path.key(name), node: &entry.value };
        (!matches!(entry.value.kind, Kind::Null)).then_some(value)
    }

    /// Reports every field that was not taken.
    pub(super) fn finish(self, report: &mut Report) {
        for entry in self.entries {
            let name = entry.key.name.as_str();
            if self.known.contains(&name) {
                continue;
            }
            report.refuse(&self.path.key(name.to_owned()), entry.key.offset, || {
                match nearest(name, self.known.iter().copied()) {
                    Some(near) => format!("there is no field `{}` here; did you mean `{near}`?", shown(name)),
                    None => format!("there is no field `{}` here, only {}", shown(name), self.known.join(", ")),
                }
            });
        }
    }
}
