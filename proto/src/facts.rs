//! The keys of `Failure.metadata` that Belay's own tools use.

/// The exit code of a program, in decimal.
pub const EXIT_CODE: &str = "exit_code";

/// What may have led to the failure, and what may help: part of a sentence for a person.
pub const HINT: &str = "hint";

/// The number of the signal that ended a program, in decimal.
pub const SIGNAL: &str = "signal";

/// The limit that was exceeded, in units of [`UNIT`].
pub const LIMIT: &str = "limit";

/// What was found instead, in units of [`UNIT`].
pub const FOUND: &str = "found";

/// `seconds`, `bytes` or `files`.
pub const UNIT: &str = "unit";

/// The field of the plan, or of the operator's settings, that raises the limit.
pub const SETTING: &str = "setting";
