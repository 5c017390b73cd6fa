//! A person's decision.

use serde::{Deserialize, Serialize};

/// A decision about an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Approved, once.
    Approved,
    /// Denied.
    Denied,
    /// Denied; the step is skipped instead of failing.
    Skipped,
    /// No decision before the policy's time limit; treated as denied.
    Expired,
}
