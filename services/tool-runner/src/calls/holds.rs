//! What is done about a call that waits for a decision: it goes on, on a grant, or it is given up.
//!
//! Whoever asks here may be hostile. A call goes on only on a grant that the gate signed for this very call and subject, that the
//! policy has not overruled since, and that nobody has used; else it stays as it is.

use std::{panic::AssertUnwindSafe, sync::Arc};

use belay_grant::{Expected, Grant, Invalid, Signed, Subject};
use belay_policy::Revised;
use belay_proto::v1::{self, ErrorClass, approval_need::Kind, tool_call::State};
use belay_reasons as reasons;
use belay_service_kit::status;
use futures::FutureExt as _;
use tonic::{Code, Status};

use super::{
    Call, Calls, Order, Progress,
    commit::{Commit, Committed},
    decide::{self, After},
    effect::Judge,
    not_durable,
    record::{self, failure},
    run::Approved,
};
use crate::{
    ToolFailure,
    commit_log::touched,
    ledger::{Held, InPlace, Row, Spent},
    subject::summary,
};

/// What a call waits with, as far as going on needs it.
struct Waiting {
    held: Held,
    place: Option<InPlace>,
    subject: Subject,
    /// Whether a person approved it; the policy may, in an execution that asks nobody.
    by_person: bool,
}

impl Calls {
    /// Goes on with a call that was held back before its work. One that waits for nothing, or for something else, is left as it is.
    pub(super) async fn resume(self: &Arc<Self>, call: Call, order: Order) -> Result<(), Status> {
        let Progress::Held(held) = call.progress.borrow().clone() else { return Ok(()) };
        if kind_of(&held) != Kind::Call {
            return Ok(());
        }
        let policy = self.policy_now()?;
        match self.checked(&held, order.grant.as_ref()).await {
            // Somebody else was faster, and what the ledger said belongs to that.
            Err(_) if !call.is_held() => {}
            Err(refused) => return Err(refused),
            Ok((waiting, spends)) => {
                if let Some(held) = call.take_in_hand(Progress::Running) {
                    let by_person = waiting.by_person;
                    self.spawn_run(call, order, policy, Some(Approved { spends, by_person, held }), None);
                }
            }
        }
        Ok(())
    }

    /// Puts the effect of a call in place that waits for that, on a grant. Answers when the call has ended.
    pub(crate) async fn commit_effect(
        self: &Arc<Self>,
        name: &str,
        grant: Option<v1::Grant>,
    ) -> Result<Arc<v1::ToolCall>, Status> {
        loop {
            let call = self.find(name)?;
            let held = match call.settled().await? {
                Progress::Ended(ended) => return Ok(ended),
                Progress::Running | Progress::Settling | Progress::Unresolved => continue,
                Progress::Held(held) => held,
            };
            if kind_of(&held) != Kind::Effect {
                let message = format!(
                    "{name} has not run: it waits for a decision about the call. Send CallTool with the grant."
                );
                return Err(not_held(message));
            }
            let policy = self.policy_now()?;
            let (waiting, spends) = match self.checked(&held, grant.as_ref()).await {
                // Somebody else was faster, and what the ledger said belongs to that.
                Err(_) if !call.is_held() => continue,
                checked => checked?,
            };
            if call.take_in_hand(Progress::Settling).is_none() {
                continue;
            }
            let (calls, taken) = (Arc::clone(self), call.clone());
            let waited = Arc::clone(&held);
            return settle(
                call,
                held,
                async move { calls.put_in_place(&taken, &waited, waiting, spends, policy).await },
            )
            .await;
        }
    }

    /// How the call has ended; an error leaves it waiting.
    async fn put_in_place(
        self: &Arc<Self>,
        call: &Call,
        held: &v1::ToolCall,
        Waiting { held: waits, place, subject, .. }: Waiting,
        spends: Spent,
        policy: Arc<Revised>,
    ) -> Result<Arc<v1::ToolCall>, Status> {
        let Some(InPlace { workspace, staged }) = place else {
            return Err(status::error(
                Code::DataLoss,
                reasons::STORE_CORRUPT,
                "The call waits with an effect that is not there.",
            )
            .into());
        };
        let visit = match self.rooms.enter(self.rooms.known(workspace)).await {
            Ok(visit) => Arc::new(visit),
            Err(closed) => return Err(closed.into_status()),
        };
        let mut receipt = held.receipt.clone().unwrap_or_default();
        receipt.grant_nonce.clone_from(&spends.nonce);
        let ending = |state, failed, receipt| self.ending(held, state, failed, receipt);

        // The policy that holds now may be another than the one that asked.
        let kind = self.registry.find(&held.tool).map_or(belay_policy::ToolKind::Other, |tool| tool.spec.kind);
        let judge = Judge { policy: Arc::clone(&policy), tool: held.tool.clone(), kind, basis: waits.basis };
        let decision = judge.judge(&waits.changes);
        if decide::after(decision.verdict, true) == After::Refuse {
            receipt.grant_nonce.clear();
            receipt.decision = Some(record::decision(&decision, policy.revision));
            let ended = ending(State::Denied, Some(failure(record::denied(&decision))), receipt);
            self.write(row(call, ended.clone(), None)).await.map_err(not_durable)?;
            self.discard(&visit, &staged).await;
            return Ok(Arc::new(ended));
        }

        let not_in_place = receipt.clone();
        receipt.effect_digest = subject.effect_digest;
        receipt.effect = Some(summary(&waits.changes));
        let mut completed = ending(State::Completed, None, receipt);
        completed.result = waits.result.map(record::payload);
        let commit_row = row(call, completed.clone(), Some(spends.clone()));
        let mut cancelled = call.cancel.subscribe();
        let commit = Commit { staged: &staged, touched: touched(&waits.changes), call, running: None };
        match self.commit(&visit, commit, commit_row, &mut cancelled).await {
            Committed::Done => Ok(Arc::new(completed)),
            Committed::Refused((state, failed)) => {
                let receipt = v1::Receipt { grant_nonce: String::new(), ..not_in_place };
                let ended = ending(state, Some(failure(failed)), receipt);
                self.write(row(call, ended.clone(), None)).await.map_err(not_durable)?;
                self.discard(&visit, &staged).await;
                Ok(Arc::new(ended))
            }
            Committed::Undone((state, failed)) => {
                let ended = ending(state, Some(failure(failed)), not_in_place);
                self.take_back(&visit, &staged, row(call, ended.clone(), None)).await.map_err(not_durable)?;
                Ok(Arc::new(ended))
            }
            Committed::GrantSpent => Err(spent(&held.name)),
            Committed::NotWritten(error) => Err(not_durable(error)),
        }
    }

    /// Gives up a call that waits: nothing of it stays, and it ends as DENIED. Doing it twice does it once.
    pub(crate) async fn discard_effect(
        self: &Arc<Self>,
        name: &str,
        why: v1::Failure,
    ) -> Result<Arc<v1::ToolCall>, Status> {
        let call = self.find(name)?;
        loop {
            if matches!(*call.progress.borrow(), Progress::Running) {
                return Err(not_held(format!("{name} waits for no decision. CancelToolCall stops a call that runs.")));
            }
            match call.settled().await? {
                Progress::Ended(ended) => return Ok(ended),
                Progress::Held(_) | Progress::Running | Progress::Settling | Progress::Unresolved => {
                    self.give_up(&call, State::Denied, why.clone()).await?;
                }
            }
        }
    }

    /// Ends a call that waits without its having any effect; nothing happens if it does not wait.
    pub(super) async fn give_up(self: &Arc<Self>, call: &Call, state: State, why: v1::Failure) -> Result<(), Status> {
        let Some(held) = call.take_in_hand(Progress::Settling) else { return Ok(()) };
        let (calls, taken) = (Arc::clone(self), call.clone());
        let waited = Arc::clone(&held);
        settle(call.clone(), held, async move { calls.end_without_effect(&taken, &waited, state, why).await })
            .await
            .map(drop)
    }

    async fn end_without_effect(
        self: &Arc<Self>,
        call: &Call,
        held: &v1::ToolCall,
        state: State,
        why: v1::Failure,
    ) -> Result<Arc<v1::ToolCall>, Status> {
        let place = self.ledger.held(&held.name).await.map_err(not_durable)?.and_then(|(_, place)| place);
        let ended = self.ending(held, state, Some(why), held.receipt.clone().unwrap_or_default());
        self.write(row(call, ended.clone(), None)).await.map_err(not_durable)?;
        if let Some(InPlace { workspace, staged }) = place {
            // The row has gone, so whoever opens the workspace next removes the files if they cannot be removed now.
            self.rooms.forget(&staged.id);
            match self.rooms.enter(self.rooms.known(workspace)).await {
                Ok(visit) => self.discard(&Arc::new(visit), &staged).await,
                Err(closed) => tracing::warn!(%closed, "What was staged stays until the workspace is opened again"),
            }
        }
        Ok(Arc::new(ended))
    }

    /// What a call waits with: the bytes of its subject, and what can be shown of the files.
    pub(crate) async fn effect_of(&self, name: &str) -> Result<Held, Status> {
        let call = self.find(name)?;
        let held = self.ledger.held(&call.started.name).await.map_err(not_durable)?;
        held.map(|(held, _)| held).ok_or_else(|| not_held(format!("{name} waits for no decision.")))
    }

    /// What a call waits with, and the grant, if it is good for that.
    async fn checked(&self, held: &v1::ToolCall, grant: Option<&v1::Grant>) -> Result<(Waiting, Spent), Status> {
        let mut waiting = self.waiting(held).await?;
        let grant = self.verify(held, &waiting.subject, grant).await?;
        waiting.by_person = grant.approver != Grant::POLICY;
        // A grant may be signed anew under the same nonce for so long.
        Ok((waiting, Spent { nonce: grant.nonce, expires: grant.expires.saturating_add(Grant::RENEWABLE) }))
    }

    async fn waiting(&self, call: &v1::ToolCall) -> Result<Waiting, Status> {
        let corrupt = |why: String| Status::from(status::error(Code::DataLoss, reasons::STORE_CORRUPT, why));
        let held = self.ledger.held(&call.name).await.map_err(not_durable)?;
        let (held, place) =
            held.ok_or_else(|| corrupt(format!("What {} waits with is not in the ledger.", call.name)))?;
        let subject = Subject::parse(&held.subject)
            .map_err(|error| corrupt(format!("What {} waits with cannot be read: {error}.", call.name)))?;
        Ok(Waiting { held, place, subject, by_person: false })
    }

    /// The grant, if it is good for what the call waits with, and unspent.
    async fn verify(&self, call: &v1::ToolCall, subject: &Subject, grant: Option<&v1::Grant>) -> Result<Grant, Status> {
        let refused = |why: String| -> Status {
            let message = format!("The grant is not good for {}: {why}. The call still waits.", call.name);
            status::error(Code::PermissionDenied, reasons::GRANT_REFUSED, message).into()
        };
        let v1::Grant { body, signature, key_id } = grant.cloned().ok_or_else(|| refused("there is none".into()))?;
        let need = call.approval_need.as_ref();
        let expected = Expected {
            call: &call.name,
            subject_digest: need.map_or("", |need| &need.subject_digest),
            policy_revision: subject.policy_revision,
            now: self.clock.now_micros().div_euclid(1_000_000),
        };
        let signed = Signed { body, signature, key_id };
        let grant = Grant::verify(&signed, self.policy.keys(), expected).map_err(|error| match error {
            // A new grant mends it: the executor asks the gate for one.
            Invalid::Time { .. } => {
                let message = format!("The grant is not good for {} now: {error}. The call still waits.", call.name);
                status::error(Code::PermissionDenied, reasons::GRANT_REFUSED, message).with("cause", "time").into()
            }
            error => refused(error.to_string()),
        })?;
        if self.ledger.is_spent(&grant.nonce).await.map_err(not_durable)? {
            return Err(spent(&call.name));
        }
        Ok(grant)
    }

    fn ending(
        &self,
        held: &v1::ToolCall,
        state: State,
        failed: Option<v1::Failure>,
        receipt: v1::Receipt,
    ) -> v1::ToolCall {
        let secrets = self.ledger.secrets_of(&held.tool, &record::json_of(held.arguments.as_ref()));
        let failed = failed.map(|failed| v1::Failure { message: secrets.words(&failed.message), ..failed });
        v1::ToolCall {
            state: state.into(),
            failure: failed,
            end_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            receipt: Some(receipt),
            approval_need: None,
            ..held.clone()
        }
    }
}

/// Does what was decided about a call that waited, in a task of its own: a caller that leaves does not leave it half done. An error leaves
/// the call waiting.
async fn settle(
    call: Call,
    held: Arc<v1::ToolCall>,
    work: impl Future<Output = Result<Arc<v1::ToolCall>, Status>> + Send + 'static,
) -> Result<Arc<v1::ToolCall>, Status> {
    let settling = tokio::spawn(async move {
        let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| Ok(Arc::new(broke_off(&held))));
        let progress = match &result {
            Ok(ended) => Progress::Ended(Arc::clone(ended)),
            Err(_) => Progress::Held(held),
        };
        call.progress.send_replace(progress);
        result
    });
    settling.await.unwrap_or_else(|_| {
        Err(status::error(Code::Unavailable, reasons::RUNNER_STOPPING, "The tool runner is stopping.").into())
    })
}

/// After a fault in the runner itself. What was written by then is not known here; the next start will find it out.
fn broke_off(held: &v1::ToolCall) -> v1::ToolCall {
    let message = "The tool runner broke off what was decided about the call: a fault in Belay.";
    let failed = ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message);
    v1::ToolCall {
        state: State::OutcomeUnknown.into(),
        failure: Some(failure(failed)),
        approval_need: None,
        ..held.clone()
    }
}

fn row(call: &Call, ended: v1::ToolCall, spends: Option<Spent>) -> Row {
    Row { digest: call.digest.to_string(), ended: true, call: ended, staged: None, held: None, spends }
}

fn kind_of(held: &v1::ToolCall) -> Kind {
    held.approval_need.as_ref().map_or(Kind::Unspecified, v1::ApprovalNeed::kind)
}

fn not_held(message: String) -> Status {
    status::error(Code::FailedPrecondition, reasons::CALL_NOT_HELD, message).into()
}

fn spent(call: &str) -> Status {
    let message = format!("The grant for {call} has been used: each one is good once.");
    status::error(Code::PermissionDenied, reasons::GRANT_SPENT, message).into()
}
