//! How an approval was used. Derived from events alone, so that an executor that takes over can report what its predecessor did not.

use belay_execution::{Decision, Event, EventKind, SubjectKind};
use belay_proto::v1;

use super::GateNotice;

/// The notice that follows from `next`, the first event about a call since its approval; `None` while the call continues with it.
pub(crate) fn notice_after(approval: &str, approved: SubjectKind, next: &EventKind) -> Option<GateNotice> {
    let spent = match next {
        EventKind::CallHeld { requirement, .. } => {
            approved == SubjectKind::Call && requirement.kind == SubjectKind::Effect
        }
        end if end.ends_call() => !end.grant_nonce().is_empty(),
        _ => return None,
    };
    Some(if spent { GateNotice::Consumed(approval.to_owned()) } else { GateNotice::Stale(approval.to_owned()) })
}

/// The notices about a decision that no call waits for, given all events of its execution.
pub(crate) fn notices_from(events: &[Event], approval: &v1::Approval) -> Vec<GateNotice> {
    let decided = events.iter().position(
        |event| matches!(&event.kind, EventKind::ApprovalDecided { approval: name, .. } if *name == approval.name),
    );
    let Some((before, [decided, after @ ..])) = decided.map(|decided| events.split_at(decided)) else {
        return GateNotice::dropped(approval);
    };
    if !matches!(decided.kind, EventKind::ApprovalDecided { decision: Decision::Approved, .. }) {
        return vec![GateNotice::Delivered(approval.name.clone())];
    }
    let call = decided.kind.call();
    let kind = before.iter().rev().find_map(|event| match &event.kind {
        EventKind::CallHeld { call: held, requirement } if Some(*held) == call => Some(requirement.kind),
        _ => None,
    });
    let mut since = after.iter().filter(|event| event.kind.call() == call);
    since.find_map(|event| notice_after(&approval.name, kind?, &event.kind)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_execution::{
        ApprovalRequirement, CallId, EffectSummary, ErrorClass, Failure, PolicyDecision, Receipt, Timestamp, Verdict,
    };
    use belay_proto::v1::approval::State;

    use super::*;

    const CALL: CallId = CallId { step: 0, attempt: 1, number: 1 };

    fn held(kind: SubjectKind) -> EventKind {
        let decision =
            PolicyDecision { verdict: Verdict::Prompt, rule: String::new(), reason: String::new(), policy_revision: 1 };
        let effect = EffectSummary { created: 0, modified: 0, deleted: 0, changes: vec![] };
        let requirement = ApprovalRequirement { kind, subject_digest: "sha256:x".into(), decision, effect };
        EventKind::CallHeld { call: CALL, requirement: Box::new(requirement) }
    }

    fn decided(approval: &str, decision: Decision) -> EventKind {
        let (principal, reason) = (String::new(), String::new());
        EventKind::ApprovalDecided { call: CALL, approval: approval.into(), decision, principal, reason }
    }

    fn cancelled(grant_nonce: &str) -> EventKind {
        EventKind::CallCancelled { call: CALL, failure: None, grant_nonce: grant_nonce.into() }
    }

    fn failed(grant_nonce: &str) -> EventKind {
        let receipt = Receipt { grant_nonce: grant_nonce.into(), duration: Duration::ZERO, ..Receipt::default() };
        EventKind::CallFailed { call: CALL, failure: Failure::new(ErrorClass::Fatal, "X", "x"), receipt }
    }

    fn notices(state: State, kinds: Vec<EventKind>) -> Vec<GateNotice> {
        let event = |(sequence, kind)| Event { sequence, time: Timestamp::from_micros(0), kind };
        let events: Vec<_> = (2..).zip(kinds).map(event).collect();
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
            // It ran, and now needs approval for what it changed; or its subject has changed.
            (vec![before(), approved(), after(), decided("b", Decision::Denied), cancelled("")], spent()),
            (vec![before(), approved(), before(), cancelled("n")], unused()),
            (vec![after(), approved(), after(), decided("b", Decision::Approved), failed("n")], unused()),
            // The call continues.
            (vec![after(), approved()], vec![]),
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
