//! What became of an approval: derived from events alone, so that an executor that died before it had told the gate tells it later.

use belay_execution::{Decision, Event, EventKind, NeedKind};
use belay_proto::v1;

use super::Note;

/// What `next`, the first event about a call since it was approved, says of the approval: nothing while the call goes on on it.
pub(crate) fn used(approval: &str, approved: NeedKind, next: &EventKind) -> Option<Note> {
    let spent = match next {
        EventKind::CallHeld { need, .. } => approved == NeedKind::Call && need.kind == NeedKind::Effect,
        end if end.ends_call() => !end.grant_nonce().is_empty(),
        _ => return None,
    };
    Some(if spent { Note::Consumed(approval.to_owned()) } else { Note::Stale(approval.to_owned()) })
}

/// What the gate is to be told about a decision that nobody waits for now, given everything that happened to the execution it is about.
pub(crate) fn in_hindsight(events: &[Event], approval: &v1::Approval) -> Vec<Note> {
    let decided = events.iter().position(
        |event| matches!(&event.kind, EventKind::ApprovalDecided { approval: name, .. } if *name == approval.name),
    );
    let Some((before, [decided, after @ ..])) = decided.map(|decided| events.split_at(decided)) else {
        return Note::dropped(approval);
    };
    if !matches!(decided.kind, EventKind::ApprovalDecided { decision: Decision::Approved, .. }) {
        return vec![Note::Delivered(approval.name.clone())];
    }
    let call = decided.kind.call();
    let hold = before.iter().rev().find_map(|event| match &event.kind {
        EventKind::CallHeld { call: held, need } if Some(*held) == call => Some(need.kind),
        _ => None,
    });
    let mut since = after.iter().filter(|event| event.kind.call() == call);
    since.find_map(|event| used(&approval.name, hold?, &event.kind)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_execution::{
        CallId, EffectSummary, ErrorClass, Failure, Need, PolicyDecision, Receipt, Timestamp, Verdict,
    };
    use belay_proto::v1::approval::State;

    use super::*;

    const CALL: CallId = CallId { step: 0, attempt: 1, number: 1 };

    fn held(kind: NeedKind) -> EventKind {
        let decision =
            PolicyDecision { verdict: Verdict::Prompt, rule: String::new(), reason: String::new(), policy_revision: 1 };
        let effect = EffectSummary { created: 0, modified: 0, deleted: 0, changes: vec![] };
        let need = Need { kind, subject_digest: "sha256:x".into(), decision, effect };
        EventKind::CallHeld { call: CALL, need: Box::new(need) }
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

    fn told(state: State, kinds: Vec<EventKind>) -> Vec<Note> {
        let event = |(sequence, kind)| Event { sequence, time: Timestamp::from_micros(0), kind };
        let events: Vec<_> = (2..).zip(kinds).map(event).collect();
        in_hindsight(&events, &v1::Approval { name: "a".into(), state: state.into(), ..v1::Approval::default() })
    }

    #[test]
    fn the_events_say_what_became_of_a_yes() {
        let yes = || decided("a", Decision::Approved);
        let (before, after) = (|| held(NeedKind::Call), || held(NeedKind::Effect));
        let (used, unused) = (|| vec![Note::Consumed("a".into())], || vec![Note::Stale("a".into())]);
        for (events, expected) in [
            (vec![after(), yes(), failed("n")], used()),
            (vec![after(), yes(), failed("")], unused()),
            (vec![before(), yes(), cancelled("n")], used()),
            (vec![before(), yes(), cancelled("")], unused()),
            // It ran, and is asked about again for what it changed; or what it is about has changed.
            (vec![before(), yes(), after(), decided("b", Decision::Denied), cancelled("")], used()),
            (vec![before(), yes(), before(), cancelled("n")], unused()),
            (vec![after(), yes(), after(), decided("b", Decision::Approved), failed("n")], unused()),
            // It goes on.
            (vec![after(), yes()], vec![]),
            // The decision came too late.
            (vec![after(), cancelled("")], vec![Note::Delivered("a".into()), Note::Stale("a".into())]),
        ] {
            assert_eq!(told(State::Approved, events.clone()), expected, "{events:?}");
        }
    }

    #[test]
    fn a_no_has_been_heard_and_no_more() {
        for (state, decision) in [(State::Denied, Decision::Denied), (State::Expired, Decision::Expired)] {
            let events = vec![held(NeedKind::Effect), decided("a", decision), failed("")];
            assert_eq!(told(state, events), [Note::Delivered("a".into())]);
            assert_eq!(told(state, vec![held(NeedKind::Effect), cancelled("")]), [Note::Delivered("a".into())]);
        }
    }
}
