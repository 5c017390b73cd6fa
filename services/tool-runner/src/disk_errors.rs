//! Recognises a disk that is full or read-only: conditions that an operator ends, and no fault of the call.

use std::{error::Error, io};

use belay_reasons as reasons;

/// The reason of a failure that was caused by a full disk, an exceeded quota or a read-only file system; `None` for any other. A call that fails with
/// it has changed nothing and is made again later.
pub(crate) fn disk_reason(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => return Some(reasons::WORKSPACE_FULL),
            Some(io::ErrorKind::ReadOnlyFilesystem) => return Some(reasons::WORKSPACE_READ_ONLY),
            _ => {}
        }
        cause = error.source();
    }
    None
}

/// Whether it is one of the reasons that [`disk_reason`] returns.
pub(crate) fn is_disk_reason(reason: &str) -> bool {
    matches!(reason, reasons::WORKSPACE_FULL | reasons::WORKSPACE_READ_ONLY)
}

/// Whether the operating system may do later what it did not do now: the disk is full, read-only or fails, or resources have run out.
pub(crate) fn may_pass(error: &(dyn Error + 'static)) -> bool {
    use rustix::io::Errno;
    // EIO and its relatives have no stable `ErrorKind`.
    let passing = [
        Errno::IO,
        Errno::AGAIN,
        Errno::BUSY,
        Errno::INTR,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::STALE,
        Errno::TIMEDOUT,
    ];
    let mut cause = Some(error);
    while let Some(error) = cause {
        let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if code.is_some_and(|code| passing.iter().any(|errno| errno.raw_os_error() == code)) {
            return true;
        }
        cause = error.source();
    }
    disk_reason(error).is_some()
}

#[cfg(test)]
mod tests {
    use belay_workspace::{CommitError, IoFailure, ViewError};

    use super::*;

    #[test]
    fn what_may_pass_is_found_in_the_chain_of_causes() {
        let error = |code| {
            let source = io::Error::from_raw_os_error(code);
            CommitError::Io(IoFailure { doing: "writing", path: "a".into(), source })
        };
        let (eio, enospc, erofs, eacces) = (5, 28, 30, 13);
        for (code, expected) in [(eio, true), (enospc, true), (erofs, true), (eacces, false)] {
            assert_eq!(may_pass(&error(code)), expected, "{code}");
        }
    }

    fn failure(kind: io::ErrorKind) -> IoFailure {
        IoFailure { doing: "writing", path: "a".into(), source: kind.into() }
    }

    #[test]
    fn a_full_or_read_only_disk_is_found_in_the_chain_of_causes() {
        for (kind, reason) in [
            (io::ErrorKind::StorageFull, Some(reasons::WORKSPACE_FULL)),
            (io::ErrorKind::QuotaExceeded, Some(reasons::WORKSPACE_FULL)),
            (io::ErrorKind::ReadOnlyFilesystem, Some(reasons::WORKSPACE_READ_ONLY)),
            (io::ErrorKind::PermissionDenied, None),
        ] {
            assert_eq!(disk_reason(&failure(kind)), reason, "{kind}");
            assert_eq!(disk_reason(&CommitError::Io(failure(kind))), reason, "{kind}");
            assert_eq!(disk_reason(&ViewError::Io(failure(kind))), reason, "{kind}");
            assert!(reason.is_none_or(is_disk_reason));
        }
        assert!(!is_disk_reason(reasons::WORKSPACE_FAILED));
    }
}
