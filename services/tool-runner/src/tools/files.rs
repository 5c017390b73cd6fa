//! What the tools that work on files have in common: how they get at their view, and how its refusals read.

use std::{
    io::ErrorKind,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use belay_policy::ToolKind;
use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use belay_redaction::REDACTED;
use belay_workspace::{FileKind, PathError, RelPath, ViewError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Annotations, Invocation, Recovery, ToolFailure, ToolResult, ToolSpec, Touches, View, room::is_full};

/// A tool's work, under way.
pub(super) type Work = Pin<Box<dyn Future<Output = ToolResult> + Send>>;

/// What the tools that change files say of themselves alike; name, description and schemas are each one's own.
pub(super) const CHANGES_FILES: ToolSpec = ToolSpec {
    name: "",
    aliases: &[],
    description: "",
    parameters: "",
    result: "",
    recovery: Recovery::Transactional,
    touches: Touches::Changes,
    kind: ToolKind::FileWrite,
    default_timeout: Duration::from_secs(120),
    annotations: Annotations { destructive: true, idempotent: false, open_world: false },
};

/// How the content of a file stands in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// Whether a call was stopped. What goes over many files or much of one asks between two of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Fails once the call was stopped. Nobody hears of it: whoever stopped it knows.
    pub(super) fn check(&self) -> Result<(), ToolFailure> {
        if self.0.load(Ordering::Relaxed) { Err(stopped()) } else { Ok(()) }
    }
}

/// Stops the work when the call's future is dropped.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Does a tool's work in the view of its call.
pub(super) fn in_view<A: DeserializeOwned>(
    invocation: Invocation,
    work: impl FnOnce(&mut dyn View, &Stop, A) -> ToolResult + Send + 'static,
) -> Work {
    Box::pin(async move {
        let Invocation { arguments, view, .. } = invocation;
        let view = view.ok_or_else(no_view)?;
        let guard = StopOnDrop(Stop::default());
        let stop = guard.0.clone();
        let done = view.work(move |view| work(view, &stop, read_arguments(arguments)?)).await;
        drop(guard);
        done.unwrap_or_else(|_gone| Err(stopped()))
    })
}

/// A tool's arguments. They fit its schema, which leaves nothing but numbers beyond what a machine can count.
pub(super) fn read_arguments<A: DeserializeOwned>(arguments: serde_json::Value) -> Result<A, ToolFailure> {
    serde_json::from_value(arguments).map_err(|error| invalid(format!("arguments: {error}")))
}

pub(super) fn invalid(message: impl Into<String>) -> ToolFailure {
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message)
}

/// Whether it holds what the redactor puts in a secret's place.
pub(super) fn holds_mark(text: &[u8]) -> bool {
    text.windows(REDACTED.len()).any(|piece| piece == REDACTED.as_bytes())
}

/// Refuses what would put `[REDACTED]` into a file where it does not stand: whoever wrote that has read a file with its secrets hidden, and
/// would write the mark over them.
pub(super) fn check_marks(
    path: &dyn std::fmt::Display,
    old: &[u8],
    new: &[u8],
    allowed: bool,
) -> Result<(), ToolFailure> {
    let marks = |text: &[u8]| text.windows(REDACTED.len()).filter(|piece| *piece == REDACTED.as_bytes()).count();
    if allowed || marks(new) <= marks(old) {
        return Ok(());
    }
    let message = format!(
        "`{path}` would hold `{REDACTED}` where it does not hold it now, which stands for a secret that was hidden from whoever wrote this. \
         Take the text from the step that read it (`${{step.result.content}}`), edit only the lines around it with modify_file, or set \
         allow_redacted_mark if these very characters are meant."
    );
    Err(ToolFailure::new(ErrorClass::InvalidArguments, reasons::REDACTED_MARK, message))
}

pub(super) fn stopped() -> ToolFailure {
    ToolFailure::new(ErrorClass::Cancelled, reasons::CANCELLED, "The call was stopped.")
}

pub(super) fn no_view() -> ToolFailure {
    ToolFailure::new(
        ErrorClass::Internal,
        reasons::INTERNAL,
        "The call was given no view of its workspace: a fault of Belay.",
    )
}

/// A path as an argument, `field`, names it.
pub(super) fn path(field: &str, text: &str) -> Result<RelPath, ToolFailure> {
    RelPath::parse(text).map_err(|error| match error {
        PathError::Outside { .. } | PathError::Reserved { .. } => outside(error),
        PathError::Empty | PathError::Nul { .. } | PathError::TooLong => invalid(format!("arguments/{field}: {error}")),
    })
}

fn outside(why: impl ToString) -> ToolFailure {
    ToolFailure::new(ErrorClass::SandboxViolation, reasons::OUTSIDE_WORKSPACE, why.to_string())
}

pub(super) fn not_found(message: impl Into<String>) -> ToolFailure {
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::FILE_NOT_FOUND, message)
}

pub(super) fn wrong_type(message: impl Into<String>) -> ToolFailure {
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::WRONG_FILE_TYPE, message)
}

pub(super) fn too_large(message: impl Into<String>) -> ToolFailure {
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::FILE_TOO_LARGE, message)
}

pub(super) fn not_text(message: impl Into<String>) -> ToolFailure {
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::NOT_TEXT, message)
}

/// What a view refused. Trying again helps against the disk's refusals only.
impl From<ViewError> for ToolFailure {
    fn from(error: ViewError) -> Self {
        match &error {
            ViewError::Outside { .. } | ViewError::Stores { .. } => outside(error),
            ViewError::NotFound { .. } => not_found(error.to_string()),
            // Taken away between two looks at it.
            ViewError::Io(failure) if failure.source.kind() == ErrorKind::NotFound => not_found(error.to_string()),
            ViewError::Link { .. } | ViewError::NotADirectory { .. } | ViewError::NotAFile { .. } | ViewError::Root => {
                wrong_type(error.to_string())
            }
            ViewError::Io(_) if is_full(&error) => {
                Self::new(ErrorClass::Transient, reasons::WORKSPACE_FULL, error.to_string())
            }
            ViewError::Io(_) => Self::new(ErrorClass::Transient, reasons::FILE_IO_FAILED, error.to_string()),
            ViewError::Id { .. } => Self::new(ErrorClass::Internal, reasons::INTERNAL, error.to_string()),
        }
    }
}

/// The name of a kind of file in results.
pub(super) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Device => "device",
    }
}
