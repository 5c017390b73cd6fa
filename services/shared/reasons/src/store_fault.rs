//! Why a store cannot be used, grouped by what a person can do about it.

use thiserror::Error;

use crate as reasons;

/// The fault of a store, whatever keeps it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreFault {
    /// Another process has it open.
    #[error("the store is in use by another process")]
    Locked,
    /// Its bytes make no sense, or belong to another program.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// Its files were removed or replaced while it was open: further writes would be lost.
    #[error("the store's file was removed or replaced while it was in use")]
    Gone,
    /// Another service has seen a later position of it.
    #[error("{0}")]
    Behind(String),
    /// A newer version of Belay wrote it.
    #[error("the store has format {found}, and this version of Belay reads up to {known}")]
    Newer {
        /// The store's format.
        found: i64,
        /// The newest format known.
        known: i64,
    },
    /// An earlier, unreleased version of Belay wrote it.
    #[error(
        "the store has format {found} of an earlier version of Belay, and this version reads format {known}: it lacks {lacks}"
    )]
    Older {
        /// The store's format.
        found: i64,
        /// The format that is read.
        known: i64,
        /// The part that the earlier format lacks.
        lacks: &'static str,
    },
    /// Any other, in the words of what keeps the store.
    #[error("{0}")]
    Other(String),
}

impl StoreFault {
    /// The reason code, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Locked => reasons::STORE_LOCKED,
            Self::Corrupt(_) => reasons::STORE_CORRUPT,
            Self::Full => reasons::STORE_FULL,
            Self::Gone => reasons::STORE_GONE,
            Self::Behind(_) => reasons::STORE_BEHIND,
            Self::Newer { .. } => reasons::STORE_NEWER,
            Self::Older { .. } => reasons::STORE_OLDER,
            Self::Other(_) => reasons::STORE_FAILED,
        }
    }
}
