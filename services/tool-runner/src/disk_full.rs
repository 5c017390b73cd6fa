//! Recognises a full disk: a temporary condition that is no fault of the call.

use std::{error::Error, io};

/// Whether an error was caused by a full disk or an exceeded quota.
pub(crate) fn is_full(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether the operating system may do later what it did not do now: the disk is full, or fails, or resources have run out.
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
    is_full(error)
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
        let (eio, enospc, eacces) = (5, 28, 13);
        for (code, expected) in [(eio, true), (enospc, true), (eacces, false)] {
            assert_eq!(may_pass(&error(code)), expected, "{code}");
        }
    }

    fn failure(kind: io::ErrorKind) -> IoFailure {
        IoFailure { doing: "writing", path: "a".into(), source: kind.into() }
    }

    #[test]
    fn a_full_disk_is_found_in_the_chain_of_causes() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(
                is_full(&failure(kind))
                    && is_full(&CommitError::Io(failure(kind)))
                    && is_full(&ViewError::Io(failure(kind)))
            );
        }
        assert!(!is_full(&CommitError::Io(failure(io::ErrorKind::PermissionDenied))));
    }
}
