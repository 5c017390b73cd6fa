//! Generates the names of the kinds of events.

use std::fmt::Write as _;

use protox::prost_reflect::DescriptorPool;

use crate::names::camel;

/// The message of events, and the oneof that says of which kind one is.
const EVENT: &str = "belay.v1.ExecutionEvent";
const KIND: &str = "kind";

/// The names in the order of their numbers, and the name of each variant.
///
/// # Errors
/// There is no such message or oneof.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, String> {
    let event = pool.get_message_by_name(EVENT).ok_or_else(|| format!("there is no {EVENT}"))?;
    let kind = event.oneofs().find(|oneof| oneof.name() == KIND).ok_or_else(|| format!("{EVENT} has no {KIND}"))?;
    let mut fields: Vec<_> = kind.fields().collect();
    fields.sort_by_key(|field| field.number());
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let mut code = format!("static NAMES: [&str; {}] = {names:?};\n", names.len());
    code.push_str("fn name_of(kind: &Kind) -> &'static str {\n    match kind {\n");
    for name in names {
        writeln!(code, "        Kind::{}(_) => {name:?},", camel(name)).expect("it is a String");
    }
    code.push_str("    }\n}\n");
    Ok(code)
}
