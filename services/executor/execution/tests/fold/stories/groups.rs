//! Groups of steps: with a time limit, and with `fail_fast`.

use belay_execution::{
    Body, DecideContext, Json, OperationEvent, Progress, SkipReason, StepEvent, StepState, Timestamp, Work,
};
use belay_plan::RunWhen;
use serde_json::json;

use crate::support::{Play, failure, step, story};

/// The time limits of the calls that were requested, by step, in seconds.
fn limits(play: &Play) -> Vec<(String, u64)> {
    let requests = play.events.iter().filter_map(|event| match &event.body {
        Body::Operation { id, event: OperationEvent::Requested(Work::ToolCall(request)) } => {
            Some((id.step.as_str().to_owned(), request.timeout.as_secs()))
        }
        _ => None,
    });
    requests.collect()
}

// The time begins with the first of the group's steps, not with the execution: and what is left of it is what a call may take.
#[test]
fn a_step_that_has_not_ended_in_the_time_of_its_group_fails() {
    let play = story("before; a after before; b after a; c after b; report after c; aside")
        .in_group("g", 10, "a b c")
        .replies("before: ok 5s; a: ok 4s; b: ok 7s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, before started",
            "5s before completed, a started",
            "9s a completed, b started",
            "15s b failed TOOL_TIMEOUT, c skipped DEPENDENCY_FAILED by b, report skipped DEPENDENCY_SKIPPED by c, aside started",
            "16s aside completed, PARTIAL",
        ]
    );
    assert_eq!(limits(&play)[1..3], [("a".to_owned(), 10), ("b".to_owned(), 6)]);
}

// Of two groups the one that ends first counts; the entries of a list have the time of the group together.
#[test]
fn the_group_that_ends_first_counts() {
    let play = story("a; each after a")
        .in_group("outer", 6, "a each")
        .in_group("inner", 60, "each")
        .for_each("each", json!([1, 2, 3]))
        .replies("a: ok 4s; each~0: ok 3s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "4s a completed, each started, each lists 3, each~0 started",
            "6s each~0 failed TOOL_TIMEOUT, each~1 failed STEP_TIMEOUT, each~2 failed STEP_TIMEOUT, each failed ITEMS_FAILED, PARTIAL",
        ]
    );
}

// A step that could have started only after that time fails without a call.
#[test]
fn a_retry_gives_the_group_its_time_again() {
    let play = story("a; b; c after a, b")
        .parallelism(2)
        .in_group("g", 5, "a c")
        .replies("a: ok 1s; b: ok 8s")
        .acts("20s retry")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started",
            "1s a completed",
            "8s b completed, c failed STEP_TIMEOUT, PARTIAL",
            "20s c run again, c started",
            "21s c completed, COMPLETED",
        ]
    );
    let failure = play.just_after(|body| matches!(body, Body::Step { event: StepEvent::Failed { .. }, .. }));
    let failure = failure.step(failure.step_key("c").unwrap()).failure().unwrap();
    assert_eq!(failure.message, "The time limit of the group `g` ran out before the step had ended.");
}

#[test]
fn a_wait_that_is_longer_than_its_group_leaves_fails_at_once() {
    let play = story("a; b after a").in_group("g", 5, "a b").waits("b", "60s").play();
    assert_eq!(play.picture(), ["0s started, a started", "1s a completed, b started, b failed STEP_TIMEOUT, PARTIAL"]);
}

// The first is retried and has a last attempt that fails; only then does the group fail. The step outside runs, and so do those of the group that have started:
// one that waits for its next attempt makes it.
#[test]
fn no_step_of_a_group_starts_once_one_has_failed() {
    let play = story("a; b; c after b; d; aside; all after c, d")
        .parallelism(2)
        .fail_fast_group("g", "a b c d")
        .tries("a", 2, "1s")
        .tries("b", 2, "9s")
        .replies("a: timeout 1s, timeout 2s; b: timeout 2s, ok 1s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started",
            "1s a waits 1s after TIMEOUT",
            "2s b waits 9s after TIMEOUT, a started attempt 2",
            "4s a failed TIMEOUT, c skipped STOP_ON_ERROR by a in g, d skipped STOP_ON_ERROR by a in g, all skipped DEPENDENCY_SKIPPED by c, aside started",
            "5s aside completed",
            "11s b started attempt 2",
            "12s b completed, PARTIAL",
        ]
    );
}

// A step that runs after a failure in the group runs, and so does what depends on it; what depends on the step that failed says so itself.
#[test]
fn what_runs_after_a_failure_in_the_group_still_does() {
    let play = story("a; b after a; c; undo after c; report after undo; keep after c; last after c")
        .fail_fast_group("g", "a b c undo report keep last")
        .run_when("undo", RunWhen::Failure)
        .run_when("keep", RunWhen::Always)
        .run_when("last", RunWhen::NoneFailed)
        .replies("a: invalid")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a failed INVALID, b skipped DEPENDENCY_FAILED by a, c skipped STOP_ON_ERROR by a in g, last skipped STOP_ON_ERROR by a in g, undo started",
            "2s undo completed, report started",
            "3s report completed, keep started",
            "4s keep completed, PARTIAL",
        ]
    );
}

// A group that itself runs after a failure stops with the first of its own.
#[test]
fn a_group_that_runs_after_a_failure_outside_it_fails_fast_as_well() {
    let play = story("a; b after a; c after a; d after a")
        .fail_fast_group("undoes", "b c d")
        .run_when("b", RunWhen::Failure)
        .run_when("c", RunWhen::Always)
        .on("d", "a", "failure")
        .replies("a: invalid; b: invalid")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a failed INVALID, b started",
            "2s b failed INVALID, c skipped STOP_ON_ERROR by b in undoes, d skipped STOP_ON_ERROR by b in undoes, FAILED",
        ]
    );
}

// A step of an inner group that fails ends every group around it that fails fast; one around a group that does not leaves that group's neighbours alone.
#[test]
fn a_failure_counts_for_every_group_around_it() {
    let within = || story("a; b; c; d").fail_fast_group("inner", "a b").replies("a: invalid");
    assert_eq!(
        within().fail_fast_group("outer", "a b c").play().picture(),
        [
            "0s started, a started",
            "1s a failed INVALID, b skipped STOP_ON_ERROR by a in inner, c skipped STOP_ON_ERROR by a in outer, d started",
            "2s d completed, PARTIAL",
        ]
    );
    assert_eq!(
        within().play().picture(),
        [
            "0s started, a started",
            "1s a failed INVALID, b skipped STOP_ON_ERROR by a in inner, c started",
            "2s c completed, d started",
            "3s d completed, PARTIAL",
        ]
    );
}

// A list starts without a slot: those of its entries that have not started do not, and it fails, since nothing stands for them. So does a step that repeats
// before its first round; later rounds are made like further attempts.
#[test]
fn entries_that_have_not_started_do_not_and_rounds_go_on() {
    let play = story("again; each; a; late; never; pack after late")
        .parallelism(4)
        .fail_fast_group("g", "again each a late never")
        .for_each("each", json!([1, 2, 3, 4]))
        .calls("late", "look look")
        .repeat("again", "${again.result} == {}", 2)
        .repeat("never", "${never.result} == {}", 2)
        .replies("again~0: ok 3s; each~0: ok 3s; each~1: ok 3s; a: invalid 2s")
        .output("again~0", &json!(1))
        .acts("9s retry")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, again started, again lists 1, each started, each lists 4, late started, late lists 2, never started, never lists 1, \
             a started, again~0 started, each~0 started, each~1 started",
            "1s again~0 completed, again lists 1 more after 1, each~2 started",
            "2s a failed INVALID, each~3 skipped STOP_ON_ERROR by a in g, late~0 skipped STOP_ON_ERROR by a in g, \
             late~1 skipped STOP_ON_ERROR by a in g, never~0 skipped STOP_ON_ERROR by a in g, late failed ITEMS_FAILED, \
             pack skipped DEPENDENCY_FAILED by late, never failed ITEMS_FAILED, again~1 started, each~2 completed",
            "3s each~0 completed, each~1 completed, each failed ITEMS_FAILED, again~1 completed, again collects {}, again completed, PARTIAL",
            "9s each a late never pack each~3 late~0 late~1 never~0 run again, each started attempt 2, each lists 4, late started attempt 2, \
             late lists 2, never started attempt 2, never lists 1, a started attempt 2, each~3 started, late~0 started, late~1 started",
            "10s a completed, never~0 started, each~3 completed, each collects [{},{},{},{}], each completed, late~0 completed, late~1 completed, \
             late collects [{},{}], late completed, pack started",
            "11s pack completed, never~0 completed, never collects {}, never completed, COMPLETED",
        ]
    );
    let failure = play.just_after(
        |body| matches!(body, Body::Step { step, event: StepEvent::Failed { .. }, .. } if step.as_str() == "late"),
    );
    let failure = failure.step(failure.step_key("late").unwrap()).failure().unwrap();
    assert_eq!(
        failure.message,
        "2 of 2 calls did not start: `a` failed, and no step of the group `g` starts after that"
    );
}

// A list may need a blob before it is read: what it lists once its group has failed does not start.
#[test]
fn entries_that_are_listed_after_the_failure_do_not_start() {
    let is_start =
        |body: &Body| matches!(body, Body::Step { step, event: StepEvent::Started, .. } if step.as_str() == "each");
    let play =
        story("each; a").fail_fast_group("g", "each a").for_each("each", json!([1, 2])).condition("a", "true").play();
    let mut now = play.just_after(is_start);
    let (failure, progress) = (failure("invalid"), Progress::default());
    now.record(Timestamp::from_micros(1), None, step("a", 0, StepEvent::Failed { failure, progress })).unwrap();
    let items = vec![Json::canonical(&json!(1)), Json::canonical(&json!(2))];
    now.record(Timestamp::from_micros(1), None, step("each", 1, StepEvent::ItemsListed { first: 0, items })).unwrap();
    now.advance(DecideContext { now: now.last_time(), ledger_id: "" });
    let ends = ["each~0", "each~1", "each"].map(|id| {
        let step = now.step(now.step_key(id).unwrap());
        (step.state(), step.skipped_group().map(str::to_owned), step.skipped().map(|(reason, _)| reason))
    });
    let skipped = (StepState::Skipped, Some("g".to_owned()), Some(SkipReason::StopOnError));
    assert_eq!(ends, [skipped.clone(), skipped, (StepState::Failed, None, None)]);
}

// A retry makes what failed and what the failure kept from starting, and nothing else; the group fails anew with the next failure.
#[test]
fn a_retry_puts_back_what_the_failure_kept_from_starting() {
    let play = story("done; a; b after done; c; d after b")
        .fail_fast_group("g", "done a b c d")
        .replies("a: invalid, ok; b: ok; c: invalid, ok")
        .acts("9s retry; 20s retry")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, done started",
            "1s done completed, a started",
            "2s a failed INVALID, b skipped STOP_ON_ERROR by a in g, c skipped STOP_ON_ERROR by a in g, d skipped STOP_ON_ERROR by a in g, PARTIAL",
            "9s a b c d run again, a started attempt 2",
            "10s a completed, b started",
            "11s b completed, c started",
            "12s c failed INVALID, d skipped STOP_ON_ERROR by c in g, PARTIAL",
            "20s c d run again, c started attempt 2",
            "21s c completed, d started",
            "22s d completed, COMPLETED",
        ]
    );
}

// Where the plan stops on an error everything does, what runs after failures as well: and no group is the reason then.
#[test]
fn a_plan_that_stops_on_an_error_stops_more_than_the_group() {
    let play = story("a; b; undo after b; aside")
        .stop_on_error()
        .fail_fast_group("g", "a b undo")
        .run_when("undo", RunWhen::Failure)
        .replies("a: invalid")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a failed INVALID, b skipped STOP_ON_ERROR by a in g, undo skipped STOP_ON_ERROR by a, aside skipped STOP_ON_ERROR by a, FAILED",
        ]
    );
}
