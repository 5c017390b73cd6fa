//! Consequences for a step when the runner reports the end of its call. Pure.

use belay_defects::{Defect, is_planted};
use belay_execution::{ErrorClass, Failure, Receipt, RecoveryClass, ToolCallEnd};
use belay_reasons as reasons;

/// How many calls of one attempt the runner may cancel without a request; then the attempt fails.
const MAX_UNREQUESTED_CANCELLATIONS: u32 = 10;

/// The same when the machine is what a call waits for, such as a disk that is full: with at most a minute between two calls, about an hour.
const MAX_MACHINE_CALLS: u32 = 66;

/// How often one attempt makes a call again that conflicted with another commit.
const MAX_RERUNS: u32 = 3;

/// Facts about a call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// How to recover calls of its tool; `None` for a step that calls none.
    pub(super) recovery: Option<RecoveryClass>,
    /// Its number among the calls of the attempt with its purpose, from 1.
    pub(super) number: u32,
    /// Whether the executor has asked the runner to stop it.
    pub(super) was_cancelled: bool,
    /// Whether it was held for an approval.
    pub(super) was_held: bool,
    /// Whether it was held for an approval that was not given.
    pub(super) is_unapproved: bool,
    /// Whether its result was copied from the runner, which keeps it until it is acknowledged.
    pub(super) is_copied: bool,
    /// How many calls of the attempt conflicted with a commit before.
    pub(super) conflicts: u32,
    /// Whether a call of the attempt was made again before because it failed beside commits.
    pub(super) failed_during_commits: bool,
}

/// Blocker on the runner's machine that kept a call from running, without a fault of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MachineBlocker {
    /// The workspace's disk is full.
    Full,
    /// The workspace's file system is read-only.
    ReadOnly,
    /// The sandbox could not be tested or started for now.
    Sandbox,
}

impl MachineBlocker {
    /// The blocker that a call's failure names.
    fn of(reason: &str) -> Option<Self> {
        match reason {
            reasons::WORKSPACE_FULL => Some(Self::Full),
            reasons::WORKSPACE_READ_ONLY => Some(Self::ReadOnly),
            reasons::SANDBOX_UNAVAILABLE => Some(Self::Sandbox),
            _ => None,
        }
    }
}

/// The record of a call that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallRecord {
    pub(super) end: ToolCallEnd,
    /// Whether the runner keeps the call until it hears that its end is stored.
    pub(super) needs_acknowledgement: bool,
    /// Why the next call waits for the runner's machine; `None` when it does not.
    pub(super) machine_blocker: Option<MachineBlocker>,
}

/// Decides what to record.
pub(super) fn recorded(ended: ToolCallEnd, facts: Facts) -> CallRecord {
    // The runner keeps a read-only call only when it was held, or cancelled before it arrived, or for its result.
    let needs_acknowledgement =
        facts.recovery != Some(RecoveryClass::ReadOnly) || facts.was_held || facts.was_cancelled || facts.is_copied;
    // What a call that was cancelled ends with is not looked into: it is not made again.
    let by_itself = !facts.was_cancelled;
    let found = match &ended {
        ToolCallEnd::Cancelled { failure: Some(failure), .. } if by_itself => MachineBlocker::of(&failure.reason),
        _ => None,
    };
    let most = if found.is_some() { MAX_MACHINE_CALLS } else { MAX_UNREQUESTED_CANCELLATIONS };
    let (end, machine_blocker) = match ended {
        ToolCallEnd::Cancelled { failure, grant_nonce } if by_itself && facts.number >= most => {
            (given_up(failure, grant_nonce, facts.number), None)
        }
        ToolCallEnd::Cancelled { failure: Some(failure), grant_nonce }
            if by_itself
                && failure.reason == reasons::CONFLICT
                && facts.conflicts >= MAX_RERUNS
                && !is_planted(Defect::EndlessReruns) =>
        {
            (given_up(Some(failure), grant_nonce, facts.conflicts + 1), None)
        }
        ToolCallEnd::Failed { failure, receipt }
            if by_itself
                && !facts.failed_during_commits
                && may_have_read_partial_commits(facts.recovery, &failure, &receipt) =>
        {
            (made_again(&failure, &receipt), None)
        }
        ToolCallEnd::Completed { .. } if facts.is_unapproved => (unapproved_result(), None),
        end => (end, found),
    };
    CallRecord { end, needs_acknowledgement, machine_blocker }
}

/// Whether a call that failed may have read a mixture of old and new files while others committed, and left nothing behind. Not after a
/// time-out, which would take as long again, and not when a person would have to approve again.
fn may_have_read_partial_commits(recovery: Option<RecoveryClass>, failure: &Failure, receipt: &Receipt) -> bool {
    let leaves_nothing = matches!(recovery, Some(RecoveryClass::ReadOnly | RecoveryClass::Transactional));
    leaves_nothing
        // It has completed, and only its result is lost.
        && receipt.effect_digest.is_empty()
        && receipt.concurrent_commit_count > 0
        && receipt.grant_nonce.is_empty()
        && failure.class != ErrorClass::Timeout
}

fn made_again(failed: &Failure, receipt: &Receipt) -> ToolCallEnd {
    let message = format!(
        "It failed while {} committed in its workspace and may have read a mixture of old and new files, so it runs again once. Its error: {}",
        committers(receipt),
        failed.message
    );
    let failure = Some(Failure::new(ErrorClass::Transient, reasons::FAILED_BESIDE_COMMITS, message));
    ToolCallEnd::Cancelled { failure, grant_nonce: String::new() }
}

/// The calls that committed meanwhile, for a message.
fn committers(receipt: &Receipt) -> String {
    let named: Vec<&str> = receipt.concurrent_commits.iter().rev().take(3).map(String::as_str).collect();
    let more = receipt.concurrent_commit_count - i64::try_from(named.len()).unwrap_or(i64::MAX);
    match more {
        ..=0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn given_up(failure: Option<Failure>, grant_nonce: String, calls: u32) -> ToolCallEnd {
    let failure = match failure {
        Some(Failure { reason, message, .. }) => {
            let message = format!("{message} This happened to {calls} calls of this attempt.");
            Failure::new(ErrorClass::Transient, reason, message)
        }
        None => {
            let message = format!("The runner cancelled {calls} calls of this attempt without a request.");
            Failure::new(ErrorClass::Transient, reasons::CALL_CANCELLED_BY_RUNNER, message)
        }
    };
    ToolCallEnd::Failed { failure, receipt: Box::new(Receipt { grant_nonce, ..Receipt::default() }) }
}

/// A result without an approval is not trusted: a person has to check what the call did.
fn unapproved_result() -> ToolCallEnd {
    let message =
        "The runner reports that the call completed, although the call was waiting for approval and was not approved.";
    let failure = Failure::new(ErrorClass::OutcomeUnknown, reasons::UNAPPROVED_RESULT, message);
    ToolCallEnd::OutcomeUnknown { failure, grant_nonce: String::new(), network: None }
}

#[cfg(test)]
mod tests {
    use belay_execution::Json;

    use super::*;

    const FIRST: Facts = Facts {
        recovery: Some(RecoveryClass::Transactional),
        number: 1,
        was_cancelled: false,
        was_held: false,
        is_unapproved: false,
        is_copied: false,
        conflicts: 0,
        failed_during_commits: false,
    };

    fn completed() -> ToolCallEnd {
        ToolCallEnd::Completed { result: Json::from_text("1").into(), receipt: Box::new(Receipt::default()) }
    }

    fn cancelled(reason: &str) -> ToolCallEnd {
        let failure = Failure::new(ErrorClass::Cancelled, reason.to_owned(), "It was cancelled.");
        ToolCallEnd::Cancelled { failure: Some(failure), grant_nonce: "nonce".into() }
    }

    /// As it was reported.
    fn as_reported(end: ToolCallEnd) -> CallRecord {
        CallRecord { end, needs_acknowledgement: true, machine_blocker: None }
    }

    /// The reason of a call that is given up, its message, and the nonce of its grant.
    fn given_up_with(recorded: CallRecord) -> (String, String, String) {
        assert_eq!(recorded.machine_blocker, None);
        match recorded.end {
            ToolCallEnd::Failed { failure, receipt } => {
                (failure.reason.to_string(), failure.message, receipt.grant_nonce)
            }
            end => panic!("it is given up: {end:?}"),
        }
    }

    // Only a call that read and that nothing is kept of at the runner needs no message.
    #[test]
    fn what_the_runner_keeps_is_acknowledged() {
        let read = Facts { recovery: Some(RecoveryClass::ReadOnly), ..FIRST };
        assert!(!recorded(completed(), read).needs_acknowledgement);
        for kept in [
            FIRST,
            Facts { recovery: None, ..FIRST },
            Facts { was_held: true, ..read },
            Facts { was_cancelled: true, ..read },
            Facts { is_copied: true, ..read },
        ] {
            assert!(recorded(completed(), kept).needs_acknowledgement, "{kept:?}");
        }
    }

    // Ten times a runner may cancel by itself; what was asked for is not counted.
    #[test]
    fn a_runner_that_keeps_cancelling_is_given_up() {
        let unasked = || ToolCallEnd::Cancelled { failure: None, grant_nonce: "nonce".into() };
        assert_eq!(recorded(unasked(), Facts { number: 9, ..FIRST }), as_reported(unasked()));
        let tenth = Facts { number: 10, ..FIRST };
        let expected = ("CALL_CANCELLED_BY_RUNNER", "The runner cancelled 10 calls of this attempt without a request.");
        let (reason, message, nonce) = given_up_with(recorded(unasked(), tenth));
        assert_eq!((reason.as_str(), message.as_str(), nonce.as_str()), (expected.0, expected.1, "nonce"));
        assert_eq!(recorded(unasked(), Facts { was_cancelled: true, ..tenth }), as_reported(unasked()));
        let (reason, message, _) = given_up_with(recorded(cancelled("RUNNER_STOPPING"), tenth));
        assert_eq!(reason, "RUNNER_STOPPING");
        assert_eq!(message, "It was cancelled. This happened to 10 calls of this attempt.");
    }

    // About an hour of waiting for the machine, and no other cancellation counts so long.
    #[test]
    fn a_machine_that_cannot_carry_out_a_call_now_is_waited_for() {
        for (reason, blocker) in [
            (reasons::WORKSPACE_FULL, MachineBlocker::Full),
            (reasons::WORKSPACE_READ_ONLY, MachineBlocker::ReadOnly),
            (reasons::SANDBOX_UNAVAILABLE, MachineBlocker::Sandbox),
        ] {
            let found = || cancelled(reason);
            let at = |number| Facts { number, ..FIRST };
            for number in [1, 10, 65] {
                let waits = CallRecord { machine_blocker: Some(blocker), ..as_reported(found()) };
                assert_eq!(recorded(found(), at(number)), waits, "{number}");
                let held = Facts { is_unapproved: true, was_held: true, ..at(number) };
                assert_eq!(recorded(found(), held), waits, "{number}");
            }
            assert_eq!(given_up_with(recorded(found(), at(66))).0, reason);
            assert_eq!(recorded(found(), Facts { was_cancelled: true, ..at(66) }), as_reported(found()));
        }
        assert_eq!(recorded(cancelled("OTHER"), FIRST).machine_blocker, None);
        assert_eq!(recorded(completed(), FIRST).machine_blocker, None);
    }

    #[test]
    fn a_call_that_keeps_conflicting_is_given_up() {
        let conflict = || cancelled(reasons::CONFLICT);
        let after = |conflicts| Facts { conflicts, number: conflicts + 1, ..FIRST };
        assert_eq!(recorded(conflict(), after(2)), as_reported(conflict()));
        let (reason, message, nonce) = given_up_with(recorded(conflict(), after(3)));
        assert_eq!((reason.as_str(), nonce.as_str()), (reasons::CONFLICT, "nonce"));
        assert_eq!(message, "It was cancelled. This happened to 4 calls of this attempt.");
        // The fourth was discarded by a pause, so that there was a fifth.
        let (_, message, _) = given_up_with(recorded(conflict(), after(4)));
        assert_eq!(message, "It was cancelled. This happened to 5 calls of this attempt.");
        assert_eq!(recorded(conflict(), Facts { was_cancelled: true, ..after(3) }), as_reported(conflict()));
        assert_eq!(recorded(cancelled("OTHER"), after(3)), as_reported(cancelled("OTHER")));
    }

    fn failed(class: ErrorClass, receipt: Receipt) -> ToolCallEnd {
        ToolCallEnd::Failed { failure: Failure::new(class, "TOOL_FAILED", "No such file."), receipt: Box::new(receipt) }
    }

    // A failure that may come from files of two states is no failure of the step, once.
    #[test]
    fn a_call_that_failed_beside_commits_is_made_again_once() {
        let beside = |calls: &[&str], count| Receipt {
            concurrent_commits: calls.iter().map(|call| (*call).to_owned()).collect(),
            concurrent_commit_count: count,
            ..Receipt::default()
        };
        let end = || failed(ErrorClass::Fatal, beside(&["a", "b"], 2));
        let CallRecord { end: again, needs_acknowledgement: true, machine_blocker: None } = recorded(end(), FIRST)
        else {
            panic!("the runner keeps it")
        };
        let ToolCallEnd::Cancelled { failure: Some(failure), grant_nonce } = again else { panic!("{again:?}") };
        assert_eq!((failure.reason.as_ref(), grant_nonce.as_str()), (reasons::FAILED_BESIDE_COMMITS, ""));
        assert!(failure.message.contains("while b, a committed in its workspace"), "{failure}");
        assert!(failure.message.ends_with("Its error: No such file."), "{failure}");
        let many = recorded(failed(ErrorClass::Fatal, beside(&["a", "b", "c", "d"], 9)), FIRST);
        assert!(format!("{many:?}").contains("while d, c, b and 6 more committed"), "{many:?}");

        let read = Facts { recovery: Some(RecoveryClass::ReadOnly), ..FIRST };
        assert_ne!(recorded(end(), read).end, end());
        for other in [
            Facts { failed_during_commits: true, ..FIRST },
            Facts { was_cancelled: true, ..FIRST },
            Facts { recovery: Some(RecoveryClass::Manual), ..FIRST },
            Facts { recovery: None, ..FIRST },
        ] {
            assert_eq!(recorded(end(), other).end, end(), "{other:?}");
        }
        for end in [
            failed(ErrorClass::Timeout, beside(&["a"], 1)),
            failed(ErrorClass::Fatal, beside(&[], 0)),
            failed(ErrorClass::Fatal, Receipt { effect_digest: "sha256:aa".into(), ..beside(&["a"], 1) }),
            failed(ErrorClass::Fatal, Receipt { grant_nonce: "nonce".into(), ..beside(&["a"], 1) }),
        ] {
            assert_eq!(recorded(end.clone(), FIRST).end, end);
        }
    }

    // B-03: what was not approved has no result, whoever says so.
    #[test]
    fn a_result_without_an_approval_is_not_trusted() {
        let held = Facts { was_held: true, ..FIRST };
        assert_eq!(recorded(completed(), held), as_reported(completed()));
        for was_cancelled in [false, true] {
            let unapproved = recorded(completed(), Facts { is_unapproved: true, was_cancelled, ..held });
            let ToolCallEnd::OutcomeUnknown { failure, .. } = unapproved.end else { panic!("{unapproved:?}") };
            assert_eq!(failure.reason, reasons::UNAPPROVED_RESULT);
        }
        let failure = failed(ErrorClass::Fatal, Receipt::default());
        assert_eq!(recorded(failure.clone(), Facts { is_unapproved: true, ..held }).end, failure);
    }
}
