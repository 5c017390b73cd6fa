//! The view that an execution gives its readers of itself and its steps.

use std::time::Duration;

use belay_execution::{
    Actor, ApprovalMode, Body, DecideContext, Decision, ErrorClass, Execution, ExecutionEvent, ExecutionState, Failure,
    Json, OperationEnd, OperationEvent, PauseCause, Payload, PendingApproval, Receipt, RecordedDecision,
    RequiredAction, Timestamp, ToolCallEnd, WaitCondition, WaitEnd, Waiting, Work,
};

use crate::support::{Outcome, START, call, is, requirement, story};

fn after(seconds: u64) -> Timestamp {
    START.saturating_add(Duration::from_secs(seconds))
}

#[test]
fn times_attempts_and_waits_are_those_of_the_story() {
    let replies = "a: transient, ok effect:approved:2s:conflict, ok effect:approved:3s";
    let play = story("a").tries("a", 3, "5s").replies(replies).play();
    let execution = &play.execution;
    assert_eq!(execution.state(), ExecutionState::Completed);
    assert_eq!((execution.created_at(), execution.principal()), (after(0), "planner"));
    let a = execution.steps().next().unwrap();
    assert_eq!(a.started_at(), Some(after(0)));
    assert_eq!(a.ended_at(), execution.ended_at());
    assert_eq!((execution.started_at(), execution.ended_at()), (Some(after(0)), Some(after(13))));
    assert_eq!((execution.last_time(), a.waited()), (after(13), Duration::from_secs(5)));
    assert_eq!((a.conflicts(), a.failed_during_commits()), (1, false));
    let failed: Vec<_> = a.failed_attempts().iter().map(|failed| (failed.attempt, failed.ended_at)).collect();
    assert_eq!(failed, [(1, after(1))]);
    let authorization = a.authorization().expect("a person approved it");
    assert_eq!((authorization.rule.as_str(), authorization.approver.is_some()), ("rule", true));
    assert_eq!(execution.ledger_id(), "ledger");
    assert_eq!(execution.waiting(), [], "nothing, once it has ended");

    let backing_off = play.just_after(
        |body| matches!(body, Body::Step { event, .. } if format!("{event:?}").starts_with("RetryScheduled")),
    );
    let waits = backing_off.steps().next().unwrap().waiting();
    assert!(format!("{waits:?}").contains("Timer"), "{waits:?}");
    // The first attempt fails after a second, and the next is due five seconds later.
    let again = play.just_after(|body| matches!(body, Body::Operation { id, .. } if id.attempt == 2));
    assert_eq!(again.steps().next().unwrap().attempt_started_at(), Some(after(6)));
    let held = play.just_after(is::held);
    assert_eq!(held.waiting().len(), 0, "it waits for a person once one was asked");
}

// A step waits for its running call, and the execution as a whole waits for nothing.
#[test]
fn only_what_waits_is_said_to_wait() {
    let running = story("a").play().just_after(is::call_requested);
    assert_eq!(running.waiting(), []);
    assert_eq!(running.steps().next().unwrap().waiting(), Some(Waiting::Call { since: after(0) }));
}

// A request that is sent again is recognised by its id, and no other is.
#[test]
fn requests_are_remembered_by_their_id() {
    let mut play = story("a").rehearse();
    let request = |principal: &str, id: &str| Actor { request_id: id.to_owned(), ..Actor::new(principal) };
    let actor = request("person", "r-1");
    let paused = ExecutionEvent::Paused {
        reason: String::new(),
        discard_calls: false,
        resume_at: None,
        cause: PauseCause::Request,
    };
    play.execution.record(after(0), Some(actor), paused).unwrap();
    assert!(play.execution.has_seen(&request("person", "r-1")));
    assert!(!play.execution.has_seen(&request("person", "r-2")));
    assert!(!play.execution.has_seen(&request("another", "r-1")), "an id belongs to its principal");
    let restored = Execution::restore(play.events[0].clone(), &play.execution.snapshot().unwrap()).unwrap();
    assert!(restored.has_seen(&request("person", "r-1")), "a snapshot has the requests");
}

// What a call failed with beside other commits is no failed attempt: it is called again, and the step remembers that this was tried.
#[test]
fn a_call_that_failed_beside_commits_is_made_again() {
    let beside = Failure::new(ErrorClass::Transient, "FAILED_BESIDE_COMMITS", "The workspace changed under the call.");
    let play = story("a").outcomes("a", [Outcome::Cancelled(Some(beside))]).play();
    assert_eq!(play.execution.state(), ExecutionState::Completed);
    let a = play.execution.steps().next().unwrap();
    assert_eq!((a.attempt(), a.conflicts(), a.failed_during_commits()), (1, 0, true));
    assert!(a.failed_attempts().is_empty());
}

// Its author has to learn whether nobody was asked, or a rule of the mode decided with somebody's reason.
#[test]
fn a_denial_says_who_denied_and_why() {
    let denial = |mode, principal: &str, reason: &str| {
        let decided =
            RecordedDecision { decision: Decision::Denied, principal: principal.into(), reason: reason.into() };
        let pending = PendingApproval {
            requirement: requirement("sha256:1"),
            since: START,
            approval: None,
            decided: Some(decided),
        };
        pending.denial(mode).unwrap().message
    };
    assert_eq!(denial(ApprovalMode::Wait, "ann", "too late"), "denied by ann: too late");
    assert_eq!(denial(ApprovalMode::Wait, "ann", ""), "denied by ann: no reason given");
    assert_eq!(
        denial(ApprovalMode::Fail, "", ""),
        "Rule rule requires approval (because), but this run cannot ask. Use `--approve prompt`, or allow it with a rule of the policy."
    );
    assert_eq!(
        denial(ApprovalMode::Fail, "ann", "too late"),
        "Rule rule requires approval (because), and this execution asks no person: too late"
    );
}

// The gate has one approval for each question: a second one, or one without a name, contradicts the state.
#[test]
fn an_approval_is_requested_once_and_has_a_name() {
    let play = story("a").replies("a: ok call").play();
    let held = play.just_after(is::held);
    let requested = |execution: &Execution, approval: &str| {
        let event = OperationEvent::Asked { approval: approval.into(), subject_digest: "sha256:`a` 1.1 #0".into() };
        let body = Body::Operation { id: call("a", 1, 1), event };
        execution.clone().record(after(1), None, body).map_err(|illegal| illegal.violation.to_string())
    };
    assert!(requested(&held, "ap").is_ok());
    assert_eq!(requested(&held, "").unwrap_err(), "`a` 1.1 needs no approval or answer to be requested");
    assert_eq!(requested(&play.execution, "ap").unwrap_err(), "`a` 1.1 needs no approval or answer to be requested");
}

// Time does not run backwards in an execution, whatever the clock says.
#[test]
fn a_clock_that_was_set_back_shortens_no_wait() {
    let mut play = story("a; pause after a").waits("pause", "60s").replies("a: ok 100s").rehearse();
    play.execution.advance(DecideContext { now: after(90), ledger_id: "ledger" });
    let ended = Body::Operation {
        id: call("a", 1, 1),
        event: OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Completed {
            result: Json::from_text("1").into(),
            receipt: Box::new(Receipt { ledger_id: "ledger".into(), ..Default::default() }),
        })),
    };
    play.execution.record(after(100), None, ended).unwrap();
    let events = play.execution.advance(DecideContext { now: after(10), ledger_id: "ledger" });
    let until = events.iter().find_map(|event| match &event.body {
        Body::Operation { event: OperationEvent::Requested(Work::Wait(WaitCondition::Time { until })), .. } => {
            Some(*until)
        }
        _ => None,
    });
    assert_eq!(until, Some(after(160)));
}

// A call that was given up keeps the slot of its step: it is made again before other steps start.
#[test]
fn a_call_made_again_keeps_its_slot() {
    let mut play =
        story("x; c after x; d after x; a").parallelism(2).replies("x: ok 2s; a: cancelled 2s, ok").rehearse();
    play.batches = true;
    play.run();
    let begins = ["0s started, x started, a started", "2s a call 1.1 stopped, x completed, a call 1.2, c started"];
    assert_eq!(play.picture()[..2], begins);
}

// The time of a wait is part of the event's validity, not only of the decision: a log in which it ended early is refused.
#[test]
fn a_wait_that_ended_early_is_no_history() {
    let play = story("pause").waits("pause", "60s").play();
    let mut waiting = play.just_after(is::wait_requested);
    let ended = || Body::Operation {
        id: call("pause", 1, 1),
        event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Elapsed)),
    };
    assert!(waiting.record(after(59), None, ended()).is_err());
    assert!(waiting.record(after(60), None, ended()).is_ok());

    let timed_out = |step: &str| Body::Operation {
        id: call(step, 1, 1),
        event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::TimedOut)),
    };
    let story = story("go; ask").waits("go", "deployed").asks("ask", "?");
    let play = story.step_limit("go", "5s").step_limit("ask", "5s").rehearse();
    let mut waiting = play.execution;
    waiting.advance(DecideContext { now: START, ledger_id: "ledger" });
    for step in ["go", "ask"] {
        assert!(waiting.clone().record(after(4), None, timed_out(step)).is_err(), "{step}");
        assert!(waiting.clone().record(after(5), None, timed_out(step)).is_ok(), "{step}");
    }
}

// A form that was not asked yet is not asked during a pause, nor when the execution is stopping or asks no person.
#[test]
fn a_form_is_asked_only_while_the_execution_goes_on() {
    let play = story("ask").asks("ask", "?").play();
    let to_ask = play.just_after(is::wait_requested);
    let asks = |execution: &Execution| {
        execution.actions().iter().any(|action| action.required == RequiredAction::RequestApproval)
    };
    let after_event = |event: ExecutionEvent| {
        let mut execution = to_ask.clone();
        execution.record(START, Some(Actor::new("person")), event).unwrap();
        execution
    };
    assert!(asks(&to_ask));
    assert!(!asks(&after_event(ExecutionEvent::Paused {
        reason: String::new(),
        discard_calls: false,
        resume_at: None,
        cause: PauseCause::Request
    })));
    assert!(!asks(&after_event(ExecutionEvent::CancelRequested { reason: String::new(), kill: false })));
    let of_mode = story_of_mode(ApprovalMode::Fail);
    assert!(!asks(&of_mode), "the mode declines it");
}

/// An execution of this mode whose form has just been started.
fn story_of_mode(mode: ApprovalMode) -> Execution {
    let play = story("ask").asks("ask", "?").mode(mode).play();
    play.just_after(is::wait_requested)
}

// What is kept of values counts against the limits by its size.
#[test]
fn a_payload_has_the_size_of_its_text() {
    let payload = Payload::from(Json::from_text("[1,2]"));
    assert_eq!(payload.size(), 5);
}
