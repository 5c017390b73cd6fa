//! Steps that make several calls, side by side.

use belay_execution::{Body, OperationEvent, Work};
use serde_json::json;

use crate::support::story;

#[test]
fn each_call_is_a_step_of_its_own_and_their_results_are_a_list_in_order() {
    let play = story("first; look; pack after look")
        .parallelism(2)
        .calls("look", "read other read")
        .output("look~0", &json!({"a": 1}))
        .output("look~2", &json!("c"))
        .arguments("pack", json!({"all": "${look.result}", "last": "${look.result[2]}"}))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, look started, look lists 3, first started, look~0 started",
            "1s first completed, look~1 started, look~0 completed, look~2 started",
            "2s look~1 completed, look~2 completed, look collects [{\"a\":1},{},\"c\"], look completed, pack started",
            "3s pack completed, COMPLETED",
        ]
    );
}

/// Each call has attempts of its own, and when the step is retried, those that have completed are not made again.
#[test]
fn a_call_is_tried_again_by_itself() {
    let play = story("look; pack after look")
        .parallelism(3)
        .calls("look", "read other read")
        .tries("look", 2, "5s")
        .replies("look~1: transient, transient, ok; look~2: transient, ok")
        .acts("20s retry")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, look started, look lists 3, look~0 started, look~1 started, look~2 started",
            "1s look~0 completed, look~1 waits 5s after TRANSIENT, look~2 waits 5s after TRANSIENT",
            "6s look~1 started attempt 2, look~2 started attempt 2",
            "7s look~1 failed TRANSIENT, look~2 completed, look failed ITEMS_FAILED, pack skipped DEPENDENCY_FAILED by look, PARTIAL",
            "20s look pack look~1 run again, look started attempt 2, look lists 3, look~1 started attempt 3",
            "21s look~1 completed, look collects [{},{},{}], look completed, pack started",
            "22s pack completed, COMPLETED",
        ]
    );
    let failed = play.events.iter().find_map(|event| match &event.body {
        belay_execution::Body::Step { step, event: belay_execution::StepEvent::Failed { failure, .. }, .. }
            if &**step == "look" =>
        {
            Some(failure.message.clone())
        }
        _ => None,
    });
    let failed = failed.expect("the step failed");
    assert!(failed.starts_with("1 of 3 calls failed; the first is `look~1`"), "{failed}");
}

/// A call that a changed plan has with other arguments is another call, and is made; one that it no longer has is not.
#[test]
fn a_call_that_the_plan_changes_is_made_again() {
    let play = story("look")
        .parallelism(3)
        .calls("look", "read other read")
        .replies("look~2: transient")
        .acts("5s retry paused; 6s update recall look; 7s resume")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, look started, look lists 3, look~0 started, look~1 started, look~2 started",
            "1s look~0 completed, look~1 completed, look~2 failed TRANSIENT, look failed ITEMS_FAILED, PARTIAL",
            "5s look look~2 run again, paused",
            "6s plan 1",
            "7s resumed, look started attempt 2, look lists 2, look~2 skipped NOT_LISTED by look, look~0 started attempt 2",
            "8s look~0 completed, look collects [{},{}], look completed, COMPLETED",
        ]
    );
}

/// A call that reads a step which has run again is made again, and one that does not stays.
#[test]
fn what_reads_a_step_that_ran_again_is_made_again() {
    let play = story("a; look after a")
        .parallelism(3)
        .calls("look", "read other")
        .call_arguments("look", 1, json!({"of": "${a.state}"}))
        .acts("5s retry a")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a completed, look started, look lists 2, look~0 started, look~1 started",
            "2s look~0 completed, look~1 completed, look collects [{},{}], look completed, COMPLETED",
            "5s a look run again, a started attempt 2",
            "6s a completed, look started attempt 2, look lists 2, look~1 started attempt 2",
            "7s look~1 completed, look collects [{},{}], look completed, COMPLETED",
        ]
    );
}

/// B-34: what the calls change is committed by one more call once all have completed; a call that begins later sees what the others have changed, and no
/// call is checked against what only the plan's calls return.
#[test]
fn calls_with_one_effect_are_committed_by_one_more_call() {
    let play = story("make; pack after make")
        .parallelism(2)
        .calls("make", "write look write")
        .one_effect("make")
        .arguments("pack", json!({"all": "${make.result}"}))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, make started, make lists 3, make~0 started, make~1 started",
            "1s make~0 completed, make~2 started, make~1 completed",
            "2s make~2 completed, make lists 1 more after 3, make~3 started",
            "3s make~3 completed, make collects [{},{},{}], make completed, pack started",
            "4s pack completed, COMPLETED",
        ]
    );
    let begins_with = |step: &str| {
        let request = play.events.iter().find_map(|event| match &event.body {
            Body::Operation { id: call, event: OperationEvent::Requested(Work::ToolCall(request)) }
                if &*call.step == step =>
            {
                Some(request)
            }
            _ => None,
        });
        let layers = request.expect("it was called").layers.clone().expect("its step has one effect");
        assert_eq!((&*layers.step, layers.round), ("make", 1));
        (layers.begin_with.len(), layers.entry)
    };
    assert_eq!(
        ["make~0", "make~1", "make~2", "make~3"].map(begins_with),
        [(0, Some(0)), (0, Some(1)), (1, Some(2)), (2, None)]
    );
}

/// When a call fails, nothing is committed; when the step is retried, all calls are made again, and none begins with what an earlier run has left.
#[test]
fn calls_with_one_effect_are_made_again_together() {
    let play = story("make")
        .parallelism(1)
        .calls("make", "write write")
        .one_effect("make")
        .replies("make~1: transient, ok")
        .acts("5s retry; 20s retry make")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, make started, make lists 2, make~0 started",
            "1s make~0 completed, make~1 started",
            "2s make~1 failed TRANSIENT, make failed ITEMS_FAILED, PARTIAL",
            "5s make make~1 run again, make started attempt 2, make lists 2, make~0 started attempt 2",
            "6s make~0 completed, make~1 started attempt 2",
            "7s make~1 completed, make lists 1 more after 2, make~2 started",
            "8s make~2 completed, make collects [{},{}], make completed, COMPLETED",
            "20s make make~0 make~1 make~2 run again, make started attempt 3, make lists 2, make~2 skipped NOT_LISTED by make, make~0 started attempt 3",
            "21s make~0 completed, make~1 started attempt 3",
            "22s make~1 completed, make lists 1 more after 2, make~2 started attempt 2",
            "23s make~2 completed, make collects [{},{}], make completed, COMPLETED",
        ]
    );
}

/// A step whose commit is skipped is skipped too: it has done nothing. What depends on it is skipped, unless a person asked for that.
#[test]
fn a_step_is_skipped_with_the_call_that_commits_it() {
    let play = |replies: &str, acts: &str| {
        let play = story("make; pack after make").parallelism(2).calls("make", "write write").one_effect("make");
        let play = play.replies(replies).tries("make", 2, "5s");
        if acts.is_empty() { play.play().picture() } else { play.acts(acts).play().picture() }
    };
    let by_the_approver = play("make~2: ok effect:skipped:4s", "20s retry make");
    assert_eq!(
        by_the_approver,
        [
            "0s started, make started, make lists 2, make~0 started, make~1 started",
            "1s make~0 completed, make~1 completed, make lists 1 more after 2, make~2 started",
            "2s make~2 held with its effect, awaiting approval",
            "6s make~2 SKIPPED, make~2 skipped APPROVAL_SKIPPED, make skipped APPROVAL_SKIPPED, pack skipped DEPENDENCY_SKIPPED by make, PARTIAL",
            "20s make pack make~0 make~1 make~2 run again, make started attempt 2, make lists 2, make~2 skipped NOT_LISTED by make, make~0 started attempt 2, make~1 started attempt 2",
            "21s make~0 completed, make~1 completed, make lists 1 more after 2, make~2 started attempt 2",
            "22s make~2 completed, make collects [{},{}], make completed, pack started",
            "23s pack completed, COMPLETED",
        ]
    );
    let by_request = play("make~2: transient, ok", "4s skip-step make~2 1");
    assert_eq!(
        by_request[2..],
        [
            "2s make~2 waits 5s after TRANSIENT",
            "4s make~2 to skip, make~2 skipped REQUESTED, make skipped REQUESTED, pack started",
            "5s pack completed, COMPLETED",
        ]
    );
}

/// Calls that change nothing leave nothing to commit.
#[test]
fn calls_that_change_nothing_commit_nothing() {
    let play = story("look").parallelism(2).calls("look", "look look").one_effect("look").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, look started, look lists 2, look~0 started, look~1 started",
            "1s look~0 completed, look~1 completed, look collects [{},{}], look completed, COMPLETED",
        ]
    );
}
