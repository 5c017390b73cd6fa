//! `search_code`: finds lines that match a regular expression.

use std::{ops::ControlFlow, time::Duration};

use belay_policy::ToolKind;
use belay_workspace::{RelPath, ViewError};
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
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

/// How many bytes are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// A longer line, in bytes, is searched in parts of this length: search time grows with the product of pattern and line.
const MAX_LINE_BYTES: usize = 16 << 10;

/// The limit of a compiled pattern, in bytes. Matching never backtracks, so only the size of the automaton has to be bounded.
const MAX_PATTERN_BYTES: usize = 2 << 20;

/// How many bytes of a line are shown.
const MAX_SHOWN_BYTES: usize = 400;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchCode;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    case_sensitive: Option<bool>,
    max_matches: Option<usize>,
}

impl Tool for SearchCode {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "search_code",
            aliases: &["SEARCH_CODE", "SearchCode"],
            description: "Finds the lines of text files that match a regular expression. Binary files, `.git` and symbolic links are skipped.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["pattern"],
  "properties": {
    "pattern": {
      "type": "string",
      "minLength": 1,
      "maxLength": 10000,
      "description": "A regular expression in Rust's syntax (no look-around, no back-references), matched line by line.",
      "examples": ["fn \\w+_test"]
    },
    "path": {"type": "string", "format": "workspace-path", "default": ".", "description": "A directory or a file.", "examples": ["src"]},
    "glob": {
      "type": "string",
      "minLength": 1,
      "maxLength": 1000,
      "description": "Only files whose path matches; a pattern without `/` matches the name.",
      "examples": ["*.rs"]
    },
    "case_sensitive": {"type": "boolean", "default": true, "description": "Whether the match is case-sensitive."},
    "max_matches": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100, "description": "The maximum number of matching lines."}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["matches", "files_searched", "truncated"],
  "properties": {
    "matches": {
      "type": "array",
      "description": "The matching lines, sorted by path and number.",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["path", "line", "text"],
        "properties": {
          "path": {"type": "string", "description": "Relative to the workspace; a name that is not UTF-8 is `hex:` and the digits of its bytes."},
          "line": {"type": "integer", "description": "Counted from 1."},
          "text": {"type": "string", "description": "The line; of a long one, the part around the match."}
        }
      }
    },
    "files_searched": {"type": "integer", "description": "The number of searched files."},
    "truncated": {"type": "boolean", "description": "Whether more lines match than `max_matches`."}
  }
}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Reads,
            kind: ToolKind::FileRead,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Search files", ..Annotations::default() },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, search)
    }
}

fn search(view: &mut dyn View, stop: &Stop, arguments: Arguments) -> ToolResult {
    let top = path("path", arguments.path.as_deref().unwrap_or("."))?;
    let mut search = Search {
        view,
        stop,
        pattern: pattern(&arguments.pattern, arguments.case_sensitive.unwrap_or(true))?,
        glob: arguments.glob.as_deref().map(glob).transpose()?,
        max_matches: arguments.max_matches.unwrap_or(100),
        matches: Vec::new(),
        files: 0,
        truncated: false,
    };
    match search.view.list(&top) {
        Ok(entries) => {
            let (view, stop) = (search.view, search.stop);
            walk::files(view, stop, entries, &|_| true, &mut |path| {
                if search.glob.as_ref().is_none_or(|glob| glob.is_match(path)) {
                    drop(search.file(path));
                }
                if search.truncated { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        Err(ViewError::NotADirectory { .. }) => search.file(&top)?,
        Err(error) => return Err(error.into()),
    }
    Ok(json!({"matches": search.matches, "files_searched": search.files, "truncated": search.truncated}))
}

fn pattern(text: &str, case_sensitive: bool) -> Result<Regex, ToolFailure> {
    RegexBuilder::new(text)
        .case_insensitive(!case_sensitive)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                invalid("arguments/pattern: too large once compiled: use fewer or smaller repetitions")
            }
            error => invalid(format!("arguments/pattern: {error}")),
        })
}

fn glob(text: &str) -> Result<GlobMatcher, ToolFailure> {
    let anywhere = if text.contains('/') { text.to_owned() } else { format!("**/{text}") };
    let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
    Ok(glob.map_err(|error| invalid(format!("arguments/glob: {}", error.kind())))?.compile_matcher())
}

struct Search<'a> {
    view: &'a dyn View,
    stop: &'a Stop,
    pattern: Regex,
    glob: Option<GlobMatcher>,
    max_matches: usize,
    matches: Vec<Value>,
    files: u64,
    truncated: bool,
}

impl Search<'_> {
    fn file(&mut self, path: &RelPath) -> Result<(), ToolFailure> {
        let (mut at, mut line) = (0, 1);
        let mut held: Vec<u8> = Vec::new();
        loop {
            let piece = self.view.read(path, at, Some(CHUNK_BYTES))?;
            if at == 0 {
                if piece.contains(&0) {
                    return Ok(());
                }
                self.files += 1;
            }
            at += piece.len() as u64;
            let last = (piece.len() as u64) < CHUNK_BYTES;
            held.extend_from_slice(&piece);
            let mut rest = held.as_slice();
            while let Some((text, ended, after)) = next_line(rest, last) {
                self.stop.check()?;
                self.line(path, line, text);
                if self.truncated {
                    return Ok(());
                }
                line += u64::from(ended);
                rest = after;
            }
            if last {
                return Ok(());
            }
            held = rest.to_vec();
        }
    }

    fn line(&mut self, path: &RelPath, line: u64, text: &[u8]) {
        let Some(found) = self.pattern.find(text) else { return };
        if self.matches.len() == self.max_matches {
            self.truncated = true;
            return;
        }
        let shown = if text.len() <= MAX_SHOWN_BYTES { text } else { around(text, found.start()) };
        self.matches.push(json!({"path": path.written(), "line": line, "text": String::from_utf8_lossy(shown)}));
    }
}

/// The next line without its line end, whether it has one, and the rest. `None` when more has to be read first, or nothing is left.
fn next_line(bytes: &[u8], last: bool) -> Option<(&[u8], bool, &[u8])> {
    let within = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    if let Some(end) = within.iter().position(|byte| *byte == b'\n') {
        let text = &bytes[..end];
        return Some((text.strip_suffix(b"\r").unwrap_or(text), true, &bytes[end + 1..]));
    }
    let whole = within.len() == MAX_LINE_BYTES || last && !within.is_empty();
    whole.then(|| (within, false, &bytes[within.len()..]))
}

/// The part of a long line around a match.
fn around(text: &[u8], at: usize) -> &[u8] {
    let from = at.saturating_sub(MAX_SHOWN_BYTES / 4).min(text.len() - MAX_SHOWN_BYTES);
    &text[from..from + MAX_SHOWN_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::TestWorkspace;

    async fn found(workspace: &TestWorkspace, arguments: Value) -> (Vec<String>, u64, bool) {
        let result = workspace.call(&SearchCode, arguments).await.unwrap();
        let shown = |found: &Value| {
            format!("{}:{}:{}", found["path"].as_str().unwrap(), found["line"], found["text"].as_str().unwrap())
        };
        let matches = result["matches"].as_array().unwrap().iter().map(shown).collect();
        (matches, result["files_searched"].as_u64().unwrap(), result["truncated"].as_bool().unwrap())
    }

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    /// S2-X-27.
    #[tokio::test]
    async fn it_finds_lines_in_order() {
        let workspace = TestWorkspace::with(&[
            ("src/b.rs", "fn b() {}\r\n// Fn\r\n"),
            ("src/a/c.rs", "x\nfn c() {}"),
            ("z.md", "fn\n"),
        ]);
        assert_eq!(
            found(&workspace, json!({"pattern": "^fn"})).await,
            (lines(&["src/a/c.rs:2:fn c() {}", "src/b.rs:1:fn b() {}", "z.md:1:fn"]), 3, false)
        );
        let (matches, files, _) =
            found(&workspace, json!({"pattern": "FN$", "case_sensitive": false, "glob": "*.rs"})).await;
        assert_eq!((matches, files), (lines(&["src/b.rs:2:// Fn"]), 2));
        assert_eq!(found(&workspace, json!({"pattern": "fn", "glob": "src/*.rs"})).await.1, 1);
        assert_eq!(
            found(&workspace, json!({"pattern": "fn", "path": "src/a"})).await.0,
            lines(&["src/a/c.rs:2:fn c() {}"])
        );
        assert_eq!(found(&workspace, json!({"pattern": "fn", "path": "z.md"})).await.0, lines(&["z.md:1:fn"]));
    }

    #[tokio::test]
    async fn it_reports_when_there_are_more_matches() {
        let workspace = TestWorkspace::with(&[("a", "x\nx\n"), ("b", "x\n")]);
        assert_eq!(
            found(&workspace, json!({"pattern": "x", "max_matches": 2})).await,
            (lines(&["a:1:x", "a:2:x"]), 2, true)
        );
        assert!(!found(&workspace, json!({"pattern": "x", "max_matches": 3})).await.2);
    }

    #[tokio::test]
    async fn binary_files_git_directories_and_links_are_skipped() {
        let workspace = TestWorkspace::with(&[
            (".git/config", "x"),
            ("sub/.git/HEAD", "x"),
            ("link", "-> text"),
            ("text", "x"),
            ("loop", "-> ."),
        ]);
        std::fs::write(workspace.root.join("binary"), b"x\0x").unwrap();
        std::fs::write(workspace.root.join("latin1"), b"x\xe9\n").unwrap();
        workspace.fifo("pipe");
        let _outside = workspace.link_outside("out");
        let (matches, files, _) = found(&workspace, json!({"pattern": "x"})).await;
        assert_eq!((matches, files), (lines(&["latin1:1:x\u{fffd}", "text:1:x"]), 2));
        let refused = workspace.call(&SearchCode, json!({"pattern": "x", "path": "pipe"})).await.unwrap_err();
        assert_eq!(refused.reason, "WRONG_FILE_TYPE");
        let refused = workspace.call(&SearchCode, json!({"pattern": "x", "path": "none"})).await.unwrap_err();
        assert_eq!(refused.reason, "FILE_NOT_FOUND");
    }

    #[tokio::test]
    async fn huge_lines_are_searched_and_shown_in_parts() {
        let workspace = TestWorkspace::with(&[]);
        let content = format!("{}needle{}\nneedle\n", "a".repeat(3 << 20), "b".repeat(3 << 20));
        std::fs::write(workspace.root.join("minified.js"), content).unwrap();
        let (matches, ..) = found(&workspace, json!({"pattern": "needle"})).await;
        assert_eq!(matches.len(), 2);
        assert!(matches[0].starts_with("minified.js:1:") && matches[0].len() < 500 && matches[0].contains("needle"));
        assert_eq!(matches[1], "minified.js:2:needle");
    }

    #[tokio::test]
    async fn hostile_patterns_are_rejected_or_finish_quickly() {
        let workspace = TestWorkspace::with(&[("a", &"a".repeat(100_000))]);
        for bad in ["(", "a{1000}{1000}{1000}", r"\w{5000}", "(?=x)", "*"] {
            let refused = workspace.call(&SearchCode, json!({"pattern": bad})).await.unwrap_err();
            assert!(
                refused.reason == "INVALID_ARGUMENTS" && refused.message.starts_with("arguments/pattern: "),
                "{refused:?}"
            );
        }
        // A backtracking engine would never finish.
        assert_eq!(found(&workspace, json!({"pattern": "(a|aa)+(a|aa)+(a|aa)+$x"})).await.0, lines(&[]));
        let refused = workspace.call(&SearchCode, json!({"pattern": "a", "glob": "{a"})).await.unwrap_err();
        assert!(refused.message.starts_with("arguments/glob: "), "{refused:?}");
    }

    #[test]
    fn lines_are_split_at_their_ends() {
        assert_eq!(next_line(b"a\r\nb", false), Some((&b"a"[..], true, &b"b"[..])));
        assert_eq!((next_line(b"b", false), next_line(b"", true)), (None, None));
        assert_eq!(next_line(b"b", true), Some((&b"b"[..], false, &b""[..])));
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(next_line(&long, false), Some((&long[..MAX_LINE_BYTES], false, &b"x"[..])));
    }
}
