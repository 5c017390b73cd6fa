//! Approvals: what a decision about a call is about, and what was decided.

use belay_reasons as reasons;
use serde::{Deserialize, Serialize};

use crate::{ApprovalMode, Decision, ErrorClass, Failure, Timestamp};

/// The subject of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubjectKind {
    /// The call itself, before it runs.
    Call,
    /// The changes that the call made in its view. The call has run; nothing is committed.
    Effect,
}

/// Why a runner holds a call until it is approved. The decision is bound to `subject_digest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequirement {
    /// The kind of subject.
    pub kind: SubjectKind,
    /// `sha256:` over the bytes of the subject.
    pub subject_digest: String,
    /// The policy decision that requires the approval.
    pub decision: PolicyDecision,
    /// The changes that would be committed; empty for [`SubjectKind::Call`].
    pub effect: EffectSummary,
    /// Entries for the policy's rules that would allow exactly this; empty when none would.
    pub allowing_rules: Vec<String>,
    /// How much harm it may do, according to the runner.
    pub risk: Risk,
}

/// How much harm may come of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Risk {
    /// It reads, or creates files without notable properties.
    Low,
    /// It modifies or deletes files, or can be discarded.
    Medium,
    /// It changes a protected or flagged path, or cannot be undone.
    High,
}

/// The verdict of a policy, from the mildest to the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The call runs and its changes are committed.
    Auto,
    /// The call runs in a view, and the policy then judges what it changed.
    Preview,
    /// A person has to approve.
    Prompt,
    /// Denied.
    Deny,
}

/// A decision of a policy, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyDecision {
    /// The verdict.
    pub verdict: Verdict,
    /// The id of the rule that matched.
    pub rule: String,
    /// The rule's reason, for people.
    pub reason: String,
    /// The revision of the policy.
    pub policy_revision: i64,
}

/// A summary of what a call changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectSummary {
    /// Number of files, links and directories it creates.
    pub created: u32,
    /// Number of entries whose content or permissions it changes.
    pub modified: u32,
    /// Number of entries it deletes.
    pub deleted: u32,
    /// The first of the changed paths, sorted; the runner chooses how many.
    pub changes: Vec<PathChange>,
}

/// The change of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// The path, relative to the workspace.
    pub path: String,
    /// How it changes.
    pub kind: ChangeKind,
    /// Facts that a person should check carefully, in the runner's words.
    pub flags: Vec<String>,
}

/// How a path changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// The path is new.
    Created,
    /// The content or the permissions change.
    Modified,
    /// The path is removed.
    Deleted,
}

/// The approval that a held call waits for, or waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// The requirement: what has to be approved, and why.
    pub requirement: ApprovalRequirement,
    /// When the runner held the call.
    pub since: Timestamp,
    /// The name of the approval at the gate, once the gate has confirmed that it has one.
    pub approval: Option<String>,
    /// The decision, once it has been made.
    pub decided: Option<RecordedDecision>,
}

/// A decision, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDecision {
    /// The decision.
    pub decision: Decision,
    /// The authenticated principal; empty when the execution's approval mode decided.
    pub principal: String,
    /// The reason that the principal gave.
    pub reason: String,
}

impl PendingApproval {
    /// The decision; `None` while it is pending.
    pub fn decision(&self) -> Option<Decision> {
        self.decided.as_ref().map(|decided| decided.decision)
    }

    /// The failure of a call that was not approved; `None` while the decision is pending, and for an approved call.
    pub fn denial(&self, mode: ApprovalMode) -> Option<Failure> {
        let decided = self.decided.as_ref()?;
        let asked = mode == ApprovalMode::Wait;
        let reason = match decided.decision {
            Decision::Approved => return None,
            _ if !asked => reasons::NON_INTERACTIVE,
            Decision::Skipped => reasons::APPROVAL_SKIPPED,
            Decision::Denied | Decision::Expired => reasons::APPROVAL_DENIED,
        };
        let PolicyDecision { rule, reason: why, .. } = &self.requirement.decision;
        let said = if decided.reason.is_empty() { "no reason given" } else { decided.reason.as_str() };
        let message = match (decided.decision, asked) {
            (Decision::Expired, true) => {
                format!("The approval expired without a decision, which counts as denied (rule {rule}: {why}).")
            }
            (Decision::Skipped, true) => format!("skipped by {}: {said}", decided.principal),
            (_, true) => format!("denied by {}: {said}", decided.principal),
            (_, false) if decided.principal.is_empty() => {
                format!(
                    "Rule {rule} requires approval ({why}), but this run cannot ask. Use `--approve prompt`, or allow it with a rule of the policy."
                )
            }
            (_, false) => format!("Rule {rule} requires approval ({why}), and this execution asks no person: {said}"),
        };
        let mut failure = Failure::new(ErrorClass::ApprovalDenied, reason, message);
        if !asked {
            failure.metadata.extend(reasons::facts::allowing(&self.requirement.allowing_rules));
        }
        Some(failure)
    }
}
