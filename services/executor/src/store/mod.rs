//! Writes to the journal and the blobs, and reads them back: commits, snapshots, seals and secrets.

pub(crate) mod blob_secrets;
pub(crate) mod blobs;
pub(crate) mod check_blobs;
pub(crate) mod commits;
pub(crate) mod journal_reads;
pub(crate) mod marks;
pub(crate) mod replayed_execution;
pub(crate) mod seal_key;
pub(crate) mod secrets;
pub(crate) mod snapshots;
