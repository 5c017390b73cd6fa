//! Resumes, commits or discards calls that wait for approval.
//!
//! The caller may be hostile. A call resumes only on an unspent grant that the gate signed for exactly this call and subject and that the
//! current policy does not overrule; otherwise it keeps waiting.

use std::{panic::AssertUnwindSafe, sync::Arc};

use belay_defects::{Defect, is_planted};
use belay_grant::{Grant, GrantExpectation, InvalidSeal, SignedBytes, Subject};
use belay_proto::{
    runner_v1,
    texts::{Text, Texts as _},
    v1::{self, ErrorClass, approval_need::Kind, tool_call::State},
};
use belay_reasons as reasons;
use belay_service_kit::status;
use futures::FutureExt as _;
use tonic::{Code, Status};

use super::{
    Call, CallRequest, Calls, Progress, check_network,
    commit::{Commit, CommitOutcome},
    decide::{self, EffectDecision},
    ended::EndedCall,
    job::VerifiedApproval,
    judge::{Judge, NotedJudge},
    not_durable,
    record::{self, failure},
};
use crate::{
    ToolFailure,
    commit_log::touched,
    disk_errors::is_disk_reason,
    ledger::{PendingApproval, Row, SpentGrant, WorkspaceEffect},
    policy::CallPolicy,
    subject::summary,
};

/// The stored state of a call that waits for approval.
struct LoadedApproval {
    pending: PendingApproval,
    effect: Option<WorkspaceEffect>,
    subject: Subject,
    /// Whether a person signed the approval; in an execution without prompts the policy does.
    by_person: bool,
}

impl Calls {
    /// Resumes a call that waits for approval before its tool runs. Does nothing if the call does not wait, or waits for the approval of
    /// its effect.
    pub(super) async fn resume(self: &Arc<Self>, call: Call, request: CallRequest) -> Result<(), Status> {
        let Progress::AwaitingApproval(waiting) = call.progress.borrow().clone() else { return Ok(()) };
        if kind_of(&waiting) != Kind::Call {
            return Ok(());
        }
        check_network(&request)?;
        let policy = self.policy_of(&request.name)?;
        match self.check_grant(&waiting, request.grant.as_ref()).await {
            // A concurrent request has resolved it, and the error stems from that.
            Err(_) if !call.awaits_approval() => {}
            Err(refused) => return Err(refused),
            Ok((approval, spends)) => {
                if let Some(waiting) = call.claim_pending(Progress::Running) {
                    let (by_person, network) = (approval.by_person, approval.subject.network);
                    let reveals = approval.subject.reveals;
                    let approved = VerifiedApproval { spends, by_person, waiting, network, reveals };
                    self.spawn_run(call, request, policy, Some(approved), None);
                }
            }
        }
        Ok(())
    }

    /// Commits the staged effect of a call on a grant. Returns when the call has ended.
    pub(crate) async fn commit_effect(
        self: &Arc<Self>,
        name: &str,
        grant: Option<runner_v1::Grant>,
    ) -> Result<Arc<runner_v1::ToolCall>, Status> {
        let committed = self.commit_found(name, grant).await;
        self.unload(name);
        committed
    }

    async fn commit_found(
        self: &Arc<Self>,
        name: &str,
        grant: Option<runner_v1::Grant>,
    ) -> Result<Arc<runner_v1::ToolCall>, Status> {
        loop {
            let call = self.find(name).await?;
            let waiting = match call.wait_until_idle().await? {
                Progress::Ended(ended) => return Ok(ended.call),
                Progress::Running | Progress::Resolving | Progress::Unresolved => continue,
                Progress::AwaitingApproval(waiting) => waiting,
            };
            if kind_of(&waiting) != Kind::Effect {
                let message = format!(
                    "{name} has not run yet: it waits for approval of the call itself. Send CallTool with the grant."
                );
                return Err(not_waiting(message));
            }
            let policy = self.policy_of(name)?;
            let (approval, spends) = match self.check_grant(&waiting, grant.as_ref()).await {
                // A concurrent request has resolved it, and the error stems from that.
                Err(_) if !call.awaits_approval() => continue,
                checked => checked?,
            };
            if call.claim_pending(Progress::Resolving).is_none() {
                continue;
            }
            let (calls, claimed) = (Arc::clone(self), call.clone());
            let before = Arc::clone(&waiting);
            return self
                .resolve(call, waiting, async move {
                    calls.commit_pending(&claimed, &before, approval, spends, policy).await
                })
                .await
                .map(|ended| ended.call);
        }
    }

    /// Commits and returns the ended call. On an error the call keeps waiting.
    async fn commit_pending(
        self: &Arc<Self>,
        call: &Call,
        waiting: &runner_v1::ToolCall,
        LoadedApproval { pending, effect, subject, .. }: LoadedApproval,
        spends: SpentGrant,
        policy: CallPolicy,
    ) -> Result<EndedCall, Status> {
        let Some(WorkspaceEffect { workspace, staged }) = effect else {
            return Err(status::error(
                Code::DataLoss,
                reasons::STORE_CORRUPT,
                "The staged effect of the call is missing from the ledger.",
            )
            .into());
        };
        let guard = match self.workspaces.open(self.workspaces.known(workspace)).await {
            Ok(guard) => Arc::new(guard),
            Err(unavailable) => return Err(unavailable.into_status()),
        };
        let mut receipt = waiting.receipt.clone().unwrap_or_default();
        receipt.grant_nonce.clone_from(&spends.nonce);
        let ending = |state, failed, receipt| self.ending(waiting, state, failed, receipt);

        // The policy may have changed since the approval was requested.
        let kind = self.registry.find(&waiting.tool).map_or(belay_policy::ToolKind::Other, |tool| tool.spec.kind);
        let judge = Judge {
            policy: policy.policy.clone(),
            tool: waiting.tool.clone(),
            kind,
            step: String::new(),
            basis: pending.basis,
        };
        let noted = pending.of_step.as_ref().and_then(|effect| NotedJudge::of(&effect.notes, &policy.policy).judge());
        let decision = noted.unwrap_or_else(|| judge.judge(&pending.changes));
        if decide::decide_effect(decision.verdict, true) == EffectDecision::Refuse {
            receipt.grant_nonce.clear();
            receipt.decision = Some(record::decision(&decision, policy.revision));
            let ended = ending(State::Denied, Some(failure(record::denied(&decision, &[]))), receipt);
            self.write(row(call, ended.clone(), None)).await.map_err(not_durable)?;
            self.discard(&guard, &staged).await;
            return Ok(EndedCall::without_result(ended));
        }

        let unapplied_receipt = receipt.clone();
        receipt.effect_digest = subject.effect_digest;
        receipt.effect = Some(summary(&pending.changes));
        (receipt.files, receipt.unlisted_file_count) = (pending.committed.files, pending.committed.unlisted);
        let mut completed = ending(State::Completed, None, receipt);
        completed.result = pending.result.map(record::payload);
        let removes = pending.of_step.map(|effect| effect.set);
        let commit_row = Row { removes: removes.clone(), ..row(call, completed.clone(), Some(spends.clone())) };
        let is_manual = waiting.recovery() == v1::RecoveryClass::Manual;
        let mut cancelled = call.cancel.subscribe();
        let commit = Commit { staged: &staged, touched: touched(&pending.changes), call, running: None };
        match self.commit(&guard, commit, commit_row, &mut cancelled).await {
            CommitOutcome::Done => {
                if let Some(set) = &removes {
                    self.remove_later(set);
                }
                Ok(self.ended_call(completed))
            }
            // The approval is kept until the disk takes the effect.
            CommitOutcome::Refused((_, failed)) if is_disk_reason(&failed.reason) => {
                Err(status::error(Code::Unavailable, &failed.reason, failed.message).into())
            }
            CommitOutcome::Refused(unsuccessful) => {
                let (state, failed) = record::not_committed(unsuccessful, is_manual);
                let receipt = Box::new(v1::Receipt { grant_nonce: String::new(), ..*unapplied_receipt });
                let ended = ending(state, Some(failure(failed)), receipt);
                self.write(row(call, ended.clone(), None)).await.map_err(not_durable)?;
                self.discard(&guard, &staged).await;
                Ok(EndedCall::without_result(ended))
            }
            CommitOutcome::NotApplied(unsuccessful) => {
                let (state, failed) = record::not_committed(unsuccessful, is_manual);
                let ended = ending(state, Some(failure(failed)), unapplied_receipt);
                let row = row(call, ended.clone(), None);
                self.revert(&guard, &staged, row, removes.as_deref()).await.map_err(not_durable)?;
                Ok(EndedCall::without_result(ended))
            }
            CommitOutcome::GrantSpent => Err(spent(&waiting.name)),
            CommitOutcome::NotWritten(error) => Err(not_durable(error)),
        }
    }

    /// Discards a call that waits for approval; it ends as DENIED without effect. Idempotent.
    pub(crate) async fn discard_effect(
        self: &Arc<Self>,
        name: &str,
        why: v1::Failure,
    ) -> Result<Arc<runner_v1::ToolCall>, Status> {
        let discarded = self.discard_found(name, why).await;
        self.unload(name);
        discarded
    }

    async fn discard_found(self: &Arc<Self>, name: &str, why: v1::Failure) -> Result<Arc<runner_v1::ToolCall>, Status> {
        let call = self.find(name).await?;
        loop {
            if matches!(*call.progress.borrow(), Progress::Running) {
                return Err(not_waiting(format!(
                    "{name} does not wait for approval: it is running. Use CancelToolCall to stop it."
                )));
            }
            match call.wait_until_idle().await? {
                Progress::Ended(ended) => return Ok(ended.call),
                Progress::AwaitingApproval(_) | Progress::Running | Progress::Resolving | Progress::Unresolved => {
                    self.end_pending(&call, State::Denied, why.clone()).await?;
                }
            }
        }
    }

    /// Ends a call that waits for approval, without effect. Does nothing if it does not wait.
    pub(super) async fn end_pending(
        self: &Arc<Self>,
        call: &Call,
        state: State,
        why: v1::Failure,
    ) -> Result<(), Status> {
        let Some(waiting) = call.claim_pending(Progress::Resolving) else { return Ok(()) };
        // What waits for the approval of its effect has run.
        let has_run = kind_of(&waiting) == Kind::Effect && waiting.recovery() == v1::RecoveryClass::Manual;
        let (state, why) = match (state, has_run) {
            (State::Cancelled, true) => {
                let (state, failed) = record::not_committed((State::Cancelled, record::cancelled()), true);
                (state, failure(failed))
            }
            (state, _) => (state, why),
        };
        let (calls, claimed) = (Arc::clone(self), call.clone());
        let before = Arc::clone(&waiting);
        self.resolve(
            call.clone(),
            waiting,
            async move { calls.end_without_effect(&claimed, &before, state, why).await },
        )
        .await
        .map(drop)
    }

    async fn end_without_effect(
        self: &Arc<Self>,
        call: &Call,
        waiting: &runner_v1::ToolCall,
        state: State,
        why: v1::Failure,
    ) -> Result<EndedCall, Status> {
        let pending = self.ledger.pending_approval(&waiting.name).await.map_err(not_durable)?;
        let ended = self.ending(waiting, state, Some(why), waiting.receipt.clone().unwrap_or_default());
        self.write(row(call, ended.clone(), None)).await.map_err(not_durable)?;
        if let Some(WorkspaceEffect { workspace, staged }) = pending.and_then(|(_, effect)| effect) {
            // The row no longer protects the staged files: if they cannot be removed now, the next opening of the workspace removes them.
            self.workspaces.release_staged(&staged.id);
            match self.workspaces.open(self.workspaces.known(workspace)).await {
                Ok(guard) => self.discard(&Arc::new(guard), &staged).await,
                Err(unavailable) => {
                    tracing::warn!(%unavailable, "Cannot remove staged files; they stay until the workspace is next opened")
                }
            }
        }
        Ok(EndedCall::without_result(ended))
    }

    /// The subject and file contents of a call that waits for approval.
    pub(crate) async fn effect_of(&self, name: &str) -> Result<PendingApproval, Status> {
        if !self.has(name) {
            return Err(self.unknown(name));
        }
        let pending = self.ledger.pending_approval(name).await.map_err(not_durable)?;
        pending.map(|(pending, _)| pending).ok_or_else(|| not_waiting(format!("{name} does not wait for approval.")))
    }

    /// The stored state of the call and its grant, if the grant is valid.
    async fn check_grant(
        &self,
        waiting: &runner_v1::ToolCall,
        grant: Option<&runner_v1::Grant>,
    ) -> Result<(LoadedApproval, SpentGrant), Status> {
        let mut approval = self.load_approval(waiting).await?;
        let grant = self.verify(waiting, &approval.subject, grant).await?;
        approval.by_person = grant.approver != Grant::POLICY;
        // The gate may sign a new grant under the same nonce until then.
        Ok((approval, SpentGrant { nonce: grant.nonce, expires: grant.expires.saturating_add(Grant::RENEWABLE) }))
    }

    async fn load_approval(&self, call: &runner_v1::ToolCall) -> Result<LoadedApproval, Status> {
        let corrupt = |why: String| Status::from(status::error(Code::DataLoss, reasons::STORE_CORRUPT, why));
        let stored = self.ledger.pending_approval(&call.name).await.map_err(not_durable)?;
        let (pending, effect) = stored
            .ok_or_else(|| corrupt(format!("The pending approval of {} is missing from the ledger.", call.name)))?;
        let subject = Subject::parse(&pending.subject)
            .map_err(|error| corrupt(format!("The pending approval of {} cannot be decoded: {error}.", call.name)))?;
        Ok(LoadedApproval { pending, effect, subject, by_person: false })
    }

    /// Verifies that the grant is valid for this call and unspent.
    async fn verify(
        &self,
        call: &runner_v1::ToolCall,
        subject: &Subject,
        grant: Option<&runner_v1::Grant>,
    ) -> Result<Grant, Status> {
        let refused = |why: String| -> Status {
            let message =
                format!("The grant is not valid for {}: {why}. The call still waits for approval.", call.name);
            status::error(Code::PermissionDenied, reasons::GRANT_REFUSED, message).into()
        };
        let runner_v1::Grant { body, signature, key_id } =
            grant.cloned().ok_or_else(|| refused("the request has no grant".into()))?;
        let need = call.approval_need.as_ref();
        let expected = GrantExpectation {
            call: &call.name,
            subject_digest: need.map_or("", |need| &need.subject_digest),
            policy_revision: subject.policy_revision,
            now: self.clock.now_micros().div_euclid(1_000_000),
        };
        let signed = SignedBytes { body, signature, key_id };
        let grant = Grant::verify(&signed, self.policy.keys(), expected).map_err(|error| match error {
            // A new grant fixes this: the executor requests one from the gate.
            InvalidSeal::Time { .. } => {
                let message = format!(
                    "The grant is not valid for {} now: {error}. The call still waits for approval.",
                    call.name
                );
                status::error(Code::PermissionDenied, reasons::GRANT_REFUSED, message).with("cause", "time").into()
            }
            error => refused(error.to_string()),
        })?;
        if self.ledger.is_spent(&grant.nonce).await.map_err(not_durable)? && !is_planted(Defect::GrantReuse) {
            return Err(spent(&call.name));
        }
        Ok(grant)
    }

    fn ending(
        &self,
        waiting: &runner_v1::ToolCall,
        state: State,
        failed: Option<v1::Failure>,
        receipt: Box<v1::Receipt>,
    ) -> runner_v1::ToolCall {
        let secrets = self.ledger.secrets_of_call(waiting);
        let failed = failed.map(|mut failed| {
            failed.texts(&mut |text| match text {
                Text::Words(words) | Text::Value(words) | Text::Json(words) | Text::Schema(words) => {
                    *words = secrets.text(words);
                }
                Text::Labels(facts) => facts.values_mut().for_each(|fact| *fact = secrets.text(fact)),
            });
            failed
        });
        runner_v1::ToolCall {
            state: state.into(),
            failure: failed,
            end_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            receipt: Some(receipt),
            approval_need: None,
            ..waiting.clone()
        }
    }

    /// Carries out a decision in a task of its own, so that it completes even if the caller disconnects. On an error the call keeps waiting.
    async fn resolve(
        self: &Arc<Self>,
        call: Call,
        waiting: Arc<runner_v1::ToolCall>,
        work: impl Future<Output = Result<EndedCall, Status>> + Send + 'static,
    ) -> Result<EndedCall, Status> {
        let calls = Arc::clone(self);
        let resolving = tokio::spawn(async move {
            let result = AssertUnwindSafe(work)
                .catch_unwind()
                .await
                .unwrap_or_else(|_| Ok(EndedCall::without_result(unknown_outcome(&waiting))));
            let progress = match &result {
                Ok(ended) => Progress::Ended(ended.clone()),
                Err(_) => Progress::AwaitingApproval(waiting),
            };
            call.progress.send_replace(progress);
            let started = Arc::clone(&call.started);
            drop(call);
            calls.unload(&started.name);
            result
        });
        resolving.await.unwrap_or_else(|_| {
            Err(status::error(Code::Unavailable, reasons::RUNNER_STOPPING, "The tool runner is stopping.").into())
        })
    }
}

/// The outcome after a panic. What was written before it is unknown here; the next start finds it out.
fn unknown_outcome(waiting: &runner_v1::ToolCall) -> runner_v1::ToolCall {
    let message = "The tool runner failed while it carried out the decision about the call. This is a bug in Belay.";
    let failed = ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message);
    runner_v1::ToolCall {
        state: State::OutcomeUnknown.into(),
        failure: Some(failure(failed)),
        approval_need: None,
        ..waiting.clone()
    }
}

fn row(call: &Call, ended: runner_v1::ToolCall, spends: Option<SpentGrant>) -> Row {
    Row {
        digest: call.digest.to_string(),
        ended: true,
        call: ended,
        staged: None,
        pending: None,
        spends,
        removes: None,
    }
}

fn kind_of(waiting: &runner_v1::ToolCall) -> Kind {
    waiting.approval_need.as_ref().map_or(Kind::Unspecified, v1::ApprovalNeed::kind)
}

fn not_waiting(message: String) -> Status {
    status::error(Code::FailedPrecondition, reasons::CALL_NOT_HELD, message).into()
}

fn spent(call: &str) -> Status {
    let message = format!("The grant for {call} was already used; each grant is valid once.");
    status::error(Code::PermissionDenied, reasons::GRANT_SPENT, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_panic_nothing_is_waited_for() {
        let waiting = runner_v1::ToolCall {
            name: "the call".into(),
            state: State::AwaitingApproval.into(),
            approval_need: Some(v1::ApprovalNeed::default()),
            ..runner_v1::ToolCall::default()
        };
        let ended = unknown_outcome(&waiting);
        assert_eq!(
            (ended.name.as_str(), ended.state(), ended.approval_need),
            ("the call", State::OutcomeUnknown, None)
        );
        assert_eq!(ended.failure.unwrap().reason, reasons::OUTCOME_UNKNOWN);
    }
}
