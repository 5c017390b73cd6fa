//! Orders: executions that a client is to start, and their outcome.

use std::time::Duration;

use belay_proto::v1;

use super::super::inputs::Inputs;

/// An execution to start.
#[derive(Debug, Clone)]
pub(in super::super) struct Order {
    pub(in super::super) after: Duration,
    pub(in super::super) approval_mode: v1::ApprovalMode,
    /// Empty for the execution's own workspace.
    pub(in super::super) workspace: String,
    pub(in super::super) plan: v1::Plan,
    pub(in super::super) inputs: Inputs,
    /// The plan as its author wrote it, to send instead.
    pub(in super::super) document: Option<String>,
    /// How likely it is that a person resumes it after an end that is no success.
    pub(in super::super) goes_on: f64,
    /// Whether its executor drives only what it is asked to: a client asks again and again.
    pub(in super::super) is_driven: bool,
    /// How likely it is that it is forked after its end.
    pub(in super::super) forks: f64,
    /// How likely it is that it is deleted after its end. With more than 0, the executions of its steps' plans are deleted as well, now and then.
    pub(in super::super) deletes: f64,
    pub(in super::super) request_id: String,
    /// How often it was given before: again after each restore of everything, with request ids of their own for what is asked of the execution.
    pub(in super::super) given_before: u32,
    pub(in super::super) seed: u64,
}
