//! Paths of requests and of rules.

/// Whether every server reads this path in the same way: without escapes, `.` and `..`, `//`, `\` and parameters (`;`).
pub(crate) fn reads_in_one_way(path: &str) -> bool {
    !path.contains(['%', '\\', ';']) && !path.contains("//") && path.split('/').all(|part| part != "." && part != "..")
}

/// Whether a rule may have this path: others would allow nothing, because no request that is allowed by its path has them.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && reads_in_one_way(path)
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
}

/// Requirement on a path of a rule, as an error says it.
pub(crate) const RULE: &str = "must begin with `/`, and have no `..`, `//`, `%`, `;`, `?`, `#` or `\\`: it is the beginning of a path that servers read in one way";
