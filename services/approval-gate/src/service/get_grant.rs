use belay_grant::{Grant, GrantExpectation, Scope, SignedBytes, Subject};
use belay_proto::{
    gate_v1, runner_v1,
    v1::{Approval, approval::State},
};
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use crate::{
    Gate, decide,
    gate::{no_approval, unreadable, unwritable},
    names::check_approval,
};

/// How long a grant is valid, in seconds. It is also valid for as long before it was signed, so that a runner whose clock is behind accepts it;
/// the signature proves that the decision came first.
const LIFETIME: i64 = 24 * 60 * 60;

/// A grant that expires within this time, in seconds, is renewed, because it has to reach the runner first.
const MARGIN: i64 = 60 * 60;

pub(super) async fn get_grant(gate: &Gate, request: gate_v1::GetGrantRequest) -> Result<runner_v1::Grant, Status> {
    let name = request.approval;
    check_approval("approval", &name)?;
    // Loads the subject and verifies its digest, so that nothing is signed that was changed on disk.
    let approval = gate.store.get_full(&name).await.map_err(|error| unreadable(&error))?;
    let approval = approval.ok_or_else(|| no_approval(&name))?;
    let state = approval.state();
    if !matches!(state, State::Approved | State::Consumed) {
        let message = format!("There is no grant: the approval is {}.", decide::word(state));
        let error = status::error(Code::FailedPrecondition, reasons::NOT_APPROVED, message);
        return Err(error.with("state", state.as_str_name()).into());
    }
    let corrupt = |why: String| {
        let message = format!("The grant of `{name}` cannot be signed: {why}.");
        Status::from(status::error(Code::DataLoss, reasons::STORE_CORRUPT, message))
    };
    let subject = Subject::parse(&approval.subject).map_err(|error| corrupt(error.to_string()))?;
    let decided = approval.decide_time.as_ref().map(belay_proto::micros);
    let decided = decided.ok_or_else(|| corrupt("it does not say when it was approved".into()))?.div_euclid(1_000_000);

    let now = gate.clock.now_micros().div_euclid(1_000_000);
    let verified = |kept: &runner_v1::Grant, now: i64| {
        let runner_v1::Grant { body, signature, key_id } = kept.clone();
        let expected = GrantExpectation {
            call: &approval.call,
            subject_digest: &approval.subject_digest,
            policy_revision: subject.policy_revision,
            now,
        };
        Grant::verify(&SignedBytes { body, signature, key_id }, &gate.keys, expected)
    };
    let signed = |nonce: String| {
        let signed = grant(&approval, &subject, now, nonce).sign(&gate.key);
        runner_v1::Grant { body: signed.body, signature: signed.signature, key_id: signed.key_id }
    };
    let kept = gate.store.grant(&name).await.map_err(|error| unreadable(&error))?;
    let kept = match kept {
        Some(kept) => kept,
        None => gate.store.keep_grant(&name, signed(gate.ids.next_id())).await.map_err(|error| unwritable(&error))?,
    };
    // Verified at a time at which it was valid: this checks for changes on disk, not for expiry.
    let times = Grant::times(&kept.body).map_err(|error| corrupt(error.to_string()))?;
    let first = verified(&kept, times.0).map_err(|error| corrupt(error.to_string()))?;
    let holds = times.0 <= now && now.saturating_add(MARGIN) < times.1;
    if holds || state == State::Consumed || now.saturating_sub(decided) > Grant::RENEWABLE {
        return Ok(kept);
    }
    // The decision is still valid: renew the grant under the same nonce, so that it can still be spent only once.
    gate.store.renew_grant(&name, signed(first.nonce)).await.map_err(|error| unwritable(&error))
}

fn grant(approval: &Approval, subject: &Subject, now: i64, nonce: String) -> Grant {
    Grant {
        v: 1,
        approval: approval.name.clone(),
        subject_digest: approval.subject_digest.clone(),
        call: approval.call.clone(),
        audience: Grant::AUDIENCE.to_owned(),
        approver: approval.decided_by.clone(),
        policy_revision: subject.policy_revision,
        not_before: now.saturating_sub(LIFETIME),
        expires: now.saturating_add(LIFETIME),
        scope: Scope::Once,
        uses: 1,
        nonce,
    }
}
