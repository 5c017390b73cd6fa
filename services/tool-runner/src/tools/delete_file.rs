//! `delete_file`: removes a file, or a directory with its content.

use belay_policy::ToolKind;
use belay_workspace::{FileKind, RelPath, ViewError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{CHANGES_FILES, Stop, Work, in_view, path, wrong_type};
use crate::{
    Annotations, CallIntent, Invocation, Tool, ToolFailure, ToolResult, ToolSpec, View, tools::intent_on_path,
};

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteFile;

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    recursive: bool,
}

impl Tool for DeleteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "delete_file",
            aliases: &["DELETE_FILE", "DeleteFile"],
            description: "Removes a file or a symbolic link, or several, all or none; with `recursive` also directories.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "oneOf": [{"required": ["path"]}, {"required": ["paths"]}],
  "properties": {
    "path": {"type": "string", "format": "workspace-path", "description": "The path to remove.", "examples": ["build/old.log"]},
    "paths": {
      "type": "array",
      "minItems": 1,
      "maxItems": 10000,
      "items": {"type": "string", "format": "workspace-path"},
      "description": "The same of several, instead of `path`: when one of them is not there, none is removed.",
      "examples": [["build/old.log", "build/older.log"]]
    },
    "recursive": {"type": "boolean", "default": false, "description": "Remove directories with their content."}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["deleted"],
  "properties": {
    "path": {"type": "string", "description": "The removed path, normalised."},
    "paths": {"type": "array", "items": {"type": "string"}, "description": "The removed paths, normalised, where `paths` was given."},
    "deleted": {"type": "integer", "description": "The number of removed files, links and directories."}
  }
}"#,
            kind: ToolKind::FileDelete,
            annotations: Annotations { title: "Delete a file", idempotent: true, ..CHANGES_FILES.annotations },
            ..CHANGES_FILES
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, delete)
    }
}

fn delete(view: &mut dyn View, stop: &Stop, arguments: Arguments) -> ToolResult {
    if let Some(written) = &arguments.path {
        let (path, deleted) = delete_one(view, stop, path("path", written)?, arguments.recursive)?;
        return Ok(json!({"path": path, "deleted": deleted}));
    }
    let given = arguments.paths.iter().enumerate().map(|(index, written)| path(&format!("paths[{index}]"), written));
    let given: Vec<RelPath> = given.collect::<Result<_, _>>()?;
    let (mut paths, mut deleted) = (Vec::with_capacity(given.len()), 0);
    for path in given {
        let (path, count) = delete_one(view, stop, path, arguments.recursive)?;
        paths.push(path);
        deleted += count;
    }
    Ok(json!({"paths": paths, "deleted": deleted}))
}

/// Removes one path: the path as it is written, and the number of files, links and directories.
fn delete_one(view: &mut dyn View, stop: &Stop, path: RelPath, recursive: bool) -> Result<(String, u64), ToolFailure> {
    if path.is_root() {
        return Err(ViewError::Root.into());
    }
    let deleted = match view.metadata(&path)?.kind {
        FileKind::Directory if recursive => count(view, stop, &path)?,
        FileKind::Directory => {
            return Err(wrong_type(format!(
                "`{path}` is a directory: set recursive: true to remove it with its content"
            )));
        }
        _ => 1,
    };
    view.remove(&path)?;
    Ok((path.written().to_string(), deleted))
}

/// Counts a directory and everything below it.
fn count(view: &dyn View, stop: &Stop, folder: &RelPath) -> Result<u64, ToolFailure> {
    let mut count = 1;
    let mut folders = vec![folder.clone()];
    while let Some(folder) = folders.pop() {
        stop.check()?;
        for (path, kind) in view.list(&folder)? {
            count += 1;
            if kind == FileKind::Directory {
                folders.push(path);
            }
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use belay_defects::{Defect, assert_attack_needs};
    use serde_json::Value;

    use super::*;
    use crate::tools::{FileInfo, FindFiles, ListDirectory, ReadFile, SearchCode, tests::TestWorkspace};

    /// S2-X-27.
    #[tokio::test]
    async fn it_removes_files_links_and_folders_and_counts_them() {
        let files =
            [("a", "1"), ("kept", "1"), ("link", "-> kept"), ("f/b", "1"), ("f/g/c", "1"), ("f/up", "-> ../kept")];
        let workspace = TestWorkspace::with(&files);
        for (path, deleted) in [("a", 1), ("link", 1), ("f", 5)] {
            let done = workspace.call(&DeleteFile, json!({"path": path, "recursive": true})).await.unwrap();
            assert_eq!(done, json!({"path": path, "deleted": deleted}));
        }
        let gone = workspace.call(&DeleteFile, json!({"path": "a"})).await.unwrap_err();
        assert_eq!(gone.reason, "FILE_NOT_FOUND");
        workspace.commit();
        assert_eq!(workspace.names(), ["kept"]);
    }

    /// S2-X-27: several paths are removed in one call, or none of them.
    #[tokio::test]
    async fn it_removes_several_or_none() {
        let workspace = TestWorkspace::with(&[("a", "1"), ("b", "1"), ("f/c", "1"), ("kept", "1")]);
        let done = workspace.call(&DeleteFile, json!({"paths": ["a", "./f"], "recursive": true})).await.unwrap();
        assert_eq!(done, json!({"paths": ["a", "f"], "deleted": 3}));
        workspace.commit();
        assert_eq!(workspace.names(), ["b", "kept"]);
        let workspace = TestWorkspace::with(&[("b", "1"), ("kept", "1")]);
        let gone = workspace.call(&DeleteFile, json!({"paths": ["b", "a"]})).await.unwrap_err();
        assert_eq!(gone.reason, "FILE_NOT_FOUND");
        let outside = workspace.call(&DeleteFile, json!({"paths": ["b", "../x"]})).await.unwrap_err();
        assert_eq!(outside.reason, "OUTSIDE_WORKSPACE");
        assert_eq!(DeleteFile.intent(&json!({"paths": ["b", "f/../kept"]})).paths, ["b", "f/../kept"]);
        for both in [json!({}), json!({"path": "b", "paths": ["kept"]}), json!({"paths": []})] {
            let schema = belay_json_schema::Schema::new(DeleteFile.spec().parameters).unwrap();
            assert!(!schema.violations(&both).is_empty(), "{both}");
        }
        assert_eq!(workspace.names(), ["b", "kept"]);
    }

    /// Whatever the bytes of a name, what one tool returns names this file to another one, and no neighbour.
    #[test]
    fn the_path_in_a_result_is_that_of_the_file() {
        assert_attack_needs(Defect::PrintedPathHandedOn, r"`bad\xff` is that of another file", || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(odd_names_handed_on())
        });
    }

    async fn odd_names_handed_on() -> Result<(), String> {
        let names: [&[u8]; 16] = [
            b"new\nline",
            br"new\nline",
            b"bad\xff",
            br"bad\xff",
            b"hex:626164ff",
            b"hex:",
            b"tab\t",
            b"\x1b[31m",
            "\u{202e}x".as_bytes(),
            "a\u{200d}b".as_bytes(),
            br"\x",
            b"C:",
            br"..\x",
            b" ",
            b"...",
            b"plain",
        ];
        let workspace = TestWorkspace::with(&[]).on_this_thread();
        for (number, name) in names.iter().enumerate() {
            std::fs::write(workspace.root.join(OsStr::from_bytes(name)), format!("odd {number}\n")).unwrap();
        }
        let paths = |found: &Value| -> Vec<String> {
            found.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
        };
        let listed = paths(&workspace.call(&ListDirectory, json!({})).await.unwrap()["entries"]);
        let mut found = paths(&workspace.call(&SearchCode, json!({"pattern": "odd"})).await.unwrap()["matches"]);
        assert_eq!(listed.len(), names.len());
        found.sort();
        let mut sorted = listed.clone();
        sorted.sort();
        assert_eq!(found, sorted, "one form");
        let by_path = workspace.call(&FindFiles, json!({"pattern": "**"})).await.unwrap();
        let mut by_path: Vec<&str> = by_path["files"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        by_path.sort_unstable();
        assert_eq!(by_path, sorted, "one form");
        let mut seen = std::collections::BTreeSet::new();
        let mut wrong = Vec::new();
        for path in &listed {
            match workspace.call(&ReadFile, json!({"path": path})).await {
                Ok(read) if seen.insert(read["content"].to_string()) => {}
                Ok(_) => wrong.push(format!("`{path}` is that of another file")),
                Err(failure) => wrong.push(format!("`{path}` is that of no file: {}", failure.message)),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong.join("\n"));
        }
        for path in &listed {
            let info = workspace.call(&FileInfo, json!({"path": path})).await.unwrap();
            assert_eq!(info["path"], json!(path));
            let deleted = workspace.call(&DeleteFile, json!({"path": path})).await.unwrap();
            assert_eq!(deleted, json!({"path": path, "deleted": 1}));
            let again = workspace.call(&DeleteFile, json!({"path": path})).await;
            assert!(again.is_err(), "{path} was that file alone");
        }
        assert_eq!(workspace.call(&ListDirectory, json!({})).await.unwrap()["entries"], json!([]));
        Ok(())
    }

    #[tokio::test]
    async fn a_directory_needs_recursive_and_the_root_cannot_be_removed() {
        let workspace = TestWorkspace::with(&[("f/b", "1")]);
        let refused = workspace.call(&DeleteFile, json!({"path": "f"})).await.unwrap_err();
        assert!(refused.reason == "WRONG_FILE_TYPE" && refused.message.contains("recursive: true"), "{refused:?}");
        for root in [".", "f/.."] {
            let refused = workspace.call(&DeleteFile, json!({"path": root, "recursive": true})).await.unwrap_err();
            assert_eq!(refused.reason, "WRONG_FILE_TYPE", "{root}");
        }
        workspace.commit();
        assert_eq!(workspace.names(), ["f", "f/b"]);
    }

    /// S2-X-12: neither the target of a link nor anything in it is removed.
    #[tokio::test]
    async fn nothing_behind_a_link_is_removed() {
        let workspace = TestWorkspace::with(&[("kept/file", "1"), ("in", "-> kept")]);
        let outside = workspace.link_outside("out");
        for path in ["in/file", "out/secret"] {
            let refused = workspace.call(&DeleteFile, json!({"path": path})).await.unwrap_err();
            assert!(["WRONG_FILE_TYPE", "OUTSIDE_WORKSPACE"].contains(&refused.reason.as_str()), "{refused:?}");
        }
        workspace.call(&DeleteFile, json!({"path": "out", "recursive": true})).await.unwrap();
        workspace.commit();
        assert_eq!(workspace.names(), ["in", "kept", "kept/file"]);
        assert!(outside.path().join("secret").exists());
    }
}
