//! Shared by the tools that work on files: access to the view, and the wording of its errors.

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

use crate::{
    Annotations, Invocation, Recovery, ToolFailure, ToolResult, ToolSpec, Touches, View, ViewHandle,
    disk_errors::disk_reason,
};

/// The future of a tool.
pub(super) type Work = Pin<Box<dyn Future<Output = ToolResult> + Send>>;

/// The common specification of the tools that change files; each sets its own name, description and schemas.
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
    annotations: Annotations { title: "", destructive: true, idempotent: false, open_world: false },
};

/// How the content of a file is encoded in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// Whether a call was stopped. Loops over many files or much of one check it on each iteration.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Fails once the call was stopped. The failure is never reported, because the call has ended already.
    pub(super) fn check(&self) -> Result<(), ToolFailure> {
        if self.0.load(Ordering::Relaxed) { Err(stopped()) } else { Ok(()) }
    }
}

/// Stops the work when the future of the call is dropped.
pub(super) struct StopOnDrop(Stop);

impl StopOnDrop {
    /// With what the work has to check.
    pub(super) fn new() -> (Self, Stop) {
        let stop = Stop::default();
        (Self(stop.clone()), stop)
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a tool in the view of its call.
pub(super) fn in_view<A: DeserializeOwned>(
    invocation: Invocation,
    work: impl FnOnce(&mut dyn View, &Stop, A) -> ToolResult + Send + 'static,
) -> Work {
    Box::pin(async move {
        let Invocation { arguments, view, .. } = invocation;
        let view = view.ok_or_else(no_view)?;
        let (guard, stop) = StopOnDrop::new();
        let done = view.work(move |view| work(view, &stop, read_arguments(arguments)?)).await;
        drop(guard);
        done.unwrap_or_else(|_gone| Err(stopped()))
    })
}

/// Works in the view of a call; the caller stops the work.
pub(super) async fn in_view_until<T: Send + 'static>(
    view: Option<&ViewHandle>,
    work: impl FnOnce(&mut dyn View) -> Result<T, ToolFailure> + Send + 'static,
) -> Result<T, ToolFailure> {
    let view = view.ok_or_else(no_view)?;
    view.work(work).await.unwrap_or_else(|_gone| Err(stopped()))
}

/// Decodes arguments. They are valid against the schema, so only numbers out of range can fail.
pub(super) fn read_arguments<A: DeserializeOwned>(arguments: serde_json::Value) -> Result<A, ToolFailure> {
    serde_json::from_value(arguments).map_err(|error| invalid(format!("arguments: {error}")))
}

pub(super) fn invalid(message: impl Into<String>) -> ToolFailure {
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message)
}

/// Whether the text contains the mark that the redactor puts in place of a secret.
pub(super) fn holds_mark(text: &[u8]) -> bool {
    text.windows(REDACTED.len()).any(|piece| piece == REDACTED.as_bytes())
}

/// Rejects a write that adds `[REDACTED]` to a file: its author has read the file with its secrets redacted, and would overwrite them with
/// the mark.
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
        "This would write `{REDACTED}` into `{path}`, in place of a secret that was redacted when the file was read. Take the text from \
         the step that read it (`${{step.result.content}}`), edit only the lines around it with modify_file, or set allow_redacted_mark to \
         write these characters."
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
        "The call has no view of its workspace. This is a bug in Belay.",
    )
}

/// Parses the path in the argument `field`.
pub(super) fn path(field: &str, text: &str) -> Result<RelPath, ToolFailure> {
    RelPath::parse(text).map_err(|error| match error {
        PathError::Outside { .. } | PathError::Reserved { .. } => outside(error),
        PathError::Empty | PathError::Nul { .. } | PathError::Hex { .. } | PathError::TooLong => {
            invalid(format!("arguments/{field}: {error}"))
        }
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

/// Only errors of the disk are worth a retry.
impl From<ViewError> for ToolFailure {
    fn from(error: ViewError) -> Self {
        match &error {
            ViewError::Outside { .. } | ViewError::Stores { .. } => outside(error),
            ViewError::NotFound { .. } => not_found(error.to_string()),
            // Removed between two accesses.
            ViewError::Io(failure) if failure.source.kind() == ErrorKind::NotFound => not_found(error.to_string()),
            ViewError::Link { .. } | ViewError::NotADirectory { .. } | ViewError::NotAFile { .. } | ViewError::Root => {
                wrong_type(error.to_string())
            }
            ViewError::Io(_) => {
                let reason = disk_reason(&error).unwrap_or(reasons::FILE_IO_FAILED);
                Self::new(ErrorClass::Transient, reason, error.to_string())
            }
            // A view that has begun has begun with its layers.
            ViewError::Id { .. }
            | ViewError::LayerGone { .. }
            | ViewError::LayerConflict { .. }
            | ViewError::Layers { .. }
            | ViewError::Stopped => Self::new(ErrorClass::Internal, reasons::INTERNAL, error.to_string()),
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
