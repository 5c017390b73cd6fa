//! The facts that a decision needs besides the events, and the actions of the driver.

use crate::{OperationKey, Timestamp, state::Stop};

/// The inputs of a decision besides the events so far. Their values are recorded in the resulting events, so a replay does not need them.
#[derive(Clone, Copy, Debug)]
pub struct DecideContext<'a> {
    /// The wall clock.
    pub now: Timestamp,
    /// The id of the runner's ledger.
    pub ledger_id: &'a str,
}

/// An action that the driver performs for an operation in flight. Derived from the current state, so a new driver continues where a lost one stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Action {
    /// The operation.
    pub operation: OperationKey,
    /// The action.
    pub required: RequiredAction,
}

/// An action for an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredAction {
    /// Send the call to the runner under its own name; sending it again attaches to it. A call that was held before it ran is sent with
    /// the grant of its approval.
    Dispatch,
    /// Pause the execution of a step's plan.
    Pause,
    /// Cancel it, and record how it really ended.
    Cancel,
    /// Cancel it without asking its processes to end first.
    Kill,
    /// Request approval for it, which its runner holds; or the answer to its form.
    RequestApproval,
    /// Commit its approved effect.
    Commit,
    /// Discard it, since it was not approved.
    Discard,
}

impl RequiredAction {
    /// The action for an operation in flight when the execution is stopped.
    pub(crate) fn to_stop(stop: Stop) -> Self {
        if stop == Stop::Killed { Self::Kill } else { Self::Cancel }
    }

    /// Whether it ends the operation.
    pub fn stops(self) -> bool {
        matches!(self, Self::Cancel | Self::Kill)
    }
}
