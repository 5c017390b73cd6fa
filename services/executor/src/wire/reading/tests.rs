use std::time::Duration;

use belay_execution::{
    Body, Event, ExecutionEvent, ExecutionState, Finished, OperationEnd, OperationEvent, OperationId, Progress,
    SkipReason, StepEvent, Timestamp, Totals, WaitEnd,
};
use serde_json::Value;

use super::*;

fn details(body: Body) -> String {
    let event = Event { sequence: 7, time: Timestamp::from_micros(5_000_000), actor: None, body };
    audit_entry(audit::entry(&event)).details
}

fn field(body: Body, name: &str) -> String {
    let details: Value = serde_json::from_str(&details(body)).unwrap();
    details[name].as_str().unwrap().to_owned()
}

#[test]
fn an_entry_without_details_has_no_text_of_them() {
    assert_eq!(details(ExecutionEvent::Started.into()), "");
    assert_eq!(details(Body::Step { step: "s".into(), attempt: 1, event: StepEvent::Started }), "{\"attempt\":1}");
}

/// Programs read the same words in the audit log as in executions and their steps.
#[test]
fn the_audit_log_names_states_reasons_and_causes_as_the_contract_does() {
    for state in [
        ExecutionState::Pending,
        ExecutionState::Running,
        ExecutionState::AwaitingApproval,
        ExecutionState::Paused,
        ExecutionState::Cancelling,
        ExecutionState::Completed,
        ExecutionState::Partial,
        ExecutionState::Failed,
        ExecutionState::Cancelled,
        ExecutionState::TimedOut,
    ] {
        let finished =
            Finished { state, totals: Totals::default(), failure: None, duration: Duration::ZERO, outputs: None };
        let body = ExecutionEvent::Finished(Box::new(finished)).into();
        assert_eq!(field(body, "state"), super::super::state_word(state));
    }
    for reason in [
        SkipReason::DependencyFailed,
        SkipReason::DependencySkipped,
        SkipReason::StopOnError,
        SkipReason::ConditionFalse,
        SkipReason::Cancelled,
        SkipReason::TimedOut,
        SkipReason::ApprovalSkipped,
        SkipReason::NonInteractive,
        SkipReason::Requested,
        SkipReason::PlanUpdated,
        SkipReason::NotListed,
    ] {
        let event = StepEvent::Skipped { reason, because: None, group: None, progress: Progress::default() };
        let name = super::super::skip_reason(reason).as_str_name();
        let word = field(Body::Step { step: "s".into(), attempt: 0, event }, "reason");
        assert_eq!(format!("SKIP_REASON_{word}"), name);
    }
    for end in [
        WaitEnd::Elapsed,
        WaitEnd::Signalled { sequence: 1 },
        WaitEnd::Answered { answer: Json::from_text("1") },
        WaitEnd::Held { sequence: 3 },
        WaitEnd::Declined { decision: belay_execution::Decision::Denied, reason: String::new() },
        WaitEnd::Refused { message: String::new() },
        WaitEnd::TimedOut,
        WaitEnd::Cancelled,
    ] {
        let wait = OperationId { step: "s".into(), attempt: 1, number: 1 };
        let body = Body::Operation { id: wait, event: OperationEvent::Ended(OperationEnd::Wait(end)) };
        let event = Event { sequence: 7, time: Timestamp::from_micros(0), actor: None, body: body.clone() };
        let Some(v1::execution_event::Kind::WaitEnded(ended)) = super::super::encode(&event).kind else { panic!() };
        assert_eq!(format!("CAUSE_{}", field(body, "cause")), ended.cause().as_str_name());
    }
}
