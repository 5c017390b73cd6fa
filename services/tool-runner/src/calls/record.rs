//! Builds the messages about calls. Arguments, results and failures leave the runner only through this module.

use std::{error::Error, time::Duration};

use belay_defects::{Defect, is_planted};
use belay_policy::{Decision, Verdict};
use belay_proto::{
    facts,
    v1::{self, ErrorClass, payload::Content, policy_decision, tool_call::State},
};
use belay_reasons as reasons;
use belay_telemetry::TraceContext;

use belay_workspace::SpecialFile;

use crate::{
    CallIntent, ToolFailure,
    disk_errors::{disk_reason, is_disk_reason},
};

/// The end of a call that did not succeed.
pub(super) type Unsuccessful = (State, ToolFailure);

/// JSON text as a payload.
pub(crate) fn payload(json: String) -> v1::Payload {
    v1::Payload { content: Some(Content::Json(json)) }
}

/// A trace context as tools pass it on.
pub(super) fn trace(trace: &TraceContext) -> v1::TraceContext {
    v1::TraceContext { traceparent: trace.traceparent(), tracestate: trace.tracestate().to_owned() }
}

pub(super) fn failure(failure: ToolFailure) -> v1::Failure {
    let ToolFailure { class, reason, message, metadata, rate_limit } = failure;
    let (retry_after, quota) = rate_limit.map_or((None, None), |limit| (limit.retry_after, Some(limit.quota)));
    let retryable = matches!(
        class,
        ErrorClass::Crash
            | ErrorClass::RateLimit
            | ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::InvalidResult
    );
    v1::Failure {
        error_class: class.into(),
        message,
        reason,
        retryable,
        metadata,
        retry_after: retry_after.map(belay_proto::duration),
        quota,
        ..v1::Failure::default()
    }
}

/// A skipped special file, for a receipt.
pub(super) fn left_out(SpecialFile { path, kind }: &SpecialFile) -> String {
    format!("{path} ({})", kind.name())
}

/// A decision of policy `revision`.
pub(super) fn decision(decision: &Decision, revision: i64) -> v1::PolicyDecision {
    let verdict = match decision.verdict {
        Verdict::Auto => policy_decision::Verdict::Auto,
        Verdict::Preview => policy_decision::Verdict::Preview,
        Verdict::Prompt => policy_decision::Verdict::Prompt,
        Verdict::Deny => policy_decision::Verdict::Deny,
    };
    v1::PolicyDecision {
        verdict: verdict.into(),
        rule: decision.rule.clone(),
        reason: decision.reason.clone(),
        policy_revision: revision,
    }
}

/// The failure of a call that the policy denies.
///
/// `allowing` are entries for the policy's rules that would allow it.
pub(super) fn denied(decision: &Decision, allowing: &[String]) -> ToolFailure {
    let message = format!("Policy rule `{}` denies it: {}", decision.rule, decision.reason);
    let mut failure = ToolFailure::new(ErrorClass::PolicyDenied, reasons::POLICY_DENIED, message);
    failure.metadata.extend(facts::allowing(allowing));
    failure
}

/// The failure of a call whose workspace changed under it. `others` are the calls that committed meanwhile.
pub(super) fn conflict(error: &dyn std::fmt::Display, others: &[String]) -> ToolFailure {
    let by = match others {
        [] => String::new(),
        others => format!(" Calls that committed meanwhile: {}.", list(others)),
    };
    let message = format!("The workspace changed during the call: {error}.{by}");
    ToolFailure::new(ErrorClass::Cancelled, reasons::CONFLICT, message)
}

/// The end of a call that ran, and whose changes were not committed. One that is MANUAL does not run again automatically, so it does not end as cancelled: what it
/// did outside of the workspace is not known.
pub(super) fn not_committed((state, failure): Unsuccessful, is_manual: bool) -> Unsuccessful {
    if state != State::Cancelled || !is_manual {
        return (state, failure);
    }
    let message = format!(
        "{} Nothing that it changed in the workspace was committed, and what it did outside of the workspace is not known, so it does not run again automatically.",
        failure.message
    );
    let unknown = ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message);
    (State::OutcomeUnknown, ToolFailure { metadata: failure.metadata, ..unknown })
}

/// The failure of an approved call whose network, or whose recovery, is another one by now. It has not run, and is made again with another approval.
pub(super) fn profile_changed() -> ToolFailure {
    let message = "The network profile was changed in the runner's settings after the approval had been requested, so that the approval is requested again.";
    ToolFailure::new(ErrorClass::Cancelled, reasons::NETWORK_CHANGED, message)
}

fn list(names: &[String]) -> String {
    const MAX_NAMED: usize = 5;
    let named = names.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The failure of a call whose workspace could not be used.
pub(super) fn workspace_failed(error: &(dyn Error + 'static)) -> Unsuccessful {
    let reason = disk_reason(error).unwrap_or(reasons::WORKSPACE_FAILED);
    let message = match reason {
        reasons::WORKSPACE_READ_ONLY => format!("The file system of the workspace is read-only: {error}."),
        _ => format!("The workspace could not be used: {error}."),
    };
    unsuccessful(ToolFailure::new(ErrorClass::Transient, reason, message))
}

/// The end of a failed call. A call that failed on a full or read-only disk, or whose sandbox could not be tested or started for now, has changed
/// nothing: it ends as cancelled, so that the executor retries it later.
pub(super) fn unsuccessful(failure: ToolFailure) -> Unsuccessful {
    let on_disk = is_disk_reason(&failure.reason) && !is_planted(Defect::FullDiskFailsSteps);
    (if on_disk || never_started(&failure) { State::Cancelled } else { State::Failed }, failure)
}

/// Whether the command of a call was not started, because the sandbox could not be tested or started for now: it has had no effect of any kind.
pub(super) fn never_started(failure: &ToolFailure) -> bool {
    failure.reason == reasons::SANDBOX_UNAVAILABLE && failure.class == ErrorClass::Transient
}

/// The most bytes of an intent that a receipt has.
const MAX_INTENT_BYTES: usize = 64 * 1024;

/// The intent that a policy has judged, for the receipt; `None` when the call names nothing that a policy sees.
pub(super) fn intent(operation: &CallIntent) -> Option<v1::CallIntent> {
    let CallIntent { command, program, environment, working_directory, paths, hosts, network, credentials } = operation;
    let root = if working_directory == "." { "" } else { working_directory };
    let program = program.clone().unwrap_or_default();
    if command.is_empty() && environment.is_empty() && paths.is_empty() && hosts.is_empty() {
        return None;
    }
    let mut left = MAX_INTENT_BYTES.saturating_sub(program.len() + root.len());
    let mut is_cut = false;
    let mut bounded = |words: &[String]| -> Vec<String> {
        let fits = |word: &&String| {
            let fits = word.len() + 4 <= left;
            left -= if fits { word.len() + 4 } else { left };
            fits
        };
        let taken: Vec<String> = words.iter().take_while(fits).cloned().collect();
        is_cut |= taken.len() < words.len();
        taken
    };
    let (environment, hosts, credentials) = (bounded(environment), bounded(hosts), bounded(credentials));
    let (paths, command) = (bounded(paths), bounded(command));
    let (working_directory, network) = (root.to_owned(), network.clone().unwrap_or_default());
    Some(v1::CallIntent {
        command,
        program,
        working_directory,
        environment,
        paths,
        is_cut,
        hosts,
        network,
        credentials,
    })
}

/// The failure of a call that timed out. It names the field of the plan that sets the limit.
pub(crate) fn timed_out(limit: Duration) -> ToolFailure {
    let message = format!(
        "The call timed out after {limit:?}. To allow more time, set `attempt_timeout` on the step, `timeout` for all of its attempts \
         together, or that of its group."
    );
    ToolFailure::new(ErrorClass::Timeout, reasons::TIMEOUT, message)
        .with(facts::LIMIT, limit.as_secs_f64())
        .with(facts::UNIT, "seconds")
        .with(facts::SETTING, "attempt_timeout")
}

pub(super) fn cancelled() -> ToolFailure {
    ToolFailure::new(ErrorClass::Cancelled, reasons::CANCELLED, "The call was cancelled.")
}

#[cfg(test)]
mod tests {
    use belay_workspace::{FileKind, RelPath};

    use super::*;

    #[test]
    fn an_intent_that_is_too_long_is_cut_and_says_so() {
        let operation = CallIntent {
            command: vec!["git".into(), "x".repeat(MAX_INTENT_BYTES)],
            program: Some("git".into()),
            environment: vec!["LANG".into()],
            working_directory: ".".into(),
            paths: vec!["a".into()],
            hosts: vec!["example.org".into()],
            network: Some("ci".into()),
            credentials: vec!["forge".into()],
        };
        let cut = intent(&operation).unwrap();
        assert_eq!((cut.command, cut.program.as_str(), cut.is_cut), (vec!["git".to_owned()], "git", true));
        assert_eq!((cut.working_directory.as_str(), &cut.environment), ("", &operation.environment));
        assert_eq!((&cut.paths, &cut.hosts), (&operation.paths, &operation.hosts));
        assert_eq!((Some(cut.network), &cut.credentials), (operation.network.clone(), &operation.credentials));
        let whole = intent(&CallIntent { command: vec!["git".into()], ..operation }).unwrap();
        assert!(!whole.is_cut);
        assert_eq!(intent(&CallIntent::default()), None);
    }

    // A full or read-only disk is no fault of the step: the executor calls again later.
    #[test]
    fn a_full_or_read_only_disk_cancels_a_call_and_any_other_failure_fails_it() {
        for (code, reason) in [(28, reasons::WORKSPACE_FULL), (30, reasons::WORKSPACE_READ_ONLY)] {
            let (state, failed) = workspace_failed(&std::io::Error::from_raw_os_error(code));
            assert_eq!((state, failed.reason.as_str()), (State::Cancelled, reason));
        }
        let end = |class, reason: &str| unsuccessful(ToolFailure::new(class, reason, "failed")).0;
        assert_eq!(end(ErrorClass::Transient, reasons::WORKSPACE_FAILED), State::Failed);
        assert_eq!(end(ErrorClass::Transient, reasons::SANDBOX_UNAVAILABLE), State::Cancelled);
        assert_eq!(end(ErrorClass::SandboxViolation, reasons::SANDBOX_UNAVAILABLE), State::Failed);
    }

    // A command that had a network, or that is declared as MANUAL, does not run again when another call has changed what it changed.
    #[test]
    fn a_conflict_ends_a_manual_call_as_unknown_and_cancels_any_other() {
        let conflicts = || (State::Cancelled, conflict(&"a.txt was modified", &["another".to_owned()]));
        assert_eq!(not_committed(conflicts(), false), conflicts());
        let (state, failed) = not_committed(conflicts(), true);
        assert_eq!((state, failed.reason.as_str()), (State::OutcomeUnknown, reasons::OUTCOME_UNKNOWN));
        assert!(failed.message.starts_with(&conflicts().1.message) && failed.message.contains("does not run again"));
        let timed_out = (State::TimedOut, timed_out(Duration::from_secs(1)));
        assert_eq!(not_committed(timed_out.clone(), true), timed_out);
    }

    #[test]
    fn a_failure_reaches_the_caller_with_its_facts() {
        let facts = [("path".to_owned(), "src/main.rs".to_owned())];
        let mut failed = ToolFailure::new(ErrorClass::Transient, reasons::CONFLICT, "The file changed.");
        failed.metadata = facts.clone().into();
        let failed = failure(failed);
        assert_eq!((failed.error_class(), failed.reason.as_str()), (ErrorClass::Transient, reasons::CONFLICT));
        assert_eq!((failed.message.as_str(), failed.retryable), ("The file changed.", true));
        assert_eq!(failed.metadata, facts.into());
        assert!(!failure(ToolFailure::new(ErrorClass::PolicyDenied, reasons::POLICY_DENIED, "")).retryable);
        assert!(!failure(cancelled()).retryable);
        let timed_out = failure(timed_out(Duration::from_secs(3)));
        assert!(timed_out.retryable && timed_out.metadata.contains_key("limit"), "{timed_out:?}");
    }

    #[test]
    fn what_was_left_out_and_the_trace_are_passed_on() {
        let socket = SpecialFile { path: RelPath::parse("run/agent.sock").unwrap(), kind: FileKind::Socket };
        assert_eq!(left_out(&socket), "run/agent.sock (a socket)");
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = TraceContext::parse(parent, "vendor=1").unwrap();
        let passed = v1::TraceContext { traceparent: parent.into(), tracestate: "vendor=1".into() };
        assert_eq!(trace(&context), passed);
    }
}
