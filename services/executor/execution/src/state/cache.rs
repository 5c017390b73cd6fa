//! What steps remember whose plan lets them use earlier results.

use serde::{Deserialize, Serialize};

use crate::{CachedFrom, CallIdentity, EarlierResult};

/// What a step remembers whose plan lets it use an earlier result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepCache {
    /// The last call of its own that was requested.
    pub(crate) call: CallIdentity,
    /// The last result that such a call returned.
    pub(crate) last: Option<EarlierResult>,
    /// Where the step's output comes from, when it is such a result.
    pub(crate) used: Option<CachedFrom>,
}
