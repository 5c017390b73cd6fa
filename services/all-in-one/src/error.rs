//! Why the services cannot start, and what to do about it.

use std::{io, path::PathBuf};

use belay_journal::StoreError;
use belay_service_kit::net::BindError;
use belay_sqlite::SqliteError;
use belay_tool_runner::LedgerError;
use thiserror::Error;

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
    /// Others may look into the state directory.
    #[error("the state directory {} belongs to another user", .0.display())]
    ForeignStateDir(PathBuf),
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
    /// A fault of Belay's own.
    #[error("{0}")]
    Internal(String),
}

impl StartError {
    pub(crate) fn journal(path: &std::path::Path, error: StoreError) -> Self {
        Self::Store { code: belay_executor::store_reason(&error), message: format!("{}: {error}", path.display()) }
    }

    pub(crate) fn ledger(path: &std::path::Path, LedgerError(error): LedgerError) -> Self {
        let code = match &error {
            SqliteError::Locked => "STORE_LOCKED",
            SqliteError::Corrupt(_) => "STORE_CORRUPT",
            SqliteError::Full => "STORE_FULL",
            SqliteError::Newer { .. } => "STORE_NEWER",
            SqliteError::Other(_) => "STORE_FAILED",
        };
        Self::Store { code, message: format!("{}: {error}", path.display()) }
    }

    /// The reason, for programs; each has a page in docs/errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoStateDir | Self::StateDir { .. } | Self::ForeignStateDir(_) => "STATE_DIR_UNUSABLE",
            Self::HolderSilent(_) => "STORE_LOCKED",
            Self::Store { code, .. } => code,
            Self::Bind(BindError::PathTooLong(_)) => "STATE_DIR_UNUSABLE",
            Self::Bind(BindError::InUse(_)) => "PORT_IN_USE",
            Self::Bind(BindError::Refused { .. }) => "CANNOT_LISTEN",
            Self::Internal(_) => "INTERNAL",
        }
    }

    /// What to do.
    pub fn next(&self) -> String {
        if matches!(self, Self::Bind(BindError::PathTooLong(_))) {
            return "Name a folder with a shorter path with --state-dir or BELAY_STATE_DIR.".into();
        }
        match self.code() {
            "STATE_DIR_UNUSABLE" => "Name a folder of your own with --state-dir or BELAY_STATE_DIR.".into(),
            "STORE_LOCKED" => "End the other process, or name another folder with --state-dir.".into(),
            "STORE_CORRUPT" => {
                "Nothing was changed. Put a backup of the file in its place, or move it away to begin with an empty store.".into()
            }
            "STORE_FULL" => "Make room on the disk and start again; nothing that was acknowledged is lost.".into(),
            "FENCED" => "Put the newest journal back, or move ledger.db away if the work that came after the backup may be forgotten.".into(),
            "STORE_NEWER" => "Use the version of belay that wrote it, or a later one.".into(),
            "PORT_IN_USE" => "End the process that listens there (`ss -ltnp` names it), or choose another port with --listen.".into(),
            "CANNOT_LISTEN" => "Choose an address of this machine with --listen.".into(),
            _ => "Please report this with what BELAY_LOG=debug prints.".into(),
        }
    }
}
