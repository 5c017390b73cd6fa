use std::{sync::Arc, time::Duration};

use belay_execution::{
    ApprovalRequirement, Decision, EffectSummary, ErrorClass, Failure, Form, Json, OperationEnd, OperationEvent,
    OperationReport, PolicyDecision, Progress, Risk, SkipReason, SubjectKind, ToolCallEnd, ToolCallRequest, Verdict,
    WaitCondition, WaitEnd, Work,
};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn event(second: i64, body: Body) -> Event {
    Event { sequence: 1, time: at(second), actor: None, body }
}

fn step(second: i64, step: &str, attempt: u32, of: StepEvent) -> Event {
    event(second, Body::Step { step: step.into(), attempt, event: of })
}

fn starts(second: i64, id: &str, attempt: u32) -> Event {
    step(second, id, attempt, StepEvent::Started)
}

fn completes(second: i64, id: &str, attempt: u32) -> Event {
    step(second, id, attempt, StepEvent::Completed { progress: Progress::default(), duration: Duration::ZERO })
}

fn operation(step: &str, attempt: u32, number: u32) -> OperationId {
    OperationId { step: step.into(), attempt, number }
}

fn call(second: i64, call: OperationId, of: OperationEvent) -> Event {
    event(second, Body::Operation { id: call, event: of })
}

fn requested() -> OperationEvent {
    OperationEvent::Requested(Work::ToolCall(Arc::new(ToolCallRequest {
        tool: "t".into(),
        arguments: Json::from_text("{}").into(),
        arguments_digest: String::new(),
        ledger_id: "l".into(),
        timeout: Duration::from_secs(1),
        check: None,
        held: belay_execution::Amounts::default(),
        layers: None,
        namespace_hold: None,
    })))
}

fn held() -> OperationEvent {
    let (rule, reason) = (String::new(), String::new());
    OperationEvent::Held(Box::new(ApprovalRequirement {
        kind: SubjectKind::Effect,
        subject_digest: "sha256:0".into(),
        decision: PolicyDecision { verdict: Verdict::Prompt, rule, reason, policy_revision: 1 },
        effect: EffectSummary::default(),
        allowing_rules: Vec::new(),
        risk: Risk::Low,
    }))
}

fn wait(second: i64, id: &str, of: OperationEvent) -> Event {
    event(second, Body::Operation { id: operation(id, 1, 1), event: of })
}

fn failure() -> Failure {
    Failure::new(ErrorClass::Transient, "R", "No.")
}

fn timeline(events: impl IntoIterator<Item = Event>) -> Timeline {
    let mut timeline = Timeline::default();
    events.into_iter().for_each(|event| timeline.apply(&event));
    timeline
}

/// A step that is tried twice and approved, one that waits and one that asks, one whose call is made again after a pause, and one that is skipped.
#[test]
fn events_become_what_each_step_did_when() {
    use Kind::{Backoff, Person, Running, Waiting};
    let retry = StepEvent::RetryScheduled {
        failure: failure(),
        retry_count: 1,
        delay: Duration::from_secs(10),
        not_before: at(120),
    };
    let decided =
        OperationEvent::Decided { approval: String::new(), decision: Decision::Approved, reason: String::new() };
    let form = Arc::new(Form::new("Why?".into(), String::new(), &serde_json::json!({})));
    let cancelled = OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Cancelled {
        failure: None,
        grant_nonce: String::new(),
    }));
    let skipped = StepEvent::Skipped {
        reason: SkipReason::ConditionFalse,
        because: None,
        group: None,
        progress: Progress::default(),
    };
    let timeline = timeline([
        event(100, ExecutionEvent::Started.into()),
        starts(100, "build", 1),
        call(100, operation("build", 1, 1), requested()),
        starts(100, "sleep", 1),
        wait(100, "sleep", OperationEvent::Requested(Work::Wait(WaitCondition::Time { until: at(120) }))),
        step(110, "build", 1, retry),
        starts(120, "build", 2),
        call(120, operation("build", 2, 1), requested()),
        wait(120, "sleep", OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Elapsed))),
        completes(120, "sleep", 1),
        starts(125, "again", 1),
        call(125, operation("again", 1, 1), requested()),
        call(130, operation("build", 2, 1), held()),
        call(130, operation("again", 1, 1), cancelled),
        call(135, operation("again", 1, 2), requested()),
        event(140, Body::Operation { id: operation("build", 2, 1), event: decided }),
        step(150, "build", 2, StepEvent::Failed { failure: failure(), progress: Progress::default() }),
        step(150, "skip", 0, skipped),
        starts(150, "quick", 1),
        completes(150, "quick", 1),
        starts(160, "ask", 1),
        wait(160, "ask", OperationEvent::Requested(Work::Wait(WaitCondition::Form { form, until: None }))),
    ]);
    let segment = |attempt, operation, kind, begin, end: i64| Segment {
        attempt,
        operation,
        kind,
        begin: at(begin),
        end: Some(at(end)).filter(|_| end > 0),
    };
    let rows: Vec<_> = timeline.rows().iter().map(|row| (&*row.step, row.state, row.segments.clone())).collect();
    assert_eq!(
        rows,
        [
            (
                "build",
                StepState::Failed,
                vec![
                    segment(1, 1, Running, 100, 110),
                    segment(1, 0, Backoff, 110, 120),
                    segment(2, 1, Running, 120, 130),
                    segment(2, 1, Person, 130, 140),
                    segment(2, 1, Running, 140, 150),
                ]
            ),
            ("sleep", StepState::Completed, vec![segment(1, 1, Waiting, 100, 120)]),
            (
                "again",
                StepState::Running,
                vec![
                    segment(1, 1, Running, 125, 130),
                    segment(1, 1, Waiting, 130, 135),
                    segment(1, 2, Running, 135, 0)
                ]
            ),
            ("skip", StepState::Skipped, vec![]),
            ("quick", StepState::Completed, vec![segment(1, 0, Running, 150, 150)]),
            ("ask", StepState::Running, vec![segment(1, 1, Person, 160, 0)]),
        ]
    );
}

#[test]
fn the_execution_of_a_step_runs_and_is_paused_in_its_row() {
    let child = |second, of| event(second, Body::Operation { id: operation("c", 1, 1), event: of });
    let timeline = timeline([
        starts(1, "c", 1),
        child(2, OperationEvent::Reported(OperationReport::ChildCreated)),
        child(3, OperationEvent::Reported(OperationReport::ChildPaused)),
        child(5, OperationEvent::Reported(OperationReport::ChildResumed)),
        child(
            9,
            OperationEvent::Ended(OperationEnd::Child {
                end: belay_execution::ChildEnd::Failed { failure: failure() },
                spent: None,
            }),
        ),
        step(9, "c", 1, StepEvent::Failed { failure: failure(), progress: Progress::default() }),
    ]);
    let kinds: Vec<_> = timeline.rows()[0].segments.iter().map(|found| (found.kind, found.begin)).collect();
    assert_eq!(kinds, [(Kind::Running, at(1)), (Kind::Waiting, at(3)), (Kind::Running, at(5))]);
}

#[test]
fn a_step_that_runs_again_keeps_its_row() {
    let timeline = timeline([starts(1, "a", 1), completes(2, "a", 1), starts(3, "b", 1), starts(4, "a", 2)]);
    let rows: Vec<_> = timeline.rows().iter().map(|row| (&*row.step, row.state, row.segments.len())).collect();
    assert_eq!(rows, [("a", StepState::Running, 2), ("b", StepState::Running, 1)]);
}
