//! After which ends of the steps that it depends on a step runs, and what it reads of their entries.

use belay_execution::{ApprovalMode, Body, ExecutionState, OperationEvent, Work};
use belay_plan::RunWhen;
use serde_json::{Value, json};

use crate::support::{Outcome, Play, Story, failure, story};

/// How a step ended: its state, or why it was skipped, and because of which step.
fn end(play: &Play, step: &str) -> String {
    let view = play.execution.step(play.execution.step_key(step).unwrap());
    match view.skipped() {
        Some((reason, Some(because))) => format!("{reason:?} {}", play.execution.step(because).id()),
        Some((reason, None)) => format!("{reason:?}"),
        None => format!("{:?}", view.state()),
    }
}

fn ends<const N: usize>(story: Story, steps: [&str; N]) -> (ExecutionState, [String; N]) {
    let play = story.play();
    (play.state(), steps.map(|step| end(&play, step)))
}

fn fails(story: Story, step: &str) -> Story {
    story.outcomes(step, [Outcome::Failed(failure("invalid"))])
}

/// Exactly one of `failure` and `none_failed` runs, whatever happened: a failure counts also where it only had others skipped.
#[test]
fn none_failed_is_the_opposite_of_failure() {
    let told = || {
        story("a; b after a; c; go after b, c; alarm after b, c")
            .run_when("go", RunWhen::NoneFailed)
            .run_when("alarm", RunWhen::Failure)
    };
    let of = |story: Story| ends(story, ["go", "alarm"]);
    // The last of them to end is the reason.
    let runs = |last: &str| (ExecutionState::Completed, ["Completed".to_owned(), format!("ConditionFalse {last}")]);
    assert_eq!(of(told()), runs("c"), "all have completed");
    assert_eq!(of(told().condition("c", "false")), runs("c"), "one was skipped");
    assert_eq!(of(told().condition("a", "false").condition("c", "false")), runs("c"), "all were skipped");
    let kept = |why: &str| (ExecutionState::Partial, [why.to_owned(), "Completed".to_owned()]);
    assert_eq!(of(fails(told(), "c")), kept("DependencyFailed c"));
    assert_eq!(of(fails(told(), "a")), kept("DependencySkipped b"), "`b` was skipped because of `a`");
}

/// A step that none_failed keeps from running does not wait for what else it depends on.
#[test]
fn none_failed_is_decided_by_the_first_failure() {
    let told = story("a; slow; go after a, slow").run_when("go", RunWhen::NoneFailed).parallelism(2);
    assert_eq!(
        told.replies("a: invalid 1s; slow: ok 9s").picture(),
        [
            "0s started, a started, slow started",
            "1s a failed INVALID, go skipped DEPENDENCY_FAILED by a",
            "9s slow completed, PARTIAL"
        ]
    );
}

/// Every end that a step can have, for everything that can be named of it.
#[test]
fn a_step_runs_after_the_outcomes_that_it_names() {
    let told = |outcome: &str, on: &str| {
        let told = story("a; b after a").on("b", "a", on);
        let told = match outcome {
            "failure" => fails(told, "a"),
            "skipped" => told.condition("a", "false"),
            _ => told,
        };
        let (_, [b]) = ends(told, ["b"]);
        b
    };
    for outcome in ["success", "failure", "skipped"] {
        for on in ["success", "failure", "skipped", "success, failure", "success, skipped", "failure, skipped"] {
            let expected = match outcome {
                _ if on.contains(outcome) => "Completed",
                // It is there for another course of things.
                _ if !on.contains("success") => "ConditionFalse a",
                "failure" => "DependencyFailed a",
                _ => "DependencySkipped a",
            };
            assert_eq!(told(outcome, on), expected, "{outcome}, on {on}");
        }
        assert_eq!(told(outcome, "success, failure, skipped"), "Completed", "{outcome}");
    }
}

/// Each dependency has its own outcomes, and the first that ends otherwise is the reason. One of which nothing is said has to complete.
#[test]
fn each_dependency_has_its_own_outcomes() {
    let told = || story("a; b; c after a, b; d after c").on("c", "a", "failure").on("d", "c", "success, skipped");
    assert_eq!(ends(fails(told(), "a"), ["c", "d"]).1, ["Completed", "Completed"]);
    assert_eq!(
        ends(told(), ["c", "d"]),
        (ExecutionState::Completed, ["ConditionFalse a", "Completed"].map(Into::into))
    );
    let both = fails(fails(told(), "a"), "b");
    assert_eq!(ends(both, ["c", "d"]).1, ["DependencyFailed b", "Completed"]);
}

/// An outcome is that of the step itself: one that was skipped because of a failure was skipped.
#[test]
fn an_outcome_is_that_of_the_step_itself() {
    let told = || fails(story("a; b after a; alarm after b; tidy after b"), "a").on("alarm", "b", "failure");
    let told = told().on("tidy", "b", "skipped");
    assert_eq!(ends(told, ["b", "alarm", "tidy"]).1, ["DependencyFailed a", "ConditionFalse b", "Completed"]);
}

/// Whether an execution has completed: what was there for another course of things was not needed.
#[test]
fn a_step_for_another_outcome_leaves_nothing_out() {
    let skipped =
        |on: &str| story("a; b; then after a").mode(ApprovalMode::Skip).replies("a: ok effect").on("then", "a", on);
    assert_eq!(ends(skipped("failure"), ["then"]), (ExecutionState::Completed, ["ConditionFalse a".into()]));
    assert_eq!(ends(skipped("success, failure"), ["then"]), (ExecutionState::Partial, ["DependencySkipped a".into()]));
    assert_eq!(ends(skipped("skipped"), ["then"]), (ExecutionState::Completed, ["Completed".into()]));
}

/// A person who skips a step has those run that wait for its success, or for its being skipped.
#[test]
fn a_step_that_a_person_skips_counts_as_completed_and_as_skipped() {
    let told = |on: &str| story("w; a after w; b after a").on("b", "a", on).acts("0.5s skip-step a 0");
    assert_eq!(ends(told("success"), ["a", "b"]).1, ["Requested", "Completed"]);
    assert_eq!(ends(told("skipped"), ["a", "b"]).1, ["Requested", "Completed"]);
    assert_eq!(
        ends(told("failure"), ["a", "b"]),
        (ExecutionState::Completed, ["Requested", "ConditionFalse a"].map(Into::into))
    );
    let told = story("w; a after w; b after a").run_when("b", RunWhen::NoneFailed).acts("0.5s skip-step a 0");
    assert_eq!(ends(told, ["a", "b"]).1, ["Requested", "Completed"]);
}

/// Once the execution is being stopped nothing starts, whatever it waits for, and the stop is the reason.
#[test]
fn nothing_starts_after_a_stop() {
    let told = |story: Story| story.on("b", "a", "failure, skipped").run_when("c", RunWhen::NoneFailed);
    let stops = fails(told(story("a; b after a; c after a")), "a").stop_on_error();
    assert_eq!(ends(stops, ["b", "c"]).1, ["StopOnError a", "DependencyFailed a"], "`b` was to run");
    let cancelled = told(story("a; b after a; c after a")).acts("0.5s cancel");
    assert_eq!(ends(cancelled, ["a", "b", "c"]).1, ["Cancelled", "Cancelled", "Cancelled"]);
}

/// When what has failed runs again, what followed the failure is decided anew.
#[test]
fn what_followed_an_outcome_is_decided_anew() {
    let told = story("a; ship after a; alarm after a; join after ship, alarm")
        .on("alarm", "a", "failure")
        .on("join", "ship", "success, skipped")
        .on("join", "alarm", "success, skipped")
        .replies("a: invalid, ok")
        .acts("9s retry");
    assert_eq!(
        told.picture(),
        [
            "0s started, a started",
            "1s a failed INVALID, ship skipped DEPENDENCY_FAILED by a, alarm started",
            "2s alarm completed, join started",
            "3s join completed, PARTIAL",
            "9s a ship alarm join run again, a started attempt 2",
            "10s a completed, alarm skipped CONDITION_FALSE by a, ship started",
            "11s ship completed, join started attempt 2",
            "12s join completed, COMPLETED",
        ]
    );
}

/// Another version of the plan changes after which outcomes a step runs that has not started; what has ended counts for it.
#[test]
fn an_updated_plan_changes_outcomes() {
    let told = |acts: &str| {
        let told = story("a; w; b after a, w").parallelism(2).on("b", "a", "failure").replies("a: invalid; w: ok 9s");
        ends(told.acts(acts), ["b"]).1
    };
    assert_eq!(told("2s update rename b"), ["Completed"]);
    assert_eq!(told("2s update succeed b"), ["DependencyFailed a"]);
    assert_eq!(told("2s update succeed b; 2s update join b"), ["DependencyFailed a"], "it has been skipped by then");
    let told = |acts: &str| {
        let told = story("a; w; b after a, w").parallelism(2).replies("a: ok 2s; w: invalid 1s");
        ends(told.acts(acts), ["b"]).1
    };
    assert_eq!(told("0.5s update join b"), ["Completed"]);
    assert_eq!(told("1.5s update join b"), ["DependencyFailed w"]);
}

/// Returns the results of another step's entries that a step has read, as the arguments of its first call.
fn read(play: &Play, id: &str) -> Value {
    let request = play.events.iter().find_map(|event| match &event.body {
        Body::Operation { id: call, event: OperationEvent::Requested(Work::ToolCall(request)) }
            if &*call.step == id =>
        {
            Some(request)
        }
        _ => None,
    });
    request.and_then(|request| request.arguments.inline()).expect("the step made a call").value()
}

/// Results of a list's entries, when some have failed, have the outputs of those that completed.
#[test]
fn what_became_of_each_entry_can_be_read() {
    let told = story("w; g after w; tell after g")
        .for_each("g", json!([1, 2, 3, 4]))
        .on("tell", "g", "success, failure")
        .arguments("tell", json!({"all": "${g.results}", "second": "${g.results[1].failure.message}"}))
        .parallelism(4)
        .mode(ApprovalMode::Skip)
        .output("g~0", &json!({"n": 1}))
        .replies("g~1: invalid; g~2: ok effect; g~3: ok");
    let play = told.play();
    assert_eq!((play.state(), end(&play, "tell")), (ExecutionState::Partial, "Completed".into()));
    let of_invalid =
        json!({"code": "INVALID", "class": "INVALID_ARGUMENTS", "message": "The call ended with invalid."});
    assert_eq!(
        read(&play, "tell"),
        json!({
            "all": [
                {"state": "completed", "value": {"n": 1}, "failure": null},
                {"state": "failed", "value": null, "failure": of_invalid},
                {"state": "skipped", "value": null, "failure": null},
                {"state": "completed", "value": {}, "failure": null},
            ],
            "second": "The call ended with invalid.",
        })
    );
}

/// A step that never read its list has no results, as it has no result; an empty list has none of them.
#[test]
fn a_list_that_was_not_read_has_no_results() {
    let told = |list: Value| {
        story("w; g after w; tell after g")
            .for_each("g", list)
            .on("tell", "g", "success, failure, skipped")
            .arguments("tell", json!({"all": "${g.results ?? \"none\"}"}))
    };
    assert_eq!(read(&told(json!([])).play(), "tell"), json!({"all": []}));
    assert_eq!(read(&told(json!("${w.result}")).play(), "tell"), json!({"all": "none"}));
    assert_eq!(read(&told(json!([1])).condition("g", "false").play(), "tell"), json!({"all": "none"}));
}

/// An output that a person gives in the place of the entries' is taken for what they returned.
#[test]
fn a_given_output_stands_for_the_entries() {
    let told = story("w; g after w; tell after g")
        .for_each("g", json!([1, 2]))
        .arguments("tell", json!({"all": "${g.results}"}))
        .acts("0.5s set-output g 0 [7,null]");
    let all = json!([{"state": "completed", "value": 7, "failure": null}, {"state": "skipped", "value": null, "failure": null}]);
    assert_eq!(read(&told.play(), "tell"), json!({ "all": all }));
}

/// An entry that failed after its call has no value: what it returned did not hold. The call that commits the effect of others is no entry of theirs.
#[test]
fn only_what_has_completed_has_a_value() {
    let told = story("w; g after w; tell after g")
        .for_each("g", json!([1, 2]))
        .checks("g", json!([]), json!([{"condition": "${g.result.n} == 1"}]))
        .on("tell", "g", "success, failure")
        .arguments("tell", json!({"all": "${g.results}"}))
        .output("g~0", &json!({"n": 1}))
        .output("g~1", &json!({"n": 2}));
    let play = told.play();
    let all = &read(&play, "tell")["all"];
    assert_eq!((&all[0]["value"], &all[1]["value"]), (&json!({"n": 1}), &Value::Null));
    assert_eq!((&all[1]["state"], &all[1]["failure"]["code"]), (&json!("failed"), &json!("POSTCONDITION_FAILED")));
    let told = story("make; tell after make")
        .calls("make", "write write")
        .one_effect("make")
        .arguments("tell", json!({"all": "${make.results}"}));
    let play = told.play();
    assert_eq!(end(&play, "make~2"), "Completed", "it commits what the calls have changed");
    assert_eq!(read(&play, "tell")["all"].as_array().map(Vec::len), Some(2));
    let told = story("make; tell after make")
        .calls("make", "write write")
        .one_effect("make")
        .on("tell", "make", "skipped")
        .arguments("tell", json!({"all": "${make.results ?? []}"}))
        .replies("make~2: ok effect:skipped");
    assert_eq!(read(&told.play(), "tell"), json!({"all": []}), "nothing of it was committed");
}
