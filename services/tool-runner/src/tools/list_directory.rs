//! `list_directory`: lists a directory.

use std::time::Duration;

use belay_policy::ToolKind;
use belay_workspace::{FileKind, RelPath};
use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{Stop, Work, in_view, kind, path};
use crate::{
    Annotations, CallIntent, Invocation, Recovery, Tool, ToolFailure, ToolResult, ToolSpec, Touches, View,
    tools::intent_on_path,
};

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListDirectory;

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
    depth: Option<u32>,
    limit: Option<usize>,
}

impl Tool for ListDirectory {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "list_directory",
            aliases: &["LIST_DIRECTORY", "ListDirectory"],
            description: "Lists a directory, sorted; with `depth` also its subdirectories. Symbolic links are listed and not followed.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "path": {"type": "string", "format": "workspace-path", "default": ".", "description": "The directory.", "examples": ["src"]},
    "depth": {"type": "integer", "minimum": 1, "maximum": 16, "default": 1, "description": "The maximum depth; 1 lists the directory itself."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000, "description": "The maximum number of entries."}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["entries", "truncated"],
  "properties": {
    "entries": {
      "type": "array",
      "description": "The entries, each directory before its content.",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["path", "kind"],
        "properties": {
          "path": {"type": "string", "description": "Relative to the workspace; a name that is not UTF-8 is `hex:` and the digits of its bytes."},
          "kind": {"enum": ["file", "directory", "symlink", "fifo", "socket", "device"]},
          "size_bytes": {"type": "integer", "description": "The size of a file."}
        }
      }
    },
    "truncated": {"type": "boolean", "description": "Whether there are more entries than `limit`."}
  }
}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Reads,
            kind: ToolKind::FileRead,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "List a directory", ..Annotations::default() },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, list)
    }
}

fn list(view: &mut dyn View, stop: &Stop, arguments: Arguments) -> ToolResult {
    let path = path("path", arguments.path.as_deref().unwrap_or("."))?;
    let (depth, limit) = (arguments.depth.unwrap_or(1), arguments.limit.unwrap_or(1000));
    let top = view.list(&path)?;
    let view: &dyn View = view;
    let mut entries = Vec::new();
    let truncated = walk(view, stop, top, depth, &mut |path, found| {
        if entries.len() == limit {
            return Ok(false);
        }
        let mut entry = json!({"path": path.written(), "kind": kind(found)});
        // The file may be removed meanwhile.
        if found == FileKind::File
            && let Ok(metadata) = view.metadata(path)
        {
            entry["size_bytes"] = json!(metadata.size);
        }
        entries.push(entry);
        Ok(true)
    })?;
    Ok(json!({"entries": entries, "truncated": truncated}))
}

/// Visits entries in order, down to a depth, until `show` returns false. Returns whether it did.
fn walk(
    view: &dyn View,
    stop: &Stop,
    entries: Vec<(RelPath, FileKind)>,
    depth: u32,
    show: &mut impl FnMut(&RelPath, FileKind) -> Result<bool, ToolFailure>,
) -> Result<bool, ToolFailure> {
    for (path, kind) in entries {
        stop.check()?;
        if !show(&path, kind)? {
            return Ok(true);
        }
        if kind == FileKind::Directory && depth > 1 {
            // A directory that cannot be read, or no longer exists, is listed without its content.
            let inside = view.list(&path).unwrap_or_default();
            if walk(view, stop, inside, depth - 1, show)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::TestWorkspace;

    async fn paths(workspace: &TestWorkspace, arguments: Value) -> (Vec<String>, bool) {
        let listed = workspace.call(&ListDirectory, arguments).await.unwrap();
        let entries = listed["entries"].as_array().unwrap();
        let paths = entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned());
        (paths.collect(), listed["truncated"].as_bool().unwrap())
    }

    /// S2-X-27.
    #[tokio::test]
    async fn it_lists_entries_in_order_down_to_the_depth() {
        let workspace = TestWorkspace::with(&[("b", "12345"), ("a/y/z", ""), ("a/x", ""), ("link", "-> a")]);
        workspace.fifo("pipe");
        let listed = workspace.call(&ListDirectory, json!({})).await.unwrap();
        assert_eq!(
            listed["entries"],
            json!([
                {"path": "a", "kind": "directory"},
                {"path": "b", "kind": "file", "size_bytes": 5},
                {"path": "link", "kind": "symlink"},
                {"path": "pipe", "kind": "fifo"},
            ])
        );
        let deep = ["a", "a/x", "a/y", "a/y/z", "b", "link", "pipe"].map(str::to_owned).to_vec();
        assert_eq!(paths(&workspace, json!({"depth": 16})).await, (deep.clone(), false));
        assert_eq!(paths(&workspace, json!({"depth": 2, "limit": 3})).await, (deep[..3].to_vec(), true));
        assert_eq!(paths(&workspace, json!({"depth": 16, "limit": 7})).await, (deep, false));
        assert_eq!(paths(&workspace, json!({"path": "a/y"})).await, (vec!["a/y/z".to_owned()], false));
    }

    #[tokio::test]
    async fn link_cycles_do_not_loop() {
        let workspace = TestWorkspace::with(&[("a/b/back", "-> ../../a"), ("self", "-> self")]);
        let (paths, truncated) = paths(&workspace, json!({"depth": 16})).await;
        assert_eq!((paths.join(" ").as_str(), truncated), ("a a/b a/b/back self", false));
        let refused = workspace.call(&ListDirectory, json!({"path": "self"})).await.unwrap_err();
        assert_eq!(refused.reason, "WRONG_FILE_TYPE", "{}", refused.message);
    }

    #[tokio::test]
    async fn a_file_and_a_missing_path_fail_differently() {
        let workspace = TestWorkspace::with(&[("file", "")]);
        for (path, reason) in [("file", "WRONG_FILE_TYPE"), ("file/x", "WRONG_FILE_TYPE"), ("none", "FILE_NOT_FOUND")] {
            assert_eq!(
                workspace.call(&ListDirectory, json!({"path": path})).await.unwrap_err().reason,
                reason,
                "{path}"
            );
        }
    }

    #[tokio::test]
    async fn a_directory_of_a_hundred_thousand_entries_is_truncated() {
        let workspace = TestWorkspace::with(&[]);
        for n in 0..100_000 {
            std::fs::write(workspace.root.join(format!("{n:06}")), "").unwrap();
        }
        let (paths, truncated) = paths(&workspace, json!({"limit": 10_000})).await;
        assert_eq!((paths.len(), paths[9_999].as_str(), truncated), (10_000, "009999", true));
    }
}
