//! The section `secrets`: rules of the operator's own for what is hidden. They are in a file of their own, because they are often made by
//! others, and are the same on many machines.

use std::path::PathBuf;

use crate::ValueWithOrigin;

/// The section `secrets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The file with the rules; `None` without one.
    pub rules_file: Option<ValueWithOrigin<PathBuf>>,
    /// The names of the rules in it, in its order; empty until it has been read.
    pub rules: Vec<String>,
}
