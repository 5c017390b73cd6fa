//! Checks that an encoded message has nothing that this version does not know.
//!
//! prost drops the fields that it does not know, reads an unknown value of an enum as the default, and takes a message without the member of a
//! `oneof` that a newer version added. An optional text that is given and empty it does not tell from one that is left out, and a key that is empty by
//! mistake would be none. A plan from which a condition was dropped would run a step that its author did not want to run, and a list from
//! which a filter was dropped would have what its caller did not ask for: every request is therefore checked before it is decoded, against tables that
//! are generated from the contract.
//!
//! The check reads each byte at most once, follows the lengths of messages without reading texts, and allocates only to describe a problem.

mod wire;

use std::fmt;

use wire::{Malformed, Reader};

/// How deep messages may be nested: as deep as prost decodes them.
const MAX_DEPTH: usize = 100;

/// A message type of the contract.
#[derive(Debug)]
pub struct Message {
    name: &'static str,
    /// Sorted by number.
    fields: &'static [Field],
    /// The names of its oneofs, of each of which one member has to be set.
    oneofs: &'static [&'static str],
}

/// A field of a message type.
#[derive(Debug)]
struct Field {
    number: u32,
    name: &'static str,
    kind: Kind,
    /// It may occur several times, each of which is an element; so may the entries of maps.
    is_list: bool,
    /// The index of its oneof.
    oneof: Option<u8>,
    /// It is a text that may be left out, and is not empty if it is there.
    has_content: bool,
}

/// How a field is encoded, and what is in it.
#[derive(Debug)]
#[allow(dead_code, reason = "the contract does not use every type of protobuf")]
enum Kind {
    Varint,
    Fixed32,
    Fixed64,
    /// A string or bytes.
    Bytes,
    Enum(&'static Values),
    Message(&'static Message),
}

/// The values of an enum.
#[derive(Debug)]
struct Values {
    name: &'static str,
    /// Each number with its name, sorted. 0 is the one that means unset.
    entries: &'static [(i32, &'static str)],
}

/// How messages of a type arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// As requests: checked.
    Request,
    /// Within other messages, or as responses.
    Other,
}

/// A message of the contract. Implementations are generated.
pub trait Checked {
    /// Its type.
    const MESSAGE: &'static Message;
    /// How it arrives.
    const ROLE: Role;
}

/// A message that is not decoded, because this version would lose a part of it or cannot read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where: the fields from the outermost message on, such as `plan.steps[3].tool`. Empty in the outermost message.
    pub path: String,
    /// The type of the message there, such as `belay.v1.ToolStep`.
    pub message: &'static str,
    /// The problem.
    pub problem: Problem,
}

/// Why a message is not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A field that this version does not know.
    UnknownField(u32),
    /// A value of an enum that this version does not know.
    UnknownValue {
        /// The field's name.
        field: &'static str,
        /// The type of the enum, such as `belay.v1.ApprovalMode`.
        of: &'static str,
        /// The value.
        number: i64,
        /// The names of the values that this version knows, without the one that means unset.
        known: Vec<&'static str>,
    },
    /// A text that may be left out is there and empty.
    Empty(&'static str),
    /// No member of a oneof is set.
    NothingOf {
        /// The oneof's name.
        oneof: &'static str,
        /// The names of its members.
        members: Vec<&'static str>,
    },
    /// The bytes are not an encoded message.
    Malformed(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, message, problem } = self;
        let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
        match problem {
            Problem::UnknownField(number) => write!(f, "{place}field {number} of {message} is not known"),
            Problem::UnknownValue { field, of, number, known } => {
                let known = known.join("`, `");
                write!(f, "{place}`{field}` has the value {number}, which is not known in {of}; known are `{known}`")
            }
            Problem::Empty(field) => {
                write!(f, "{place}`{field}` is empty: give it a value, or leave it out")
            }
            Problem::NothingOf { oneof, members } => {
                let either = if members.len() > 1 { "one of " } else { "" };
                write!(f, "{place}set {either}`{}` (`{oneof}` of {message})", members.join("`, `"))
            }
            Problem::Malformed(what) => write!(f, "{place}{message} cannot be decoded: {what}"),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// The field that is wrong, as far as this version has a name for it: the message's, for a field that it does not know.
    pub fn field(&self) -> String {
        let name = match &self.problem {
            Problem::UnknownValue { field, .. } | Problem::Empty(field) => field,
            Problem::NothingOf { oneof, .. } => oneof,
            Problem::UnknownField(_) | Problem::Malformed(_) => return self.path.clone(),
        };
        if self.path.is_empty() { (*name).to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Whether a newer version wrote the message: it has what this version does not know.
    pub fn is_newer(&self) -> bool {
        match self.problem {
            // A member that a newer version added to a oneof is a field that is not known, so an unset one is not newer.
            Problem::UnknownField(_) | Problem::UnknownValue { .. } => true,
            Problem::Empty(_) | Problem::NothingOf { .. } | Problem::Malformed(_) => false,
        }
    }

    fn within(mut self, element: &str) -> Self {
        self.path = if self.path.is_empty() { element.to_owned() } else { format!("{element}.{}", self.path) };
        self
    }
}

/// Checks an encoded message: every field and every value of an enum is known, of each oneof one member is set, and an optional text is not empty, at any
/// depth.
///
/// # Errors
/// The first problem, with its place.
pub fn check<M: Checked>(bytes: &[u8]) -> Result<(), Refused> {
    walk(M::MESSAGE, bytes, 0)
}

/// Checks an encoded request by the name of its type, such as `belay.v1.GetExecutionRequest`; `None` for a type that is not checked when it arrives.
pub fn check_request(message: &str, bytes: &[u8]) -> Option<Result<(), Refused>> {
    let at = generated::REQUESTS.binary_search_by_key(&message, |request| request.name).ok()?;
    Some(walk(generated::REQUESTS[at], bytes, 0))
}

fn walk(message: &'static Message, bytes: &[u8], depth: usize) -> Result<(), Refused> {
    let refused = |problem| Refused { path: String::new(), message: message.name, problem };
    let malformed = |malformed: Malformed| refused(Problem::Malformed(malformed.to_string()));
    if depth >= MAX_DEPTH {
        return Err(malformed(Malformed::Deep));
    }
    let mut reader = Reader::new(bytes);
    let mut set = 0_u32;
    while !reader.is_empty() {
        let at = reader.position();
        let (number, wire_type) = reader.tag().map_err(malformed)?;
        let Some(field) = message.field(number) else { return Err(refused(Problem::UnknownField(number))) };
        if let Some(oneof) = field.oneof {
            set |= 1 << oneof;
        }
        let value = reader.value(number, wire_type, field.kind.wire_type(), field.is_list).map_err(malformed)?;
        match field.kind {
            Kind::Enum(values) => {
                for number in value.varints() {
                    // Negative values are encoded in 64 bits.
                    let number = number.map_err(malformed)?.cast_signed();
                    if !values.have(number) {
                        let (field, of, known) = (field.name, values.name, values.names());
                        return Err(refused(Problem::UnknownValue { field, of, number, known }));
                    }
                }
            }
            Kind::Message(inner) => walk(inner, value.bytes(), depth + 1).map_err(|refused| {
                let name = field.name;
                if field.is_list {
                    refused.within(&format!("{name}[{}]", occurrences(&bytes[..at], number)))
                } else {
                    refused.within(name)
                }
            })?,
            Kind::Bytes if field.has_content && value.bytes().is_empty() => {
                return Err(refused(Problem::Empty(field.name)));
            }
            Kind::Varint | Kind::Fixed32 | Kind::Fixed64 | Kind::Bytes => {}
        }
    }
    match (0..).zip(message.oneofs).find(|(index, _)| set & (1 << index) == 0) {
        Some((index, oneof)) => {
            let members = message.fields.iter().filter(|field| field.oneof == Some(index)).map(|field| field.name);
            Err(refused(Problem::NothingOf { oneof, members: members.collect() }))
        }
        None => Ok(()),
    }
}

impl Message {
    fn field(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(&self.fields[at])
    }
}

impl Values {
    fn have(&self, number: i64) -> bool {
        let at = |number| self.entries.binary_search_by_key(&number, |(known, _)| *known);
        i32::try_from(number).is_ok_and(|number| at(number).is_ok())
    }

    fn names(&self) -> Vec<&'static str> {
        self.entries.iter().filter(|(number, _)| *number != 0).map(|(_, name)| *name).collect()
    }
}

impl Kind {
    fn wire_type(&self) -> wire::Type {
        match self {
            Self::Varint | Self::Enum(_) => wire::Type::Varint,
            Self::Fixed32 => wire::Type::Fixed32,
            Self::Fixed64 => wire::Type::Fixed64,
            Self::Bytes | Self::Message(_) => wire::Type::Delimited,
        }
    }
}

/// How often a field occurs in bytes that have been checked: the index of the next occurrence.
fn occurrences(bytes: &[u8], number: u32) -> usize {
    let mut reader = Reader::new(bytes);
    let mut count = 0;
    while let Ok((other, wire_type)) = reader.tag() {
        if reader.value(other, wire_type, wire_type, false).is_err() {
            break;
        }
        count += usize::from(other == number);
    }
    count
}

#[allow(dead_code, reason = "not every message is checked")]
mod generated {
    use super::{Checked, Field, Kind, Message, Role, Values};

    include!(concat!(env!("OUT_DIR"), "/tables.rs"));
}

#[cfg(test)]
mod tests;
