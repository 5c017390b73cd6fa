//! A setting with its name, value and origin.

use crate::Origin;

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, as in the file: `commands.limits.processes`.
    pub key: String,
    /// Its value, as written in the file.
    pub value: String,
    /// Its origin.
    pub origin: Origin,
}
