use std::{sync::Arc, time::Duration};

use belay_execution::{
    Allotment, Amounts, ApprovalRequirement, BlobRef, BudgetReport, BudgetUnit, CallIntent, CarriedLayers, ChangeKind,
    Child, ChildEnd, CommittedFile, CredentialUse, Decision, EffectSummary, ErrorClass, ExecutionState, Failure,
    FileType, Form, Json, LastOutput, NamespaceHold, NetworkConnection, NetworkRoute, NetworkUse, OperationEnd,
    OperationEvent, OperationReport, PathChange, PauseCause, Payload, Period, PolicyDecision, QuotaState, Receipt,
    StepLayers, ToolCallEnd, ToolCallRequest, Verdict, WaitCondition, WaitEnd, Work, WriteBound, WriteMechanism,
};

use belay_plan::{CheckPlace, LimitBound, LimitClaim, StartRate, WhenFull};

use super::*;
use crate::wire::{encode, facts_beside};

fn carried() -> CarriedLayers {
    CarriedLayers { execution: "namespaces/n/executions/e".into(), round: 2, layers: vec!["two.e".into()] }
}

/// A watch ends after this event, of which it reads nothing else.
#[test]
fn the_last_event_is_told_from_its_bytes() {
    let event = |kind| v1::ExecutionEvent { sequence: 9, kind: Some(kind), ..v1::ExecutionEvent::default() };
    let finished = v1::ExecutionFinished { state: 5, ..v1::ExecutionFinished::default() };
    assert!(is_end(&event(Kind::ExecutionFinished(Box::new(finished))).encode_length_delimited_to_vec()));
    let started = event(Kind::ExecutionStarted(v1::ExecutionStarted {})).encode_length_delimited_to_vec();
    assert!(!is_end(&started) && !is_end(&started[..3]) && !is_end(&[]));
}

/// Events come back as they were stored, each by itself: nothing about its plan has to be known. S2-FR-053, B-12.
#[test]
fn events_come_back_as_they_were() {
    let id = || OperationId { step: "a.b".into(), attempt: 2, number: 3 };
    let operation = |event| Body::Operation { id: id(), event };
    let step = |event| Body::Step { step: "a.b".into(), attempt: 2, event };
    let change = |kind| PathChange { path: "a/b".into(), kind, flags: vec!["executable".into()] };
    let kinds = [ChangeKind::Created, ChangeKind::Modified, ChangeKind::Deleted];
    let effect = EffectSummary { created: 1, modified: 2, deleted: 3, changes: kinds.map(change).to_vec() };
    let decision = |verdict| PolicyDecision { verdict, rule: "r".into(), reason: "why".into(), policy_revision: 4 };
    let need = |kind| {
        let (decision, effect) = (decision(Verdict::Prompt), effect.clone());
        let subject_digest = "sha256:x".into();
        operation(OperationEvent::Held(Box::new(ApprovalRequirement {
            kind,
            subject_digest,
            decision,
            effect,
            allowing_rules: vec!["{id: a, on: effect, decide: auto}".to_owned()],
            risk: belay_execution::Risk::Medium,
        })))
    };
    let receipt = |verdict| Receipt {
        ledger_id: "l".into(),
        duration: Duration::from_millis(1500),
        decision: Some(decision(verdict)),
        effect_digest: "sha256:y".into(),
        layer: "id.digest".into(),
        output_bytes: 11,
        usage: Some(belay_execution::ModelUsage {
            input_tokens: 5,
            cached_input_tokens: 4,
            output_tokens: 3,
            reasoning_tokens: 2,
            cost_micros: Some(1),
        }),
        effect: Some(effect.clone()),
        grant_nonce: "n".into(),
        enforced: vec!["landlock".into()],
        live_base: true,
        concurrent_commits: vec!["namespaces/n/executions/e/steps/b/calls/1.1".into()],
        concurrent_commit_count: 7,
        left_out: vec!["run/app.sock (a socket)".into()],
        left_out_count: 2,
        write_bounds: [(WriteMechanism::Tmpfs, 5), (WriteMechanism::Watcher, 0)]
            .map(|(mechanism, bytes)| WriteBound { place: "/tmp".into(), mechanism, bytes, files: 6 })
            .into(),
        files: [FileType::File, FileType::Directory, FileType::Symlink, FileType::Other]
            .into_iter()
            .zip(kinds.into_iter().cycle())
            .map(|(file_type, change)| CommittedFile {
                path: "a/b".into(),
                change,
                file_type,
                digest: "sha256:z".into(),
                size: 8,
                mode: 0o644,
                previous_digest: "sha256:w".into(),
            })
            .collect(),
        unlisted_files: 9,
        intent: Some(CallIntent {
            command: vec!["git".into(), "push".into()],
            program: "git".into(),
            working_directory: "sub".into(),
            environment: vec!["LANG".into()],
            paths: vec!["a".into()],
            is_cut: true,
            hosts: vec!["example.org".into()],
            network: "registries".into(),
            credentials: vec!["forge".into()],
        }),
        network: Some(NetworkUse {
            profile: "registries".into(),
            connections: [
                NetworkRoute::Proxy,
                NetworkRoute::Address,
                NetworkRoute::NameServer,
                NetworkRoute::Service,
                NetworkRoute::BaseUrl,
            ]
            .map(|route| NetworkConnection {
                host: "pypi.org".into(),
                port: 443,
                route,
                is_allowed: true,
                rule: "https://pypi.org:443".into(),
                sent: 12,
                received: 34,
                duration: Duration::from_millis(56),
                failure: "no answer".into(),
            })
            .into(),
            unlisted: 3,
            refused: 2,
            is_lost: true,
            credentials: vec![CredentialUse {
                credential: "github".into(),
                host: "api.github.com".into(),
                requests: 4,
            }],
        }),
    };
    let failure = || {
        let (stdout, stderr) = ("1 failed\n".to_owned(), "oh\n".to_owned());
        let last_output = LastOutput { stdout, stderr, stdout_truncated: true, stderr_truncated: false };
        let last_output = Some(Arc::new(last_output));
        let quota = QuotaState {
            name: "requests".into(),
            limit: 9,
            remaining: 1,
            reset_time: Some(Timestamp::from_micros(5_000_000)),
        };
        Failure {
            last_output,
            metadata: [("exit_code".to_owned(), "3".to_owned())].into(),
            retry_after: Some(Duration::from_millis(1_500)),
            quota: Some(Arc::new(quota)),
            cause: Some(Arc::new(Failure::new(ErrorClass::Transient, "CAUSE", "why"))),
            ..Failure::new(ErrorClass::ApprovalDenied, "APPROVAL_DENIED", "no")
        }
    };
    let decided = |decision| {
        let (name, reason) = ("ap".to_owned(), "because".to_owned());
        operation(OperationEvent::Decided { approval: name, decision, reason })
    };
    let ended = |end| operation(OperationEvent::Ended(OperationEnd::ToolCall(end)));
    let result = || Json::from_text("1");
    let digest = format!("hmac-sha256:{}", "0a".repeat(32)).into();
    let blob = Payload::Blob(BlobRef { digest, size: 40_000, redacted: true });
    let request = ToolCallRequest {
        tool: "t".into(),
        arguments: Json::from_text(r#"{"a":1}"#).into(),
        arguments_digest: "sha256:z".into(),
        ledger_id: "l".into(),
        timeout: Duration::from_secs(9),
        check: Some(CheckPlace::After(1)),
        held: Amounts { calls: 1, output_bytes: 5, ..Amounts::default() },
        layers: Some(StepLayers {
            step: "a.b".into(),
            round: 3,
            begin_with: vec!["one.d".into()],
            entry: Some(2),
            carried: Some(carried()),
        }),
        namespace_hold: Some(NamespaceHold {
            window: Period::Day.window(Timestamp::from_micros(5)),
            amounts: Amounts { calls: 1, output_bytes: 7, ..Amounts::default() },
        }),
    };
    let progress = Progress { done: 1, total: 2 };
    let (plan, time) =
        ("id: p\nsteps: [{id: a.b, tool: noop}, {id: w, wait: {signal: go}}]", Timestamp::from_micros(7));
    let created = Created {
        uid: "u".into(),
        plan: belay_plan::Plan::parse(belay_plan::Format::Yaml, plan).unwrap(),
        inputs: Json::from_text(r#"{"n":1}"#),
        start_at: Some(Timestamp::from_micros(4)),
        parent_step: "namespaces/default/executions/e/steps/s".into(),
        forked_from: "namespaces/default/executions/f".into(),
        approval_mode: belay_execution::ApprovalMode::Auto,
        workspace: Workspace::MadeFolder("e".into()),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        tools: vec![ToolFacts {
            takes_network: true,
            description: String::new(),
            parameters: String::new(),
            used_as: "noop".into(),
            tool: "noop".into(),
            recovery: belay_execution::RecoveryClass::ReadOnly,
            default_timeout: Duration::from_millis(1500),
            secret_arguments: Vec::new(),
            secret_result: Vec::new(),
        }],
        deadline: Some(time),
        trace: ("t".into(), "s".into()),
        shard: 3,
        allotment: Some(Allotment { calls: Some(4), output_bytes: None, ..Allotment::default() }),
        spent: Amounts { calls: 0, output_bytes: 6, ..Amounts::default() },
        limits: vec![
            LimitClaim { key: "deploy-prod".into(), bound: LimitBound::AtOnce(2), when_full: WhenFull::CancelOlder },
            LimitClaim {
                key: "hourly".into(),
                bound: LimitBound::Rate(StartRate { starts: 3, window: Duration::from_secs(3600) }),
                when_full: WhenFull::Refuse,
            },
        ],
    };
    let totals = Totals { total: 2, completed: 1, failed: 1, ..Totals::default() };
    let finished = |outputs| {
        let (state, duration) = (ExecutionState::Partial, Duration::from_secs(1));
        ExecutionEvent::Finished(Box::new(Finished { state, totals, failure: Some(failure()), duration, outputs }))
    };
    let signal = SignalReceived { signal: "go".into(), payload: result() };
    let bodies = [
        ExecutionEvent::Created(Box::new(created)).into(),
        ExecutionEvent::LimitsRequested.into(),
        ExecutionEvent::LimitsAcquired.into(),
        ExecutionEvent::Started.into(),
        ExecutionEvent::BudgetReported(BudgetReport {
            level: BudgetLevel::Warning,
            unit: BudgetUnit::Calls,
            step: None,
            spent: 8,
            limit: 10,
        })
        .into(),
        ExecutionEvent::BudgetReported(BudgetReport {
            level: BudgetLevel::Exceeded,
            unit: BudgetUnit::OutputBytes,
            step: Some("a.b".into()),
            spent: 10,
            limit: 10,
        })
        .into(),
        ExecutionEvent::BudgetReported(BudgetReport {
            level: BudgetLevel::Overrun,
            unit: BudgetUnit::OutputBytes,
            step: None,
            spent: 12,
            limit: 10,
        })
        .into(),
        ExecutionEvent::Paused { reason: "b".into(), discard_calls: false, resume_at: None, cause: PauseCause::Budget }
            .into(),
        ExecutionEvent::Paused { reason: "r".into(), discard_calls: true, resume_at: None, cause: PauseCause::Request }
            .into(),
        ExecutionEvent::Paused {
            reason: "r".into(),
            discard_calls: false,
            resume_at: Some(Timestamp::from_micros(7)),
            cause: PauseCause::Request,
        }
        .into(),
        ExecutionEvent::Resumed.into(),
        ExecutionEvent::Retried(Box::new(Retried {
            steps: vec!["a".into()],
            request: RetryRequest::default(),
            deadline: None,
            escalation: Some(EscalationRetry { number: 1, retries: 2, resume_at: Timestamp::from_micros(7) }),
        }))
        .into(),
        ExecutionEvent::CancelRequested { reason: "r".into(), kill: false }.into(),
        ExecutionEvent::CancelRequested { reason: "r".into(), kill: true }.into(),
        ExecutionEvent::SignalReceived(signal).into(),
        ExecutionEvent::Recovered { in_doubt: vec![id()] }.into(),
        ExecutionEvent::DeadlineExceeded.into(),
        ExecutionEvent::AwaitingApproval.into(),
        finished(None).into(),
        finished(Some(Ok(result().into()))).into(),
        finished(Some(Ok(blob.clone()))).into(),
        finished(Some(Err(failure()))).into(),
        step(StepEvent::Started),
        step(StepEvent::RetryScheduled {
            failure: failure(),
            retry_count: 2,
            delay: Duration::from_secs(4),
            not_before: time,
        }),
        step(StepEvent::Completed { progress, duration: Duration::from_secs(3) }),
        step(StepEvent::CachedResultUsed {
            failure: failure(),
            result: result().into(),
            source: CachedFrom {
                execution: "namespaces/n/executions/e".into(),
                completed_at: Timestamp::from_micros(5),
                age: Duration::from_millis(1500),
            },
        }),
        step(StepEvent::Failed { failure: failure(), progress }),
        step(StepEvent::Skipped {
            reason: SkipReason::TimedOut,
            because: Some("w".into()),
            group: Some("g".to_owned()),
            progress,
        }),
        step(StepEvent::Skipped { reason: SkipReason::NonInteractive, because: None, group: None, progress }),
        step(StepEvent::Skipped { reason: SkipReason::ConditionFalse, because: None, group: None, progress }),
        step(StepEvent::Resolved { resolution: Resolution::Completed(result()), reason: "looked".into() }),
        step(StepEvent::Resolved { resolution: Resolution::Failed, reason: String::new() }),
        step(StepEvent::Resolved { resolution: Resolution::Again, reason: String::new() }),
        step(StepEvent::Skipped { reason: SkipReason::Requested, because: None, group: None, progress }),
        step(StepEvent::Skipped { reason: SkipReason::PlanUpdated, because: None, group: None, progress }),
        step(StepEvent::SkipRequested { reason: "why".into() }),
        step(StepEvent::OutputSet { output: result(), reason: "why".into() }),
        step(StepEvent::ConversationCarriedOver {
            conversation: result().into(),
            turns: 3,
            layers: Some(carried()),
            spent: Amounts { tokens: 7, cost_micros: 9, ..Amounts::default() },
            reason: "why".into(),
        }),
        step(StepEvent::RetryAdvanced { reason: "why".into() }),
        step(StepEvent::RetryCancelled { reason: "why".into() }),
        step(StepEvent::Cancelled { progress }),
        step(StepEvent::OutcomeUnknown { failure: failure() }),
        operation(OperationEvent::Requested(Work::ToolCall(Arc::new(request)))),
        operation(OperationEvent::Dispatched),
        need(SubjectKind::Call),
        need(SubjectKind::Effect),
        operation(OperationEvent::Asked { approval: "ap".into(), subject_digest: "sha256:x".into() }),
        decided(Decision::Approved),
        decided(Decision::Denied),
        decided(Decision::Skipped),
        decided(Decision::Expired),
        ended(ToolCallEnd::Completed { result: result().into(), receipt: Box::new(receipt(Verdict::Auto)) }),
        ended(ToolCallEnd::Completed { result: blob, receipt: Box::new(receipt(Verdict::Preview)) }),
        ended(ToolCallEnd::Failed { failure: failure(), receipt: Box::new(receipt(Verdict::Prompt)) }),
        ended(ToolCallEnd::Denied { failure: failure(), receipt: Box::new(receipt(Verdict::Deny)) }),
        ended(ToolCallEnd::Cancelled { failure: Some(failure()), grant_nonce: "n".into() }),
        ended(ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() }),
        ended(ToolCallEnd::OutcomeUnknown {
            failure: failure(),
            grant_nonce: "n".into(),
            network: Some(Box::new(NetworkUse { profile: "ci".into(), ..NetworkUse::default() })),
        }),
        operation(OperationEvent::Requested(Work::Child(Child {
            execution: "c".into(),
            inputs: result(),
            until: Some(time),
            allotment: None,
        }))),
        operation(OperationEvent::Requested(Work::Child(Child {
            execution: "c".into(),
            inputs: result(),
            until: None,
            allotment: Some(Allotment { calls: None, output_bytes: Some(0), ..Allotment::default() }),
        }))),
        operation(OperationEvent::Reported(OperationReport::ChildCreated)),
        operation(OperationEvent::Reported(OperationReport::ChildPaused)),
        operation(OperationEvent::Reported(OperationReport::ChildResumed)),
        operation(OperationEvent::Ended(OperationEnd::Child {
            end: ChildEnd::Completed { output: result() },
            spent: Some(Amounts { calls: 2, output_bytes: 3, ..Amounts::default() }),
        })),
        operation(OperationEvent::Ended(OperationEnd::Child {
            end: ChildEnd::Failed { failure: failure() },
            spent: Some(Amounts::default()),
        })),
        operation(OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Cancelled, spent: None })),
        operation(OperationEvent::Requested(Work::Wait(WaitCondition::Time { until: time }))),
        operation(OperationEvent::Requested(Work::Wait(WaitCondition::Signal {
            signal: "go".into(),
            until: Some(time),
        }))),
        operation(OperationEvent::Requested(Work::Wait(WaitCondition::Signal { signal: "go".into(), until: None }))),
        operation(OperationEvent::Requested(Work::Wait(WaitCondition::Form {
            form: Arc::new(Form::new("t".into(), "d".into(), &serde_json::json!({"type": "object"}))),
            until: Some(time),
        }))),
        operation(OperationEvent::Requested(Work::Wait(WaitCondition::Question {
            call: 1,
            question: "q-3".into(),
            form: Arc::new(Form::new("t".into(), "d".into(), &serde_json::json!({}))),
            until: Some(time),
            may_hold: true,
        }))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Held { sequence: 7 }))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Answered { answer: result() }))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Declined {
            decision: Decision::Skipped,
            reason: "why".into(),
        }))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Elapsed))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Signalled { sequence: 4 }))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Refused { message: "why".into() }))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::TimedOut))),
        operation(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Cancelled))),
    ];
    for body in bodies {
        for actor in [None, Some(Actor { principal: "ann".into(), request_id: "r1".into() })] {
            let event = Event { sequence: 9, time: Timestamp::from_micros(5), actor, body: body.clone() };
            let bytes = encode(&event).encode_to_vec();
            let facts = facts_beside(std::slice::from_ref(&event));
            let message = v1::ExecutionEvent::decode(bytes.as_slice()).unwrap();
            assert_eq!(decode(message, facts.as_deref()), Ok(event));
        }
    }
}

#[test]
fn a_message_that_lacks_something_is_refused_by_its_number() {
    let time = Some(belay_proto::timestamp(5));
    let message = |kind| v1::ExecutionEvent { sequence: 7, record_time: time, kind, ..Default::default() };
    for (message, error) in [
        (message(None), "event 7 is of a kind that this version does not know"),
        (v1::ExecutionEvent { record_time: None, ..message(None) }, "event 7 lacks its time"),
        (message(Some(Kind::StepStarted(v1::StepStarted {}))), "event 7 lacks its step"),
        (
            message(Some(Kind::ToolCallDispatched(v1::ToolCallDispatched {}))),
            "event 7 lacks the number of its operation",
        ),
        (message(Some(Kind::WaitEnded(v1::WaitEnded::default()))), "event 7 lacks its cause"),
    ] {
        assert_eq!(decode(message, None).unwrap_err().to_string(), error);
    }
}

/// B-24: facts that are lost, damaged or of a newer version start no call.
#[test]
fn a_first_event_without_its_facts_is_refused() {
    let plan = Some(v1::Plan::default());
    let kind = Some(Kind::ExecutionCreated(Box::new(v1::ExecutionCreated { plan, ..Default::default() })));
    let message =
        v1::ExecutionEvent { sequence: 1, record_time: Some(belay_proto::timestamp(5)), kind, ..Default::default() };
    let refused = |facts: Option<&[u8]>| decode(message.clone(), facts).unwrap_err();
    assert_eq!(refused(None).to_string(), "event 1 lacks what is stored beside it");
    assert!(matches!(refused(Some(&[0x0b])), DecodeError::Damaged(_)));
    // Field 16 of the facts, and of those about a tool.
    for newer in [&[0x82, 0x01, 0][..], &[0x12, 3, 0x82, 0x01, 0]] {
        assert!(refused(Some(newer)).is_newer(), "{:?}", refused(Some(newer)));
    }
}

/// B-24: a version that was never released is named, and not taken for damage.
#[test]
fn events_of_an_unreleased_version_are_refused() {
    let transition =
        |version| Transition { first_sequence: 1, count: 0, version, shown: vec![], sealed: None, facts: None };
    for version in 0..OLDEST_VERSION {
        assert_eq!(decode_all(&transition(version)), Err(DecodeError::Older(version)));
    }
    assert_eq!(decode_all(&transition(VERSION)), Ok(vec![]));
    assert_eq!(decode_all(&transition(VERSION + 1)), Err(DecodeError::Newer(VERSION + 1)));
}
