//! `modify_file`: replaces quoted parts of a text file, all of them or none.

mod edits;

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{CHANGES_FILES, Stop, Work, check_marks, in_view, not_text, path, stopped, too_large};
use crate::{CallIntent, Invocation, Tool, ToolFailure, ToolResult, ToolSpec, View, tools::intent_on_path};
use edits::{Edit, EditError};

/// The largest file, before and after, in bytes. Files edited by quotation are text that people write.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModifyFile;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    edits: Vec<Edit>,
    #[serde(default)]
    allow_redacted_mark: bool,
}

impl Tool for ModifyFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "modify_file",
            aliases: &["MODIFY_FILE", "ModifyFile"],
            description: "Edits a UTF-8 text file. Each edit quotes a part of it (`search`) and gives its replacement; the part has to occur exactly \
                          once unless `all` is set. The edits are applied in order, all or none. Line endings are kept.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["path", "edits"],
  "properties": {
    "path": {"type": "string", "format": "workspace-path", "description": "The file.", "examples": ["src/main.rs"]},
    "edits": {
      "type": "array",
      "minItems": 1,
      "maxItems": 1000,
      "description": "The edits; each sees the result of those before it.",
      "examples": [[{"search": "old text", "replace": "new text"}]],
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["search", "replace"],
        "properties": {
          "search": {"type": "string", "minLength": 1, "description": "A part of the file, quoted exactly."},
          "replace": {"type": "string", "description": "The replacement."},
          "all": {"type": "boolean", "default": false, "description": "Replace every occurrence."}
        }
      }
    },
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
  "required": ["path", "replacements", "diff", "diff_truncated"],
  "properties": {
    "path": {"type": "string", "description": "The path, normalised."},
    "replacements": {"type": "integer", "description": "The number of replaced parts."},
    "diff": {"type": "string", "description": "The changes, as a unified diff."},
    "diff_truncated": {"type": "boolean", "description": "Whether the diff is too large to be shown in full."}
  }
}"#,
            ..CHANGES_FILES
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, modify)
    }
}

fn modify(view: &mut dyn View, stop: &Stop, arguments: Arguments) -> ToolResult {
    let path = path("path", &arguments.path)?;
    let bytes = view.read(&path, 0, Some(MAX_FILE_BYTES as u64 + 1))?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(too_large(format!(
            "`{path}` is larger than the limit of {MAX_FILE_BYTES} bytes for edits: write it as a whole"
        )));
    }
    let old = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        not_text(format!("`{path}` is not UTF-8 text (at byte {at}): write it as a whole with encoding: base64"))
    })?;
    let edited = edits::apply(&old, &arguments.edits, MAX_FILE_BYTES, || stop.check().is_err());
    let edited = edited.map_err(|(n, error)| match error {
        EditError::Stopped => stopped(),
        EditError::TooLarge => too_large(format!(
            "arguments/edits/{n}: `{path}` would exceed the limit of {MAX_FILE_BYTES} bytes for edits: write it as a whole"
        )),
        error => {
            let message = format!("arguments/edits/{n}/search: in `{path}` {error}");
            ToolFailure::new(ErrorClass::InvalidArguments, reasons::EDIT_MISMATCH, message)
        }
    })?;
    check_marks(&path, old.as_bytes(), edited.text.as_bytes(), arguments.allow_redacted_mark)?;
    if edited.text != old {
        view.write(&path, edited.text.as_bytes(), None)?;
    }
    let (diff, diff_truncated) = edits::diff(&path.to_string(), &old, &edited);
    let replacements = edited.replacements;
    Ok(json!({"path": path.written(), "replacements": replacements, "diff": diff, "diff_truncated": diff_truncated}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::TestWorkspace;

    fn edit(search: &str, replace: &str) -> Value {
        json!({"search": search, "replace": replace})
    }

    #[tokio::test]
    async fn a_redaction_mark_is_written_only_on_request() {
        let workspace = TestWorkspace::with(&[("a.env", "token=abc\nport=1\n")]);
        let replace = json!({"path": "a.env", "edits": [edit("token=abc\nport=1", "token=[REDACTED]\nport=2")]});
        let refused = workspace.call(&ModifyFile, replace.clone()).await.unwrap_err();
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::InvalidArguments, "REDACTED_MARK"));
        let mut meant = replace;
        meant["allow_redacted_mark"] = true.into();
        workspace.call(&ModifyFile, meant).await.unwrap();
        // A mark that the file contains already is allowed.
        let around = json!({"path": "a.env", "edits": [edit("port=2", "port=3")]});
        workspace.call(&ModifyFile, around).await.unwrap();
        workspace.commit();
        assert_eq!(workspace.read("a.env"), "token=[REDACTED]\nport=3\n");
    }

    /// S2-FR-041, as far as edits go.
    #[tokio::test]
    async fn parts_are_replaced_and_the_diff_is_returned() {
        let workspace = TestWorkspace::with(&[("a.txt", "one\ntwo\nthree\n")]);
        let edits = [edit("two", "2"), edit("2\nthree", "2\n3")];
        let done = workspace.call(&ModifyFile, json!({"path": "a.txt", "edits": edits})).await.unwrap();
        let diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+3\n";
        assert_eq!(done, json!({"path": "a.txt", "replacements": 2, "diff": diff, "diff_truncated": false}));
        workspace.commit();
        assert_eq!(workspace.read("a.txt"), "one\n2\n3\n");
    }

    /// S2-FR-041: all or nothing.
    #[tokio::test]
    async fn one_edit_that_does_not_match_leaves_the_file_unchanged() {
        let workspace = TestWorkspace::with(&[("a.txt", "one\ntwo\n")]);
        let edits = [edit("one", "1"), edit("tvvo", "2")];
        let refused = workspace.call(&ModifyFile, json!({"path": "a.txt", "edits": edits})).await.unwrap_err();
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::InvalidArguments, "EDIT_MISMATCH"));
        assert!(refused.message.starts_with("arguments/edits/1/search: "), "{}", refused.message);
        workspace.commit();
        assert_eq!(workspace.read("a.txt"), "one\ntwo\n");
    }

    #[tokio::test]
    async fn an_edit_without_effect_changes_no_file() {
        let workspace = TestWorkspace::with(&[("a.txt", "one\n")]);
        let done = workspace.call(&ModifyFile, json!({"path": "a.txt", "edits": [edit("one", "one")]})).await.unwrap();
        assert_eq!((&done["replacements"], &done["diff"]), (&json!(1), &json!("")));
        assert_eq!(workspace.changes(), 0);
    }

    #[tokio::test]
    async fn only_text_files_can_be_edited() {
        let workspace = TestWorkspace::with(&[("folder/f", "")]);
        std::fs::write(workspace.root.join("binary"), [b'a', 0xff, b'b']).unwrap();
        workspace.fifo("pipe");
        for (path, reason) in [
            ("binary", "NOT_TEXT"),
            ("folder", "WRONG_FILE_TYPE"),
            ("pipe", "WRONG_FILE_TYPE"),
            ("none", "FILE_NOT_FOUND"),
        ] {
            let refused =
                workspace.call(&ModifyFile, json!({"path": path, "edits": [edit("a", "b")]})).await.unwrap_err();
            assert_eq!(refused.reason, reason, "{path}: {}", refused.message);
        }
        let large = std::fs::File::create(workspace.root.join("large")).unwrap();
        large.set_len(MAX_FILE_BYTES as u64 + 1).unwrap();
        let refused =
            workspace.call(&ModifyFile, json!({"path": "large", "edits": [edit("a", "b")]})).await.unwrap_err();
        assert_eq!(refused.reason, "FILE_TOO_LARGE");
    }
}
