//! The contract as data: its methods and messages, with the comments that describe them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use belay_proto::FILE_DESCRIPTOR_SET;
use prost_reflect::{
    Cardinality, DescriptorPool, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    Value as Known,
};
use prost_types::method_options::IdempotencyLevel;
use serde_json::Value;

/// The package whose services clients call; the others are between the services themselves.
const PACKAGE: &str = "belay.v1";
/// The service that the approval gate has, with [`POLICIES`].
const APPROVALS: &str = "ApprovalService";
const POLICIES: &str = "PolicyService";
/// `REQUIRED` of `google.api.FieldBehavior`.
const REQUIRED: i32 = 2;
/// How deep a skeleton goes: messages may be in themselves.
const MAX_DEPTH: usize = 4;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the build has compiled the contract"));

/// The methods that clients may call, by service in the order of their names, and by the order of the contract in each.
pub(super) fn methods() -> Vec<MethodDescriptor> {
    let mut services: Vec<_> = POOL.services().filter(|service| service.package_name() == PACKAGE).collect();
    services.sort_by(|a, b| a.name().cmp(b.name()));
    services.iter().flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

/// The methods that a name may mean: `GetExecution`, `ExecutorService.GetExecution` and `belay.v1.ExecutorService/GetExecution` are one. More than one where several
/// services have a method of this name.
pub(super) fn find(name: &str) -> Vec<MethodDescriptor> {
    let name = name.trim_start_matches('/').replace('/', ".");
    let name = name.strip_prefix(PACKAGE).and_then(|name| name.strip_prefix('.')).unwrap_or(&name);
    let is_meant = |method: &MethodDescriptor| short_name(method) == name || method.name() == name;
    methods().into_iter().filter(is_meant).collect()
}

/// The message of this name, such as `Plan`.
pub(super) fn find_message(name: &str) -> Option<MessageDescriptor> {
    POOL.get_message_by_name(name).or_else(|| POOL.get_message_by_name(&format!("{PACKAGE}.{name}")))
}

/// The messages that the methods take and return, and those in them, by name.
pub(super) fn messages() -> Vec<MessageDescriptor> {
    let mut waiting: Vec<_> = methods().iter().flat_map(|method| [method.input(), method.output()]).collect();
    let mut found = BTreeMap::new();
    while let Some(message) = waiting.pop() {
        // Times, durations and the like are shown as they are in JSON.
        if message.package_name() != PACKAGE || found.contains_key(message.full_name()) {
            continue;
        }
        for field in message.fields() {
            let inner = match field.kind() {
                Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
                kind => kind,
            };
            waiting.extend(inner.as_message().cloned());
        }
        found.insert(message.full_name().to_owned(), message);
    }
    found.into_values().collect()
}

/// The name of a message without its package: `Preview.Line`.
pub(super) fn message_name(message: &MessageDescriptor) -> String {
    let name = message.full_name();
    name.strip_prefix(PACKAGE).map_or(name, |name| name.trim_start_matches('.')).to_owned()
}

/// `ExecutorService.GetExecution`.
pub(super) fn short_name(method: &MethodDescriptor) -> String {
    format!("{}.{}", method.parent_service().name(), method.name())
}

/// `/belay.v1.ExecutorService/GetExecution`, as it is called.
pub(super) fn path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// Whether the approval gate answers it, and not the executor.
pub(super) fn is_of_gate(method: &MethodDescriptor) -> bool {
    matches!(method.parent_service().name(), APPROVALS | POLICIES)
}

/// Whether it may change something.
pub(super) fn changes(method: &MethodDescriptor) -> bool {
    let options = method.method_descriptor_proto().options.as_ref();
    options.is_none_or(|options| options.idempotency_level() != IdempotencyLevel::NoSideEffects)
}

/// The contract's comment on a method.
pub(super) fn about_method(method: &MethodDescriptor) -> String {
    comment(&method.parent_file(), method.path())
}

/// The contract's comment on a message.
pub(super) fn about_message(message: &MessageDescriptor) -> String {
    comment(&message.parent_file(), message.path())
}

/// A field of a message, for people and programs.
pub(super) struct Field {
    /// Its name in JSON.
    pub(super) name: String,
    /// Its type in JSON: `string`, `[Step]`, `{string: Payload}`, `"APPROVE" | "DENY"`.
    pub(super) kind: String,
    /// Whether a request without it is refused.
    pub(super) is_required: bool,
    /// The group of fields of which at most one may be set; empty where there is none.
    pub(super) one_of: String,
    /// The contract's comment on it.
    pub(super) about: String,
}

/// The fields of a message, in the order of the contract.
pub(super) fn fields(message: &MessageDescriptor) -> Vec<Field> {
    let describe = |field: FieldDescriptor| Field {
        name: field.json_name().to_owned(),
        kind: kind(&field),
        is_required: is_required(&field),
        one_of: field
            .containing_oneof()
            .filter(|_| !field.field_descriptor_proto().proto3_optional())
            .map_or_else(String::new, |one_of| one_of.name().to_owned()),
        about: comment(&message.parent_file(), field.path()),
    };
    in_order(message).into_iter().map(describe).collect()
}

/// A request of this type with what is required, the first of each group of fields of which one may be set, and names in place of values.
pub(super) fn skeleton(message: &MessageDescriptor) -> Value {
    skeleton_at(message, 0)
}

fn skeleton_at(message: &MessageDescriptor, depth: usize) -> Value {
    let mut of_groups = BTreeSet::new();
    let is_in = |field: &FieldDescriptor| match field.containing_oneof() {
        Some(one_of) if !field.field_descriptor_proto().proto3_optional() => of_groups.insert(one_of.name().to_owned()),
        _ => is_required(field),
    };
    let fields = in_order(message).into_iter().filter(is_in);
    let values = fields.map(|field| {
        let value = skeleton_value(message, &field, depth);
        (field.json_name().to_owned(), if field.is_list() { Value::Array(vec![value]) } else { value })
    });
    Value::Object(values.collect())
}

fn skeleton_value(message: &MessageDescriptor, field: &FieldDescriptor, depth: usize) -> Value {
    match field.kind() {
        Kind::Bool => true.into(),
        Kind::String => name_in(&comment(&message.parent_file(), field.path())).into(),
        Kind::Bytes => "".into(),
        Kind::Enum(values) => {
            values.values().find(|value| value.number() != 0).map_or(Value::Null, |value| value.name().into())
        }
        Kind::Message(inner) => match inner.full_name() {
            "google.protobuf.Timestamp" => "2026-01-31T12:00:00Z".into(),
            "google.protobuf.Duration" => "1.500s".into(),
            _ if field.is_map() || depth >= MAX_DEPTH => Value::Object(serde_json::Map::new()),
            _ => skeleton_at(&inner, depth + 1),
        },
        _ => 1.into(),
    }
}

/// A name of the form that a comment begins with: of `namespaces/*/executions/*` it is `namespaces/default/executions/NAME`. `NAME` where it begins with none.
fn name_in(about: &str) -> String {
    let form = about.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(form, _)| form);
    form.filter(|form| form.contains('*'))
        .map_or_else(|| "NAME".to_owned(), |form| form.replacen('*', "default", 1).replace('*', "NAME"))
}

fn in_order(message: &MessageDescriptor) -> Vec<FieldDescriptor> {
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(|field| field.path().last().copied());
    fields
}

fn kind(field: &FieldDescriptor) -> String {
    if field.is_map()
        && let Kind::Message(entry) = field.kind()
    {
        return format!("{{string: {}}}", value_kind(&entry.map_entry_value_field()));
    }
    match field.cardinality() {
        Cardinality::Repeated => format!("[{}]", value_kind(field)),
        Cardinality::Optional | Cardinality::Required => value_kind(field),
    }
}

fn value_kind(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Bool => "boolean".to_owned(),
        Kind::String => "string".to_owned(),
        Kind::Bytes => "base64".to_owned(),
        Kind::Double | Kind::Float | Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Uint32 | Kind::Fixed32 => {
            "number".to_owned()
        }
        // A number of 64 bits is a string in JSON.
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Uint64 | Kind::Fixed64 => "\"number\"".to_owned(),
        Kind::Enum(values) => {
            let known = values.values().filter(|value| value.number() != 0);
            known.map(|value| format!("{:?}", value.name())).collect::<Vec<_>>().join(" | ")
        }
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => "\"2026-01-31T12:00:00Z\"".to_owned(),
            "google.protobuf.Duration" => "\"1.500s\"".to_owned(),
            "google.protobuf.FieldMask" => "\"field,other.field\"".to_owned(),
            _ => message_name(&message),
        },
    }
}

fn is_required(field: &FieldDescriptor) -> bool {
    let Some(behavior) = POOL.get_extension_by_name("google.api.field_behavior") else { return false };
    match field.options().get_extension(&behavior).as_ref() {
        Known::List(values) => values.iter().any(|value| value.as_enum_number() == Some(REQUIRED)),
        _ => false,
    }
}

/// The comment before the element at this path of a file, on one line for each of its paragraphs.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let source = file.file_descriptor_proto().source_code_info.as_ref();
    let location = source.and_then(|source| source.location.iter().find(|location| location.path == path));
    let text = location.map(|location| location.leading_comments()).unwrap_or_default();
    let paragraphs = text.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_several_names() {
        for name in [
            "GetExecution",
            "ExecutorService.GetExecution",
            "ExecutorService/GetExecution",
            "belay.v1.ExecutorService/GetExecution",
            "/belay.v1.ExecutorService/GetExecution",
            "belay.v1.ExecutorService.GetExecution",
        ] {
            let found = find(name);
            assert_eq!(
                found.iter().map(path).collect::<Vec<_>>(),
                ["/belay.v1.ExecutorService/GetExecution"],
                "{name}"
            );
        }
        assert!(find("getexecution").is_empty());
        assert!(find("CallTool").is_empty(), "a method between the services");
    }

    /// Clients have no way to write a stream of requests with this command.
    #[test]
    fn no_method_takes_a_stream_and_all_are_described() {
        let methods = methods();
        assert!(methods.len() > 40, "{}", methods.len());
        for method in methods {
            assert!(!method.is_client_streaming(), "{}", method.full_name());
            assert!(!about_method(&method).is_empty(), "{}", method.full_name());
            let undescribed: Vec<_> = fields(&method.input())
                .into_iter()
                .filter(|field| field.about.is_empty())
                .map(|field| field.name)
                .collect();
            assert!(undescribed.is_empty(), "{} {undescribed:?}", method.full_name());
        }
    }

    #[test]
    fn what_reads_is_told_from_what_changes() {
        let changing = |name: &str| find(name).iter().any(changes);
        assert!(!changing("GetExecution") && !changing("WatchApprovals"));
        assert!(changing("StartExecution") && changing("DecideApproval"));
        assert!(find("DecideApproval").iter().all(is_of_gate) && !find("GetExecution").iter().any(is_of_gate));
    }

    #[test]
    fn fields_are_described_as_json_has_them() {
        let start = find_message("StartExecutionRequest").unwrap();
        let fields = fields(&start);
        let field = |name: &str| fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!((field("parent").kind.as_str(), field("parent").is_required), ("string", true));
        assert_eq!((field("plan").kind.as_str(), field("plan").one_of.as_str()), ("Plan", "source"));
        assert!(!field("requestId").is_required);
    }

    #[test]
    fn a_skeleton_has_what_a_request_needs() {
        let skeleton_of = |name: &str| skeleton(&find_message(name).unwrap()).to_string();
        assert_eq!(skeleton_of("GetExecutionRequest"), r#"{"name":"namespaces/default/executions/NAME"}"#);
        let start =
            r#"{"parent":"namespaces/default","plan":{"id":"NAME","steps":[{"id":"NAME","tool":{"tool":"NAME"}}]}}"#;
        assert_eq!(skeleton_of("StartExecutionRequest"), start);
    }
}
