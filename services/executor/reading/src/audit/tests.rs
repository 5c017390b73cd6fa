use std::time::Duration;

use belay_execution::{
    Actor, Decision, ErrorClass, Failure, OperationEnd, OperationEvent, Progress, Receipt, Resolution, SkipReason,
    StepEvent, Timestamp, ToolCallEnd, ToolCallRequest, Totals, Work,
};

use super::*;

fn of(body: Body) -> Entry {
    entry(&Event { sequence: 7, time: Timestamp::from_micros(5_000_000), actor: None, body })
}

fn step(attempt: u32, event: StepEvent) -> Entry {
    of(Body::Step { step: "build".into(), attempt, event })
}

fn refused() -> Failure {
    Failure::new(ErrorClass::Transient, "TOOL_FAILED", "connection refused")
}

const NONE: Progress = Progress { done: 0, total: 0 };

/// S4-22: start (info), success with duration (info), retry with delay and attempt (warn), final failure with attempts (error).
#[test]
fn a_step_leaves_entries_of_its_start_its_retries_and_its_end() {
    let started = step(1, StepEvent::Started);
    assert_eq!((started.severity, started.level), (Severity::Info, AuditLevel::Standard));
    assert_eq!(
        (started.message.as_str(), started.step.as_deref(), started.attempt),
        ("Step `build` started", Some("build"), 1)
    );

    let (delay, not_before) = (Duration::from_millis(1_500), Timestamp::from_micros(6_500_000));
    let retry = step(1, StepEvent::RetryScheduled { failure: refused(), retry_count: 1, delay, not_before });
    assert_eq!((retry.severity, retry.level), (Severity::Warn, AuditLevel::Standard));
    assert_eq!(retry.message, "Step `build` failed in attempt 1 and is tried again after 1.5s: connection refused");
    let failure = json!({"code": "TOOL_FAILED", "class": refused().class.name(), "message": "connection refused", "recoverable": true});
    let expected =
        json!({"attempt": 1, "retryCount": 1, "delayMs": 1_500, "notBeforeUnixMs": 6_500, "failure": failure});
    assert_eq!(retry.details, expected);

    let completed = step(2, StepEvent::Completed { progress: NONE, duration: Duration::from_millis(120) });
    assert_eq!((completed.severity, completed.level), (Severity::Info, AuditLevel::Minimal));
    assert_eq!(completed.message, "Step `build` completed after 120ms, in 2 attempts");
    assert_eq!(completed.details, json!({"attempts": 2, "durationMs": 120}));

    let failed = step(3, StepEvent::Failed { failure: refused(), progress: NONE });
    assert_eq!((failed.severity, failed.level), (Severity::Error, AuditLevel::Minimal));
    assert_eq!(failed.message, "Step `build` failed after 3 attempts: connection refused");
    assert_eq!(failed.details["attempts"], 3);
}

/// S4-13: a step that never ran has an entry at every level.
#[test]
fn a_skipped_step_leaves_an_entry_that_says_why() {
    let skipped = |reason, because: Option<&str>| {
        step(0, StepEvent::Skipped { reason, because: because.map(Into::into), group: None, progress: NONE })
    };
    let after = skipped(SkipReason::DependencyFailed, Some("fetch"));
    assert_eq!((after.severity, after.level), (Severity::Warn, AuditLevel::Minimal));
    assert_eq!(after.message, "Step `build` skipped: a step it depends on failed (step `fetch`)");
    assert_eq!(after.details, json!({"reason": "DEPENDENCY_FAILED", "because": "fetch"}));
    let (reason, because, group) = (SkipReason::StopOnError, Some("fetch".into()), Some("prepare".to_owned()));
    let of_group = step(0, StepEvent::Skipped { reason, because, group, progress: NONE });
    assert_eq!(of_group.message, "Step `build` skipped: another step failed of the group `prepare` (step `fetch`)");
    assert_eq!(of_group.details, json!({"reason": "STOP_ON_ERROR", "because": "fetch", "group": "prepare"}));
    let expected = skipped(SkipReason::ConditionFalse, None);
    assert_eq!((expected.severity, expected.level), (Severity::Info, AuditLevel::Minimal));
}

/// S4-10, S4-31: the start and the end of an execution, with time, severity, message and details.
#[test]
fn an_execution_leaves_entries_of_its_start_and_its_end() {
    let started = of(ExecutionEvent::Started.into());
    assert_eq!((started.message.as_str(), started.level), ("Execution started", AuditLevel::Minimal));
    assert_eq!((started.sequence, started.time.as_micros(), &started.step), (7, 5_000_000, &None));
    assert_eq!(started.details, json!({}), "there is nothing else to say");
    let ended = |state, failure| {
        let totals = Totals { total: 3, completed: 1, failed: 1, skipped: 1, cancelled: 0 };
        let duration = Duration::from_secs(75);
        of(ExecutionEvent::Finished(Box::new(Finished { state, totals, failure, duration, outputs: None })).into())
    };
    let failed = ended(ExecutionState::Failed, Some(refused()));
    assert_eq!((failed.severity, failed.level), (Severity::Error, AuditLevel::Minimal));
    assert_eq!(failed.message, "Execution failed after 1m15s: 1 completed, 1 failed, 1 skipped, 0 cancelled");
    let facts = failed.details;
    assert_eq!(
        (&facts["state"], &facts["durationMs"], &facts["failure"]["code"]),
        (&json!("FAILED"), &json!(75_000), &json!("TOOL_FAILED"))
    );
    let completed = ended(ExecutionState::Completed, None);
    assert_eq!((completed.severity, completed.level), (Severity::Info, AuditLevel::Minimal));
    assert!(completed.message.starts_with("Execution completed after 1m15s"));
}

/// S4-31: what a principal asked for names the principal and the request, at every level.
#[test]
fn what_a_principal_asked_for_names_the_principal() {
    let asked = |body: Body| {
        let actor = Some(Actor { principal: "oidc:ann".into(), request_id: "r-1".into() });
        entry(&Event { sequence: 1, time: Timestamp::from_micros(0), actor, body })
    };
    let cancelled = asked(ExecutionEvent::CancelRequested { reason: "enough".into(), kill: false }.into());
    let actor = cancelled.actor.as_ref().unwrap();
    assert_eq!((actor.principal.as_str(), actor.request_id.as_str()), ("oidc:ann", "r-1"));
    assert_eq!((cancelled.message.as_str(), cancelled.level), ("Cancellation requested: enough", AuditLevel::Minimal));
    let operation = OperationId { step: "build".into(), attempt: 1, number: 1 };
    let event =
        OperationEvent::Decided { approval: "a".into(), decision: Decision::Denied, reason: "not today".into() };
    let denied = asked(Body::Operation { id: operation, event });
    assert_eq!((denied.message.as_str(), denied.severity), ("Step `build` denied: not today", Severity::Warn));
    assert_eq!((denied.level, &denied.details["decision"]), (AuditLevel::Minimal, &json!("DENY")));
    let resolution = Resolution::Failed;
    let event = StepEvent::Resolved { resolution, reason: "looked".into() };
    let resolved = asked(Body::Step { step: "build".into(), attempt: 1, event });
    assert_eq!(resolved.message, "The call of step `build` was found to have failed: looked");
}

/// Effects on the workspace are in the standard log; calls without one are in the verbose log, which has the digest of their arguments and never the
/// arguments themselves.
#[test]
fn calls_are_verbose_and_effects_are_not() {
    let call = |event| of(Body::Operation { id: OperationId { step: "build".into(), attempt: 1, number: 2 }, event });
    let arguments = belay_execution::Json::from_text(r#"{"password":"hunter2"}"#);
    let requested = call(OperationEvent::Requested(Work::ToolCall(std::sync::Arc::new(ToolCallRequest {
        tool: "http_request".into(),
        arguments: arguments.into(),
        arguments_digest: "sha256:aa".into(),
        ledger_id: "l".into(),
        check: None,
        held: belay_execution::Amounts::default(),
        layers: None,
        namespace_hold: None,
        timeout: Duration::from_secs(1),
    }))));
    assert_eq!(requested.level, AuditLevel::Verbose);
    assert_eq!(
        (&requested.details["argumentsDigest"], &requested.details["operation"]),
        (&json!("sha256:aa"), &json!("build/1.2"))
    );
    assert!(!requested.details.to_string().contains("hunter2"));
    let ended = |effect| {
        let receipt = Receipt { effect, effect_digest: "sha256:bb".into(), ..Receipt::default() };
        let result = belay_execution::Json::from_text("1").into();
        call(OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Completed {
            result,
            receipt: Box::new(receipt),
        })))
    };
    assert_eq!(ended(None).level, AuditLevel::Verbose);
    let effect = belay_execution::EffectSummary { created: 2, modified: 1, deleted: 0, changes: Vec::new() };
    let committed = ended(Some(effect));
    assert_eq!((committed.level, &committed.details["effectDigest"]), (AuditLevel::Standard, &json!("sha256:bb")));
    assert_eq!(committed.message, "The call of step `build` committed its changes: 2 created, 1 modified, 0 deleted");
}

#[test]
fn durations_are_for_people() {
    let words = [0, 999, 1_000, 59_999, 60_000, 3_599_999, 3_600_000].map(|ms| duration(Duration::from_millis(ms)));
    assert_eq!(words, ["0ms", "999ms", "1.0s", "59.9s", "1m00s", "59m59s", "1h00m"]);
}
