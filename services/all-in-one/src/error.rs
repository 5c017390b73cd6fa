//! The errors of a start, and what to do about them.

use std::{
    io,
    path::{Path, PathBuf},
};

use belay_approval_gate::{GateError, keys::KeyError};
use belay_executor::SealKeyError;
use belay_group_commit::CommitError;
use belay_journal::StoreError;
use belay_proto::stores::Behind;
use belay_reasons as reasons;
use belay_service_kit::{key_file::KeyFileError, net::BindError, register_file::RegisterError};
use belay_settings::ConfigError;
use belay_sqlite::SqliteError;
use belay_telemetry::TelemetryError;
use belay_tool_runner::{LedgerError, PolicyRefusal};
use thiserror::Error;

use crate::policy::RefusedPolicy;

/// Why the services cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// No state directory is configured.
    #[error("no state directory: neither XDG_STATE_HOME nor HOME is set")]
    NoStateDir,
    /// The state directory cannot be created or used.
    #[error("the state directory {} cannot be used: {source}", .path.display())]
    StateDir {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The state directory belongs to another user.
    #[error("the state directory {} belongs to another user", .0.display())]
    ForeignStateDir(PathBuf),
    /// Other users can access the state directory, and it contains files that are not of Belay or every user can create some.
    #[error("{}: {}", belay_service_kit::program::shared(.path, *.mode), how_to_restrict(.path, *.mode))]
    SharedStateDir {
        /// Its path.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The owner's token, in the state directory, was replaced by one that can be guessed.
    #[error("{0}")]
    WeakToken(String),
    /// Another process holds the lock of the state directory and does not respond.
    #[error("another belay holds {} and does not respond", .0.display())]
    HolderSilent(PathBuf),
    /// A store cannot be used.
    #[error("{message}")]
    Store {
        /// The reason code.
        code: &'static str,
        /// The message.
        message: String,
    },
    /// A listener cannot be opened.
    #[error(transparent)]
    Bind(BindError),
    /// The signing key of the gate cannot be used.
    #[error(transparent)]
    Key(KeyError),
    /// The key that seals secrets cannot be used.
    #[error(transparent)]
    SealKey(KeyFileError),
    /// The policy file cannot be used.
    #[error("{0}")]
    Policy(RefusedPolicy),
    /// The operator's settings cannot be used.
    #[error(transparent)]
    Config(ConfigError),
    /// The file of principals cannot be used, or the change is invalid.
    #[error(transparent)]
    Principals(RegisterError),
    /// The telemetry variables of the environment are invalid.
    #[error(transparent)]
    Telemetry(TelemetryError),
    /// An internal error.
    #[error("{0}")]
    Internal(String),
}

/// The advice for a state directory that others can access.
fn how_to_restrict(path: &Path, mode: u32) -> String {
    match mode & 0o002 {
        0 => "use an empty directory".to_owned(),
        _ => format!("use another directory, or if it is only for Belay run `chmod 700 {}`", path.display()),
    }
}

impl StartError {
    pub(crate) fn journal(path: &Path, error: StoreError) -> Self {
        Self::Store { code: belay_executor::store_reason(&error), message: format!("{}: {error}", path.display()) }
    }

    pub(crate) fn ledger(path: &Path, error: &LedgerError) -> Self {
        match error {
            LedgerError::Store(error) => Self::sqlite(path, error),
            LedgerError::KeyLost => {
                Self::Store { code: reasons::SEAL_KEY_LOST, message: format!("{}: {error}", path.display()) }
            }
        }
    }

    pub(crate) fn seal_key(journal: &Path, error: SealKeyError) -> Self {
        match error {
            SealKeyError::File(error) => Self::SealKey(error),
            SealKeyError::Store(error) => Self::journal(journal, error),
            SealKeyError::Newer(..) | SealKeyError::Lost { .. } => {
                Self::Store { code: error.reason(), message: error.to_string() }
            }
        }
    }

    pub(crate) fn approvals(path: &Path, error: &SqliteError) -> Self {
        Self::sqlite(path, error)
    }

    pub(crate) fn gate(path: &Path, error: &GateError) -> Self {
        match error {
            GateError::Unreadable(error) | GateError::Unwritable(CommitError::Failed(error)) => {
                Self::sqlite(path, error)
            }
            GateError::Unwritable(CommitError::Stopped) => Self::Internal("the store of approvals stopped".into()),
            GateError::Policy(error) => {
                Self::Store { code: reasons::STORE_CORRUPT, message: format!("{}: {error}", path.display()) }
            }
        }
    }

    /// The runner rejects the policy of the gate. Without a bug, this happens only if the store of the gate is older than that of the
    /// runner.
    pub(crate) fn refused_policy(approvals: &Path, error: &PolicyRefusal) -> Self {
        match error {
            PolicyRefusal::NotNewer { .. } => {
                Self::Store { code: reasons::FENCED, message: format!("{}: {error}", approvals.display()) }
            }
            _ => Self::Internal(error.to_string()),
        }
    }

    /// The store at `path` is older than another store requires.
    pub(crate) fn behind(path: &Path, behind: &Behind) -> Self {
        Self::Store { code: reasons::STORE_BEHIND, message: format!("{}: {behind}", path.display()) }
    }

    pub(crate) fn sqlite(path: &Path, error: &SqliteError) -> Self {
        Self::Store { code: error.reason(), message: format!("{}: {error}", path.display()) }
    }

    /// The reason code: a name in `belay_reasons`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoStateDir
            | Self::StateDir { .. }
            | Self::ForeignStateDir(_)
            | Self::SharedStateDir { .. }
            | Self::WeakToken(_) => reasons::STATE_DIR_UNUSABLE,
            Self::HolderSilent(_) => reasons::STORE_LOCKED,
            Self::Store { code, .. } => code,
            Self::Bind(BindError::PathTooLong(_)) => reasons::STATE_DIR_UNUSABLE,
            Self::Bind(BindError::InUse(_)) => reasons::PORT_IN_USE,
            Self::Bind(BindError::Refused { .. }) => reasons::CANNOT_LISTEN,
            Self::Bind(BindError::BeyondLoopback(_)) => reasons::INSECURE_LISTEN,
            Self::Principals(RegisterError::InvalidChange(_)) => reasons::PRINCIPAL_REFUSED,
            Self::Principals(_) => reasons::PRINCIPALS_UNUSABLE,
            Self::Key(_) => reasons::GATE_KEY_UNUSABLE,
            Self::SealKey(_) => reasons::SEAL_KEY_UNUSABLE,
            Self::Policy(_) => reasons::POLICY_INVALID,
            Self::Config(_) => reasons::CONFIG_INVALID,
            Self::Telemetry(_) => reasons::TELEMETRY_UNUSABLE,
            Self::Internal(_) => reasons::INTERNAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger without its key: the message names the file and what to restore.
    #[test]
    fn a_lost_seal_key_is_named() {
        let error = StartError::ledger(Path::new("/state/ledger.db"), &LedgerError::KeyLost);
        assert_eq!(error.code(), "SEAL_KEY_LOST");
        assert!(error.to_string().starts_with("/state/ledger.db: calls in ledger.db were sealed"), "{error}");
    }
}
