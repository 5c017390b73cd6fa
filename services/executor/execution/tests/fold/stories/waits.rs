//! Steps that wait for a time or a signal.

use std::time::Duration;

use belay_execution::{
    Body, DecideContext, ExecutionState, Json, MAX_SIGNALS, StepState, WaitCondition, WaitEnd, WaitEvent, Waiting,
};

use crate::support::{START, act_of, call, story};

// Nothing is done meanwhile: the execution can leave memory, and is woken by the time.
#[test]
fn a_step_waits_for_a_time() {
    let play = story("a; pause after a; b after pause").waits("pause", "60s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a completed, pause started, pause waits",
            "61s pause wait Elapsed, pause completed, b started",
            "62s b completed, COMPLETED",
        ]
    );
    let waiting = play.just_after(|body| matches!(body, Body::Wait { event: WaitEvent::Started(_), .. }));
    assert!(waiting.is_parked() && waiting.actions().is_empty() && waiting.in_doubt().is_empty());
    let (since, until) = (START.saturating_add(Duration::from_secs(1)), START.saturating_add(Duration::from_secs(61)));
    assert_eq!(waiting.wake_at(), Some(until));
    assert_eq!(waiting.waiting(), [Waiting::Time { since, until }]);
    assert_eq!(
        (waiting.state(), waiting.steps().nth(1).unwrap().state()),
        (ExecutionState::Running, StepState::Waiting)
    );
    assert_eq!(play.execution.steps().nth(1).unwrap().output(), Some(&Json::from_text("null")));
}

// A wait holds no slot: what does not depend on it goes on, even one step at a time.
#[test]
fn a_wait_holds_up_only_what_depends_on_it() {
    assert_eq!(
        story("pause; a; b after pause").waits("pause", "5s").picture(),
        [
            "0s started, pause started, pause waits, a started",
            "1s a completed",
            "5s pause wait Elapsed, pause completed, b started",
            "6s b completed, COMPLETED",
        ]
    );
}

// It needs no slot to start either: it counts from when it is ready, not from when a call beside it has ended.
#[test]
fn a_wait_starts_beside_a_call_that_holds_the_only_slot() {
    assert_eq!(
        story("long; pause; b after pause").waits("pause", "1s").replies("long: ok 4s").picture(),
        [
            "0s started, pause started, pause waits, long started",
            "1s pause wait Elapsed, pause completed",
            "4s long completed, b started",
            "5s b completed, COMPLETED",
        ]
    );
}

// What the signal carries becomes the step's result.
#[test]
fn a_step_waits_for_a_signal() {
    let story =
        story("go; b after go").waits("go", "deployed").arguments("b", serde_json::json!({"n": "${go.result}"}));
    let play = story.acts("2s signal other 1; 3s signal deployed 7; 4s signal deployed 8").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, go started, go waits for deployed",
            "2s signal other",
            "3s signal deployed, go wait Signalled, go completed, b started",
            "4s signal deployed, b completed, COMPLETED",
        ]
    );
    assert_eq!(play.execution.steps().next().unwrap().output(), Some(&Json::from_text("7")));
    let waiting = play.just_after(|body| matches!(body, Body::Wait { .. }));
    let wait = waiting.operation_key(&call("go", 1, 1)).unwrap();
    assert_eq!(waiting.waiting(), [Waiting::Signal { since: START, until: None, wait }]);
    assert_eq!((waiting.wake_at(), waiting.is_parked()), (None, true));
}

// A signal that comes before its step is kept; each is taken once, the oldest first.
#[test]
fn early_signals_are_kept() {
    let play = story("a; first after a; second after a")
        .waits("first", "go")
        .waits("second", "go")
        .acts("0s signal go 1; 0.5s signal go 2")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s signal go, started, a started",
            "0.5s signal go",
            "1s a completed, first started, first waits for go, first wait Signalled, first completed, \
             second started, second waits for go, second wait Signalled, second completed, COMPLETED",
        ]
    );
    let outputs: Vec<_> = play.execution.steps().filter_map(|step| step.output().map(Json::as_str)).collect();
    assert_eq!(outputs, ["{}", "1", "2"]);
}

#[test]
fn a_signal_that_does_not_come_in_time_fails_its_step() {
    assert_eq!(
        story("go; b after go").waits("go", "deployed").step_limit("go", "5s").acts("6s signal deployed 1").picture()
            [1..],
        ["5s go wait TimedOut, go failed STEP_TIMEOUT, b skipped DEPENDENCY_FAILED by go, FAILED"]
    );
}

// During a pause a wait does not end; after it, what has come meanwhile counts.
#[test]
fn a_pause_outlasts_a_wait() {
    assert_eq!(
        story("w").waits("w", "3s").acts("1s pause; 9s resume").picture()[1..],
        ["1s paused", "9s resumed, w wait Elapsed, w completed, COMPLETED"]
    );
    assert_eq!(
        story("w").waits("w", "go").acts("1s pause; 2s signal go 1; 9s resume").picture()[1..],
        ["1s paused", "2s signal go", "9s resumed, w wait Signalled, w completed, COMPLETED"]
    );
}

#[test]
fn stopping_ends_waits() {
    assert_eq!(
        story("w; b after w").waits("w", "60s").acts("1s cancel").picture()[1..],
        ["1s cancel requested, w wait Cancelled, w cancelled, b skipped CANCELLED, CANCELLED"]
    );
    assert_eq!(
        story("w; a").waits("w", "go").limit("2s").picture()[2..],
        ["2s out of time, w wait Cancelled, w cancelled, TIMED_OUT"]
    );
    assert_eq!(
        story("w; a").waits("w", "go").stop_on_error().replies("a: invalid").picture()[1..],
        ["1s a failed INVALID, w wait Cancelled, w cancelled, FAILED"]
    );
}

#[test]
fn what_a_wait_cannot_do_is_refused() {
    let play = story("w; a after w").waits("w", "go").play();
    let ended = |end| Body::Wait { wait: call("w", 1, 1), event: WaitEvent::Ended(end) };
    let refused = |body: Body| play.execution.clone().record(play.now, None, body).unwrap_err().what;
    assert!(refused(ended(WaitEnd::Elapsed)).contains("cannot end by Elapsed"));
    assert!(refused(ended(WaitEnd::TimedOut)).contains("cannot end by TimedOut"));
    assert!(refused(ended(WaitEnd::Cancelled)).contains("cannot end by Cancelled"));
    assert_eq!(
        refused(ended(WaitEnd::Signalled { sequence: 9 })),
        "event 9 is not the oldest signal `go` that is kept"
    );
    let started = WaitEvent::Started(WaitCondition::Time { until: START });
    let again = Body::Wait { wait: call("w", 1, 2), event: started.clone() };
    assert_eq!(refused(again), "`w` 1.2 does not follow 1.1");
    let start = story("a").rehearse();
    let mut running = start.execution;
    running.advance(DecideContext { now: START, ledger_id: "ledger" });
    let no_wait = Body::Wait { wait: call("a", 1, 1), event: WaitEvent::Ended(WaitEnd::Elapsed) };
    assert_eq!(running.record(START, None, no_wait).unwrap_err().what, "`a` 1.1 is no wait");
}

#[test]
fn signals_that_nobody_takes_are_bounded() {
    let mut execution = story("w").waits("w", "go").play().execution;
    let (actor, other) = act_of("signal other 1");
    for _ in 0..MAX_SIGNALS {
        execution.record(START, actor.clone(), other.clone()).unwrap();
    }
    assert_eq!(execution.record(START, actor, other).unwrap_err().what, "it keeps 1000 signals already");
}
