//! Meaning of a runner's replies for a call.

use belay_defects::{Defect, is_planted};
use belay_execution::{
    ApprovalRequirement, CallIntent, CommittedFile, ErrorClass, Failure, Json, NetworkConnection, Receipt,
    RecoveryClass, ToolCallEnd,
};
use belay_proto::{
    payload::JSON_MEDIA_TYPE,
    runner_v1,
    v1::{self, payload::Content, tool_call::State},
};
use belay_reasons as reasons;
use belay_service_kit::{host::MAX_MESSAGE_BYTES, status};
use tonic::{Code, Status};

use crate::wire::{self, NotUnderstood};

/// The part of a reply that says how a call completed.
const RESULT: &str = "the result of the call";

/// The runner's report about a call.
#[derive(Debug)]
pub(crate) enum RunnerReply {
    /// All of it.
    Whole(CallReply),
    /// The call has completed, and its result has to be copied.
    Uncopied(UncopiedResult),
    /// Either of them, and values that are secrets from now on.
    WithSecrets(Vec<String>, Box<Self>),
}

/// A call that has completed, with a reference to its result.
#[derive(Debug)]
pub(crate) struct UncopiedResult {
    pub(crate) reference: ResultReference,
    pub(crate) receipt: Receipt,
}

/// A reference to the result of a call at the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultReference {
    /// `sha256:` and 64 hexadecimal digits.
    pub(crate) digest: String,
    /// The number of bytes of the JSON text.
    pub(crate) size: u64,
}

/// The runner's reply about a call.
#[derive(Debug)]
pub(crate) enum CallReply {
    /// The call has ended.
    Ended(ToolCallEnd),
    /// The runner holds it until it is approved.
    Held(ApprovalRequirement),
    /// No reply now, or one from which nothing follows: retry. [`named_answer`] says whether there was an answer.
    Unavailable(Status),
    /// A call of this name has ended, and its outcome was acknowledged: the runner does not run another one yet.
    Acknowledged(Status),
    /// The runner is at its limit and has not accepted the call: retry.
    Busy(Status),
    /// The runner has another ledger than the intent names: it does not know the call's outcome.
    LedgerChanged,
    /// The runner does not know the call to commit or discard.
    NotFound,
    /// The runner rejects the grant.
    GrantRefused(String),
    /// By the runner's clock the grant is not valid now. Another grant may be; the call is still held.
    GrantNotValidNow(Status),
    /// Another executor owns the shard.
    Fenced,
}

/// The consequence of an error status for the call. Only a permanent refusal of the runner itself ends the call: a status from a proxy or the
/// transport says nothing about the call, which may be running. A refusal that is not listed here is retried, and readers see it.
pub(crate) fn refused(status: Status) -> CallReply {
    decided(&status).unwrap_or(CallReply::Unavailable(status))
}

/// The decision about a status; `None` if its reason is not known here.
fn decided(status: &Status) -> Option<CallReply> {
    let failed = |class, reason: &str| {
        let failure = Failure::new(class, reason, status.message());
        CallReply::Ended(ToolCallEnd::Failed { failure, receipt: Box::new(Receipt::default()) })
    };
    let reason = status::reason(status);
    Some(match (status.code(), reason.as_deref()) {
        (Code::FailedPrecondition, Some(reasons::LEDGER_CHANGED)) => CallReply::LedgerChanged,
        (Code::FailedPrecondition, Some(reasons::FENCED)) => CallReply::Fenced,
        (Code::FailedPrecondition, Some(reasons::CALL_ACKNOWLEDGED)) => CallReply::Acknowledged(status.clone()),
        (Code::PermissionDenied, Some(reasons::GRANT_REFUSED))
            if is_about_time(status) && !is_planted(Defect::ExpiredGrantDropsEffect) =>
        {
            CallReply::GrantNotValidNow(status.clone())
        }
        (Code::PermissionDenied, Some(reasons::GRANT_REFUSED | reasons::GRANT_SPENT)) => {
            CallReply::GrantRefused(status.message().to_owned())
        }
        (Code::NotFound, Some(reasons::CALL_NOT_FOUND)) => CallReply::NotFound,
        (Code::NotFound, Some(reason @ reasons::TOOL_NOT_FOUND)) => failed(ErrorClass::InvalidArguments, reason),
        (Code::InvalidArgument, Some(reason)) => failed(ErrorClass::InvalidArguments, reason),
        (Code::AlreadyExists, Some(reason)) => failed(ErrorClass::Internal, reason),
        (Code::ResourceExhausted, Some(reasons::MESSAGE_TOO_LARGE)) => {
            failed(ErrorClass::InvalidArguments, reasons::TOO_LARGE)
        }
        (Code::ResourceExhausted, Some(reasons::OVERLOADED | reasons::LIMIT_REACHED)) => {
            CallReply::Busy(status.clone())
        }
        // tonic's code for a message above this side's limit; sending it again would fail again.
        (Code::OutOfRange, None) => {
            let message = format!(
                "result: is larger than a message may be ({MAX_MESSAGE_BYTES} bytes), and the runner has not returned a reference to it"
            );
            let failure = Failure::new(ErrorClass::InvalidArguments, reasons::TOO_LARGE, message);
            CallReply::Ended(ToolCallEnd::Failed { failure, receipt: Box::new(Receipt::default()) })
        }
        // The runner is starting, stopping, or its machine fails. What it knows of the call is kept.
        (Code::Unavailable, _) => CallReply::Unavailable(status.clone()),
        // The operator has to correct the tokens or the principals; the approval of a call stays valid meanwhile.
        (Code::Unauthenticated, Some(reasons::UNAUTHENTICATED))
        | (
            Code::PermissionDenied,
            Some(reasons::ROLE_MISSING | reasons::PERMISSION_DENIED | reasons::NOT_A_SERVICE | reasons::NOT_A_PERSON),
        ) => CallReply::Unavailable(status.clone()),
        // The call is in a state in which it cannot be committed or discarded, such as running.
        (Code::FailedPrecondition, Some(reasons::CALL_NOT_HELD)) => CallReply::Unavailable(status.clone()),
        // The operator has to restore or repair the ledger: only that has the outcome.
        (Code::DataLoss, Some(reasons::STORE_CORRUPT | reasons::SEAL_KEY_LOST)) => {
            CallReply::Unavailable(status.clone())
        }
        // The ledger is of another version than the program.
        (Code::FailedPrecondition, Some(reasons::STORE_NEWER | reasons::STORE_OLDER)) => {
            CallReply::Unavailable(status.clone())
        }
        // A fault of the runner, which keeps what it knows of the call.
        (Code::Internal, Some(reasons::INTERNAL)) => CallReply::Unavailable(status.clone()),
        // A newer runner, whose reply an upgrade of the executor makes readable.
        (Code::Internal, Some(reasons::REPLY_NOT_UNDERSTOOD)) => CallReply::Unavailable(status.clone()),
        _ => return None,
    })
}

/// The answer of a runner from which nothing follows for the call, for people; `None` when it did not answer or is stopping.
pub(crate) fn named_answer(status: &Status) -> Option<String> {
    let reason = status::reason(status);
    let answer = match (status.code(), reason.as_deref()) {
        // The transport or a proxy, not the runner.
        (Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded, None) => return None,
        (_, Some(reasons::RUNNER_STOPPING | reasons::STOPPING | reasons::RUNNER_UNAVAILABLE)) => return None,
        (_, Some(reason)) => reason.to_owned(),
        (code, None) => format!("{code:?}"),
    };
    let message = status.message().trim().trim_end_matches('.');
    Some(if message.is_empty() { answer } else { format!("{answer}: {message}") })
}

/// Whether the answer is one that the runner's methods do not give: the executor has no decision for it.
pub(crate) fn is_unexpected(status: &Status) -> bool {
    decided(status).is_none() && status::reason(status).is_some()
}

/// Whether the runner will never take the acknowledgement, for example because the shard's owner was replaced.
pub(crate) fn is_permanent(status: &Status) -> bool {
    status.code() != Code::Unavailable && status::reason(status).is_some()
}

fn is_about_time(status: &Status) -> bool {
    status::fact(status, "cause").as_deref() == Some("time")
}

/// The reply that a call's state means. Nothing follows from a call that this version does not understand: the runner keeps it, and is asked again.
pub(crate) fn reply_of(mut reported: runner_v1::ToolCall) -> RunnerReply {
    let secrets = std::mem::take(&mut reported.secrets);
    let reply = understood(reported).unwrap_or_else(|problem| {
        let message = format!(
            "The tool runner's reply cannot be understood: {problem}. Upgrade the executor, or correct the runner."
        );
        let status = status::error(Code::Internal, reasons::REPLY_NOT_UNDERSTOOD, message).into();
        RunnerReply::Whole(CallReply::Unavailable(status))
    });
    if secrets.is_empty() { reply } else { RunnerReply::WithSecrets(secrets, Box::new(reply)) }
}

fn understood(reported: runner_v1::ToolCall) -> Result<RunnerReply, NotUnderstood> {
    let state = wire::known(reported.state, "the state of the call")?;
    if state == State::AwaitingApproval {
        let need = reported.approval_need.ok_or(NotUnderstood::Missing("what has to be approved"))?;
        let kind = wire::subject_kind(&need)?;
        return Ok(RunnerReply::Whole(CallReply::Held(wire::requirement_from(need, kind)?)));
    }
    let mut receipt = bounded(wire::receipt_from(*reported.receipt.unwrap_or_default())?);
    let failure = reported.failure.map(wire::failure_from).transpose()?;
    // Measured here, whatever a runner says: budgets count it.
    receipt.output_bytes = match reported.result.as_ref().and_then(|result| result.content.as_ref()) {
        Some(Content::Json(text)) => text.len() as u64,
        Some(Content::Blob(blob)) => u64::try_from(blob.size_bytes).unwrap_or(0),
        None => failure
            .as_ref()
            .and_then(|failure| failure.last_output.as_deref())
            .map_or(0, |output| (output.stdout.len() + output.stderr.len()) as u64),
    };
    let failure_or = |default| {
        failure.clone().unwrap_or_else(|| Failure::new(default, reasons::REASON_MISSING, "The runner gave no reason."))
    };
    let end = match state {
        State::Completed => match reported.result.and_then(|result| result.content) {
            Some(Content::Json(text)) => {
                ToolCallEnd::Completed { result: Json::from_text(text).into(), receipt: Box::new(receipt) }
            }
            Some(Content::Blob(blob)) => {
                return Ok(RunnerReply::Uncopied(UncopiedResult { reference: reference(blob)?, receipt }));
            }
            None => return Err(NotUnderstood::Missing(RESULT)),
        },
        State::Cancelled => ToolCallEnd::Cancelled { failure, grant_nonce: receipt.grant_nonce },
        State::Denied => {
            ToolCallEnd::Denied { failure: failure_or(ErrorClass::PolicyDenied), receipt: Box::new(receipt) }
        }
        State::OutcomeUnknown => {
            let (failure, grant_nonce) = (failure_or(ErrorClass::OutcomeUnknown), receipt.grant_nonce);
            ToolCallEnd::OutcomeUnknown { failure, grant_nonce, network: receipt.network.map(Box::new) }
        }
        State::TimedOut => ToolCallEnd::Failed { failure: failure_or(ErrorClass::Timeout), receipt: Box::new(receipt) },
        State::Failed => ToolCallEnd::Failed { failure: failure_or(ErrorClass::Internal), receipt: Box::new(receipt) },
        State::Unspecified | State::Requested | State::Running | State::AwaitingApproval => {
            return Err(NotUnderstood::Missing("the end of the call"));
        }
    };
    Ok(RunnerReply::Whole(CallReply::Ended(end)))
}

/// The most entries of a receipt that are recorded, and the most bytes of their texts: the contract allows a runner 1,000 and 64 KiB of paths.
const MAX_FILES: usize = 1_000;
const MAX_FILE_BYTES: usize = 256 * 1024;

/// The most connections of a receipt that are recorded, and the most bytes of their texts: the contract allows a runner 200.
const MAX_CONNECTIONS: usize = 200;
const MAX_CONNECTION_BYTES: usize = 128 * 1024;

/// The most bytes that are recorded of what a policy judged: the contract allows a runner 64 KiB.
const MAX_INTENT_BYTES: usize = 128 * 1024;

/// A receipt that is small enough for an event, also of a runner that sends more. What is left out is counted.
fn bounded(mut receipt: Receipt) -> Receipt {
    let mut bytes = 0;
    let mut fits = |file: &CommittedFile| {
        bytes += file.path.len() + file.digest.len() + file.previous_digest.len();
        bytes <= MAX_FILE_BYTES
    };
    let listed = receipt.files.iter().take(MAX_FILES).take_while(|file| fits(file)).count();
    receipt.unlisted_files = receipt.unlisted_files.saturating_add((receipt.files.len() - listed) as u64);
    receipt.files.truncate(listed);
    if let Some(network) = &mut receipt.network {
        let mut bytes = 0;
        let mut fits = |connection: &NetworkConnection| {
            bytes += connection.host.len() + connection.rule.len() + connection.failure.len();
            bytes <= MAX_CONNECTION_BYTES
        };
        let listed = network.connections.iter().take(MAX_CONNECTIONS).take_while(|listed| fits(listed)).count();
        network.unlisted = network.unlisted.saturating_add((network.connections.len() - listed) as u64);
        network.connections.truncate(listed);
    }
    if receipt.intent.as_ref().is_some_and(|intent| bytes_of(intent) > MAX_INTENT_BYTES) {
        receipt.intent = Some(CallIntent { is_cut: true, ..CallIntent::default() });
    }
    receipt
}

fn bytes_of(
    CallIntent { command, program, working_directory, environment, paths, hosts, network, credentials, is_cut: _ }: &CallIntent,
) -> usize {
    let words = command
        .iter()
        .chain([program, working_directory, network])
        .chain(environment)
        .chain(paths)
        .chain(hosts)
        .chain(credentials);
    words.map(|word| word.len() + 4).sum()
}

fn reference(
    v1::BlobRef { digest, size_bytes, media_type, redacted }: v1::BlobRef,
) -> Result<ResultReference, NotUnderstood> {
    let is_digest = digest.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64);
    let size = u64::try_from(size_bytes).ok().filter(|_| is_digest && media_type == JSON_MEDIA_TYPE && !redacted);
    Ok(ResultReference { digest, size: size.ok_or(NotUnderstood::Blob(RESULT))? })
}

/// The end of a call that may have been sent, and that the runner says has ended and was acknowledged: nothing has its outcome any more.
pub(crate) fn acknowledged_end() -> ToolCallEnd {
    let message = "The runner has the outcome of this call as acknowledged and has forgotten it, and the executor does not have it: find out \
                   what the call did.";
    let failure = Failure::new(ErrorClass::OutcomeUnknown, reasons::CALL_ACKNOWLEDGED, message);
    ToolCallEnd::OutcomeUnknown { failure, grant_nonce: String::new(), network: None }
}

/// The end of a call that was never sent before, when the runner does not forget the earlier call of its name.
pub(crate) fn name_not_free() -> ToolCallEnd {
    let message = "The runner has not run this call: it still remembers an acknowledged call of the same name, of an execution that was \
                   deleted. Start the execution with another id, or restart the runner.";
    let failure = Failure::new(ErrorClass::Internal, reasons::CALL_ACKNOWLEDGED, message);
    ToolCallEnd::Failed { failure, receipt: Box::new(Receipt::default()) }
}

/// The end to assume for a call that may have been sent, when its ledger is lost; `None` when it is safe to run again.
pub(crate) fn reply_without_ledger(recovery: RecoveryClass) -> Option<ToolCallEnd> {
    match recovery {
        RecoveryClass::ReadOnly | RecoveryClass::Idempotent => None,
        // Only the ledger knew whether its effect is in place.
        RecoveryClass::Transactional | RecoveryClass::Manual => Some(ToolCallEnd::OutcomeUnknown {
            failure: Failure::new(
                ErrorClass::OutcomeUnknown,
                reasons::LEDGER_CHANGED,
                "The runner that ran the call has a different ledger now, so the outcome of the call cannot be determined.",
            ),
            grant_nonce: String::new(),
            network: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-09: a permanent refusal is never retried; anything that does not come from the runner itself is.
    #[test]
    fn only_the_runner_s_own_refusals_end_a_call() {
        let ours = |code, reason| refused(status::error(code, reason, "no").into());
        let from_proxy = |code| refused(Status::new(code, "h2 protocol error"));
        assert!(matches!(ours(Code::NotFound, "TOOL_NOT_FOUND"), CallReply::Ended(ToolCallEnd::Failed { .. })));
        assert!(matches!(
            ours(Code::InvalidArgument, "INVALID_ARGUMENT"),
            CallReply::Ended(ToolCallEnd::Failed { .. })
        ));
        assert!(matches!(ours(Code::FailedPrecondition, "FENCED"), CallReply::Fenced));
        assert!(matches!(ours(Code::PermissionDenied, "GRANT_REFUSED"), CallReply::GrantRefused(_)));
        assert!(matches!(from_proxy(Code::PermissionDenied), CallReply::Unavailable(_)));
        let acknowledged = ours(Code::FailedPrecondition, "CALL_ACKNOWLEDGED");
        assert!(matches!(acknowledged, CallReply::Acknowledged(_)));
        for reason in [reasons::NOT_A_SERVICE, reasons::ROLE_MISSING, "NEWER_REASON"] {
            let refused = ours(Code::PermissionDenied, reason);
            assert!(matches!(refused, CallReply::Unavailable(_)), "the approval stays: {reason}");
        }
        assert!(matches!(ours(Code::NotFound, "CALL_NOT_FOUND"), CallReply::NotFound));
        assert!(matches!(ours(Code::FailedPrecondition, "LEDGER_CHANGED"), CallReply::LedgerChanged));
        assert!(matches!(ours(Code::Unavailable, "RUNNER_STOPPING"), CallReply::Unavailable(_)));
        for reason in [reasons::OVERLOADED, reasons::LIMIT_REACHED] {
            assert!(matches!(ours(Code::ResourceExhausted, reason), CallReply::Busy(_)), "{reason}");
        }
        let too_large = ours(Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
        assert!(matches!(too_large, CallReply::Ended(ToolCallEnd::Failed { .. })));
        assert!(matches!(from_proxy(Code::OutOfRange), CallReply::Ended(ToolCallEnd::Failed { .. })));
        for code in [
            Code::ResourceExhausted,
            Code::Internal,
            Code::Unknown,
            Code::Cancelled,
            Code::NotFound,
            Code::Unauthenticated,
        ] {
            assert!(matches!(from_proxy(code), CallReply::Unavailable(_)), "{code:?}");
        }
    }

    /// The errors that no runner answers about a call: those of the executor, of the gate, and of other methods.
    const NOT_ABOUT_A_CALL: &[&str] = &[
        reasons::EXECUTION_NOT_FOUND,
        reasons::SCHEDULE_NOT_FOUND,
        reasons::TOO_MANY_SCHEDULES,
        reasons::LIMIT_FULL,
        reasons::EXECUTION_SET_ASIDE,
        reasons::FILES_NOT_KEPT,
        reasons::STEP_NOT_FOUND,
        reasons::EXECUTION_ENDED,
        reasons::EXECUTION_NOT_ENDED,
        reasons::END_NOT_RECORDED,
        reasons::EXECUTION_DELETED,
        reasons::EXECUTION_ID_DELETED,
        reasons::WRONG_STATE,
        reasons::TOO_MANY_SIGNALS,
        reasons::RETRY_PARENT,
        reasons::NOTHING_TO_RETRY,
        reasons::PLAN_REVISION_MISMATCH,
        reasons::ETAG_MISMATCH,
        reasons::CANCELLED,
        reasons::MODEL_NOT_FOUND,
        reasons::MODEL_NOT_LOCAL,
        reasons::APPROVAL_NOT_FOUND,
        reasons::ALREADY_DECIDED,
        reasons::DIGEST_MISMATCH,
        reasons::OWN_REQUEST,
        reasons::FORM_NEEDS_ANSWER,
        reasons::NO_FORM,
        reasons::CONTENTS_GONE,
        reasons::CHANGE_NOT_FOUND,
        reasons::TOO_MANY_REVEALS,
        reasons::SUBJECT_TOO_LARGE,
        reasons::BLOB_NOT_FOUND,
        reasons::BLOB_OFFSET_OUT_OF_RANGE,
        reasons::ARTIFACT_NOT_FOUND,
        reasons::ARTIFACT_CONTENT_NOT_KEPT,
        reasons::BLOB_DAMAGED,
        reasons::READ_ONLY,
        reasons::NOT_APPROVED,
        reasons::SUBJECT_CHANGED,
        reasons::SUBJECT_INVALID,
        reasons::CONTENT_MISMATCH,
    ];

    /// Every error of the services has a decision here, or is one that no runner answers about a call.
    #[test]
    fn every_refusal_of_a_runner_has_a_decision() {
        let mut undecided = Vec::new();
        for row in reasons::ALL {
            // A status without a reason has a code alone.
            if row.topic == reasons::Topic::Grpc && row.name != reasons::INTERNAL {
                continue;
            }
            let codes = row.codes.iter().map(|code| Code::from_i32(*code as i32));
            let is_decided = |code| !is_unexpected(&status::error(code, row.name, "no").into());
            if row.codes.iter().len() > 0 && !codes.into_iter().any(is_decided) {
                undecided.push(row.name);
            }
        }
        assert_eq!(undecided, NOT_ABOUT_A_CALL);
    }

    /// A person is never told that a runner does not answer which does.
    #[test]
    fn an_answer_from_which_nothing_follows_is_named() {
        let ours = |code, reason| named_answer(&status::error(code, reason, "Nobody may.").into());
        assert_eq!(
            ours(Code::Unauthenticated, reasons::UNAUTHENTICATED).as_deref(),
            Some("UNAUTHENTICATED: Nobody may")
        );
        assert_eq!(ours(Code::FailedPrecondition, "NEWER_REASON").as_deref(), Some("NEWER_REASON: Nobody may"));
        assert_eq!(ours(Code::Unavailable, reasons::RUNNER_STOPPING), None);
        let bare = |code| named_answer(&Status::new(code, ""));
        assert_eq!(bare(Code::Unimplemented).as_deref(), Some("Unimplemented"));
        for code in [Code::Unavailable, Code::Unknown, Code::Cancelled] {
            assert_eq!(bare(code), None, "{code:?}");
        }
    }

    /// A reference to a result has to be one that a copy can be checked by.
    #[test]
    fn a_reference_of_another_kind_is_not_understood() {
        let reply = |change: fn(&mut v1::BlobRef)| {
            let mut blob = v1::BlobRef {
                digest: format!("sha256:{}", "ab".repeat(32)),
                size_bytes: 7,
                media_type: "application/json".into(),
                redacted: false,
            };
            change(&mut blob);
            let result = Some(v1::Payload { content: Some(Content::Blob(blob)) });
            reply_of(runner_v1::ToolCall { state: State::Completed.into(), result, ..Default::default() })
        };
        let RunnerReply::Uncopied(UncopiedResult { reference, .. }) = reply(|_| {}) else {
            panic!("it is a reference")
        };
        assert_eq!(reference.size, 7);
        let others: [fn(&mut v1::BlobRef); 4] = [
            |blob| blob.digest = blob.digest.replace("sha256", "hmac-sha256"),
            |blob| blob.size_bytes = -1,
            |blob| blob.media_type = "text/plain".into(),
            |blob| blob.redacted = true,
        ];
        for change in others {
            assert!(matches!(reply(change), RunnerReply::Whole(CallReply::Unavailable(_))));
        }
    }

    /// Anybody may write a runner: what it says that a call committed cannot make an event too large.
    #[test]
    fn a_receipt_that_lists_too_much_is_cut_and_says_so() {
        let of = |count: usize, path: &str| {
            let file = v1::CommittedFile { path: path.into(), ..v1::CommittedFile::default() };
            let files = vec![file; count];
            let receipt = Some(Box::new(v1::Receipt { files, unlisted_file_count: 5, ..v1::Receipt::default() }));
            let result = Some(v1::Payload::of_json("1"));
            let reply = runner_v1::ToolCall { state: State::Completed.into(), result, receipt, ..Default::default() };
            let RunnerReply::Whole(CallReply::Ended(ToolCallEnd::Completed { receipt, .. })) = reply_of(reply) else {
                panic!("the call has completed")
            };
            (receipt.files.len(), receipt.unlisted_files)
        };
        assert_eq!(of(3, "a"), (3, 5));
        assert_eq!(of(MAX_FILES + 2, "a"), (MAX_FILES, 7));
        assert_eq!(of(5, &"x".repeat(MAX_FILE_BYTES / 2)), (2, 8));
    }

    #[test]
    fn a_lost_ledger_leaves_an_unknown_outcome_only_where_running_again_could_harm() {
        for recovery in [RecoveryClass::ReadOnly, RecoveryClass::Idempotent] {
            assert_eq!(reply_without_ledger(recovery), None);
        }
        // A transactional effect may be in place, and a second run would apply it twice.
        for recovery in [RecoveryClass::Transactional, RecoveryClass::Manual] {
            let end = reply_without_ledger(recovery);
            assert!(matches!(end, Some(ToolCallEnd::OutcomeUnknown { .. })), "{recovery:?}");
        }
    }
}
