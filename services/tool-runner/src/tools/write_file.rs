//! `write_file`: creates or replaces a file.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use belay_workspace::ViewError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{CHANGES_FILES, Encoding, Stop, Work, check_marks, holds_mark, in_view, invalid, path};
use crate::{
    Annotations, CallIntent, Invocation, Tool, ToolFailure, ToolResult, ToolSpec, View, tools::intent_on_path,
};

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteFile;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
    mode: Option<String>,
    #[serde(default)]
    create_only: bool,
    #[serde(default)]
    allow_redacted_mark: bool,
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file",
            aliases: &[
                "create_file",
                "generate",
                "WRITE_FILE",
                "CREATE_FILE",
                "WriteFile",
                "CreateFile",
                "FILESYSTEM.write",
            ],
            description: "Writes a whole file of the workspace, creating parent directories. An existing file is replaced, never appended to.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["path", "content"],
  "properties": {
    "path": {"type": "string", "format": "workspace-path", "description": "The file.", "examples": ["docs/notes.md"]},
    "content": {"type": "string", "description": "The complete content of the file."},
    "encoding": {"enum": ["utf-8", "base64"], "default": "utf-8", "description": "The encoding of `content`."},
    "mode": {
      "type": "string",
      "pattern": "^0[0-7]{3}$",
      "description": "The permissions of the file, octal. By default a new file gets 0644, and an existing one keeps its own.",
      "examples": ["0755"]
    },
    "create_only": {"type": "boolean", "default": false, "description": "Fail if the path exists."},
    "allow_redacted_mark": {
      "type": "boolean",
      "default": false,
      "description": "Allow to write `[REDACTED]`, which stands for a hidden secret, where the file does not have it."
    }
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["path", "size_bytes", "created"],
  "properties": {
    "path": {"type": "string", "description": "The path, normalised."},
    "size_bytes": {"type": "integer", "description": "The new size."},
    "created": {"type": "boolean", "description": "Whether the file is new."}
  }
}"#,
            annotations: Annotations { title: "Write a file", idempotent: true, ..CHANGES_FILES.annotations },
            ..CHANGES_FILES
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, write)
    }
}

fn write(view: &mut dyn View, _stop: &Stop, arguments: Arguments) -> ToolResult {
    let path = path("path", &arguments.path)?;
    let mode = arguments.mode.as_deref().map(|mode| u32::from_str_radix(mode, 8)).transpose();
    let mode = mode.map_err(|_| invalid("arguments/mode: not octal, such as 0644"))?;
    let content = match arguments.encoding {
        Encoding::Utf8 => arguments.content.into_bytes(),
        Encoding::Base64 => BASE64_STANDARD
            .decode(arguments.content)
            .map_err(|error| invalid(format!("arguments/content: not base64 (RFC 4648, with padding): {error}")))?,
    };
    let created = match view.metadata(&path) {
        Err(ViewError::NotFound { .. }) => true,
        Err(error) => return Err(error.into()),
        Ok(_) if arguments.create_only => {
            let message = format!("`{path}` already exists: choose another name, or omit create_only to replace it");
            return Err(ToolFailure::new(ErrorClass::InvalidArguments, reasons::FILE_EXISTS, message));
        }
        Ok(_) => false,
    };
    if !arguments.allow_redacted_mark && holds_mark(&content) {
        let old = if created { Vec::new() } else { view.read(&path, 0, None)? };
        check_marks(&path, &old, &content, false)?;
    }
    view.write(&path, &content, mode)?;
    Ok(json!({"path": path.written(), "size_bytes": content.len(), "created": created}))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::tools::tests::TestWorkspace;

    #[tokio::test]
    async fn a_redaction_mark_is_written_only_on_request() {
        let workspace = TestWorkspace::with(&[("config.env", "token=abc\n"), ("notes.md", "shown as [REDACTED]\n")]);
        for path in ["config.env", "new.env"] {
            let refused = workspace.call(&WriteFile, json!({"path": path, "content": "a\ntoken=[REDACTED]\n"})).await;
            let refused = refused.unwrap_err();
            assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::InvalidArguments, "REDACTED_MARK"));
            assert!(refused.message.contains("allow_redacted_mark"), "{}", refused.message);
        }
        workspace
            .call(&WriteFile, json!({"path": "notes.md", "content": "# it is\nshown as [REDACTED]\n"}))
            .await
            .unwrap();
        let meant = json!({"path": "config.env", "content": "token=[REDACTED]\n", "allow_redacted_mark": true});
        workspace.call(&WriteFile, meant).await.unwrap();
        workspace.commit();
        assert_eq!(workspace.read("config.env"), "token=[REDACTED]\n");
    }

    /// S2-FR-040, S2-FR-058.
    #[tokio::test]
    async fn it_creates_and_replaces_files() {
        let workspace = TestWorkspace::with(&[("old.txt", "a long old content\n")]);
        let made = workspace.call(&WriteFile, json!({"path": "./a/b/new.txt", "content": "x"})).await.unwrap();
        assert_eq!(made, json!({"path": "a/b/new.txt", "size_bytes": 1, "created": true}));
        let replaced = workspace.call(&WriteFile, json!({"path": "old.txt", "content": "new\n"})).await.unwrap();
        assert_eq!(replaced, json!({"path": "old.txt", "size_bytes": 4, "created": false}));
        let again = workspace.call(&WriteFile, json!({"path": "old.txt", "content": "new\n"})).await.unwrap();
        assert_eq!(again, replaced);
        workspace.commit();
        assert_eq!((workspace.read("a/b/new.txt"), workspace.read("old.txt")), ("x".into(), "new\n".into()));
    }

    #[tokio::test]
    async fn it_sets_permissions_and_otherwise_keeps_them() {
        let workspace = TestWorkspace::with(&[("run.sh", "#!/bin/sh\n")]);
        workspace.chmod("run.sh", 0o750);
        workspace.call(&WriteFile, json!({"path": "run.sh", "content": "#!/bin/sh\nexit\n"})).await.unwrap();
        workspace.call(&WriteFile, json!({"path": "new.sh", "content": "", "mode": "0755"})).await.unwrap();
        workspace.call(&WriteFile, json!({"path": "plain", "content": ""})).await.unwrap();
        workspace.commit();
        let mode = |path| std::fs::metadata(workspace.root.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("run.sh"), mode("new.sh"), mode("plain")], [0o750, 0o755, 0o644]);
    }

    #[tokio::test]
    async fn any_bytes_can_be_written_as_base64() {
        let workspace = TestWorkspace::with(&[]);
        workspace.call(&WriteFile, json!({"path": "b", "content": "AP8KgA==", "encoding": "base64"})).await.unwrap();
        let refused =
            workspace.call(&WriteFile, json!({"path": "c", "content": "A", "encoding": "base64"})).await.unwrap_err();
        assert!(
            refused.reason == "INVALID_ARGUMENTS" && refused.message.starts_with("arguments/content: "),
            "{refused:?}"
        );
        workspace.commit();
        assert_eq!(std::fs::read(workspace.root.join("b")).unwrap(), [0, 255, 10, 128]);
        assert!(!workspace.root.join("c").exists());
    }

    #[tokio::test]
    async fn create_only_does_not_replace() {
        let workspace = TestWorkspace::with(&[("here", "old")]);
        let only = |path: &str| json!({"path": path, "content": "new", "create_only": true});
        let refused = workspace.call(&WriteFile, only("here")).await.unwrap_err();
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::InvalidArguments, "FILE_EXISTS"));
        workspace.call(&WriteFile, only("there")).await.unwrap();
        workspace.commit();
        assert_eq!((workspace.read("here"), workspace.read("there")), ("old".into(), "new".into()));
    }

    #[tokio::test]
    async fn a_file_of_five_megabytes_is_written() {
        let workspace = TestWorkspace::with(&[]);
        let content = "0123456789abcdé\n".repeat(5 << 16);
        let wrote = workspace.call(&WriteFile, json!({"path": "big", "content": content})).await.unwrap();
        assert_eq!(wrote["size_bytes"], content.len());
        workspace.commit();
        assert_eq!(workspace.read("big"), content);
    }

    #[tokio::test]
    async fn only_regular_files_are_written() {
        let workspace = TestWorkspace::with(&[("folder/file", "x"), ("link", "-> folder/file")]);
        workspace.fifo("pipe");
        for path in ["folder", "link", "pipe", "folder/file/below", "."] {
            let refused = workspace.call(&WriteFile, json!({"path": path, "content": "y"})).await.unwrap_err();
            assert_eq!(refused.reason, "WRONG_FILE_TYPE", "{path}: {}", refused.message);
        }
    }
}
