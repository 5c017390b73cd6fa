//! The transitions of an approval: pure functions that can be tested without a server.
//!
//! Each function takes a stored approval and returns its next state. Only [`decide`] records a person's approval. It requires the person's
//! authenticated principal and the digest of what they saw, so no text, timeout or service can approve in their place.

use belay_defects::{Defect, is_planted};
use belay_proto::v1::{Approval, Decision, Reveal, approval::State, approval_need::Kind};
use belay_service_kit::Principal;
use thiserror::Error;

/// The maximum length of a reason for a decision, in characters.
pub(crate) const MAX_REASON_CHARS: usize = 2_000;

/// The principal of decisions that the policy made.
pub(crate) const POLICY: &str = belay_grant::Grant::POLICY;

/// Why a decision is rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum Refusal {
    #[error("`{0}` is not a person; only a person may decide.")]
    NotAPerson(String),
    #[error(
        "The digest `{found}` does not match this approval's, `{expected}`. Get the approval again, and send the \
                 subject_digest of what you saw."
    )]
    DigestMismatch { found: String, expected: String },
    #[error("{}", already(*state, by))]
    AlreadyDecided { state: State, by: String },
    #[error(
        "The policy separates duties: the requester cannot decide, and `{0}` requested this. Another person has to decide."
    )]
    OwnRequest(String),
    #[error("This request id was used for another decision. Use a new one for a new request.")]
    OtherRequest,
    #[error(
        "{MAX_REVEALS} changes of this approval were revealed already, and more cannot be noted. Nothing was revealed."
    )]
    Revealed,
    #[error("A form cannot be approved: answer it, deny it or skip it.")]
    IsForm,
    #[error("This asks for a decision and not for an answer: approve it, deny it or skip it.")]
    NoForm,
    #[error(
        "Another executor owns the execution now: fencing token {token} is older than {newest}. Nothing was changed."
    )]
    Fenced { token: i64, newest: i64 },
}

fn already(state: State, by: &str) -> String {
    match state {
        State::Expired => "The approval expired before a decision was made.".into(),
        State::Cancelled => "The approval was cancelled: the execution no longer needs it.".into(),
        _ => format!("`{by}` has already decided: {}.", word(state)),
    }
}

/// A person's decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice<'a> {
    /// The authenticated principal.
    pub(crate) by: &'a str,
    /// The digest of the subject that the person saw.
    pub(crate) subject_digest: &'a str,
    pub(crate) decision: Decision,
    pub(crate) reason: &'a str,
}

/// Applies a decision; returns `None` when this person has already made the same decision.
///
/// # Errors
/// [`Refusal`]; the approval does not change.
pub(crate) fn decide(
    approval: &Approval,
    choice: Choice<'_>,
    separate_duties: bool,
    now: i64,
) -> Result<Option<Approval>, Refusal> {
    if !Principal::names_a_person(choice.by) {
        return Err(Refusal::NotAPerson(choice.by.to_owned()));
    }
    if choice.subject_digest != approval.subject_digest {
        return Err(Refusal::DigestMismatch {
            found: choice.subject_digest.to_owned(),
            expected: approval.subject_digest.clone(),
        });
    }
    let is_form = approval.kind() == Kind::Form;
    if is_form && choice.decision == Decision::Approve {
        return Err(Refusal::IsForm);
    }
    let decided = state_after(choice.decision);
    match approval.state() {
        State::Pending => {}
        state if approval.decided_by == choice.by && decided == decision_behind(state) => return Ok(None),
        state => return Err(Refusal::AlreadyDecided { state, by: approval.decided_by.clone() }),
    }
    // An unknown requester may be the person who decides. What becomes of a form authorizes nothing, so anybody may say it.
    if separate_duties && !is_form && (approval.requested_by.is_empty() || approval.requested_by == choice.by) {
        return Err(Refusal::OwnRequest(approval.requested_by.clone()));
    }
    Ok(Some(resolved(approval, decided, choice.by, choice.reason, now)))
}

/// Answers a form. A second answer is refused, also the same one: only the request's id tells a repetition from it.
///
/// # Errors
/// [`Refusal`]; the form does not change.
pub(crate) fn answer(form: &Approval, by: &str, subject_digest: &str, now: i64) -> Result<Approval, Refusal> {
    if !Principal::names_a_person(by) {
        return Err(Refusal::NotAPerson(by.to_owned()));
    }
    if form.kind() != Kind::Form {
        return Err(Refusal::NoForm);
    }
    if subject_digest != form.subject_digest {
        let (found, expected) = (subject_digest.to_owned(), form.subject_digest.clone());
        return Err(Refusal::DigestMismatch { found, expected });
    }
    match form.state() {
        State::Pending => Ok(resolved(form, State::Answered, by, "", now)),
        state => Err(Refusal::AlreadyDecided { state, by: form.decided_by.clone() }),
    }
}

/// Checks that no newer executor has said anything of an approval: `newest` is the highest fencing token that came with a request about it.
///
/// # Errors
/// [`Refusal::Fenced`].
pub(crate) fn admit(newest: i64, token: i64) -> Result<(), Refusal> {
    if token < newest && !is_planted(Defect::GateTakesReplaced) {
        Err(Refusal::Fenced { token, newest })
    } else {
        Ok(())
    }
}

/// Asks a form again, of which the executor has lost that it was answered or that it had cancelled it; `None` when it was neither.
pub(crate) fn ask_again(form: &Approval) -> Option<Approval> {
    let may_be_lost = form.kind() == Kind::Form && matches!(form.state(), State::Answered | State::Cancelled);
    may_be_lost.then(|| Approval {
        state: State::Pending.into(),
        decided_by: String::new(),
        decide_time: None,
        ..form.clone()
    })
}

/// The most reveals that an approval keeps: who reveals more has to decide first.
const MAX_REVEALS: usize = 1_000;

/// Adds who is shown what is hidden of a change; `None` when that is known already.
///
/// # Errors
/// [`Refusal::Revealed`]: what cannot be kept is not revealed.
pub(crate) fn reveal(approval: &Approval, reveal: Reveal) -> Result<Option<Approval>, Refusal> {
    let of = |reveal: &Reveal| (reveal.principal.clone(), reveal.index, reveal.of_call);
    let is_same = |known: &Reveal| of(known) == of(&reveal);
    if approval.reveals.iter().any(is_same) {
        return Ok(None);
    }
    if approval.reveals.len() >= MAX_REVEALS {
        return Err(Refusal::Revealed);
    }
    let mut revealed = approval.clone();
    revealed.reveals.push(reveal);
    Ok(Some(revealed))
}

/// The approval with a decision.
pub(crate) fn resolved(approval: &Approval, state: State, by: &str, reason: &str, now: i64) -> Approval {
    Approval {
        state: state.into(),
        decided_by: by.to_owned(),
        decide_reason: reason.to_owned(),
        decide_time: Some(belay_proto::timestamp(now)),
        ..approval.clone()
    }
}

/// Expires a pending approval. Returns `None` before its expiry time, and always when the policy set no limit.
pub(crate) fn lapse(approval: &Approval, now: i64) -> Option<Approval> {
    let expires = belay_proto::micros(approval.expire_time.as_ref()?);
    (approval.state() == State::Pending && expires <= now)
        .then(|| resolved(approval, State::Expired, POLICY, "no decision before it expired", now))
}

/// Cancels a pending approval; returns `None` when it is already decided.
pub(crate) fn cancel(approval: &Approval) -> Option<Approval> {
    (approval.state() == State::Pending).then(|| Approval { state: State::Cancelled.into(), ..approval.clone() })
}

/// Closes an approved approval whose grant was spent (`Consumed`) or can no longer be spent (`Stale`). Returns `None` in any other state.
pub(crate) fn close(approval: &Approval, state: State) -> Option<Approval> {
    (approval.state() == State::Approved).then(|| Approval { state: state.into(), ..approval.clone() })
}

fn state_after(decision: Decision) -> State {
    match decision {
        Decision::Unspecified => State::Unspecified,
        Decision::Approve => State::Approved,
        Decision::Deny => State::Denied,
        Decision::Skip => State::Skipped,
        Decision::Expire => State::Expired,
    }
}

/// The state right after the decision that led to this state.
fn decision_behind(state: State) -> State {
    match state {
        State::Consumed | State::Stale => State::Approved,
        state => state,
    }
}

/// A state in words.
pub(crate) fn word(state: State) -> &'static str {
    match state {
        State::Unspecified => "unknown",
        State::Pending => "pending",
        State::Approved => "approved",
        State::Denied => "denied",
        State::Skipped => "skipped",
        State::Expired => "expired",
        State::Cancelled => "cancelled",
        State::Consumed => "approved and used",
        State::Stale => "approved, but out of date",
        State::Answered => "answered",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 10] = [
        State::Unspecified,
        State::Pending,
        State::Approved,
        State::Denied,
        State::Skipped,
        State::Expired,
        State::Cancelled,
        State::Consumed,
        State::Stale,
        State::Answered,
    ];

    fn pending() -> Approval {
        Approval {
            state: State::Pending.into(),
            subject_digest: "sha256:aa".into(),
            requested_by: "person:ann".into(),
            ..Approval::default()
        }
    }

    fn choice(by: &str, decision: Decision) -> Choice<'_> {
        Choice { by, subject_digest: "sha256:aa", decision, reason: "because" }
    }

    /// S2-X-17: the choices are approve, deny and skip, and each says who, when and why.
    #[test]
    fn a_person_decides() {
        for (decision, state) in
            [(Decision::Approve, State::Approved), (Decision::Deny, State::Denied), (Decision::Skip, State::Skipped)]
        {
            let decided = decide(&pending(), choice("person:ann", decision), false, 7).unwrap().unwrap();
            assert_eq!(decided.state(), state);
            assert_eq!((decided.decided_by.as_str(), decided.decide_reason.as_str()), ("person:ann", "because"));
            assert_eq!(decided.decide_time, Some(belay_proto::timestamp(7)));
        }
    }

    /// B-03: a decision echoes the whole digest of what the person saw.
    #[test]
    fn the_digest_has_to_be_the_approval_s() {
        for digest in ["", "sha256:ab", "sha256:AA", "aa", "yes", "APPROVED"] {
            let choice = Choice { subject_digest: digest, ..choice("person:ann", Decision::Approve) };
            assert!(matches!(decide(&pending(), choice, false, 0), Err(Refusal::DigestMismatch { .. })), "{digest}");
        }
    }

    #[test]
    fn only_a_person_decides() {
        for by in ["service:executor", "service:", "anonymous", "", "policy", "unix:0", "token:local"] {
            for decision in [Decision::Approve, Decision::Deny, Decision::Skip] {
                assert_eq!(
                    decide(&pending(), choice(by, decision), false, 0),
                    Err(Refusal::NotAPerson(by.into())),
                    "{by}"
                );
            }
        }
    }

    #[test]
    fn only_a_pending_approval_is_decided_and_the_same_decision_is_idempotent() {
        for state in ALL.into_iter().filter(|state| *state != State::Pending) {
            let approval = Approval { state: state.into(), decided_by: "person:ann".into(), ..pending() };
            for decision in [Decision::Approve, Decision::Deny, Decision::Skip] {
                let same = match decision {
                    Decision::Approve => matches!(state, State::Approved | State::Consumed | State::Stale),
                    Decision::Deny => state == State::Denied,
                    Decision::Skip => state == State::Skipped,
                    Decision::Expire | Decision::Unspecified => false,
                };
                let again = decide(&approval, choice("person:ann", decision), false, 0);
                match same {
                    true => assert_eq!(again, Ok(None), "{state:?} {decision:?}"),
                    false => assert!(matches!(again, Err(Refusal::AlreadyDecided { .. })), "{state:?} {decision:?}"),
                }
                let other = decide(&approval, choice("person:bob", decision), false, 0);
                assert!(matches!(other, Err(Refusal::AlreadyDecided { .. })), "{state:?} {decision:?}");
            }
        }
    }

    #[test]
    fn with_duties_separated_the_requester_cannot_decide() {
        let by = |principal| decide(&pending(), choice(principal, Decision::Deny), true, 0);
        assert_eq!(by("person:ann"), Err(Refusal::OwnRequest("person:ann".into())));
        assert!(by("person:bob").unwrap().is_some());
        let unknown = Approval { requested_by: String::new(), ..pending() };
        assert!(matches!(
            decide(&unknown, choice("person:bob", Decision::Approve), true, 0),
            Err(Refusal::OwnRequest(_))
        ));
    }

    /// B-04: time alone never approves, and ends nothing unless a policy set a limit.
    #[test]
    fn time_alone_denies_and_only_where_there_is_a_limit() {
        assert_eq!(lapse(&pending(), i64::MAX), None);
        let limited = Approval { expire_time: Some(belay_proto::timestamp(10)), ..pending() };
        assert_eq!(lapse(&limited, 9), None);
        assert_eq!(lapse(&limited, 10).unwrap().state(), State::Expired);
        for state in ALL.into_iter().filter(|state| *state != State::Pending) {
            let ended = Approval { state: state.into(), ..limited.clone() };
            assert_eq!(lapse(&ended, i64::MAX), None, "{state:?}");
        }
    }

    #[test]
    fn only_a_person_s_decision_approves() {
        let limited = Approval { expire_time: Some(belay_proto::timestamp(0)), ..pending() };
        for state in ALL {
            let approval = Approval { state: state.into(), ..limited.clone() };
            let others = [
                lapse(&approval, 1),
                cancel(&approval),
                close(&approval, State::Consumed),
                close(&approval, State::Stale),
            ];
            for changed in others.into_iter().flatten() {
                assert_ne!(changed.state(), State::Approved, "{state:?}");
            }
        }
        assert_eq!(close(&pending(), State::Consumed), None, "what was not approved cannot have been used");
        assert_eq!(cancel(&pending()).unwrap().state(), State::Cancelled);
    }

    fn form() -> Approval {
        Approval { kind: Kind::Form.into(), ..pending() }
    }

    #[test]
    fn a_form_is_answered_once_by_a_person_who_saw_it() {
        let answered = answer(&form(), "person:bob", "sha256:aa", 7).unwrap();
        assert_eq!((answered.state(), answered.decided_by.as_str()), (State::Answered, "person:bob"));
        for state in ALL.into_iter().filter(|state| *state != State::Pending) {
            let ended = Approval { state: state.into(), decided_by: "person:bob".into(), ..form() };
            let again = answer(&ended, "person:bob", "sha256:aa", 8);
            assert!(matches!(again, Err(Refusal::AlreadyDecided { .. })), "{state:?}");
        }
        for by in ["service:executor", "", "policy"] {
            assert_eq!(answer(&form(), by, "sha256:aa", 7), Err(Refusal::NotAPerson(by.into())));
        }
        let other = answer(&form(), "person:bob", "sha256:ab", 7);
        assert!(matches!(other, Err(Refusal::DigestMismatch { .. })));
        assert_eq!(answer(&pending(), "person:bob", "sha256:aa", 7), Err(Refusal::NoForm));
    }

    /// A form authorizes nothing: separate duties say nothing about it, and no person approves it.
    #[test]
    fn a_form_is_denied_or_skipped_and_not_approved() {
        let decide = |decision| decide(&form(), choice("person:ann", decision), true, 0);
        assert_eq!(decide(Decision::Approve), Err(Refusal::IsForm));
        assert_eq!(decide(Decision::Deny).unwrap().unwrap().state(), State::Denied);
        assert_eq!(decide(Decision::Skip).unwrap().unwrap().state(), State::Skipped);
    }

    /// Late callers are told what happened, and who did it.
    #[test]
    fn a_refusal_says_what_was_decided() {
        let refusal = |state| Refusal::AlreadyDecided { state, by: "person:bob".into() }.to_string();
        for (state, words) in [
            (State::Approved, "approved"),
            (State::Denied, "denied"),
            (State::Skipped, "skipped"),
            (State::Consumed, "approved and used"),
            (State::Stale, "approved, but out of date"),
            (State::Answered, "answered"),
        ] {
            assert_eq!(refusal(state), format!("`person:bob` has already decided: {words}."));
        }
        assert_eq!(refusal(State::Expired), "The approval expired before a decision was made.");
        assert_eq!(refusal(State::Cancelled), "The approval was cancelled: the execution no longer needs it.");
    }

    #[test]
    fn a_form_that_is_asked_again_says_nothing_of_its_first_answer() {
        let answered = answer(&form(), "person:bob", "sha256:aa", 7).unwrap();
        assert_eq!(ask_again(&answered), Some(form()));
    }

    #[test]
    fn only_an_answered_or_cancelled_form_is_asked_again() {
        for state in ALL {
            let again = ask_again(&Approval { state: state.into(), ..form() });
            let may_be_lost = matches!(state, State::Answered | State::Cancelled);
            assert_eq!(again.map(|again| again.state()), may_be_lost.then_some(State::Pending));
        }
        let call = Approval { kind: Kind::Call.into(), state: State::Cancelled.into(), ..form() };
        assert_eq!(ask_again(&call), None, "an approval is no form");
    }
}
