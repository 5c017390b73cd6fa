//! How an approval was used. Derived from events alone, so that an executor that takes over can report what its predecessor did not.

use belay_execution::{Body, Decision, Event, OperationEnd, OperationEvent, OperationId, SubjectKind};
use belay_journal::ExecutionKey;
use belay_proto::v1;
use tonic::Code;

use crate::{
    owned::{messages::GateNotice, registry::ExecutionRegistry},
    store::journal_reads::StoredEvents,
};

/// The notice that follows from `next`, the first event about a call since its approval; `None` while the call continues with it.
pub(crate) fn notice_after(approval: &str, approved: SubjectKind, next: &OperationEvent) -> Option<GateNotice> {
    let spent = match next {
        OperationEvent::Held(requirement) => approved == SubjectKind::Call && requirement.kind == SubjectKind::Effect,
        OperationEvent::Ended(OperationEnd::ToolCall(end)) => !end.grant_nonce().is_empty(),
        OperationEvent::Requested(_)
        | OperationEvent::Asked { .. }
        | OperationEvent::Decided { .. }
        | OperationEvent::Dispatched
        | OperationEvent::Reported(_)
        | OperationEvent::Ended(_) => return None,
    };
    Some(if spent { GateNotice::Consumed(approval.to_owned()) } else { GateNotice::Stale(approval.to_owned()) })
}

/// The event, if it is about this operation.
fn about<'a>(event: &'a Event, about: &OperationId) -> Option<&'a OperationEvent> {
    match &event.body {
        Body::Operation { id, event } if id == about => Some(event),
        Body::Operation { .. } | Body::Execution(_) | Body::Step { .. } => None,
    }
}

/// The decision of this approval, and the operation that waited for it.
fn decision_of<'a>(event: &'a Event, name: &str) -> Option<(&'a OperationId, Decision)> {
    match &event.body {
        Body::Operation { id: operation, event: OperationEvent::Decided { approval, decision, .. } }
            if approval == name =>
        {
            Some((operation, *decision))
        }
        Body::Operation { .. } | Body::Execution(_) | Body::Step { .. } => None,
    }
}

/// The notices about a decision that no call waits for, given all events of its execution.
fn notices_from(events: &[Event], approval: &v1::Approval) -> Vec<GateNotice> {
    if approval.kind() == v1::approval_need::Kind::Form {
        // Its step has the answer, or no longer waits for it: either way no step needs it again.
        return vec![GateNotice::Delivered(approval.name.clone())];
    }
    // The last: a gate that has lost its store is asked again under the same name.
    let mut decided = events.iter().enumerate().rev();
    let decided = decided.find_map(|(place, event)| Some((place, decision_of(event, &approval.name)?)));
    let Some((place, (call, decision))) = decided else { return GateNotice::dropped(approval) };
    if decision != Decision::Approved {
        // The gate may have been asked again, and answered differently, after it had lost its store.
        return GateNotice::dropped(approval);
    }
    let kind = events[..place].iter().rev().find_map(|event| match about(event, call)? {
        OperationEvent::Held(requirement) => Some(requirement.kind),
        OperationEvent::Requested(_)
        | OperationEvent::Asked { .. }
        | OperationEvent::Decided { .. }
        | OperationEvent::Dispatched
        | OperationEvent::Reported(_)
        | OperationEvent::Ended(_) => None,
    });
    let mut since = events[place + 1..].iter().filter_map(|event| about(event, call));
    since.find_map(|event| notice_after(&approval.name, kind?, event)).into_iter().collect()
}

/// Reports to the gate how a decision that no call waits for was used. Returns `false` when the store cannot be read now; damaged events are
/// not read again before the next start.
pub(crate) async fn report_late_decision(
    registry: &ExecutionRegistry,
    key: ExecutionKey,
    approval: &v1::Approval,
) -> bool {
    match registry.reads.events(key).await {
        Ok(StoredEvents { events, .. }) => {
            let notices = notices_from(&events, approval);
            tracing::debug!(approval = approval.name, ?notices, "No call waits for this decision");
            notices.into_iter().for_each(|notice| registry.notify_gate(notice));
            true
        }
        Err(status) => {
            tracing::error!(approval = approval.name, %status, "The use of an approval cannot be read");
            status.code() != Code::Unavailable
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_execution::{
        ApprovalRequirement, EffectSummary, ErrorClass, Failure, PolicyDecision, Receipt, Timestamp, ToolCallEnd,
        Verdict,
    };
    use belay_proto::v1::approval::State;

    use super::*;

    fn about_call(event: OperationEvent) -> Body {
        Body::Operation { id: OperationId { step: "a".into(), attempt: 1, number: 1 }, event }
    }

    fn held(kind: SubjectKind) -> Body {
        let decision =
            PolicyDecision { verdict: Verdict::Prompt, rule: String::new(), reason: String::new(), policy_revision: 1 };
        let effect = EffectSummary { created: 0, modified: 0, deleted: 0, changes: vec![] };
        let requirement = ApprovalRequirement {
            kind,
            subject_digest: "sha256:x".into(),
            decision,
            effect,
            allowing_rules: Vec::new(),
            risk: belay_execution::Risk::Medium,
        };
        about_call(OperationEvent::Held(Box::new(requirement)))
    }

    fn decided(approval: &str, decision: Decision) -> Body {
        let event = OperationEvent::Decided { approval: approval.into(), decision, reason: String::new() };
        Body::Operation { id: OperationId { step: "a".into(), attempt: 1, number: 1 }, event }
    }

    fn cancelled(grant_nonce: &str) -> Body {
        let end = ToolCallEnd::Cancelled { failure: None, grant_nonce: grant_nonce.into() };
        about_call(OperationEvent::Ended(OperationEnd::ToolCall(end)))
    }

    fn failed(grant_nonce: &str) -> Body {
        let receipt = Receipt { grant_nonce: grant_nonce.into(), duration: Duration::ZERO, ..Receipt::default() };
        let end =
            ToolCallEnd::Failed { failure: Failure::new(ErrorClass::Fatal, "X", "x"), receipt: Box::new(receipt) };
        about_call(OperationEvent::Ended(OperationEnd::ToolCall(end)))
    }

    fn notices(state: State, bodies: Vec<Body>) -> Vec<GateNotice> {
        let event = |(sequence, body)| Event { sequence, time: Timestamp::from_micros(0), actor: None, body };
        let events: Vec<_> = (2..).zip(bodies).map(event).collect();
        notices_from(&events, &v1::Approval { name: "a".into(), state: state.into(), ..v1::Approval::default() })
    }

    #[test]
    fn the_use_of_an_approval_follows_from_the_events() {
        let approved = || decided("a", Decision::Approved);
        let (before, after) = (|| held(SubjectKind::Call), || held(SubjectKind::Effect));
        let (spent, unused) = (|| vec![GateNotice::Consumed("a".into())], || vec![GateNotice::Stale("a".into())]);
        for (events, expected) in [
            (vec![after(), approved(), failed("n")], spent()),
            (vec![after(), approved(), failed("")], unused()),
            (vec![before(), approved(), cancelled("n")], spent()),
            (vec![before(), approved(), cancelled("")], unused()),
            (vec![before(), approved(), about_call(OperationEvent::Dispatched), cancelled("n")], spent()),
            // It ran, and now needs approval for what it changed; or its subject has changed.
            (vec![before(), approved(), after(), decided("b", Decision::Denied), cancelled("")], spent()),
            (vec![before(), approved(), before(), cancelled("n")], unused()),
            (vec![after(), approved(), after(), decided("b", Decision::Approved), failed("n")], unused()),
            // The call continues.
            (vec![after(), approved()], vec![]),
            // The gate has lost its store, and was asked again for the same.
            (vec![after(), approved(), after(), approved(), failed("n")], spent()),
            // It was asked again, and answered when nothing waited for it any more.
            (
                vec![after(), decided("a", Decision::Skipped), cancelled("")],
                vec![GateNotice::Delivered("a".into()), GateNotice::Stale("a".into())],
            ),
            // The decision came too late.
            (vec![after(), cancelled("")], vec![GateNotice::Delivered("a".into()), GateNotice::Stale("a".into())]),
        ] {
            assert_eq!(notices(State::Approved, events.clone()), expected, "{events:?}");
        }
    }

    #[test]
    fn a_denial_is_only_acknowledged() {
        for (state, decision) in [(State::Denied, Decision::Denied), (State::Expired, Decision::Expired)] {
            let events = vec![held(SubjectKind::Effect), decided("a", decision), failed("")];
            assert_eq!(notices(state, events), [GateNotice::Delivered("a".into())]);
            assert_eq!(
                notices(state, vec![held(SubjectKind::Effect), cancelled("")]),
                [GateNotice::Delivered("a".into())]
            );
        }
    }
}
