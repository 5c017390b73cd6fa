//! Generates the tables against which encoded messages are checked, and which of them are requests.

use std::fmt::Write as _;

use protox::prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, ServiceDescriptor,
};

use crate::names::path;

/// The packages of this contract.
const PACKAGE: &str = "belay.";

/// A table for each message, and its implementation of `Checked`.
///
/// # Errors
/// A message that cannot be checked.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, String> {
    let mut code = String::new();
    let messages: Vec<_> = pool.all_messages().filter(is_used).collect();
    for message in &messages {
        table(message, &mut code)?;
    }
    for values in pool.all_enums().filter(|values| values.full_name().starts_with(PACKAGE)) {
        enumeration(&values, &mut code);
    }
    let mut requests: Vec<_> = pool.services().flat_map(|service| inputs(&service)).collect();
    requests.sort_unstable();
    requests.dedup();
    let tables: Vec<_> = requests.iter().map(|request| format!("&{}", constant(request))).collect();
    writeln!(code, "/// By name.\npub(super) static REQUESTS: &[&Message] = &[{}];", tables.join(", "))
        .expect("it is a String");
    for message in messages.iter().filter(|message| message.full_name().starts_with(PACKAGE) && !message.is_map_entry())
    {
        let rust = path(message.full_name());
        let is_request = requests.iter().any(|request| request == message.full_name());
        let (name, role) = (constant(message.full_name()), if is_request { "Request" } else { "Other" });
        writeln!(
            code,
            "impl Checked for {rust} {{ const MESSAGE: &'static Message = &{name}; const ROLE: Role = Role::{role}; }}"
        )
        .expect("it is a String");
    }
    Ok(code)
}

/// The contract's messages and those of other packages that it uses.
fn is_used(message: &MessageDescriptor) -> bool {
    let name = message.full_name();
    name.starts_with(PACKAGE) || matches!(name, "google.protobuf.Timestamp" | "google.protobuf.Duration")
}

/// The types of the requests of a service's methods.
fn inputs(service: &ServiceDescriptor) -> Vec<String> {
    service.methods().map(|method| method.input().full_name().to_owned()).collect()
}

/// The name of a table: `belay.v1.Plan` is `BELAY_V1_PLAN`.
fn constant(full_name: &str) -> String {
    full_name.replace('.', "_").to_uppercase()
}

fn table(message: &MessageDescriptor, code: &mut String) -> Result<(), String> {
    let full_name = message.full_name();
    // A oneof for presence alone (`optional`) may be unset.
    let oneofs: Vec<_> = message.oneofs().filter(|oneof| !oneof.is_synthetic()).collect();
    if oneofs.len() > 32 {
        return Err(format!("{full_name}: a message has at most 32 oneofs"));
    }
    let mut fields: Vec<FieldDescriptor> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let mut entries = String::new();
    for field in fields {
        let kind = match field.kind() {
            Kind::Message(inner) if is_used(&inner) => format!("Kind::Message(&{})", constant(inner.full_name())),
            Kind::Message(inner) => {
                return Err(format!("{}: messages of type {} cannot be checked", field.full_name(), inner.full_name()));
            }
            Kind::Enum(values) => format!("Kind::Enum(&{})", constant(values.full_name())),
            Kind::String | Kind::Bytes => "Kind::Bytes".into(),
            Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => "Kind::Fixed32".into(),
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => "Kind::Fixed64".into(),
            Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Sint32 | Kind::Sint64 | Kind::Bool => {
                "Kind::Varint".into()
            }
        };
        let oneof = oneofs.iter().position(|oneof| Some(oneof) == field.containing_oneof().as_ref());
        let (number, name) = (field.number(), field.name());
        let is_list = field.is_list() || field.is_map();
        writeln!(
            entries,
            "    Field {{ number: {number}, name: \"{name}\", kind: {kind}, is_list: {is_list}, oneof: {oneof:?} }},"
        )
        .expect("it is a String");
    }
    let name = constant(full_name);
    let oneofs: Vec<&str> = oneofs.iter().map(|oneof| oneof.name()).collect();
    writeln!(
        code,
        "static {name}: Message = Message {{ name: \"{full_name}\", fields: &[\n{entries}], oneofs: &{oneofs:?} }};"
    )
    .expect("it is a String");
    Ok(())
}

fn enumeration(values: &EnumDescriptor, code: &mut String) {
    let full_name = values.full_name();
    let name = constant(full_name);
    let mut entries: Vec<_> = values.values().map(|value| (value.number(), value.name().to_owned())).collect();
    // Of two names of one number the first.
    entries.sort_by_key(|(number, _)| *number);
    entries.dedup_by_key(|(number, _)| *number);
    writeln!(code, "static {name}: Values = Values {{ name: \"{full_name}\", entries: &{entries:?} }};")
        .expect("it is a String");
}
