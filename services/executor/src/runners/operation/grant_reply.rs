//! Replies of the gate to requests for grants.

use belay_proto::runner_v1;

/// The gate's reply to a request for a grant.
pub(super) enum GrantReply {
    Granted(runner_v1::Grant),
    /// The gate does not know the decision, because its store was restored or lost: the approval is requested again, and a decision that was made
    /// about it since then counts.
    DecisionLost,
    /// The gate refuses the grant permanently, for this reason.
    Refused(String),
}
