use belay_grant::{Expected, Grant, Scope, Signed, Subject};
use belay_proto::v1::{self, Approval, approval::State};
use belay_service_kit::status;
use tonic::{Code, Status};

use crate::{
    Gate, decide,
    gate::{no_approval, unreadable, unwritable},
    names::check_approval,
};

/// How long a grant is good from the decision on, in seconds.
const LIFETIME: i64 = 24 * 60 * 60;

pub(super) async fn get_grant(gate: &Gate, request: v1::GetGrantRequest) -> Result<v1::Grant, Status> {
    let name = request.approval;
    check_approval("approval", &name)?;
    // With its subject, which is digested again: nothing is signed that was changed on the disk.
    let approval = gate.store.get_full(&name).await.map_err(|error| unreadable(&error))?;
    let approval = approval.ok_or_else(|| no_approval(&name))?;
    let state = approval.state();
    if !matches!(state, State::Approved | State::Consumed) {
        let message = format!("There is no grant: the approval is {}.", decide::word(state));
        let error = status::error(Code::FailedPrecondition, "NOT_APPROVED", message);
        return Err(error.with("state", state.as_str_name()).into());
    }
    let corrupt = |why: String| {
        let message = format!("The grant of `{name}` cannot be given: {why}.");
        Status::from(status::error(Code::DataLoss, "STORE_CORRUPT", message))
    };
    let subject = Subject::parse(&approval.subject).map_err(|error| corrupt(error.to_string()))?;
    let decided = approval.decide_time.as_ref().map(belay_proto::micros);
    let decided = decided.ok_or_else(|| corrupt("it does not say when it was approved".into()))?.div_euclid(1_000_000);

    let signed = grant(&approval, &subject, decided, gate.ids.next_id()).sign(&gate.key);
    let signed = v1::Grant { body: signed.body, signature: signed.signature, key_id: signed.key_id };
    let kept = gate.store.keep_grant(&name, signed).await.map_err(|error| unwritable(&error))?;
    let expected = Expected {
        call: &approval.call,
        subject_digest: &approval.subject_digest,
        policy_revision: subject.policy_revision,
        now: decided,
    };
    let stored = Signed { body: kept.body.clone(), signature: kept.signature.clone(), key_id: kept.key_id.clone() };
    Grant::verify(&stored, &gate.keys, expected).map_err(|error| corrupt(error.to_string()))?;
    Ok(kept)
}

fn grant(approval: &Approval, subject: &Subject, decided: i64, nonce: String) -> Grant {
    Grant {
        v: 1,
        approval: approval.name.clone(),
        subject_digest: approval.subject_digest.clone(),
        call: approval.call.clone(),
        audience: Grant::AUDIENCE.to_owned(),
        approver: approval.decided_by.clone(),
        policy_revision: subject.policy_revision,
        not_before: decided,
        expires: decided.saturating_add(LIFETIME),
        scope: Scope::Once,
        uses: 1,
        nonce,
    }
}
