//! `file_info`: says what is at a path.

use std::time::Duration;

use belay_policy::ToolKind;
use belay_workspace::FileKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{Stop, Work, in_view, kind, path};
use crate::{
    Annotations, CallIntent, Invocation, Recovery, Tool, ToolResult, ToolSpec, Touches, View, tools::intent_on_path,
};

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileInfo;

#[derive(Deserialize)]
struct Arguments {
    path: String,
}

impl Tool for FileInfo {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "file_info",
            aliases: &["FILE_INFO", "stat"],
            description: "Says what is at a path of the workspace: a file with its size, a directory, a symbolic link. Fails when nothing is there. \
                          Symbolic links are not followed.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["path"],
  "properties": {
    "path": {"type": "string", "format": "workspace-path", "description": "The path, relative to the workspace.", "examples": ["dist/app.js"]}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["path", "kind"],
  "properties": {
    "path": {"type": "string", "description": "Relative to the workspace; a name that is not UTF-8 is `hex:` and the digits of its bytes."},
    "kind": {"enum": ["file", "directory", "symlink", "fifo", "socket", "device"]},
    "size_bytes": {"type": "integer", "description": "The size of a file."}
  }
}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Reads,
            kind: ToolKind::FileRead,
            default_timeout: Duration::from_secs(60),
            annotations: Annotations { title: "Look at a path", ..Annotations::default() },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, look)
    }
}

fn look(view: &mut dyn View, _: &Stop, arguments: Arguments) -> ToolResult {
    let path = path("path", &arguments.path)?;
    let metadata = view.metadata(&path)?;
    let mut found = json!({"path": path.written(), "kind": kind(metadata.kind)});
    if metadata.kind == FileKind::File {
        found["size_bytes"] = json!(metadata.size);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::TestWorkspace;

    #[tokio::test]
    async fn it_says_what_is_there_and_fails_when_nothing_is() {
        let workspace = TestWorkspace::with(&[("a/b", "12345"), ("link", "-> nowhere")]);
        let found = async |path: &str| workspace.call(&FileInfo, json!({"path": path})).await;
        assert_eq!(found("a/b").await.unwrap(), json!({"path": "a/b", "kind": "file", "size_bytes": 5}));
        assert_eq!(found("a").await.unwrap(), json!({"path": "a", "kind": "directory"}));
        assert_eq!(found("link").await.unwrap()["kind"], "symlink");
        let missing = found("a/c").await.unwrap_err();
        assert_eq!(missing.reason, "FILE_NOT_FOUND", "{}", missing.message);
        let outside = found("../x").await.unwrap_err();
        assert_ne!(outside.reason, "FILE_NOT_FOUND", "{}", outside.message);
    }
}
