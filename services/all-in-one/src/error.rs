//! Why the services cannot start, and what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use belay_approval_gate::{GateError, keys::KeyError};
use belay_journal::StoreError;
use belay_proto::stores::{Behind, Service};
use belay_service_kit::{key_file::KeyFileError, net::BindError, register_file::RegisterError};
use belay_settings::ConfigError;
use belay_sqlite::{CommitError, SqliteError};
use belay_telemetry::NotStarted;
use belay_tool_runner::{LedgerError, Refused};
use thiserror::Error;

use crate::{StateDir, policy::PolicyRefused};

/// Why the services cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no place to keep things.
    #[error("no state directory: neither XDG_STATE_HOME nor HOME is set")]
    NoStateDir,
    /// The state directory cannot be made or used.
    #[error("the state directory {} cannot be used: {source}", .path.display())]
    StateDir {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The state directory is somebody else's.
    #[error("the state directory {} belongs to another user", .0.display())]
    ForeignStateDir(PathBuf),
    /// Others may look into the state directory, and it is not for Belay alone.
    #[error("others may look into {} (mode {mode:04o}), and it is in use for other things", .path.display())]
    SharedStateDir {
        /// Where it is.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another process holds the state directory and does not answer.
    #[error("another belay holds {} and does not answer", .0.display())]
    HolderSilent(PathBuf),
    /// A store cannot be used.
    #[error("{message}")]
    Store {
        /// The reason, for programs.
        code: &'static str,
        /// What is wrong, for people.
        message: String,
    },
    /// A listener cannot be had.
    #[error(transparent)]
    Bind(BindError),
    /// The key with which the gate signs cannot be used.
    #[error(transparent)]
    Key(KeyError),
    /// The key to what is sealed cannot be used.
    #[error(transparent)]
    SealKey(KeyFileError),
    /// The policy file cannot be used.
    #[error("{0}")]
    Policy(PolicyRefused),
    /// The operator's settings cannot be used.
    #[error(transparent)]
    Config(ConfigError),
    /// The file of principals cannot be used, or the change to it is not possible.
    #[error(transparent)]
    Principals(RegisterError),
    /// Spans cannot be sent as the environment says.
    #[error(transparent)]
    Telemetry(NotStarted),
    /// A fault of Belay's own.
    #[error("{0}")]
    Internal(String),
}

impl StartError {
    pub(crate) fn journal(path: &Path, error: StoreError) -> Self {
        Self::Store { code: belay_executor::store_reason(&error), message: format!("{}: {error}", path.display()) }
    }

    pub(crate) fn ledger(path: &Path, error: &LedgerError) -> Self {
        match error {
            LedgerError::Store(error) => Self::sqlite(path, error),
            LedgerError::KeyLost => {
                Self::Store { code: "SEAL_KEY_LOST", message: format!("{}: {error}", path.display()) }
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
                Self::Store { code: "STORE_CORRUPT", message: format!("{}: {error}", path.display()) }
            }
        }
    }

    /// The runner does not take the gate's policy. The one way there is without a fault: the gate's store is older than the runner's.
    pub(crate) fn refused_policy(approvals: &Path, error: &Refused) -> Self {
        match error {
            Refused::NotNewer { .. } => {
                Self::Store { code: "FENCED", message: format!("{}: {error}", approvals.display()) }
            }
            _ => Self::Internal(error.to_string()),
        }
    }

    /// A store is behind what another one remembers of it.
    pub(crate) fn behind(state_dir: &StateDir, behind: &Behind) -> Self {
        let path = match behind.service {
            Service::Executor => state_dir.journal(),
            Service::Runner => state_dir.ledger(),
            Service::Gate => state_dir.approvals(),
        };
        Self::Store { code: "STORE_BEHIND", message: format!("{}: {behind}", path.display()) }
    }

    pub(crate) fn sqlite(path: &Path, error: &SqliteError) -> Self {
        Self::Store { code: error.reason(), message: format!("{}: {error}", path.display()) }
    }

    /// The reason, for programs; each has a page in docs/errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoStateDir | Self::StateDir { .. } | Self::ForeignStateDir(_) | Self::SharedStateDir { .. } => {
                "STATE_DIR_UNUSABLE"
            }
            Self::HolderSilent(_) => "STORE_LOCKED",
            Self::Store { code, .. } => code,
            Self::Bind(BindError::PathTooLong(_)) => "STATE_DIR_UNUSABLE",
            Self::Bind(BindError::InUse(_)) => "PORT_IN_USE",
            Self::Bind(BindError::Refused { .. }) => "CANNOT_LISTEN",
            Self::Bind(BindError::BeyondLoopback(_)) => "INSECURE_LISTEN",
            Self::Principals(RegisterError::Refused(_)) => "PRINCIPAL_REFUSED",
            Self::Principals(_) => "PRINCIPALS_UNUSABLE",
            Self::Key(_) => "GATE_KEY_UNUSABLE",
            Self::SealKey(_) => "SEAL_KEY_UNUSABLE",
            Self::Policy(_) => "POLICY_INVALID",
            Self::Config(_) => "CONFIG_INVALID",
            Self::Telemetry(_) => "TELEMETRY_UNUSABLE",
            Self::Internal(_) => "INTERNAL",
        }
    }

    /// What to do.
    pub fn next(&self) -> String {
        if matches!(self, Self::Bind(BindError::PathTooLong(_))) {
            return "Name a folder with a shorter path with --state-dir or BELAY_STATE_DIR.".into();
        }
        if matches!(self, Self::SharedStateDir { .. }) {
            return "Name a folder for Belay alone with --state-dir.".to_owned();
        }
        match self.code() {
            "STATE_DIR_UNUSABLE" => "Name a folder of your own with --state-dir or BELAY_STATE_DIR.".into(),
            "STORE_LOCKED" => "End the other process, or name another folder with --state-dir.".into(),
            "STORE_CORRUPT" => {
                "Nothing was changed. Put a backup of the file in its place, or move it away to begin with an empty store.".into()
            }
            "STORE_FULL" => "Make room on the disk and start again; nothing that was acknowledged is lost.".into(),
            "STORE_BEHIND" => "Put the newest copy of it back, with its -wal. Without one, `belay serve --accept-older-store` goes on with what is there, once: what came after its last commit is forgotten.".into(),
            "STORE_GONE" => "Put the state directory back from a backup, or begin with an empty one: what was acknowledged before it was removed is in no file any more.".into(),
            "GATE_KEY_UNUSABLE" => "Put gate.key and gate.pub back from a backup. Without one: move both away with gate.db and ledger.db, and what waits for a decision is asked again.".into(),
            "SEAL_KEY_UNUSABLE" => "Put seal.key back from a backup. Without one: move it away; executions whose secrets it sealed cannot go on then.".into(),
            "SEAL_KEY_LOST" => "Put seal.key back from the backup that ledger.db is of, and start again.".into(),
            "POLICY_INVALID" => "Mend the policy; `belay policy check FILE` shows what is wrong.".into(),
            "CONFIG_INVALID" => "Change the file as it says; `belay config show` reads it again.".into(),
            "TELEMETRY_UNUSABLE" => "Set the variable as it says, or OTEL_SDK_DISABLED=true to send no spans.".into(),
            "FENCED" => "Put the newest journal.db and gate.db back, or move ledger.db away if the work that came after the backup may be forgotten.".into(),
            "STORE_OLDER" => "Finish its work with the version that wrote it, then name a new folder with --state-dir or move the files away.".into(),
            "STORE_NEWER" => "Use the version of belay that wrote it, or a later one.".into(),
            "PORT_IN_USE" => "End the process that listens there (`ss -ltnp` names it), or choose another port with --listen.".into(),
            "INSECURE_LISTEN" => "belay serve --listen 127.0.0.1:7433".into(),
            "PRINCIPAL_REFUSED" => "belay principals list".into(),
            "PRINCIPALS_UNUSABLE" => "Put a backup of the file in its place, or move it away: then only the owner may call.".into(),
            "CANNOT_LISTEN" => "Choose an address of this machine with --listen.".into(),
            _ => "Please report this with what BELAY_LOG=debug prints.".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger whose key is lost: the file, what to put back, and the page that says more.
    #[test]
    fn a_lost_seal_key_is_told_by_name() {
        let error = StartError::ledger(Path::new("/state/ledger.db"), &LedgerError::KeyLost);
        assert_eq!(error.code(), "SEAL_KEY_LOST");
        assert!(error.to_string().starts_with("/state/ledger.db: calls in ledger.db are sealed"), "{error}");
        assert!(error.next().contains("Put seal.key back"), "{}", error.next());
    }
}
