//! Entries of the ledger, and its contents when it is opened.

use std::{collections::HashMap, path::PathBuf};

use belay_grant::Change;
use belay_policy::{ToolKind, Verdict};
use belay_proto::{runner_v1, v1};
use serde::{Deserialize, Serialize};

use crate::{StagedEffect, contents::Content, subject::CommittedFiles};

/// A write to the ledger.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A call starts, waits for approval, ends, or gets a tombstone: the row replaces the one before.
    Call(Box<Row>),
    /// Only the pending deletes, which go with every entry: see [`crate::Ledger::delete_later`].
    FlushDeletes,
    /// Deletes the row of a call that may run again.
    Delete { name: String },
    /// Deletes every row about the calls of an execution, `namespaces/*/executions/*`, and then its bytes from the files.
    Forget { execution: String },
    /// A set of layers is in use.
    LayerSet(LayerSet),
    /// A set of layers is not in use any more.
    RemovedLayers { set: String },
    /// A newer fencing token of a shard.
    Fence { shard: i32, token: i64 },
    /// A newer policy.
    Policy(v1::SignedPolicy),
    /// Deletes the nonces of grants that expired before this time, in seconds since 1970.
    Expired { before: i64 },
}

/// The state of a call.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The digest of tool, workspace and arguments; empty for a tombstone.
    pub(crate) digest: String,
    pub(crate) ended: bool,
    pub(crate) call: runner_v1::ToolCall,
    /// Its effect, staged or committed by this row.
    pub(crate) staged: Option<WorkspaceEffect>,
    /// Set while the call waits for approval.
    pub(crate) pending: Option<PendingApproval>,
    /// The grant that this row spends.
    pub(crate) spends: Option<SpentGrant>,
    /// The set of layers that is not in use any more: this row commits what they came to.
    pub(crate) removes: Option<String>,
}

/// A staged effect and the workspace it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceEffect {
    pub(crate) workspace: PathBuf,
    pub(crate) staged: StagedEffect,
}

/// Layers of a step whose calls have one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerSet {
    /// Its name in the workspace, unique to a run of the step.
    pub(crate) name: String,
    /// The execution, `namespaces/*/executions/*`.
    pub(crate) execution: String,
    pub(crate) workspace: PathBuf,
}

/// The stored part of a call that waits for approval.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingApproval {
    /// The canonical bytes of the subject of the approval.
    pub(crate) subject: Vec<u8>,
    /// The inputs for judging its effect again.
    pub(crate) basis: JudgementInput,
    /// The result as JSON text, if the tool has run.
    pub(crate) result: Option<String>,
    /// The changes, unredacted; the subject has the redacted paths.
    pub(crate) changes: Vec<Change>,
    /// The changes as its receipt lists them once they are committed.
    pub(crate) committed: CommittedFiles,
    /// File contents before and after, to be shown.
    pub(crate) contents: Vec<Content>,
    /// Set when it is the effect of a step.
    pub(crate) of_step: Option<StepEffect>,
}

/// The inputs for judging an effect, apart from the effect itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JudgementInput {
    /// The verdict on the intent.
    pub(crate) intent: Verdict,
    /// The paths that a person approved with the call; empty if no person did.
    pub(crate) covered: Vec<String>,
}

/// The effect of a step: in which layers it is, and what its calls have noted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepEffect {
    pub(crate) set: String,
    pub(crate) notes: Vec<LayerNote>,
}

/// A call's note in its layer for the one that commits: its changes, and all that the policy judges them by. So the rules for its tool decide
/// about it when the step is committed, as they would have without the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LayerNote {
    pub(crate) tool: String,
    pub(crate) kind: ToolKind,
    pub(crate) step: String,
    pub(crate) basis: JudgementInput,
    pub(crate) changes: Vec<Change>,
    /// The secrets that are not shown of it.
    pub(crate) secrets: SealedSecrets,
}

/// The secrets that a call knew, sealed with the ledger's key: who reads a layer in its workspace does not see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedSecrets {
    pub(crate) call: String,
    /// A JSON list of texts, sealed, in base64; empty when the call knew none.
    pub(crate) sealed: String,
}

/// A spent grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpentGrant {
    pub(crate) nonce: String,
    /// When the grant expires, in seconds since 1970.
    pub(crate) expires: i64,
}

/// The result of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// It is durable.
    Done,
    /// The grant was already spent; nothing of the entry was written.
    GrantSpent,
}

/// The content of the ledger when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The calls that do not wait for approval.
    pub(crate) calls: Vec<Row>,
    /// The calls that do.
    pub(crate) held: Vec<HeldCall>,
    /// Rows that were moved to the table `set_aside`.
    pub(super) unreadable: Vec<UnreadableRow>,
    /// The layers that are in use.
    pub(crate) layer_sets: Vec<LayerSet>,
    pub(crate) fences: HashMap<i32, i64>,
    pub(crate) policy: Option<v1::SignedPolicy>,
}

/// A call that waits for approval: the rest stays in the ledger until a caller asks for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldCall {
    pub(crate) name: String,
    /// The id of its staged effect.
    pub(crate) staged: Option<String>,
}

/// A row that cannot be read.
#[derive(Debug)]
pub(super) struct UnreadableRow {
    /// The call's name.
    pub(super) name: String,
    /// Whether the call waited for approval before its tool ran.
    pub(super) is_before_its_run: bool,
    pub(super) why: String,
}
