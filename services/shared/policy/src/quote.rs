//! Texts as YAML writes them, for what people copy into their policy.

use std::fmt::Write as _;

use belay_text::is_plain;

/// A name as YAML writes it in a list.
pub(crate) fn plain_or_quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+'))
        && !matches!(
            name.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain { name.to_owned() } else { quoted(name) }
}

/// The text as YAML writes it in double quotes, in visible characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            hidden if !is_plain(hidden) => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(hidden));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
