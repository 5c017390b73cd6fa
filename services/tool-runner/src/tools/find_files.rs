//! `find_files`: finds files by their paths.

use std::{ffi::OsStr, ops::ControlFlow, os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use belay_policy::ToolKind;
use belay_workspace::RelPath;
use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    files::{Stop, Work, in_view, invalid, path},
    walk,
};
use crate::{
    Annotations, CallIntent, Invocation, Recovery, Tool, ToolFailure, ToolResult, ToolSpec, Touches, View,
    tools::intent_on_path,
};

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindFiles;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    limit: Option<usize>,
}

impl Tool for FindFiles {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "find_files",
            aliases: &["FIND_FILES", "FindFiles"],
            description: "Finds the files whose paths match a glob, sorted. `.git` and symbolic links are skipped.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["pattern"],
  "properties": {
    "pattern": {
      "type": "string",
      "minLength": 1,
      "maxLength": 1000,
      "description": "A glob for the whole path below `path`: `*` and `?` match no `/`, `**` any folders; `{a,b}`, `[xy]` and `\\*` as in shells.",
      "examples": ["src/**/*.rs"]
    },
    "path": {"type": "string", "format": "workspace-path", "default": ".", "description": "The directory.", "examples": ["docs"]},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200, "description": "The maximum number of files."}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["files", "truncated"],
  "properties": {
    "files": {
      "type": "array",
      "description": "The paths of the files, relative to the workspace, sorted by their bytes; a name that is not UTF-8 is `hex:` and the digits of its bytes.",
      "items": {"type": "string"}
    },
    "truncated": {"type": "boolean", "description": "Whether more files match than `limit`."}
  }
}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Reads,
            kind: ToolKind::FileRead,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Find files", ..Annotations::default() },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, find)
    }
}

fn find(view: &mut dyn View, stop: &Stop, arguments: Arguments) -> ToolResult {
    let top = path("path", arguments.path.as_deref().unwrap_or("."))?;
    let pattern = Pattern::parse(&arguments.pattern)?;
    let limit = arguments.limit.unwrap_or(200);
    let mut found = Vec::new();
    let enters = |folder: &RelPath| pattern.may_match_in(&below(folder, &top));
    let truncated = walk::files(view, stop, view.list(&top)?, &enters, &mut |file| {
        if !pattern.matches(&below(file, &top)) {
            return ControlFlow::Continue(());
        }
        if found.len() == limit {
            return ControlFlow::Break(());
        }
        found.push(file.written());
        ControlFlow::Continue(())
    })?;
    Ok(json!({"files": found, "truncated": truncated}))
}

/// The path from a folder that it is below.
fn below(path: &RelPath, top: &RelPath) -> Vec<u8> {
    path.names().skip(top.names().count()).map(OsStr::as_bytes).collect::<Vec<_>>().join(&b'/')
}

/// A glob for paths.
struct Pattern {
    text: String,
    glob: GlobMatcher,
    /// How much of it, up to a `/`, has no wildcard.
    literal: usize,
    /// How many folders deep a file may lie that it matches.
    depth: Option<usize>,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ToolFailure> {
        let refused = |why: &str| Err(invalid(format!("arguments/pattern: {why}")));
        let text = text.strip_prefix("./").unwrap_or(text);
        if text.starts_with('/') {
            return refused(
                "must be relative: write it without the `/` at its beginning, and name the directory in `path`",
            );
        }
        if text.split('/').any(|name| name == "..") {
            return refused("has `..`: name the directory in `path`");
        }
        if text.is_empty() || text.ends_with('/') {
            return refused("names no file: add `**` for all files in a folder");
        }
        let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
        let glob = glob.map_err(|error| invalid(format!("arguments/pattern: {}", error.kind())))?.compile_matcher();
        let plain = text.find(['*', '?', '[', '{', '\\']).unwrap_or(text.len());
        let literal = text[..plain].rfind('/').map_or(0, |slash| slash + 1);
        let depth = (!text.contains("**")).then(|| text.matches('/').count());
        Ok(Self { text: text.to_owned(), glob, literal, depth })
    }

    /// Whether it matches a path, or is the path: names may have the characters of globs.
    fn matches(&self, path: &[u8]) -> bool {
        path == self.text.as_bytes() || self.glob.is_match(Path::new(OsStr::from_bytes(path)))
    }

    /// Whether it may match files in a folder, or below it.
    fn may_match_in(&self, folder: &[u8]) -> bool {
        let folder = [folder, b"/"].concat();
        let literal = &self.text.as_bytes()[..self.literal];
        let is_on_its_way = folder.starts_with(literal) || literal.starts_with(&folder);
        let depth = folder.iter().filter(|byte| **byte == b'/').count();
        is_on_its_way && self.depth.is_none_or(|most| depth <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::TestWorkspace;

    async fn found(workspace: &TestWorkspace, arguments: Value) -> (String, bool) {
        let result = workspace.call(&FindFiles, arguments).await.unwrap();
        let files = result["files"].as_array().unwrap().iter().map(|path| path.as_str().unwrap());
        (files.collect::<Vec<_>>().join(" "), result["truncated"].as_bool().unwrap())
    }

    /// S2-X-27.
    #[tokio::test]
    async fn it_finds_files_by_their_paths_in_order() {
        let workspace = TestWorkspace::with(&[
            ("README.md", ""),
            ("src/b.rs", ""),
            ("src/a/c.rs", ""),
            ("src/a.rs", ""),
            ("src/a-b.rs", ""),
            ("src/.hidden.rs", ""),
            ("src/x.txt", ""),
            ("docs/README.md", ""),
        ]);
        for (pattern, files) in [
            ("*.md", "README.md"),
            ("./*.md", "README.md"),
            ("**/*.md", "README.md docs/README.md"),
            // By the bytes of the whole paths: `-` and `.` come before `/`.
            ("src/**/*.rs", "src/.hidden.rs src/a-b.rs src/a.rs src/a/c.rs src/b.rs"),
            ("src/?.rs", "src/a.rs src/b.rs"),
            ("src/**", "src/.hidden.rs src/a-b.rs src/a.rs src/a/c.rs src/b.rs src/x.txt"),
            ("{docs,src/a}/*", "docs/README.md src/a/c.rs"),
            ("src/[bx].*", "src/b.rs src/x.txt"),
            ("src/b.rs", "src/b.rs"),
            ("src", ""),
            ("none/**/*.rs", ""),
            ("README.MD", ""),
        ] {
            assert_eq!(found(&workspace, json!({"pattern": pattern})).await, (files.to_owned(), false), "{pattern}");
        }
        let below = found(&workspace, json!({"pattern": "*/*.rs", "path": "src"})).await;
        assert_eq!(below, ("src/a/c.rs".to_owned(), false));
    }

    #[tokio::test]
    async fn it_says_when_there_are_more() {
        let workspace = TestWorkspace::with(&[("a", ""), ("b", ""), ("c/d", "")]);
        assert_eq!(found(&workspace, json!({"pattern": "**", "limit": 2})).await, ("a b".to_owned(), true));
        assert_eq!(found(&workspace, json!({"pattern": "**", "limit": 3})).await, ("a b c/d".to_owned(), false));
        let many: Vec<String> = (0..201).map(|n| format!("many/{n:03}")).collect();
        let files: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "")).collect();
        let (shown, truncated) = found(&TestWorkspace::with(&files), json!({"pattern": "many/*"})).await;
        assert_eq!((shown, truncated), (many[..200].join(" "), true));
    }

    #[tokio::test]
    async fn what_search_code_skips_is_not_found() {
        let workspace = TestWorkspace::with(&[
            (".git/config", ""),
            ("sub/.git/HEAD", ""),
            ("sub/.belay/note", ""),
            ("link", "-> text"),
            ("loop", "-> ."),
            ("text", ""),
        ]);
        workspace.fifo("pipe");
        let _outside = workspace.link_outside("out");
        assert_eq!(found(&workspace, json!({"pattern": "**"})).await.0, "text");
        for pattern in ["out/*", "loop/*", ".git/*", "sub/.belay/*", "link"] {
            assert_eq!(found(&workspace, json!({"pattern": pattern})).await.0, "", "{pattern}");
        }
        for (path, reason) in [("text", "WRONG_FILE_TYPE"), ("none", "FILE_NOT_FOUND"), ("out", "OUTSIDE_WORKSPACE")] {
            let refused = workspace.call(&FindFiles, json!({"pattern": "*", "path": path})).await.unwrap_err();
            assert_eq!(refused.reason, reason, "{path}");
        }
    }

    #[tokio::test]
    async fn a_name_may_have_the_characters_of_a_glob() {
        let workspace =
            TestWorkspace::with(&[("app/[id]/page.ts", ""), ("app/i/page.ts", ""), ("a*b", ""), ("axb", "")]);
        assert_eq!(found(&workspace, json!({"pattern": "app/[id]/page.ts"})).await.0, "app/[id]/page.ts app/i/page.ts");
        for pattern in [r"app/\[id\]/*.ts", "app/[[]id]/*.ts"] {
            assert_eq!(found(&workspace, json!({"pattern": pattern})).await.0, "app/[id]/page.ts", "{pattern}");
        }
        for pattern in [r"a\*b", "a[*]b"] {
            assert_eq!(found(&workspace, json!({"pattern": pattern})).await.0, "a*b", "{pattern}");
        }
    }

    #[tokio::test]
    async fn a_pattern_that_is_none_is_refused() {
        let workspace = TestWorkspace::with(&[("a", "")]);
        for bad in ["[", "{a", "a\\", "/a", "../a", "a/../b", "a/", "./", "[z-a]"] {
            let refused = workspace.call(&FindFiles, json!({"pattern": bad})).await.unwrap_err();
            assert_eq!(refused.reason, "INVALID_ARGUMENTS", "{bad}");
            assert!(refused.message.starts_with("arguments/pattern: "), "{bad}: {}", refused.message);
        }
    }

    // Only folders in which files can match are read: a project's sources are found without what its tools have fetched.
    #[test]
    fn only_folders_that_can_have_matches_are_entered() {
        let enters = |pattern: &str, folder: &str| Pattern::parse(pattern).unwrap().may_match_in(folder.as_bytes());
        for (pattern, folder, is_entered) in [
            ("*.md", "docs", false),
            ("src/**/*.rs", "src", true),
            ("src/**/*.rs", "src/a/b/c", true),
            ("src/**/*.rs", "sr", false),
            ("src/**/*.rs", "target", false),
            ("src/a/*.rs", "src", true),
            ("src/a/*.rs", "src/b", false),
            ("src/a/*.rs", "src/a/b", false),
            ("*/*.rs", "anything", true),
            ("*/*.rs", "anything/below", false),
            ("{a/b,c}/*", "a/b", true),
            ("**", "a/b/c", true),
        ] {
            assert_eq!(enters(pattern, folder), is_entered, "{pattern} in {folder}");
        }
    }
}
