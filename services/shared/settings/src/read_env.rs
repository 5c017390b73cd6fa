//! Reads the variables of commands.

use belay_yaml::{Node, Reader};

use crate::ValueWithOrigin;

/// The maximum number of entries of one list or mapping.
pub(crate) const MAX_ENTRIES: usize = 500;
/// The maximum length of a variable, in bytes.
const MAX_VALUE: usize = 32 * 1024;

/// Whether a variable can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.len() <= 128 && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads variables with their values.
pub(crate) fn env(reader: &mut Reader, node: &Node, field: &str) -> Vec<(String, ValueWithOrigin<String>)> {
    let mut all = Vec::new();
    reader.map(node, field, |reader, name, field, node| {
        let Some(value) = reader.text(node, field) else { return Ok(()) };
        if !is_name(name) {
            reader.refuse(
                field,
                node.line,
                "is not a valid variable name: use letters, digits and `_`, such as JAVA_HOME",
            );
        } else if name == "PATH" {
            reader.refuse(
                field,
                node.line,
                "is computed from `commands.path` and the toolchains found: add the directories to `commands.path`",
            );
        } else if value.len() > MAX_VALUE || value.contains('\0') {
            reader.refuse(field, node.line, format!("must be at most {MAX_VALUE} bytes without NUL"));
        } else {
            all.push((name.to_owned(), ValueWithOrigin::on_line(value, node.line)));
        }
        Ok(())
    });
    if all.len() > MAX_ENTRIES {
        reader.refuse(field, node.line, format!("has {} variables, but the limit is {MAX_ENTRIES}", all.len()));
    }
    all
}
