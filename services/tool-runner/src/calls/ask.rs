//! How a call comes to wait for a person: the question is made, and is durable before anybody hears of it.

use std::sync::Arc;

use belay_grant::digest_of;
use belay_policy::Decision;
use belay_proto::v1::{self, ErrorClass, approval_need, tool_call::State};
use belay_reasons as reasons;
use serde_json::Value;

use super::{
    Calls, Progress,
    effect::Proposal,
    run::{Asked, Job},
};
use crate::{
    ToolFailure, Touches,
    ledger::{Held, InPlace, Row, Written},
    subject::{About, Did, LARGEST_SUBJECT, summary},
    workspace_locks::Visit,
};

impl Calls {
    /// Holds a call back before its work.
    pub(super) async fn hold_call(self: &Arc<Self>, job: &Job, receipt: v1::Receipt, asked: &Asked) -> Progress {
        let workspace = match job.order.tool.spec.touches {
            Touches::Nothing => String::new(),
            Touches::Reads | Touches::Changes => match self.rooms.resolve(job.order.workspace.clone()).await {
                Ok(path) => path.display().to_string(),
                Err(closed) => return self.end(job, receipt, Err((State::Failed, closed.into())), false).await,
            },
        };
        let enforced = job.order.tool.tool.enforced();
        let (need, held) = self.question(job, asked, &asked.decision, (&workspace, &enforced), None);
        self.hold(job, receipt, need, held, None).await
    }

    /// Holds a call back before its commit.
    pub(super) async fn hold_effect(
        self: &Arc<Self>,
        job: &Job,
        mut receipt: v1::Receipt,
        asked: &Asked,
        visit: &Arc<Visit>,
        result: Value,
        Proposal { staged, did, decision, contents }: Proposal,
    ) -> Progress {
        receipt.decision = Some(job.decision(&decision));
        let workspace = visit.path().display().to_string();
        let (need, held) = self.question(job, asked, &decision, (&workspace, &receipt.enforced), Some(did));
        if held.subject.len() > LARGEST_SUBJECT {
            self.discard(visit, &staged).await;
            let message = format!(
                "The call changed so many files that nobody could be asked about them ({} bytes to list them, and {LARGEST_SUBJECT} are \
                 the most): change less in one call, or let a rule of the policy decide.",
                held.subject.len()
            );
            let failed = ToolFailure::new(ErrorClass::SandboxViolation, reasons::EFFECT_TOO_LARGE, message);
            return self.end(job, receipt, Err((State::Failed, failed)), true).await;
        }
        let held = Held { result: Some(result.to_string()), contents, ..held };
        self.rooms.keep(&staged.id);
        let place = InPlace { workspace: visit.path().to_owned(), staged };
        self.hold(job, receipt, need, held, Some((visit, place))).await
    }

    /// What a person is asked, with where it happens and what holds around it.
    fn question(
        &self,
        job: &Job,
        asked: &Asked,
        decision: &Decision,
        (workspace, enforced): (&str, &[String]),
        did: Option<Did>,
    ) -> (v1::ApprovalNeed, Held) {
        let (kind, effect) = match &did {
            None => (approval_need::Kind::Call, None),
            Some(did) => (approval_need::Kind::Effect, Some(summary(&did.changes))),
        };
        let about = About {
            call: &job.call.started,
            secrets: &job.call.secrets,
            operation: &asked.operation,
            workspace,
            enforced,
            decision,
            policy_revision: job.policy.revision,
        };
        let changes = did.as_ref().map_or_else(Vec::new, |did| did.changes.clone());
        let subject = about.subject(did).canonical_bytes();
        let need = v1::ApprovalNeed {
            kind: kind.into(),
            subject_digest: digest_of(&subject),
            decision: Some(job.decision(decision)),
            effect,
        };
        (need, Held { subject, basis: job.judge(asked).basis, result: None, changes, contents: Vec::new() })
    }

    async fn hold(
        self: &Arc<Self>,
        job: &Job,
        receipt: v1::Receipt,
        need: v1::ApprovalNeed,
        held: Held,
        effect: Option<(&Arc<Visit>, InPlace)>,
    ) -> Progress {
        let call = v1::ToolCall {
            state: State::AwaitingApproval.into(),
            receipt: Some(receipt),
            approval_need: Some(need),
            ..(*job.call.started).clone()
        };
        let staged = effect.as_ref().map(|(_, place)| place.clone());
        let row = Row { staged, held: Some(held), ..job.row(call.clone(), false) };
        let written = self.write(row).await;
        if let (Ok(Written::GrantSpent), Some((visit, place))) = (&written, effect) {
            self.discard(visit, &place.staged).await;
        }
        match written {
            Ok(Written::Done) => Progress::Held(Arc::new(call)),
            Ok(Written::GrantSpent) => self.stays_held(job),
            Err(_) => Progress::Unresolved,
        }
    }
}
