//! Finds paths in a plan's arguments that always lead out of the workspace; such a plan is refused.
//!
//! A tool marks the arguments that are paths with `"format": "workspace-path"` in its schema. The tool runner opens no path outside the
//! workspace either way; this check reports the problem before anything runs. The rules are those of the runner's `RelPath`.

use serde_json::Value;

/// The `format` of an argument that is a path relative to the workspace.
const FORMAT: &str = "workspace-path";

/// Where commands find the workspace: a path that begins so is relative to the workspace.
const MOUNT_POINT: &str = "/workspace";

/// The arguments of a tool that are paths, by name.
pub(crate) fn path_arguments(schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.filter(|(_, property)| property["format"] == FORMAT).map(|(name, _)| name.clone()).collect()
}

/// The problem of a path that leads out of the workspace; `None` for every other path.
pub(crate) fn leaves_workspace(path: &str) -> Option<&'static str> {
    let (inside, mounted) = match path.strip_prefix(MOUNT_POINT) {
        Some(inside) if inside.is_empty() || inside.starts_with('/') => (inside, true),
        _ => (path, false),
    };
    let is_drive = matches!(path.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic());
    if !mounted && path.starts_with('/') || is_drive || path.starts_with('\\') {
        return Some("is outside workspace, because it is absolute: use a path relative to the workspace");
    }
    if path.contains('\\') && path.split(['/', '\\']).any(|name| name == "..") {
        return Some(
            "is outside workspace, because it contains `..` and backslashes: use a path relative to the workspace",
        );
    }
    let mut depth = 0_usize;
    for name in inside.split('/') {
        match name {
            "" | "." => {}
            ".." if depth == 0 => {
                return Some("is outside workspace, because of `..`: use a path relative to the workspace");
            }
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_paths_that_lead_out_are_refused() {
        for inside in [
            "a",
            ".",
            "./a/../b",
            "a/..",
            "/workspace",
            "/workspace/",
            "/workspace/a/../b",
            "..a",
            "a/...",
            r"a\b",
            "x:y",
            "",
        ] {
            assert_eq!(leaves_workspace(inside), None, "{inside:?}");
        }
        for outside in [
            "..",
            "../a",
            "a/../../b",
            "/etc/passwd",
            "/workspaces/a",
            "/workspace/..",
            "/workspace/a/../../b",
            r"..\a",
            r"\\host\share",
            r"C:\Windows",
            "c:/Windows",
        ] {
            assert!(leaves_workspace(outside).is_some(), "{outside:?}");
        }
    }

    #[test]
    fn a_tools_schema_marks_the_arguments_that_are_paths() {
        let schema =
            json!({"properties": {"path": {"type": "string", "format": FORMAT}, "content": {"type": "string"}}});
        assert_eq!(path_arguments(&schema), ["path"]);
        assert_eq!(path_arguments(&json!(true)), [""; 0]);
    }
}
