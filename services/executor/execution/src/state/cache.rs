//! The memory of steps whose plan lets them use earlier results.

use serde::{Deserialize, Serialize};

use crate::{CachedFrom, CallIdentity, EarlierResult};

/// The memory of a step whose plan lets it use an earlier result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepCache {
    /// The calls of its own that were requested since it was last made to run again: its first, and those that took its place.
    pub(crate) calls: Vec<CallIdentity>,
    /// The last result that such a call of a tool returned which changes nothing.
    pub(crate) last: Option<EarlierResult>,
    /// Where the step's output comes from, when it is such a result.
    pub(crate) used: Option<CachedFrom>,
}
