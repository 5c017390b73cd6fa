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

/// The variables that Belay sets itself: those of every command, and those by which programs find the network's proxy and trust it.
const OWN: [&str; 26] = [
    "ALL_PROXY",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "JAVA_TOOL_OPTIONS",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_ENV_PROXY",
    "NO_PROXY",
    "PATH",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "USER",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Why no credential and no rule can give this variable to commands: Belay sets it itself.
pub(crate) fn own_variable_problem(name: &str) -> Option<String> {
    let is_own = OWN.contains(&name) || name.starts_with("BELAY_");
    is_own.then(|| format!("`{name}` is a variable that Belay sets for commands: choose another, such as GITHUB_TOKEN"))
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
