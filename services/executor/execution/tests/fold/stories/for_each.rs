//! Steps that run once for each entry of a list.

use belay_execution::{Body, StepEvent};
use serde_json::json;

use crate::support::story;

#[test]
fn each_entry_is_a_step_of_its_own() {
    let play = story("list; build; pack after build")
        .parallelism(2)
        .output("list", &json!({"files": ["a.c", {"name": "b.c"}, "c.c"]}))
        .for_each("build", json!("${list.result.files}"))
        .arguments("build", json!({"file": "${item.value}", "line": "${item.index} of ${list.result.files[0]}"}))
        .output("build~0", &json!({"size": 1}))
        .output("build~2", &json!("c.o"))
        .arguments("pack", json!({"all": "${build.result}", "last": "${build.result[2]}"}))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, list started",
            "1s list completed, build started, build lists 3, build~0 started, build~1 started",
            "2s build~0 completed, build~2 started, build~1 completed",
            "3s build~2 completed, build collects [{\"size\":1},{},\"c.o\"], build completed, pack started",
            "4s pack completed, COMPLETED",
        ]
    );
    assert_eq!(play.arguments("build~0"), r#"{"file":"a.c","line":"0 of a.c"}"#);
    assert_eq!(play.arguments("build~1"), r#"{"file":{"name":"b.c"},"line":"1 of a.c"}"#);
    assert_eq!(play.arguments("pack"), r#"{"all":[{"size":1},{},"c.o"],"last":"c.o"}"#);
}

#[test]
fn an_empty_list_is_an_empty_output() {
    let play = story("build; pack").for_each("build", json!([])).arguments("pack", json!({"all": "${build.result}"}));
    assert_eq!(
        play.play().picture(),
        [
            "0s started, build started, build lists 0, build collects [], build completed, pack started",
            "1s pack completed, COMPLETED"
        ]
    );
}

// Steps of other executions may stay in memory for days. A retry that is due, and a step that is ready, do not wait behind the list for that.
#[test]
fn a_list_that_waits_for_room_holds_up_no_other_step() {
    let story = story("build; draft; publish after draft")
        .parallelism(2)
        .for_each("build", json!(["a.c", "b.c"]))
        .tries("draft", 2, "2s")
        .replies("draft: transient, ok")
        .crowded(0, 9);
    assert_eq!(
        story.play().picture(),
        [
            "0s started, build started, draft started",
            "1s draft waits 2s after TRANSIENT",
            "3s draft started attempt 2",
            "4s draft completed, publish started",
            "5s publish completed",
            "9s build lists 2, build~0 started, build~1 started",
            "10s build~0 completed, build~1 completed, build collects [{},{}], build completed, COMPLETED",
        ]
    );
}

// Those that run are not stopped, and those that the failure kept from starting are made when the step is tried again.
#[test]
fn no_more_start_after_one_that_fails_where_the_step_fails_fast() {
    let play = story("build; pack after build")
        .parallelism(2)
        .for_each("build", json!([1, 2, 3, 4]))
        .fail_fast("build")
        .replies("build~0: invalid, ok; build~1: ok 3s")
        .acts("9s retry")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build lists 4, build~0 started, build~1 started",
            "1s build~0 failed INVALID, build~2 skipped STOP_ON_ERROR by build~0, build~3 skipped STOP_ON_ERROR by build~0",
            "3s build~1 completed, build failed ITEMS_FAILED, pack skipped DEPENDENCY_FAILED by build, PARTIAL",
            "9s build pack build~0 build~2 build~3 run again, build started attempt 2, build lists 4, build~0 started attempt 2, build~2 started",
            "10s build~0 completed, build~3 started, build~2 completed",
            "11s build~3 completed, build collects [{},{},{},{}], build completed, pack started",
            "12s pack completed, COMPLETED",
        ]
    );
}

#[test]
fn the_others_run_to_their_end_when_one_fails() {
    let play = story("build; pack after build; note")
        .parallelism(3)
        .for_each("build", json!([1, 2, 3]))
        .tries("build", 2, "5s")
        .replies("build~1: transient, transient; build~2: transient, ok")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build lists 3, note started, build~0 started, build~1 started",
            "1s note completed, build~2 started, build~0 completed, build~1 waits 5s after TRANSIENT",
            "2s build~2 waits 5s after TRANSIENT",
            "6s build~1 started attempt 2",
            "7s build~1 failed TRANSIENT, build~2 started attempt 2",
            "8s build~2 completed, build failed ITEMS_FAILED, pack skipped DEPENDENCY_FAILED by build, PARTIAL",
        ]
    );
    let failure = play.execution.step(play.execution.step_key("build").unwrap()).failure().unwrap();
    assert_eq!(failure.message, "1 of 3 entries failed; the first is `build~1`: The call ended with transient.");
}

#[test]
fn a_matrix_is_read_when_its_step_starts() {
    let of = |versions: serde_json::Value| {
        let matrix = json!({"matrix": {"os": ["linux", "mac"], "version": "${list.result}", "exclude": [{"os": "mac", "version": 1}]}});
        story("list; build")
            .output("list", &versions)
            .for_each("build", matrix)
            .arguments("build", json!({"all": "${item.value}"}))
    };
    let play = of(json!([1, 2])).play();
    let entries = ["build~0", "build~1", "build~2"].map(|step| play.arguments(step));
    assert_eq!(
        entries,
        [(r#"linux"#, 1), ("linux", 2), ("mac", 2)]
            .map(|(os, version)| format!(r#"{{"all":{{"os":"{os}","version":{version}}}}}"#))
    );
    for (versions, message) in [
        (json!(3), "for_each.matrix.version: is a number, and must be a list."),
        (
            json!(vec![0; 5_001]),
            "for_each.matrix: has more than 10000 combinations: leave out values, or give each entry more to do.",
        ),
    ] {
        let play = of(versions).play();
        let failure = play.execution.first_failure().unwrap();
        assert_eq!((failure.reason.as_str(), failure.message.as_str()), ("LIST_REFUSED", message));
    }
}

#[test]
fn outputs_that_are_too_deep_together_fail_the_step() {
    let collected = |levels: usize| {
        let output = (0..levels).fold(json!(1), |inner, _| json!([inner]));
        story("build")
            .for_each("build", json!([1]))
            .output("build~0", &output)
            .play()
            .execution
            .first_failure()
            .cloned()
    };
    assert_eq!(collected(126), None);
    let failure = collected(127).unwrap();
    assert_eq!(failure.reason, "ITEMS_TOO_LARGE");
    assert!(failure.message.contains("nested deeper than 127 levels together"), "{}", failure.message);
}

#[test]
fn what_is_no_list_fails_the_step() {
    for (value, message) in [
        (json!({"files": {"a": 1}}), "for_each: `${list.result.files}` is an object, and must be a list."),
        (json!({"files": null}), "for_each: `${list.result.files}` is null, and must be a list."),
        (
            json!({"files": vec![0; 10_001]}),
            "for_each: the list has 10001 entries, and the limit is 10000: give each entry more to do.",
        ),
        (
            json!({"files": ["x".repeat(40_000)]}),
            "for_each: entry 0 of the list has 40002 bytes as JSON, and the limit is 32768: put the content into a file, and let the entry \
             be its path.",
        ),
    ] {
        let play = story("list; build").output("list", &value).for_each("build", json!("${list.result.files}")).play();
        let failure = play.execution.first_failure().unwrap();
        assert_eq!((failure.reason.as_str(), failure.message.as_str()), ("LIST_REFUSED", message));
    }
}

/// A retry runs the failed entries; those that completed are kept, as long as the list has the same.
#[test]
fn a_retry_keeps_the_entries_that_completed() {
    let play = story("build; pack after build")
        .parallelism(2)
        .for_each("build", json!(["a", "b", "c"]))
        .replies("build~1: transient, ok")
        .acts("5s retry")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build lists 3, build~0 started, build~1 started",
            "1s build~0 completed, build~2 started, build~1 failed TRANSIENT",
            "2s build~2 completed, build failed ITEMS_FAILED, pack skipped DEPENDENCY_FAILED by build, PARTIAL",
            "5s build pack build~1 run again, build started attempt 2, build lists 3, build~1 started attempt 2",
            "6s build~1 completed, build collects [{},{},{}], build completed, pack started",
            "7s pack completed, COMPLETED",
        ]
    );
    let again = story("build").for_each("build", json!(["a", "b"])).acts("5s retry build").picture();
    assert_eq!(
        again[3..],
        [
            "5s build build~0 build~1 run again, build started attempt 2, build lists 2, build~0 started attempt 2",
            "6s build~0 completed, build~1 started attempt 2",
            "7s build~1 completed, build collects [{},{}], build completed, COMPLETED",
        ]
    );
}

/// The list is another when the step that makes it runs again: each entry that has changed runs, and what is beyond its end does not.
#[test]
fn a_list_is_read_again() {
    let outputs = [json!(["a", "b", "c", "d"]), json!(["a", "x"])];
    let completed = outputs.map(|list| crate::support::Outcome::Completed(belay_execution::Json::canonical(&list)));
    let play = story("list; build; pack after build")
        .parallelism(4)
        .outcomes("list", completed)
        .for_each("build", json!("${list.result}"))
        .replies("build~3: transient")
        .acts("5s retry list")
        .play();
    assert_eq!(
        play.picture()[3..],
        [
            "5s list build pack build~3 run again, list started attempt 2",
            "6s list completed, build started attempt 2, build lists 2, build~3 skipped NOT_LISTED by build, build~1 started attempt 2",
            "7s build~1 completed, build collects [{},{}], build completed, pack started",
            "8s pack completed, COMPLETED",
        ]
    );
    assert_eq!(play.execution.totals().total, 7);
}

#[test]
fn a_person_skips_an_entry_or_gives_its_output() {
    let play = story("build")
        .for_each("build", json!(["a", "b", "c"]))
        .acts("0.5s skip-step build~1 0; 0.5s set-output build~2 0 7")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build lists 3, build~0 started",
            "0.5s build~1 to skip, build~1 skipped REQUESTED, build~2 given 7, build~2 completed",
            "1s build~0 completed, build collects [{},null,7], build completed, COMPLETED",
        ]
    );
}

/// An entry loses what it needs of the list once a person has given the list's output.
#[test]
fn the_output_of_the_list_can_be_given() {
    let play = story("build")
        .for_each("build", json!(["a", "b"]))
        .replies("build~1: transient")
        .acts("5s retry paused; 6s set-output build 1 []; 7s resume")
        .play();
    assert_eq!(
        play.picture()[3..],
        [
            "5s build build~1 run again, paused",
            "6s build given [], build completed, build~1 skipped REQUESTED by build, COMPLETED",
        ]
    );
}

#[test]
fn a_cancelled_list_leaves_nothing_open() {
    let play = story("build; pack after build")
        .parallelism(2)
        .for_each("build", json!(["a", "b", "c"]))
        .acts("0.5s cancel")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build lists 3, build~0 started, build~1 started",
            "0.5s cancel requested, pack skipped CANCELLED, build~2 skipped CANCELLED, build~0 call 1.1 stopped, build~0 cancelled, \
             build~1 call 1.1 stopped, build~1 cancelled, build cancelled, CANCELLED",
        ]
    );
}

#[test]
fn entries_wait_for_approvals_side_by_side() {
    let play = story("build")
        .for_each("build", json!(["a", "b"]))
        .replies("build~0: ok effect:approved:2s; build~1: ok effect:approved:1s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build lists 2, build~0 started",
            "1s build~0 held with its effect, build~1 started",
            "2s build~1 held with its effect, awaiting approval",
            "3s build~0 APPROVED, build~0 completed, awaiting approval, build~1 APPROVED, build~1 completed, build collects [{},{}], build completed, COMPLETED",
        ]
    );
}

#[test]
fn a_wait_for_each_entry_ends_by_itself() {
    let play = story("ask").waits("ask", "2s").for_each("ask", json!([1, 2])).play();
    assert_eq!(
        play.picture(),
        [
            "0s started, ask started, ask lists 2, ask~0 started, ask~0 waits, ask~1 started, ask~1 waits",
            "2s ask~0 wait Elapsed, ask~0 completed, ask~1 wait Elapsed, ask~1 completed, ask collects [null,null], ask completed, COMPLETED",
        ]
    );
}

/// A condition is asked once, before the list is read.
#[test]
fn a_condition_is_about_the_whole_list() {
    let play = story("build; pack").for_each("build", json!([1, 2])).condition("build", "false").play();
    assert_eq!(play.picture()[0], "0s started, build skipped CONDITION_FALSE, pack started");
    assert!(
        !play.events.iter().any(|event| matches!(event.body, Body::Step { event: StepEvent::ItemsListed { .. }, .. }))
    );
}
