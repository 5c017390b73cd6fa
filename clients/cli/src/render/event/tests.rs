//! The line of each event.

use belay_proto::v1::{
    Actor, ApprovalDecided, ApprovalNeed, ApprovalRequested, CredentialUse, Decision, EffectSummary, Execution,
    ExecutionAwaitingApproval, ExecutionCreated, ExecutionEvent, ExecutionFinished, Failure, NetworkConnection,
    NetworkUse, Payload, Plan, PolicyDecision, Progress, Receipt, SkipReason, Step, StepCompleted, StepFailed,
    StepOutcomeUnknown, StepRetryScheduled, StepSkipped, StepSpec, StepStarted, StepTotals, ToolCallApprovalRequired,
    ToolCallCancelled, ToolCallCompleted, ToolCallDenied, ToolCallEffectProposed, ToolCallRequested, execution::State,
    execution_event::Kind, network_connection::Route, payload::Content,
};
use pbjson_types::{Duration, Timestamp};

use super::line;
use crate::render::tracked_execution::TrackedExecution;

fn rendered(step: &str, attempt: i32, kind: Kind) -> String {
    told_by("", step, attempt, kind)
}

fn told_by(principal: &str, step: &str, attempt: i32, kind: Kind) -> String {
    let status = Step { step_id: "fetch".to_owned(), max_attempts: 3, ..Default::default() };
    let tracked = TrackedExecution::new(Execution {
        name: "namespaces/default/executions/e1".to_owned(),
        steps: vec![status],
        ..Default::default()
    });
    let event = ExecutionEvent {
        record_time: Some(Timestamp { seconds: 1_795_230_245, nanos: 0 }),
        step_id: step.to_owned(),
        attempt,
        actor: Some(Actor { principal: principal.to_owned(), request_id: String::new() }),
        kind: Some(kind),
        ..Default::default()
    };
    line(&event, &tracked).expect("known events have a line").render(false)
}

fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

fn failure(message: &str, reason: &str) -> Option<Failure> {
    Some(Failure { message: message.to_owned(), reason: reason.to_owned(), ..Default::default() })
}

fn done(done: i32) -> Option<Progress> {
    Some(Progress { done, total: 2 })
}

// S2-FR-068 to S2-FR-072: start, call, result, end and overall progress are printed. S1-22, S1-34: so are retries.
#[test]
fn a_run_reads_like_a_log() {
    let plan = Plan { id: "quickstart".to_owned(), steps: vec![StepSpec::default(); 2], ..Default::default() };
    let arguments = Some(Payload { content: Some(Content::Json(r#"{"path":"a"}"#.to_owned())) });
    let totals = Some(StepTotals { total: 2, failed: 1, skipped: 1, ..Default::default() });
    let log = [
        rendered("", 0, Kind::ExecutionCreated(Box::new(ExecutionCreated { plan: Some(plan), ..Default::default() }))),
        rendered("fetch", 1, Kind::StepStarted(StepStarted::default())),
        rendered(
            "fetch",
            1,
            Kind::ToolCallRequested(ToolCallRequested {
                tool: "read_file".to_owned(),
                arguments,
                ..Default::default()
            }),
        ),
        rendered(
            "fetch",
            1,
            Kind::StepRetryScheduled(StepRetryScheduled {
                failure: failure("reset", "NET"),
                retry_count: 1,
                delay: seconds(5),
                retry_time: None,
            }),
        ),
        rendered("fetch", 2, Kind::StepStarted(StepStarted::default())),
        rendered(
            "fetch",
            2,
            Kind::StepFailed(StepFailed { failure: failure("reset", "NET"), attempts: 2, progress: done(1) }),
        ),
        rendered(
            "publish",
            0,
            Kind::StepSkipped(StepSkipped {
                reason: SkipReason::DependencyFailed.into(),
                because: "fetch".to_owned(),
                progress: done(2),
                group: String::new(),
            }),
        ),
        rendered("fetch", 1, Kind::StepCompleted(StepCompleted { progress: done(1), duration: seconds(2) })),
        rendered(
            "",
            0,
            Kind::ExecutionFinished(Box::new(ExecutionFinished {
                state: State::Failed.into(),
                totals,
                duration: seconds(9),
                ..Default::default()
            })),
        ),
    ];
    assert_eq!(
        log,
        [
            "03:04:05Z  e1               accepted: plan quickstart, 2 steps",
            "03:04:05Z  fetch            started",
            "03:04:05Z  fetch            calls read_file {\"path\":\"a\"}",
            "03:04:05Z  fetch            retrying (1/2) in 5s: reset (NET)",
            "03:04:05Z  fetch            started, attempt 2 of 3",
            "03:04:05Z  fetch            failed after 2 attempts (1/2): reset (NET)",
            "03:04:05Z  publish          skipped: depends on fetch, which failed (2/2)",
            "03:04:05Z  fetch            completed in 2s (1/2)",
            "03:04:05Z  e1               failed in 9s: 1 failed, 1 skipped",
        ]
    );
}

// S2-FR-052, S2-FR-053, S2-X-19: an approval's request, its subject, its reason and its decision are printed.
#[test]
fn an_approval_reads_like_a_log() {
    let need = Some(ApprovalNeed {
        decision: Some(PolicyDecision {
            rule: "file_delete".to_owned(),
            reason: "Deleting asks first.".to_owned(),
            ..Default::default()
        }),
        effect: Some(EffectSummary { created: 2, modified: 1, ..Default::default() }),
        ..Default::default()
    });
    let approval = "namespaces/default/approvals/x7k2".to_owned();
    let decided = |decision: Decision, approval: &str, principal: &str, reason: &str| {
        let (approval, decision, reason) = (approval.to_owned(), decision.into(), reason.to_owned());
        told_by(principal, "fetch", 1, Kind::ApprovalDecided(ApprovalDecided { approval, decision, reason }))
    };
    let receipt = Some(Receipt {
        effect: Some(EffectSummary { deleted: 1, ..Default::default() }),
        left_out: vec!["run/app.sock (a socket)".to_owned()],
        left_out_count: 1,
        ..Default::default()
    });
    let log = [
        rendered("fetch", 1, Kind::ToolCallEffectProposed(ToolCallEffectProposed { need: need.clone() })),
        rendered("fetch", 1, Kind::ToolCallApprovalRequired(ToolCallApprovalRequired { need })),
        rendered(
            "fetch",
            1,
            Kind::ApprovalRequested(ApprovalRequested { approval: approval.clone(), ..Default::default() }),
        ),
        rendered("", 0, Kind::ExecutionAwaitingApproval(ExecutionAwaitingApproval {})),
        decided(Decision::Approve, &approval, "unix:1000", ""),
        decided(Decision::Deny, &approval, "unix:1000", "wrong file"),
        decided(Decision::Deny, "", "", "NON_INTERACTIVE"),
        decided(Decision::Expire, &approval, "", ""),
        rendered(
            "fetch",
            1,
            Kind::ToolCallDenied(ToolCallDenied {
                failure: failure("wrong file", "APPROVAL_DENIED"),
                ..Default::default()
            }),
        ),
        rendered(
            "fetch",
            1,
            Kind::ToolCallCompleted(ToolCallCompleted {
                receipt: receipt.map(Box::new),
                result: Some(Payload { content: Some(Content::Json("{}".to_owned())) }),
            }),
        ),
        rendered(
            "fetch",
            1,
            Kind::ToolCallCancelled(ToolCallCancelled {
                failure: failure("a.txt changed meanwhile", "CONFLICT"),
                ..Default::default()
            }),
        ),
    ];
    let expected = [
        "ran in an isolated copy; would change 3 files (2 created, 1 modified); Deleting asks first. (rule file_delete)",
        "has not run; Deleting asks first. (rule file_delete)",
        "waiting for approval; next: belay approvals show x7k2",
        "waiting for approval",
        "approved by unix:1000",
        "denied by unix:1000: wrong file",
        "denied, without asking a person: NON_INTERACTIVE",
        "expired: no decision in time",
        "call denied: wrong file (APPROVAL_DENIED)",
        "call answered {}; 1 deleted; not committed: run/app.sock (a socket)",
        "call cancelled: a.txt changed meanwhile (CONFLICT)",
    ];
    for (line, expected) in log.iter().zip(expected) {
        assert!(line.ends_with(&format!(" {expected}")), "{line}");
    }
}

#[test]
fn an_unknown_outcome_names_the_command_that_says_more() {
    let failure = failure("stopped", "OUTCOME_UNKNOWN");
    let line = rendered("fetch", 1, Kind::StepOutcomeUnknown(StepOutcomeUnknown { failure }));
    assert!(
        line.contains("outcome unknown, a person has to look: stopped") && line.contains("; next: belay why "),
        "{line}"
    );
}

#[test]
fn the_network_of_a_call_is_summed_up_with_what_was_refused() {
    let connection = |host: &str, port, is_allowed| NetworkConnection {
        host: host.to_owned(),
        port,
        is_allowed,
        ..Default::default()
    };
    let network = NetworkUse {
        profile: "ci".to_owned(),
        connections: vec![
            connection("pypi.org", 443, true),
            NetworkConnection { route: Route::NameServer.into(), ..connection("pypi.org", 0, true) },
            connection("evil.example.com", 443, false),
            connection("evil.example.com", 443, false),
            connection("other.example.com", 0, false),
        ],
        refused_count: 3,
        credentials: vec![CredentialUse {
            credential: "github".to_owned(),
            host: "api.github.com".to_owned(),
            request_count: 1,
        }],
        ..Default::default()
    };
    let completed = |network| {
        let receipt = Some(Box::new(Receipt { network, ..Default::default() }));
        let result = Some(Payload { content: Some(Content::Json("{}".to_owned())) });
        rendered("fetch", 1, Kind::ToolCallCompleted(ToolCallCompleted { receipt, result }))
    };
    let line = completed(Some(network));
    let expected = "; network ci: 1 connection, 3 refused (evil.example.com:443, other.example.com), credential github to api.github.com in 1 request";
    assert!(line.ends_with(expected), "{line}");
    assert!(completed(None).ends_with("call answered {}"));
}

#[test]
fn an_unknown_event_is_skipped_only_where_that_is_safe() {
    let tracked = TrackedExecution::new(Execution::default());
    let event = ExecutionEvent { safe_to_skip: true, ..Default::default() };
    assert!(line(&event, &tracked).is_none());
    let event = ExecutionEvent { safe_to_skip: false, ..Default::default() };
    assert!(line(&event, &tracked).expect("has a line").render(false).contains("a newer one shows it"));
}
