//! Dialect of field names, which is the same whatever language a client is generated for.

use protox::prost_reflect::{DescriptorPool, MessageDescriptor};

/// Words that Python, Go, Java, TypeScript and Rust keep for themselves: a field of this name is escaped or cannot be reached as it is written.
const KEYWORDS: &[&str] = &[
    "abstract",
    "and",
    "any",
    "as",
    "assert",
    "async",
    "await",
    "become",
    "boolean",
    "box",
    "break",
    "byte",
    "case",
    "catch",
    "chan",
    "char",
    "class",
    "const",
    "continue",
    "crate",
    "debugger",
    "def",
    "default",
    "defer",
    "del",
    "delete",
    "do",
    "double",
    "dyn",
    "elif",
    "else",
    "enum",
    "except",
    "export",
    "extends",
    "extern",
    "fallthrough",
    "false",
    "final",
    "finally",
    "float",
    "fn",
    "for",
    "from",
    "func",
    "function",
    "gen",
    "global",
    "go",
    "goto",
    "if",
    "impl",
    "implements",
    "import",
    "in",
    "instanceof",
    "int",
    "interface",
    "is",
    "lambda",
    "let",
    "long",
    "loop",
    "macro",
    "map",
    "match",
    "mod",
    "move",
    "mut",
    "native",
    "new",
    "none",
    "nonlocal",
    "not",
    "null",
    "or",
    "override",
    "package",
    "pass",
    "priv",
    "private",
    "protected",
    "pub",
    "public",
    "raise",
    "range",
    "ref",
    "return",
    "select",
    "self",
    "short",
    "static",
    "strictfp",
    "struct",
    "super",
    "switch",
    "synchronized",
    "this",
    "throw",
    "throws",
    "trait",
    "transient",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "var",
    "virtual",
    "void",
    "volatile",
    "where",
    "while",
    "with",
    "yield",
];

fn messages() -> Vec<MessageDescriptor> {
    let pool = DescriptorPool::decode(belay_proto::FILE_DESCRIPTOR_SET).unwrap();
    pool.all_messages().filter(|message| message.full_name().starts_with("belay.")).collect()
}

#[test]
fn no_field_is_named_by_a_keyword() {
    let messages = messages();
    let fields = messages.iter().flat_map(|message| message.fields().collect::<Vec<_>>());
    let oneofs = messages.iter().flat_map(|message| message.oneofs().collect::<Vec<_>>());
    let names = fields.map(|field| field.full_name().to_owned()).chain(oneofs.map(|one| one.full_name().to_owned()));
    let keywords: Vec<_> =
        names.filter(|name| KEYWORDS.contains(&name.rsplit('.').next().expect("it has a name"))).collect();
    assert_eq!(keywords, [""; 0]);
}

#[test]
fn a_point_in_time_is_a_time_by_its_name() {
    for field in messages().iter().flat_map(|message| message.fields().collect::<Vec<_>>()) {
        let is_time = field.kind().as_message().is_some_and(|kind| kind.full_name() == "google.protobuf.Timestamp");
        let end = if field.is_list() { "_times" } else { "_time" };
        assert!(!is_time || field.name().ends_with(end), "{}", field.full_name());
    }
}
