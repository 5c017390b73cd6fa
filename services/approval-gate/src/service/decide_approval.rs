use belay_proto::v1::{self, Approval, Decision};
use belay_service_kit::{Principal, status};
use tonic::Status;

use crate::{
    Gate,
    decide::{Choice, MAX_REASON_CHARS, decide},
    gate::{no_approval, unwritable},
    names::check_approval,
    preview::{hide, text::visible_line},
};

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
    let mut reason = request.reason.lines().map(visible_line).collect::<Vec<_>>().join("\n");
    hide(&gate.redactor, &mut reason);
    let by = by.to_string();
    let separate_duties = gate.policy().revised.policy.separate_duties();
    let now = gate.clock.now_micros();
    let digest = request.subject_digest;
    let decided = gate.store.change(&request.name, now, move |approval| {
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
