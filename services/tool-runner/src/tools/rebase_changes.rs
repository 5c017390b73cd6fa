//! `rebase_changes`: what follows in a step whose calls have one effect when others have changed what these have changed. It begins with their changes but
//! those, which are dropped, and returns both versions of each, so that they can be made again on top of what the others did.

use std::{pin::Pin, time::Duration};

use belay_policy::ToolKind;
use belay_workspace::{DroppedChange, DroppedContent, FileKind, RelPath, ViewError};
use serde_json::{Value, json};

use super::files::stopped;
use crate::{Annotations, Invocation, MayRead, Recovery, Tool, ToolResult, ToolSpec, Touches, View};

/// How many bytes of a file are returned.
const MAX_BYTES: u64 = 64 * 1024;

/// How many paths are returned with their versions: the two of each may have 128 KiB, and all of it is read by a model.
const MAX_FILES: usize = 32;

/// How many paths are returned without them.
const MAX_MORE: usize = 1_000;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct RebaseChanges;

impl Tool for RebaseChanges {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: belay_policy::REBASE_CHANGES,
            aliases: &[],
            description: "Drops those changes of a step with `effects: per_step` that conflict with what others have changed since, and returns both \
                          versions of them. Belay calls it; a plan does not.",
            parameters: r#"{"type": "object", "additionalProperties": false, "properties": {}}"#,
            result: r##"{
  "type": "object",
  "additionalProperties": false,
  "required": ["files"],
  "properties": {
    "files": {
      "type": "array",
      "description": "The paths at which a change was dropped, sorted.",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["path", "yours", "theirs"],
        "properties": {
          "path": {"type": "string", "description": "Relative to the workspace; a name that is not UTF-8 is `hex:` and the digits of its bytes."},
          "yours": {"$ref": "#/$defs/version", "description": "The dropped change."},
          "theirs": {"$ref": "#/$defs/version", "description": "What is there now."}
        }
      }
    },
    "more": {"type": "array", "description": "Further such paths, without their versions, at most 1,000.", "items": {"type": "string"}},
    "unlisted": {"type": "integer", "description": "How many there are beyond these."}
  },
  "$defs": {
    "version": {
      "type": "object",
      "additionalProperties": false,
      "required": ["kind"],
      "properties": {
        "kind": {"enum": ["file", "directory", "link", "nothing", "mode", "special", "not_shown"]},
        "content": {"type": "string", "description": "The beginning of a file that is UTF-8 text, at most 64 KiB."},
        "size_bytes": {"type": "integer", "description": "The size of the whole file."},
        "target": {"type": "string", "description": "The target of a symbolic link."},
        "mode": {"type": "string", "description": "The permission bits of a directory, octal."},
        "why": {"type": "string", "description": "Why it is not shown."}
      }
    }
  }
}"##,
            recovery: Recovery::Transactional,
            touches: Touches::Changes,
            kind: ToolKind::Other,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Drop conflicting changes of a step", ..Annotations::default() },
        }
    }

    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> {
        Box::pin(async move {
            let Invocation { view, may_read, .. } = invocation;
            let view = view.ok_or_else(stopped)?;
            view.work(move |view| versions(view, &may_read)).await.map_err(|_| stopped())
        })
    }
}

/// Both versions of each dropped change.
fn versions(view: &mut dyn View, may_read: &MayRead) -> Value {
    let dropped = view.dropped_changes();
    // What a call has written is not all that a file of its layer holds: a policy's rules about reading hold for both versions.
    let version = |DroppedChange { path, was }: &DroppedChange| {
        let (yours, theirs) = if may_read.allows(path) {
            (yours(was), theirs(view, path))
        } else {
            let not_shown = || json!({"kind": "not_shown", "why": "The policy does not allow the call to read it without asking a person."});
            (not_shown(), not_shown())
        };
        json!({"path": path.written(), "yours": yours, "theirs": theirs})
    };
    let mut found = json!({"files": dropped.iter().take(MAX_FILES).map(version).collect::<Vec<_>>()});
    let more: Vec<String> =
        dropped.iter().skip(MAX_FILES).take(MAX_MORE).map(|dropped| dropped.path.written()).collect();
    let unlisted = view.unlisted_dropped_changes() + dropped.len().saturating_sub(MAX_FILES + MAX_MORE);
    if !more.is_empty() {
        found["more"] = json!(more);
    }
    if unlisted > 0 {
        found["unlisted"] = json!(unlisted);
    }
    found
}

fn yours(was: &DroppedContent) -> Value {
    match was {
        DroppedContent::File { bytes, size } => file(bytes, *size),
        DroppedContent::Directory => json!({"kind": "directory"}),
        DroppedContent::Link { target } => link(&String::from_utf8_lossy(target)),
        DroppedContent::Nothing => json!({"kind": "nothing"}),
        DroppedContent::Mode(mode) => json!({"kind": "mode", "mode": format!("{mode:o}")}),
    }
}

fn theirs(view: &dyn View, path: &RelPath) -> Value {
    let found = match view.metadata(path) {
        Ok(found) => found,
        Err(ViewError::NotFound { .. } | ViewError::NotADirectory { .. }) => return json!({"kind": "nothing"}),
        Err(error) => return not_shown(&error),
    };
    match found.kind {
        FileKind::File => match view.read(path, 0, Some(MAX_BYTES)) {
            Ok(bytes) => file(&bytes, found.size),
            Err(error) => not_shown(&error),
        },
        FileKind::Directory => json!({"kind": "directory", "mode": format!("{:o}", found.mode)}),
        FileKind::Symlink => link(&found.target.unwrap_or_default()),
        FileKind::Fifo | FileKind::Socket | FileKind::Device => json!({"kind": "special"}),
    }
}

fn not_shown(error: &ViewError) -> Value {
    json!({"kind": "not_shown", "why": format!("{error}.")})
}

fn link(target: &str) -> Value {
    json!({"kind": "link", "target": target})
}

/// A file, with its content if that is text as far as it is there.
fn file(bytes: &[u8], size: u64) -> Value {
    let is_cut = (bytes.len() as u64) < size;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        // The cut may be within a character.
        Err(error) if is_cut && error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
        Err(_) => None,
    };
    match text.filter(|text| !text.contains('\0')) {
        Some(text) => json!({"kind": "file", "content": text, "size_bytes": size}),
        None => json!({"kind": "file", "size_bytes": size}),
    }
}
