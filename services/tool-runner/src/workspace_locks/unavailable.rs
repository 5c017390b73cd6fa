//! Why a workspace cannot be used, as a failure of a call and as the status of an RPC.

use std::io;

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_workspace::{CommitError, IoFailure, OpenError};
use rustix::io::Errno;
use thiserror::Error;
use tonic::{Code, Status};

use crate::{ToolFailure, disk_errors::disk_reason, workspaces::WorkspaceRefusal};

/// Why a workspace cannot be used.
#[derive(Debug, Error)]
pub(crate) enum WorkspaceUnavailable {
    /// The runner's settings do not allow it.
    #[error(transparent)]
    NotAllowed(#[from] WorkspaceRefusal),
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The leftovers of a crash cannot be removed.
    #[error(transparent)]
    Sweep(#[from] IoFailure),
    /// An earlier commit was applied in part, and can be neither completed nor reverted now; or its disk has no room for it now.
    #[error(transparent)]
    Stuck(#[from] CommitError),
}

impl WorkspaceUnavailable {
    fn reason(&self) -> &'static str {
        match self {
            Self::NotAllowed(_) => reasons::WORKSPACE_NOT_ALLOWED,
            Self::Open(OpenError::Io(failure)) | Self::Sweep(failure) => {
                disk_reason(failure).unwrap_or(reasons::WORKSPACE_FAILED)
            }
            Self::Stuck(failure) => disk_reason(failure).unwrap_or(reasons::WORKSPACE_FAILED),
            Self::Open(OpenError::ReadOnlyFileSystem { .. }) => reasons::WORKSPACE_READ_ONLY,
            Self::Open(OpenError::InUse { .. }) => reasons::WORKSPACE_FAILED,
            Self::Open(OpenError::Unreachable { source, .. }) if is_transient(source) => reasons::WORKSPACE_FAILED,
            Self::Open(_) => reasons::WORKSPACE_INVALID,
        }
    }

    /// Whether views of a process before this one may be in the workspace, to be removed once it can be opened.
    pub(crate) fn may_keep_views(&self) -> bool {
        match self {
            // The process that has it open has removed them.
            Self::Open(OpenError::InUse { .. }) => false,
            // They are removed before commits are applied.
            Self::Stuck(_) => false,
            Self::Open(OpenError::Io(_) | OpenError::ReadOnlyFileSystem { .. }) | Self::Sweep(_) => true,
            Self::Open(OpenError::Unreachable { source, .. }) => is_transient(source),
            // It is no workspace, or no longer one.
            Self::Open(_) | Self::NotAllowed(_) => false,
        }
    }

    /// The status for a caller that named the workspace.
    pub(crate) fn into_status(self) -> Status {
        let ToolFailure { class, reason, message, .. } = self.into();
        let code = if class == ErrorClass::Transient { Code::Unavailable } else { Code::InvalidArgument };
        status::error(code, &reason, message.clone()).field("workspace", message).into()
    }

    /// The status for a caller that chooses a workspace, which can choose another one than a read-only one.
    pub(crate) fn into_status_of_choice(self) -> Status {
        match self {
            Self::Open(error @ OpenError::ReadOnlyFileSystem { .. }) => {
                let message = format!("{error}.");
                let refused = status::error(Code::InvalidArgument, reasons::WORKSPACE_INVALID, message.clone());
                refused.field("workspace", message).into()
            }
            other => other.into_status(),
        }
    }
}

impl From<WorkspaceUnavailable> for ToolFailure {
    fn from(unavailable: WorkspaceUnavailable) -> Self {
        let reason = unavailable.reason();
        let class = match reason {
            reasons::WORKSPACE_FULL | reasons::WORKSPACE_READ_ONLY | reasons::WORKSPACE_FAILED => ErrorClass::Transient,
            _ => ErrorClass::SandboxViolation,
        };
        Self::new(class, reason, format!("{unavailable}."))
    }
}

/// Whether the machine fails, as opposed to the path being wrong.
fn is_transient(source: &io::Error) -> bool {
    match Errno::from_io_error(source) {
        Some(error) => matches!(error, Errno::IO | Errno::NOMEM | Errno::MFILE | Errno::NFILE),
        None => source.kind() == io::ErrorKind::Other,
    }
}
