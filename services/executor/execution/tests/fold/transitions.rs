//! The tables of moves: stories make every row, and no other move can be made at all.

use std::{collections::HashSet, fmt::Debug, hash::Hash, time::Duration};

use belay_execution::{
    Body, Child, ChildEnd, Decision, EXECUTION_TRANSITIONS, Event, Execution, ExecutionEvent, ExecutionState, Finished,
    Json, OperationEnd, OperationEvent, OperationId, OperationReport, Progress, Receipt, Retried, RetryRequest,
    STEP_TRANSITIONS, SkipReason, StepEvent, ToolCallEnd, WaitCondition, WaitEnd, Work,
};

use belay_plan::RunWhen;

use crate::support::{Play, States, Transitions, act_of, call, failure, request, requirement, story};

/// Stories that between them make every move.
fn plays() -> Vec<Play> {
    let pair = || story("a; b after a").parallelism(2);
    let retried = || pair().tries("a", 3, "2s").replies("a: transient, ok");
    let held = |decided: &str| story("a; b after a").replies(&format!("a: ok effect:{decided}, ok"));
    let failing = || story("a; b").parallelism(2).replies("a: invalid; b: ok");
    let stories = [
        pair(),
        pair().acts("0s pause; 1s resume"),
        pair().acts("0s cancel"),
        pair().acts("0s cancel; 5s retry"),
        pair().acts("0s pause; 1s cancel"),
        pair().acts("0s pause").limit("1s"),
        pair().acts("0.5s pause discarding; 2s resume"),
        pair().acts("0.5s pause discarding; 2s cancel"),
        pair().acts("0.5s pause discarding; 9s resume").step_limit("a", "5s"),
        pair().acts("0.5s cancel"),
        pair().limit("0.5s"),
        pair().replies("b: ok!").acts("1.5s cancel"),
        pair().acts("1.5s pause"),
        retried(),
        retried().acts("2s cancel"),
        retried().acts("2s pause; 9s resume").step_limit("a", "5s"),
        failing(),
        failing().acts("0.5s pause"),
        pair().replies("a: invalid"),
        pair().replies("a: invalid").acts("0.5s pause"),
        pair().replies("a: unknown").acts("2s cancel"),
        held("approved:2s"),
        held("skipped:2s"),
        held("approved:2s:conflict"),
        held("denied:9s").acts("2s pause; 3s resume; 4s cancel"),
        held("denied:9s").limit("3s"),
        pair().waits("a", "2s"),
        pair().replies("a: unknown, ok").acts("3s resolve a again"),
        story("a; b").parallelism(2).replies("a: unknown; b: ok effect:approved:9s").acts("3s resolve a completed"),
        pair().waits("a", "go").acts("1s signal go 1"),
        pair().acts("0.5s skip-step b 0; 3s retry a"),
        pair().acts("0s pause; 0s skip-step a 0; 1s resume"),
        pair().acts("0.5s set-output b 0 1"),
        pair().acts("0s pause; 0s set-output a 0 1; 1s resume"),
        retried().acts("2s skip-step a 1"),
        retried().acts("2s set-output a 1 7"),
        retried().acts("2s retry-now a 1"),
        retried().acts("2s cancel-retry a 1"),
        failing().acts("5s retry"),
        failing().replies("a: invalid; b: ok 9s").acts("2s retry"),
        failing().replies("a: invalid; b: ok 9s").acts("2s pause; 3s retry; 4s resume"),
        pair().replies("a: invalid").acts("5s retry paused; 6s resume"),
        pair().acts("0.5s kill"),
        pair().acts("0s pause; 1s kill"),
        held("denied:9s").acts("3s kill"),
        story("a").replies("a: ok! 9s").acts("1s cancel; 2s kill"),
        pair().acts("0s kill"),
        pair().acts("0.5s cancel; 5s retry"),
        pair().fallback("a", "other").replies("a: transient"),
        pair().compensated("a").replies("b: transient").acts("9s retry"),
        pair().compensated("a").replies("b: ok 9s").acts("2s cancel"),
        pair().compensated("a").replies("b: ok 9s").limit("2s"),
        pair().compensated("a").replies("b: ok 9s; a~compensate: ok! 2s").acts("2s cancel; 3s pause; 9s resume"),
        pair().compensated("a").replies("b: ok 9s; a~compensate: ok! 2s").limit("2s").acts("3s pause; 9s resume"),
        pair().for_each("a", serde_json::json!([1, 2])).replies("a~0: transient").acts("9s retry"),
        pair().limit("0.5s").acts("5s retry"),
        story("a; b; c").parallelism(3).replies("a: ok effect:denied:9s; b: invalid").acts("3s retry"),
        story("a; b")
            .parallelism(2)
            .replies("a: ok effect:approved:9s; b: transient, ok")
            .tries("b", 2, "99s")
            .acts("3s retry-now b 1"),
        story("a").starts_after("9s").acts("1s set-output a 0 7; 2s retry a"),
        story("a; b after a").run_when("b", RunWhen::Always).acts("1s pause; 1.5s retry a; 3s resume"),
    ];
    let mut plays: Vec<Play> = stories.into_iter().map(|story| story.play()).collect();
    // One whose executor was away from the acceptance until its time was over.
    let mut late = pair().limit("1s").acts("20s retry").rehearse();
    late.now = late.now.saturating_add(Duration::from_secs(9));
    late.run();
    plays.push(late);
    // One whose runner lost a call that it held.
    let mut lost = held("approved").acts("0.5s pause; 9s resume").rehearse();
    let event = OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Cancelled {
        failure: None,
        grant_nonce: String::new(),
    }));
    let at = lost.now.saturating_add(Duration::from_secs(5));
    lost.acts.insert(1, (at, (None, Body::Operation { id: call("a", 1, 1), event })));
    lost.run();
    plays.push(lost);
    plays
}

#[test]
fn every_move_is_made() {
    let mut made = Transitions::default();
    for play in plays() {
        made.extend(play.transitions);
    }
    assert_same("execution", &made.execution, EXECUTION_TRANSITIONS);
    assert_same("step", &made.steps, STEP_TRANSITIONS);
}

// Each kind of event is offered, with everything about it as it should be, in each situation that the stories come to. What is accepted
// anywhere are the tables, row for row: every other pair of a state and a move is refused everywhere.
#[test]
fn no_other_move_can_be_made() {
    let mut accepted = Transitions::default();
    for play in plays() {
        for length in 1..=play.events.len() {
            let now = Execution::replay(play.events[..length].iter().cloned()).unwrap();
            for body in everything(&now) {
                let event = Event { sequence: now.last_sequence() + 1, time: play.now, actor: None, body };
                let mut next = now.clone();
                if next.apply(&event).is_ok() {
                    accepted.note(&States::of(&now), &event.body, &next);
                }
            }
        }
    }
    assert_same("execution", &accepted.execution, EXECUTION_TRANSITIONS);
    assert_same("step", &accepted.steps, STEP_TRANSITIONS);
}

#[track_caller]
fn assert_same<Row: Copy + Debug + Eq + Hash>(what: &str, made: &HashSet<Row>, table: &[Row]) {
    let table: HashSet<Row> = table.iter().copied().collect();
    let missing: Vec<_> = table.difference(made).collect();
    let beyond: Vec<_> = made.difference(&table).collect();
    assert!(missing.is_empty() && beyond.is_empty(), "{what}: not made {missing:?}, not in the table {beyond:?}");
}

/// Every event that moves something, fitting the present in everything but perhaps the move.
fn everything(now: &Execution) -> Vec<Body> {
    use ExecutionState as S;
    let mut bodies: Vec<Body> = ["pause", "resume", "cancel", "kill"].map(|words| act_of(words).1).into();
    bodies.extend([
        ExecutionEvent::Started.into(),
        ExecutionEvent::DeadlineExceeded.into(),
        ExecutionEvent::AwaitingApproval.into(),
    ]);
    let states = [
        S::Pending,
        S::Running,
        S::AwaitingApproval,
        S::Paused,
        S::Cancelling,
        S::Completed,
        S::Partial,
        S::Failed,
        S::Cancelled,
        S::TimedOut,
    ];
    bodies.extend(states.map(|state| {
        let (totals, failure, duration) = (now.totals(), None, Duration::ZERO);
        ExecutionEvent::Finished(Box::new(Finished { state, totals, failure, duration, outputs: None })).into()
    }));
    let ended = now.steps().filter(|step| step.state().is_terminal()).map(|step| step.id().clone());
    let retried =
        Retried { steps: ended.collect(), request: RetryRequest::default(), deadline: None, escalation: None };
    bodies.push(ExecutionEvent::Retried(Box::new(retried)).into());
    let completed = now
        .steps()
        .filter(|step| step.state() == belay_execution::StepState::Completed && step.spec().compensate().is_some());
    let steps: Vec<_> = completed.map(|step| step.id().clone()).collect();
    bodies.push(ExecutionEvent::CompensationStarted { steps }.into());
    let progress = Progress { done: now.totals().done() + 1, total: now.totals().total };
    for view in now.steps() {
        let (step, attempt) = (view.id().clone(), view.attempt());
        let retry = StepEvent::RetryScheduled {
            failure: failure("transient"),
            retry_count: attempt,
            delay: Duration::ZERO,
            not_before: now.created_at(),
        };
        let events = [
            retry,
            StepEvent::Completed { progress, duration: Duration::ZERO },
            StepEvent::Failed { failure: failure("invalid"), progress },
            StepEvent::Skipped { reason: SkipReason::Cancelled, because: None, group: None, progress },
            StepEvent::Cancelled { progress },
            StepEvent::OutcomeUnknown { failure: failure("unknown") },
            StepEvent::Resolved { resolution: belay_execution::Resolution::Again, reason: String::new() },
            StepEvent::SkipRequested { reason: String::new() },
            StepEvent::OutputSet { output: Json::from_text("1"), reason: String::new() },
            StepEvent::RetryAdvanced { reason: String::new() },
            StepEvent::RetryCancelled { reason: String::new() },
            StepEvent::FallbackSwitched {
                failure: failure("transient"),
                from: "work".to_owned(),
                to: "other".to_owned(),
                reason: String::new(),
            },
            StepEvent::ItemsListed { first: 0, items: vec![Json::from_text("1")] },
            StepEvent::ItemsListed { first: 1, items: vec![Json::from_text("1")] },
            StepEvent::ItemsCollected { output: Json::from_text("[]").into() },
        ];
        bodies.extend(events.map(|event| Body::Step { step: step.clone(), attempt, event }));
        bodies.push(Body::Step { step: step.clone(), attempt: attempt + 1, event: StepEvent::Started });
        for number in 1..=3 {
            let operation = OperationId { step: step.clone(), attempt, number };
            let about_call = |event| Body::Operation { id: operation.clone(), event };
            let about_approval = |event| Body::Operation { id: operation.clone(), event };
            let about_child = |event| Body::Operation { id: operation.clone(), event };
            let about_wait = |event| Body::Operation { id: operation.clone(), event };
            let pending = now.operation_key(&operation).and_then(|key| now.operation(key)?.pending_approval.clone());
            let (subject_digest, asked) =
                pending.map_or_else(Default::default, |pending| (pending.requirement.subject_digest, pending.approval));
            let approval = asked.unwrap_or_else(|| "approval".to_owned());
            let (receipt, reason) = (Receipt::default(), String::new());
            bodies.extend([
                about_call(OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Cancelled {
                    failure: None,
                    grant_nonce: String::new(),
                }))),
                about_call(OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Denied {
                    failure: failure("denied"),
                    receipt: Box::new(receipt),
                }))),
                request(operation.clone()),
                about_call(OperationEvent::Held(Box::new(requirement("another")))),
                about_call(OperationEvent::Dispatched),
                about_approval(OperationEvent::Asked { approval: approval.clone(), subject_digest }),
                about_approval(OperationEvent::Decided { approval, decision: Decision::Approved, reason }),
                about_child(OperationEvent::Requested(Work::Child(Child {
                    execution: "x".into(),
                    inputs: Json::from_text("{}"),
                    until: None,
                    allotment: None,
                }))),
                about_child(OperationEvent::Reported(OperationReport::ChildCreated)),
                about_child(OperationEvent::Reported(OperationReport::ChildPaused)),
                about_child(OperationEvent::Reported(OperationReport::ChildResumed)),
                about_child(OperationEvent::Ended(OperationEnd::Child {
                    end: ChildEnd::Completed { output: Json::from_text("1") },
                    spent: None,
                })),
                about_child(OperationEvent::Ended(OperationEnd::Child {
                    end: ChildEnd::Failed { failure: failure("unavailable") },
                    spent: None,
                })),
                about_child(OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Cancelled, spent: None })),
                about_wait(OperationEvent::Requested(Work::Wait(WaitCondition::Time { until: now.created_at() }))),
                about_wait(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Elapsed))),
                about_wait(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Answered {
                    answer: Json::from_text("1"),
                }))),
                about_wait(OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Cancelled))),
            ]);
        }
    }
    bodies
}
