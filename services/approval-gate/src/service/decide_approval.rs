use belay_grant::digest_of;
use belay_proto::v1::{self, Approval, Decision};
use belay_service_kit::{Principal, status};
use prost::Message as _;
use tonic::Status;

use crate::{
    Gate,
    decide::{Choice, MAX_REASON_CHARS, decide},
    gate::{no_approval, unwritable},
    names::{check_approval, namespace_of},
    preview::hide,
    store::RequestId,
};

/// The maximum length of a request id, in characters.
pub(super) const MAX_REQUEST_ID_CHARS: usize = 128;

pub(super) async fn decide_approval(
    gate: &Gate,
    by: Principal,
    request: v1::DecideApprovalRequest,
) -> Result<Approval, Status> {
    check_approval("name", &request.name)?;
    let decision = match request.decision() {
        Decision::Unspecified | Decision::Expire => {
            return Err(status::invalid("decision", "must be DECISION_APPROVE, DECISION_DENY or DECISION_SKIP").into());
        }
        decision => decision,
    };
    if request.reason.chars().count() > MAX_REASON_CHARS {
        return Err(status::invalid("reason", format!("has more than {MAX_REASON_CHARS} characters")).into());
    }
    if request.request_id.chars().count() > MAX_REQUEST_ID_CHARS {
        return Err(status::invalid("request_id", format!("has more than {MAX_REQUEST_ID_CHARS} characters")).into());
    }
    let request_id = request_id(&by, &request);
    let mut reason = request.reason.lines().map(belay_text::visible_line).collect::<Vec<_>>().join("\n");
    hide(&gate.redactor, &mut reason);
    let by = by.to_string();
    let separate_duties = gate.policy().revised.policies.of(namespace_of(&request.name)).separate_duties();
    let now = gate.clock.now_micros();
    let digest = request.subject_digest;
    let decided = gate.store.change(&request.name, now, request_id, move |approval| {
        let choice = Choice { by: &by, subject_digest: &digest, decision, reason: &reason };
        decide(approval, choice, separate_duties, now)
    });
    let approval = decided.await.map_err(|error| unwritable(&error))??.ok_or_else(|| no_approval(&request.name))?;
    tracing::info!(
        approval = approval.name,
        state = approval.state().as_str_name(),
        by = approval.decided_by,
        "An approval was decided"
    );
    Ok(approval)
}

/// The request's id within its caller's, and the digest of the request; `None` without an id.
fn request_id(by: &Principal, request: &v1::DecideApprovalRequest) -> Option<RequestId> {
    let digest = || digest_of(&request.encode_to_vec());
    (!request.request_id.is_empty()).then(|| RequestId { id: format!("{by} {}", request.request_id), digest: digest() })
}
