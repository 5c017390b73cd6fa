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

#[cfg(test)]
mod tests {
    use belay_workspace::{CommitError, IoFailure, ViewError};

    use super::*;

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
