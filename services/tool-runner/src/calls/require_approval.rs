//! How a call is suspended until it is approved. The approval requirement is durable before the caller sees it.

use std::sync::Arc;

use belay_grant::{Kind, Risk, digest_of};
use belay_policy::Decision;
use belay_proto::{
    runner_v1,
    v1::{self, ErrorClass, approval_need, tool_call::State},
};
use belay_reasons as reasons;
use serde_json::Value;

use super::{
    Calls, Progress,
    effect::Proposal,
    job::{Job, JudgedIntent},
};
use crate::{
    ToolFailure, Touches,
    contents::{hidden_paths, hidden_words},
    ledger::{PendingApproval, Row, WorkspaceEffect, WriteOutcome},
    subject::{MAX_SUBJECT_BYTES, ObservedEffect, SubjectContext, summary},
    workspace_locks::WorkspaceGuard,
};

impl Calls {
    /// Suspends a call before its tool runs.
    pub(super) async fn require_call_approval(
        self: &Arc<Self>,
        job: &Job,
        receipt: v1::Receipt,
        intent: &JudgedIntent,
    ) -> Progress {
        let workspace = match job.request.tool.spec.touches {
            Touches::Nothing => String::new(),
            Touches::Reads | Touches::Changes => match self.workspaces.resolve(job.request.workspace.clone()).await {
                Ok(path) => path.display().to_string(),
                Err(unavailable) => {
                    return self.end(job, receipt, Err((State::Failed, unavailable.into())), false).await;
                }
            },
        };
        let enforced = job.request.tool.tool.enforced();
        let (requirement, pending) = self.requirement(job, intent, &intent.decision, (&workspace, &enforced), None);
        self.suspend(job, receipt, requirement, pending, None).await
    }

    /// Suspends a call whose effect is staged, before the commit.
    pub(super) async fn require_effect_approval(
        self: &Arc<Self>,
        job: &Job,
        mut receipt: v1::Receipt,
        intent: &JudgedIntent,
        guard: &Arc<WorkspaceGuard>,
        result: Value,
        Proposal { staged, observed, decision, contents, allowing, of_step }: Proposal,
    ) -> Progress {
        receipt.decision = Some(job.decision(&decision));
        let workspace = guard.path().display().to_string();
        let (requirement, pending) =
            self.requirement(job, intent, &decision, (&workspace, &receipt.enforced), Some((observed, allowing)));
        if let Some(failed) = too_large(pending.subject.len()) {
            self.discard(guard, &staged).await;
            return self.end(job, receipt, Err((State::Failed, failed)), true).await;
        }
        // What is hidden comes first: the gate takes no more than so many bytes.
        let hidden = pending.contents.into_iter().chain(hidden_paths(&pending.changes));
        let contents = hidden.chain(contents).collect();
        let pending = PendingApproval { result: Some(result.to_string()), contents, of_step, ..pending };
        self.workspaces.keep_staged(&staged.id);
        let effect = WorkspaceEffect { workspace: guard.path().to_owned(), staged };
        self.suspend(job, receipt, requirement, pending, Some((guard, effect))).await
    }

    /// Builds the approval requirement of a call, or of its effect if `observed` is set: with what to add to the policy's rules so that it is allowed.
    fn requirement(
        &self,
        job: &Job,
        intent: &JudgedIntent,
        decision: &Decision,
        (workspace, enforced): (&str, &[String]),
        observed: Option<(ObservedEffect, Vec<String>)>,
    ) -> (v1::ApprovalNeed, PendingApproval) {
        let (observed, allowing) = observed.unzip();
        let (kind, subject_kind, effect) = match &observed {
            None => (approval_need::Kind::Call, Kind::Call, None),
            Some(observed) => (approval_need::Kind::Effect, Kind::Effect, Some(summary(&observed.changes.list))),
        };
        let reveals = job.request.tool.tool.reveals();
        let context = SubjectContext {
            call: &job.call.started,
            secrets: &job.call.secrets,
            intent: &intent.intent,
            workspace,
            enforced,
            decision,
            policy_revision: job.policy.revision,
            recovery: job.request.recovery(),
            network: job.request.network(),
            reveals: &reveals,
        };
        let allowing_rules = match allowing {
            None => job.rules_for_intent(intent),
            Some(allowing) => job.unhidden(allowing),
        };
        let (changes, committed) = observed
            .as_ref()
            .map(|observed| (observed.changes.list.clone(), observed.committed.clone()))
            .unwrap_or_default();
        let contents = context.hidden(subject_kind).map(|(_, words)| hidden_words(&words)).into_iter().collect();
        let subject = context.subject(observed);
        let risk = match subject.risk {
            Risk::Low => v1::Risk::Low,
            Risk::Medium => v1::Risk::Medium,
            Risk::High => v1::Risk::High,
        };
        let subject = subject.canonical_bytes();
        let requirement = v1::ApprovalNeed {
            kind: kind.into(),
            subject_digest: digest_of(&subject),
            decision: Some(job.decision(decision)),
            effect,
            allowing_rules,
            risk: risk.into(),
        };
        let basis = job.judge(intent).basis;
        (requirement, PendingApproval { subject, basis, result: None, changes, committed, contents, of_step: None })
    }

    async fn suspend(
        self: &Arc<Self>,
        job: &Job,
        receipt: v1::Receipt,
        requirement: v1::ApprovalNeed,
        pending: PendingApproval,
        effect: Option<(&Arc<WorkspaceGuard>, WorkspaceEffect)>,
    ) -> Progress {
        let call = runner_v1::ToolCall {
            state: State::AwaitingApproval.into(),
            receipt: Some(Box::new(receipt)),
            approval_need: Some(requirement),
            ..(*job.call.started).clone()
        };
        let staged = effect.as_ref().map(|(_, effect)| effect.clone());
        let row = Row { staged, pending: Some(pending), ..job.row(call.clone(), false) };
        let written = self.write(row).await;
        if let (Ok(WriteOutcome::GrantSpent), Some((guard, effect))) = (&written, effect) {
            self.discard(guard, &effect.staged).await;
        }
        match written {
            Ok(WriteOutcome::Done) => Progress::AwaitingApproval(Arc::new(call)),
            Ok(WriteOutcome::GrantSpent) => self.restore_pending(job),
            Err(_) => Progress::Unresolved,
        }
    }
}

/// Why an effect whose changes take this many bytes to list cannot be approved; `None` if it can.
fn too_large(bytes: usize) -> Option<ToolFailure> {
    let message = || {
        format!(
            "The effect is too large to be approved: listing its changes takes {bytes} bytes, and the limit is {MAX_SUBJECT_BYTES}. Change fewer \
             files in one call, or let a policy rule decide."
        )
    };
    (bytes > MAX_SUBJECT_BYTES)
        .then(|| ToolFailure::new(ErrorClass::SandboxViolation, reasons::EFFECT_TOO_LARGE, message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_above_the_limit_is_refused_with_its_size() {
        assert_eq!(too_large(MAX_SUBJECT_BYTES).map(|failed| failed.message), None);
        let refused = too_large(MAX_SUBJECT_BYTES + 1).unwrap();
        assert_eq!(refused.reason, reasons::EFFECT_TOO_LARGE);
        assert!(refused.message.contains(&format!("takes {} bytes", MAX_SUBJECT_BYTES + 1)), "{}", refused.message);
    }
}
