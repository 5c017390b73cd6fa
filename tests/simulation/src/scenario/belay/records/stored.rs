//! Data of the services that the auditor reads after the last power loss.

use std::collections::BTreeMap;

use belay_proto::{runner_v1, v1};

use super::super::calls::Blobs;
use super::observed::ObservedApproval;

/// An execution on the server after the last restart.
#[derive(Debug, Clone)]
pub(in super::super) struct ExecutionEvidence {
    pub(in super::super) execution: v1::Execution,
    pub(in super::super) events: Vec<v1::ExecutionEvent>,
    /// The contents of its blobs, by their digests.
    pub(in super::super) blobs: Blobs,
}

/// The data of the three services after the last power loss.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct StoredData {
    pub(in super::super) executions: BTreeMap<String, ExecutionEvidence>,
    /// The namespaces, with what they have used of their budgets.
    pub(in super::super) namespaces: Vec<v1::Namespace>,
    /// In full, by name.
    pub(in super::super) approvals: BTreeMap<String, v1::Approval>,
    /// By the approval's name.
    pub(in super::super) grants: BTreeMap<String, runner_v1::Grant>,
    /// The calls that the runner still has.
    pub(in super::super) calls: BTreeMap<String, runner_v1::ToolCall>,
    /// Observations of people about approvals before the audit read them; later observations may be newer.
    pub(in super::super) asked: BTreeMap<String, ObservedApproval>,
}
