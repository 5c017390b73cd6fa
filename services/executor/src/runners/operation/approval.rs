//! Calls that wait for approval: the requests to the gate, grants, and what becomes of a call whose approval is decided or lost.

use belay_execution::{ApprovalRequirement, ErrorClass, Failure, Receipt, ToolCallEnd};
use belay_proto::gate_v1;
use belay_reasons as reasons;

use super::{Busy, DriverGone, ToolCallOperation, Update, grant_reply::GrantReply};
use crate::{
    approvals::gate::{self, GateError},
    runners::call_reply::{CallReply, acknowledged_end},
    wire,
};

impl ToolCallOperation {
    pub(super) async fn request_approval(&mut self) -> Result<Update, DriverGone> {
        let subject_digest = self
            .pending_approval
            .as_ref()
            .map(|pending| pending.requirement.subject_digest.clone())
            .unwrap_or_default();
        loop {
            let request = gate_v1::CreateApprovalRequest {
                call: self.name.clone(),
                subject_digest: subject_digest.clone(),
                requested_by: self.principal.clone(),
                approval_mode: wire::approval_mode_to(self.mode).into(),
                form: Vec::new(),
                request_reason: self.request_reason.clone(),
                fencing_token: self.fence.token,
            };
            match self.registry.gate.create(request, &self.trace).await {
                Ok(approval) => return Ok(Update::ApprovalRequested(self.key, Box::new(approval))),
                Err(GateError::Unavailable(status)) => self.gate_unavailable(&status).await?,
                Err(GateError::Busy(status)) => self.busy(Busy::Gate, &status).await?,
                Err(GateError::Refused(status)) if gate::is_fenced(&status) => return Ok(Update::Fenced),
                // The gate reports that the runner holds a different subject; the runner is authoritative.
                Err(GateError::Refused(status)) => match self.call_again().await? {
                    CallReply::Ended(end) => return Ok(self.ended(end)),
                    CallReply::Held(requirement) if !self.is_held_for(&requirement) => {
                        return Ok(Update::Held(self.key, requirement));
                    }
                    CallReply::Fenced => return Ok(Update::Fenced),
                    CallReply::LedgerChanged | CallReply::NotFound => {
                        return Ok(self.ended(self.lost_pending_call()));
                    }
                    CallReply::Acknowledged(_) => return Ok(self.ended(acknowledged_end())),
                    CallReply::Unavailable(status) | CallReply::Busy(status) => {
                        self.runner_unavailable(&status).await?
                    }
                    CallReply::Held(_) if gate::refuses_for_good(&status) => {
                        let why =
                            format!("The approval gate cannot ask a person about this call: {}", status.message());
                        return self
                            .fail_discarded(reasons::APPROVAL_REFUSED, self.registry.reading.sealer.shown(why))
                            .await;
                    }
                    CallReply::Held(_) | CallReply::GrantRefused(_) | CallReply::GrantNotValidNow(_) => {
                        self.gate_unavailable(&status).await?
                    }
                },
            }
        }
    }

    pub(super) async fn commit(&mut self) -> Result<Update, DriverGone> {
        let approval = self.approval().unwrap_or_default();
        let mut grant = match self.grant(approval).await? {
            GrantReply::Granted(grant) => grant,
            GrantReply::DecisionLost if self.maybe_sent => return Box::pin(self.send(None, None)).await,
            GrantReply::DecisionLost => return Ok(self.request_again()),
            GrantReply::Refused(why) => return self.fail_unusable_approval(why).await,
        };
        loop {
            let runner = &self.registry.runner;
            let reply = runner.commit(self.name.clone(), self.fence, grant.clone(), &self.trace).await;
            match self.copied(reply).await? {
                CallReply::Ended(end) => return Ok(self.ended(end)),
                CallReply::Held(requirement) if self.is_held_for(&requirement) => {
                    return self
                        .fail_unusable_approval(
                            "the runner requires approval again for the approved subject".to_owned(),
                        )
                        .await;
                }
                CallReply::Held(requirement) => return Ok(Update::Held(self.key, requirement)),
                CallReply::Fenced => return Ok(Update::Fenced),
                CallReply::GrantRefused(why) => return self.fail_unusable_approval(why).await,
                CallReply::GrantNotValidNow(status) => match self.renew_grant(&status).await? {
                    GrantReply::Granted(another) => grant = another,
                    GrantReply::DecisionLost => return Ok(self.request_again()),
                    GrantReply::Refused(why) => return self.fail_unusable_approval(why).await,
                },
                CallReply::LedgerChanged | CallReply::NotFound if self.maybe_sent => {
                    let message = "The runner that held the call keeps another ledger now; whether its effect was put in \
                                   place before cannot be known.";
                    let failure = Failure::new(ErrorClass::OutcomeUnknown, reasons::LEDGER_CHANGED, message);
                    let grant_nonce = String::new();
                    return Ok(self.ended(ToolCallEnd::OutcomeUnknown { failure, grant_nonce, network: None }));
                }
                CallReply::LedgerChanged | CallReply::NotFound => return Ok(self.ended(self.lost_pending_call())),
                CallReply::Acknowledged(_) => return Ok(self.ended(acknowledged_end())),
                CallReply::Unavailable(status) | CallReply::Busy(status) => self.runner_unavailable(&status).await?,
            }
        }
    }

    pub(super) async fn discard(&mut self) -> Result<Update, DriverGone> {
        let Some(failure) = self.pending_approval.as_ref().and_then(|pending| pending.denial(self.mode)) else {
            unreachable!("only denied and cancelled calls are discarded")
        };
        let end = self.discard_call(&failure).await?;
        Ok(end.map_or(Update::Fenced, |end| self.ended(end)))
    }

    /// The runner rejects the grant, or there is none: the call is discarded, and fails as an internal error.
    pub(super) async fn fail_unusable_approval(&mut self, why: String) -> Result<Update, DriverGone> {
        self.fail_discarded(reasons::GRANT_REFUSED, format!("The approval of this call could not be used: {why}."))
            .await
    }

    /// Discards the call, which fails for this reason.
    pub(super) async fn fail_discarded(&mut self, reason: &str, message: String) -> Result<Update, DriverGone> {
        let failure = Failure::new(ErrorClass::Internal, reason, message);
        let Some(end) = self.discard_call(&failure).await? else { return Ok(Update::Fenced) };
        Ok(self.ended(match end {
            ToolCallEnd::Denied { receipt, .. } => ToolCallEnd::Failed { failure, receipt },
            ToolCallEnd::Completed { .. }
            | ToolCallEnd::Failed { .. }
            | ToolCallEnd::Cancelled { .. }
            | ToolCallEnd::OutcomeUnknown { .. } => end,
        }))
    }

    /// Discards a held call and returns its end; `None` when another executor owns the shard. A call that the runner no longer knows or has
    /// cancelled counts as discarded.
    pub(super) async fn discard_call(&mut self, failure: &Failure) -> Result<Option<ToolCallEnd>, DriverGone> {
        let denied = || ToolCallEnd::Denied { failure: failure.clone(), receipt: Box::new(Receipt::default()) };
        loop {
            let runner = &self.registry.runner;
            let reply = runner.discard(self.name.clone(), self.fence, failure, &self.trace).await;
            match self.copied(reply).await? {
                CallReply::Ended(ToolCallEnd::Cancelled { .. }) | CallReply::LedgerChanged | CallReply::NotFound => {
                    return Ok(Some(denied()));
                }
                CallReply::Ended(end) => return Ok(Some(end)),
                CallReply::Acknowledged(_) => return Ok(Some(acknowledged_end())),
                CallReply::Fenced => return Ok(None),
                CallReply::Unavailable(status) | CallReply::Busy(status) => self.runner_unavailable(&status).await?,
                CallReply::Held(_) | CallReply::GrantRefused(_) | CallReply::GrantNotValidNow(_) => {
                    self.runner_unavailable(&tonic::Status::internal("the runner does not discard the call")).await?;
                }
            }
        }
    }

    /// Fetches the grant of the approval.
    pub(super) async fn grant(&mut self, approval: String) -> Result<GrantReply, DriverGone> {
        loop {
            match self.registry.gate.grant(approval.clone()).await {
                Ok(grant) => return Ok(GrantReply::Granted(grant)),
                Err(GateError::Refused(status)) if gate::has_lost_decision(&status) => {
                    return Ok(GrantReply::DecisionLost);
                }
                Err(GateError::Refused(status)) => {
                    return Ok(GrantReply::Refused(status.message().trim_end_matches('.').to_owned()));
                }
                Err(GateError::Unavailable(status) | GateError::Busy(status)) => self.gate_unavailable(&status).await?,
            }
        }
    }

    /// Fetches another grant when the runner's clock rejects the last: the gate signs a new one when the old has expired. When the clocks
    /// differ too much for that, the call waits, so that the approval is not lost because of a clock.
    pub(super) async fn renew_grant(&mut self, status: &tonic::Status) -> Result<GrantReply, DriverGone> {
        self.log(status, "The grant is not valid by the runner's clock; requesting another one");
        self.wait(Update::ClocksDiffer).await?;
        let approval = self.approval().unwrap_or_default();
        self.grant(approval).await
    }

    /// Reports the call as held again: the gate does not know its decision.
    pub(super) fn request_again(&self) -> Update {
        let requirement = self
            .pending_approval
            .as_ref()
            .map(|pending| pending.requirement.clone())
            .expect("only a held call has an approval");
        Update::Held(self.key, requirement)
    }

    pub(super) fn approval(&self) -> Option<String> {
        self.pending_approval.as_ref()?.approval.clone()
    }

    pub(super) fn is_held_for(&self, requirement: &ApprovalRequirement) -> bool {
        let known = self
            .pending_approval
            .as_ref()
            .map(|pending| (pending.requirement.kind, pending.requirement.subject_digest.as_str()));
        known == Some((requirement.kind, requirement.subject_digest.as_str()))
    }

    /// The end of a call that was held and that the runner has lost: nothing of it is left, and it can run again.
    pub(super) fn lost_pending_call(&self) -> ToolCallEnd {
        let message = "The runner that held the call has a different ledger now; nothing of the call is left.";
        let failure = Some(Failure::new(ErrorClass::Transient, reasons::LEDGER_CHANGED, message));
        ToolCallEnd::Cancelled { failure, grant_nonce: String::new() }
    }
}
