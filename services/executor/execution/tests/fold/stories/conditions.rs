//! Steps that run only if something is true, or after a failure.

use belay_execution::{ExecutionState, SkipReason};
use belay_plan::RunWhen;

use serde_json::json;

use crate::support::{Outcome, Story, failure, story};

fn state(story: Story, step: &str) -> (ExecutionState, String) {
    let play = story.play();
    let view = play.execution.step(play.execution.step_key(step).unwrap());
    let skipped = view.skipped().map(|(reason, _)| format!("{reason:?}"));
    let failed = view.failure().map(|failure| failure.reason.clone());
    (play.state(), skipped.or(failed).unwrap_or_else(|| format!("{:?}", view.state())))
}

/// S4-15: a condition that is false skips its step, and the plan has completed: its author said so.
#[test]
fn a_false_condition_skips_its_step_and_what_follows() {
    let told = || story("check; act after check; note after act; other after check").output("check", &json!({"n": 3}));
    let of = |condition: &str| told().condition("act", condition);
    for (condition, expected, note) in [
        ("${check.result.n} == 3", "Completed", "Completed"),
        ("${check.result.n} > 3", "ConditionFalse", "DependencySkipped"),
        ("false", "ConditionFalse", "DependencySkipped"),
    ] {
        assert_eq!(state(of(condition), "act"), (ExecutionState::Completed, expected.to_owned()), "{condition}");
        assert_eq!(state(of(condition), "note").1, note, "{condition}");
        assert_eq!(state(of(condition), "other").1, "Completed");
    }
    assert_eq!(state(story("a").condition("a", "false"), "a").0, ExecutionState::Completed, "nothing was left to do");
}

/// A condition without a value fails its step before it runs, and names what is wrong in the author's words.
#[test]
fn a_condition_without_a_value_fails_its_step() {
    let told =
        |condition: &str| story("check; act after check").output("check", &json!({"n": 3})).condition("act", condition);
    assert_eq!(state(told("${check.result.n}"), "act"), (ExecutionState::Partial, "CONDITION_FAILED".into()));
    assert_eq!(state(told("${check.result.m} == 1"), "act").1, "UNRESOLVED_REFERENCE");
    let play = told("${check.result.n} == 3 && ${check.result.n} > 'x'").play();
    let step = play.execution.step(play.execution.step_key("act").unwrap());
    let message = &step.failure().unwrap().message;
    assert!(
        message.contains("`${check.result.n} == 3 && ${check.result.n} > 'x'` compares a number with text"),
        "{message}"
    );
    assert_eq!((step.attempt(), step.failed_attempts().len()), (0, 0), "it did not run");
}

/// Steps for the case of failure, and for every case.
#[test]
fn steps_run_after_a_failure_or_in_any_case() {
    let told = || {
        story("a; b after a; alarm after b; tidy after b; after_alarm after alarm")
            .run_when("alarm", RunWhen::Failure)
            .run_when("tidy", RunWhen::Always)
    };
    assert_eq!(state(told(), "alarm"), (ExecutionState::Completed, format!("{:?}", SkipReason::ConditionFalse)));
    assert_eq!(state(told(), "after_alarm").1, "DependencySkipped");
    assert_eq!(state(told(), "tidy").1, "Completed");
    for failing in ["a", "b"] {
        let told = || told().outcomes(failing, [Outcome::Failed(failure("invalid"))]);
        assert_eq!(state(told(), "alarm"), (ExecutionState::Partial, "Completed".into()), "{failing}");
        assert_eq!(state(told(), "tidy").1, "Completed", "{failing}");
        assert_eq!(state(told(), "after_alarm").1, "Completed", "{failing}");
    }
    let stops = told().stop_on_error().outcomes("a", [Outcome::Failed(failure("invalid"))]);
    assert_eq!(state(stops, "tidy"), (ExecutionState::Failed, "StopOnError".into()));
}

/// A step reads the facts that it needs about one that has failed.
#[test]
fn a_step_reads_how_another_one_ended() {
    let told = story("a; tell after a")
        .run_when("tell", RunWhen::Always)
        .outcomes("a", [Outcome::Failed(failure("invalid"))])
        .condition(
            "tell",
            "${a.state} == 'failed' && ${a.failure.class} == 'INVALID_ARGUMENTS' && ${a.failure.message} != ''",
        );
    assert_eq!(state(told, "tell").1, "Completed");
    let told = story("a; tell after a").condition("tell", "${a.state} == 'completed' && ${a.failure} == null");
    assert_eq!(state(told, "tell").1, "Completed");
}
