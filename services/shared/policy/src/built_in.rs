//! The ids of the built-in rules.

pub(crate) const FILE_READ: &str = "file_read";
pub(crate) const FILE_WRITE: &str = "file_write";
pub(crate) const FILE_DELETE: &str = "file_delete";
pub(crate) const TERMINAL: &str = "terminal_commands";
pub(crate) const PROGRAMS: &str = "allowed_commands";
pub(crate) const NOOP: &str = "noop";
pub(crate) const COMMIT_CHANGES: &str = "commit_changes";
pub(crate) const REBASE_CHANGES: &str = "rebase_changes";
pub(crate) const NO_MATCH: &str = "no_match";
pub(crate) const INTENT: &str = "intent";
pub(crate) const GRANTED: &str = "granted";
pub(crate) const NETWORK: &str = "network";
pub(crate) const NO_CHANGE: &str = "no_change";

/// The rules of settings.
pub(crate) const SETTINGS: [&str; 5] = [FILE_WRITE, FILE_DELETE, TERMINAL, PROGRAMS, NETWORK];

/// All of them: a policy's own rules must not use these ids.
pub(crate) const IDS: [&str; 13] = [
    FILE_READ,
    FILE_WRITE,
    FILE_DELETE,
    TERMINAL,
    PROGRAMS,
    NOOP,
    COMMIT_CHANGES,
    REBASE_CHANGES,
    NO_MATCH,
    INTENT,
    GRANTED,
    NO_CHANGE,
    NETWORK,
];
