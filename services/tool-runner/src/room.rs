//! What is made of a disk without room under a workspace: nobody is at fault, and it passes.

use std::{error::Error, io};

/// Whether a failure comes from a disk, or a quota on it, that has no room.
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

#[cfg(test)]
mod tests {
    use belay_workspace::{CommitError, IoFailure, ViewError};

    use super::*;

    fn failure(kind: io::ErrorKind) -> IoFailure {
        IoFailure { doing: "writing", path: "a".into(), source: kind.into() }
    }

    #[test]
    fn a_full_disk_is_found_under_what_was_being_done() {
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
