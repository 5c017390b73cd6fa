//! `read_file`: returns the content of a file, or a part of it.

mod lines;

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use belay_policy::ToolKind;
use belay_workspace::RelPath;
use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{Encoding, Stop, Work, in_view, invalid, not_text, path, too_large};
use crate::{
    Annotations, CallIntent, Invocation, Recovery, Tool, ToolFailure, ToolResult, ToolSpec, Touches, View,
    tools::intent_on_path,
};
use lines::Window;

/// The limit of one call, in bytes of content: what suits a message and a reader.
const MAX_BYTES: u64 = 1 << 20;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadFile;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    start_line: Option<u64>,
    end_line: Option<u64>,
    offset: Option<u64>,
    length: Option<u64>,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    line_numbers: bool,
}

/// The part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of it, up to the limit.
    Whole,
    /// Lines, counted from 1, `last` included.
    Lines { first: u64, last: u64, numbered: bool },
    /// Bytes.
    Bytes { offset: u64, length: u64 },
}

impl Arguments {
    fn part(&self) -> Result<Part, ToolFailure> {
        let lines = self.start_line.is_some() || self.end_line.is_some() || self.line_numbers;
        let bytes = self.offset.is_some() || self.length.is_some();
        match (lines, bytes) {
            (true, true) => Err(invalid(
                "arguments: use either bytes (offset, length) or lines (start_line, end_line, line_numbers), not both",
            )),
            (true, false) if self.encoding == Encoding::Base64 => {
                Err(invalid("arguments/encoding: base64 has no lines: select the part by offset and length"))
            }
            (true, false) => {
                let (first, last) = (self.start_line.unwrap_or(1), self.end_line.unwrap_or(u64::MAX));
                if last < first {
                    return Err(invalid(format!("arguments/end_line: {last} is before start_line, {first}")));
                }
                Ok(Part::Lines { first, last, numbered: self.line_numbers })
            }
            (false, true) => Ok(Part::Bytes {
                offset: self.offset.unwrap_or(0),
                length: self.length.unwrap_or(MAX_BYTES).min(MAX_BYTES),
            }),
            (false, false) => Ok(Part::Whole),
        }
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file",
            aliases: &["READ_FILE", "ReadFile", "FILESYSTEM.read"],
            description: "Reads a file: all of it, or a part selected by lines or by bytes, at most 1 MiB. Use `encoding: base64` for a file that is not UTF-8.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["path"],
  "properties": {
    "path": {"type": "string", "format": "workspace-path", "description": "The file.", "examples": ["src/main.rs"]},
    "start_line": {"type": "integer", "minimum": 1, "description": "The first line, counted from 1."},
    "end_line": {"type": "integer", "minimum": 1, "description": "The last line, inclusive."},
    "offset": {"type": "integer", "minimum": 0, "description": "The first byte, counted from 0."},
    "length": {"type": "integer", "minimum": 1, "maximum": 1048576, "description": "The maximum number of bytes."},
    "encoding": {"enum": ["utf-8", "base64"], "default": "utf-8", "description": "The encoding of `content` in the result."},
    "line_numbers": {"type": "boolean", "default": false, "description": "Prefix each line with its number and a tab."}
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["content", "encoding", "size_bytes", "truncated"],
  "properties": {
    "content": {"type": "string", "description": "The content."},
    "encoding": {"enum": ["utf-8", "base64"], "description": "The encoding of `content`."},
    "size_bytes": {"type": "integer", "description": "The size of the whole file."},
    "lines": {
      "type": "object",
      "additionalProperties": false,
      "required": ["start", "end"],
      "description": "The first and the last line in `content`, if lines were requested and there are any.",
      "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}}
    },
    "next_offset": {"type": "integer", "description": "The offset to continue at, if bytes were requested and the file has more."},
    "truncated": {"type": "boolean", "description": "Whether the requested part exceeds the limit of one call."}
  }
}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Reads,
            kind: ToolKind::FileRead,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Read a file", ..Annotations::default() },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        intent_on_path(arguments)
    }

    fn call(&self, invocation: Invocation) -> Work {
        in_view(invocation, read)
    }
}

fn read(view: &mut dyn View, stop: &Stop, arguments: Arguments) -> ToolResult {
    let (part, path) = (arguments.part()?, path("path", &arguments.path)?);
    match part {
        Part::Lines { first, last, numbered } => {
            let mut window = Window::new(first, last, numbered, MAX_BYTES as usize);
            let size = window.read(view, stop, &path)?;
            let lines = window.lines();
            let truncated = window.truncated();
            let content = text(&path, window.into_content(), truncated)?;
            let mut result =
                json!({"content": content, "encoding": "utf-8", "size_bytes": size, "truncated": truncated});
            if let Some((start, end)) = lines {
                result["lines"] = json!({"start": start, "end": end});
            }
            Ok(result)
        }
        Part::Bytes { offset, length } => {
            let size = view.size(&path)?;
            let bytes = if offset < size { view.read(&path, offset, Some(length))? } else { Vec::new() };
            let more = offset.saturating_add(bytes.len() as u64) < size;
            // Only a part without a requested length can be truncated.
            let cut = more && arguments.length.is_none();
            let (content, used) = encode(&path, bytes, arguments.encoding, more)?;
            let mut result =
                json!({"content": content, "encoding": arguments.encoding, "size_bytes": size, "truncated": cut});
            if more {
                result["next_offset"] = json!(offset + used);
            }
            Ok(result)
        }
        Part::Whole => {
            let bytes = view.read(&path, 0, Some(MAX_BYTES + 1))?;
            if bytes.len() as u64 > MAX_BYTES {
                let size = view.size(&path)?;
                return Err(too_large(format!(
                    "`{path}` has {size} bytes, and one call returns at most {MAX_BYTES}: select a part by offset and length, or by \
                     start_line and end_line"
                )));
            }
            let size = bytes.len();
            let (content, _) = encode(&path, bytes, arguments.encoding, false)?;
            Ok(json!({"content": content, "encoding": arguments.encoding, "size_bytes": size, "truncated": false}))
        }
    }
}

/// The encoded content, and how many bytes it covers: a character that the part cuts in two is left to the next part.
fn encode(path: &RelPath, bytes: Vec<u8>, encoding: Encoding, more: bool) -> Result<(String, u64), ToolFailure> {
    if encoding == Encoding::Base64 {
        return Ok((BASE64_STANDARD.encode(&bytes), bytes.len() as u64));
    }
    let text = text(path, bytes, more)?;
    let used = text.len() as u64;
    Ok((text, used))
}

/// Decodes UTF-8. If the bytes were `cut` off, an incomplete last character is dropped.
fn text(path: &RelPath, mut bytes: Vec<u8>, cut: bool) -> Result<String, ToolFailure> {
    if let Err(error) = std::str::from_utf8(&bytes) {
        let valid = error.valid_up_to();
        if !cut || error.error_len().is_some() || valid == 0 {
            return Err(not_text(format!(
                "`{path}` is not UTF-8 text (invalid after {valid} bytes): read it with encoding: base64"
            )));
        }
        bytes.truncate(valid);
    }
    Ok(String::from_utf8(bytes).expect("it was just validated"))
}

#[cfg(test)]
mod tests;
