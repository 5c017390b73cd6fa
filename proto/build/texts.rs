//! Generates the implementations of `Texts` from the fields' `(belay.v1.text)` options.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use protox::prost_reflect::{
    DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor,
};

use crate::names::{camel, ident, path};

/// The option that marks a field.
const OPTION: &str = "belay.v1.text";

/// The package of the messages that are generated and have to be marked.
const PACKAGE: &str = "belay.";

/// The content of a text field, as `belay.v1.Text` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Plain,
    Words,
    Json,
    Labels,
    Exact,
    Schema,
    Value,
}

impl Mark {
    /// The variant of `Text` with which a field of this mark is visited.
    fn visited_as(self) -> Option<&'static str> {
        match self {
            Self::Words => Some("Words"),
            Self::Json => Some("Json"),
            Self::Labels => Some("Labels"),
            Self::Schema => Some("Schema"),
            Self::Value => Some("Value"),
            Self::Plain | Self::Exact => None,
        }
    }
}

/// The implementations of `Texts` for every message with a text that can contain secrets.
///
/// # Errors
/// Every field of a message that a method returns whose mark is missing or does not fit its type, with the mark that it needs.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, String> {
    let option = pool.get_extension_by_name(OPTION).ok_or_else(|| format!("no file defines `{OPTION}`"))?;
    let messages = returned(pool);
    let mut marks = BTreeMap::new();
    let mut problems = Vec::new();
    for field in messages.values().flat_map(MessageDescriptor::fields) {
        match mark(&field, &option) {
            Ok(Some(mark)) => drop(marks.insert(field.full_name().to_owned(), mark)),
            Ok(None) => {}
            Err(problem) => problems.push(format!("{}: {problem}", field.full_name())),
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    let with_texts = with_texts(&messages, &marks);
    let mut code = String::new();
    for message in with_texts.iter().map(|name| &messages[name]) {
        implement(message, &marks, &with_texts, &mut code);
    }
    Ok(code)
}

/// The messages of this contract that methods return, and all that they contain, by name.
fn returned(pool: &DescriptorPool) -> BTreeMap<String, MessageDescriptor> {
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let mut open: Vec<MessageDescriptor> = methods.map(|method| method.output()).collect();
    let mut found = BTreeMap::new();
    while let Some(message) = open.pop() {
        if !message.full_name().starts_with(PACKAGE) || found.contains_key(message.full_name()) {
            continue;
        }
        open.extend(message.fields().filter_map(|field| field.kind().as_message().cloned()));
        found.insert(message.full_name().to_owned(), message);
    }
    // The entries of maps are visited with the map.
    found.retain(|_, message| !message.is_map_entry());
    found
}

/// The mark of a field with text; `None` for a field without.
fn mark(field: &FieldDescriptor, option: &ExtensionDescriptor) -> Result<Option<Mark>, String> {
    let mark = field.options().get_extension(option).as_enum_number().unwrap_or(0);
    let mark = match mark {
        0 => None,
        1 => Some(Mark::Plain),
        2 => Some(Mark::Words),
        3 => Some(Mark::Json),
        4 => Some(Mark::Labels),
        5 => Some(Mark::Exact),
        6 => Some(Mark::Schema),
        7 => Some(Mark::Value),
        other => return Err(format!("`({OPTION}) = {other}` has no meaning here")),
    };
    let allowed: &[Mark] = if field.is_map() {
        let entry = field.kind();
        let entry = entry.as_message().expect("a map's entries are messages");
        let (key, value) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
        match (key, value) {
            (Kind::String, Kind::String) => &[Mark::Plain, Mark::Labels],
            // The keys, as the values are visited in any case.
            (Kind::String, Kind::Message(_)) => &[Mark::Plain],
            (Kind::String, Kind::Bytes) | (_, Kind::String | Kind::Bytes) => {
                return Err("a map of texts has texts as keys and values".into());
            }
            (Kind::String, _) => &[Mark::Plain],
            _ => &[],
        }
    } else {
        match field.kind() {
            Kind::String => &[Mark::Plain, Mark::Words, Mark::Json, Mark::Schema, Mark::Value],
            Kind::Bytes => &[Mark::Plain, Mark::Exact],
            Kind::Message(message) if is_unmarkable(&message) => {
                return Err(format!("{} can contain text that no mark describes", message.full_name()));
            }
            _ => &[],
        }
    };
    match mark {
        None if allowed.is_empty() => Ok(None),
        Some(mark) if allowed.contains(&mark) => Ok(Some(mark)),
        Some(mark) => Err(format!("`({OPTION})` is {mark:?}, which is not for a field of this type")),
        None => {
            let names: Vec<String> = allowed.iter().map(|mark| format!("TEXT_{mark:?}").to_uppercase()).collect();
            Err(format!("add `[({OPTION}) = …]`, one of {}: see belay/v1/options.proto", names.join(", ")))
        }
    }
}

/// A message of another package that can contain text.
fn is_unmarkable(message: &MessageDescriptor) -> bool {
    !message.full_name().starts_with(PACKAGE)
        && !matches!(message.full_name(), "google.protobuf.Timestamp" | "google.protobuf.Duration")
}

/// The names of the messages that contain a text to visit, at any depth.
fn with_texts(messages: &BTreeMap<String, MessageDescriptor>, marks: &BTreeMap<String, Mark>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for (name, message) in messages {
            if message.fields().any(|field| visit(&field, marks, &found).is_some()) {
                found.insert(name.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// How one value of a field is visited, as an expression in `value`; `None` when it has no text to visit.
fn visit(field: &FieldDescriptor, marks: &BTreeMap<String, Mark>, with_texts: &BTreeSet<String>) -> Option<String> {
    if let Some(text) = marks.get(field.full_name()).and_then(|mark| mark.visited_as()) {
        return Some(format!("each(Text::{text}(value))"));
    }
    let kind = field.kind();
    let mut message = kind.as_message()?.clone();
    if field.is_map() {
        message = message.map_entry_value_field().kind().as_message()?.clone();
    }
    with_texts.contains(message.full_name()).then(|| "value.texts(each)".to_owned())
}

fn implement(
    message: &MessageDescriptor,
    marks: &BTreeMap<String, Mark>,
    with_texts: &BTreeSet<String>,
    code: &mut String,
) {
    let visited = |field: &FieldDescriptor| visit(field, marks, with_texts);
    writeln!(code, "impl Texts for {} {{", path(message.full_name())).expect("it is a String");
    writeln!(code, "    fn texts(&mut self, each: Each<'_>) {{").expect("it is a String");
    for field in message.fields().filter(|field| real_oneof(field).is_none()) {
        let Some(visit) = visited(&field) else { continue };
        let name = ident(field.name());
        let line = if field.is_map() && marks.get(field.full_name()) != Some(&Mark::Labels) {
            format!("for value in self.{name}.values_mut() {{ {visit}; }}")
        } else if field.is_list() {
            format!("for value in &mut self.{name} {{ {visit}; }}")
        } else if field.supports_presence() {
            format!("if let Some(value) = &mut self.{name} {{ {visit}; }}")
        } else {
            format!("let value = &mut self.{name}; {visit};")
        };
        writeln!(code, "        {line}").expect("it is a String");
    }
    for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let arms: Vec<String> = oneof
            .fields()
            .filter_map(|field| {
                let visit = visited(&field)?;
                Some(format!("Some({}::{}(value)) => {visit},", oneof_path(&oneof), camel(field.name())))
            })
            .collect();
        if !arms.is_empty() {
            let name = ident(oneof.name());
            let arms = arms.join("\n            ");
            writeln!(code, "        match &mut self.{name} {{\n            {arms}\n            _ => {{}}\n        }}")
                .expect("it is a String");
        }
    }
    code.push_str("    }\n}\n");
}

fn real_oneof(field: &FieldDescriptor) -> Option<OneofDescriptor> {
    field.containing_oneof().filter(|oneof| !oneof.is_synthetic())
}

/// The Rust path of a oneof, which is an enum in its message's module.
fn oneof_path(oneof: &OneofDescriptor) -> String {
    path(&format!("{}.{}", oneof.parent_message().full_name(), camel(oneof.name())))
}
