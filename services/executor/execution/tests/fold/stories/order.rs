//! The order in which steps run, the steps that do not run, and how an execution ends.

use std::time::Duration;

use belay_execution::{Body, ExecutionState, StepEvent, Totals};

use crate::support::story;

/// S2-FR-031, S2-FR-032, S3-04: the step runs, its tool is called, and it has completed with what that returned.
#[test]
fn everything_that_happens_in_the_shortest_story() {
    let play = story("draft").play();
    assert_eq!(
        play.full_picture(),
        ["0s started, draft started, draft call 1.1", "1s draft call 1.1 ok, draft completed, COMPLETED",]
    );
}

// S2-FR-003, S2-FR-006: every step runs, and in the order of the dependencies, whatever the order in the plan.
#[test]
fn steps_wait_for_what_they_depend_on() {
    assert_eq!(
        story("publish after review; review after draft; draft").picture(),
        [
            "0s started, draft started",
            "1s draft completed, review started",
            "2s review completed, publish started",
            "3s publish completed, COMPLETED",
        ]
    );
}

// S2-FR-007, S2-X-33, S3-17, S4-28: independent steps run together when the plan allows it, and in the plan's order when it does not.
#[test]
fn independent_steps_share_the_parallelism() {
    let diamond = || story("draft; check after draft; translate after draft; publish after check, translate");
    assert_eq!(
        diamond().parallelism(2).picture(),
        [
            "0s started, draft started",
            "1s draft completed, check started, translate started",
            "2s check completed, translate completed, publish started",
            "3s publish completed, COMPLETED",
        ]
    );
    assert_eq!(
        diamond().picture(),
        [
            "0s started, draft started",
            "1s draft completed, check started",
            "2s check completed, translate started",
            "3s translate completed, publish started",
            "4s publish completed, COMPLETED",
        ]
    );
}

// S2-FR-006: what ends together is told in the plan's order.
#[test]
fn calls_that_end_in_one_turn_are_settled_in_order() {
    let mut play = story("a; b; c after a").parallelism(2).rehearse();
    play.batches = true;
    play.run();
    assert_eq!(
        play.full_picture(),
        [
            "0s started, a started, a call 1.1, b started, b call 1.1",
            "1s a call 1.1 ok, b call 1.1 ok, a completed, b completed, c started, c call 1.1",
            "2s c call 1.1 ok, c completed, COMPLETED",
        ]
    );
}

// S4-35: the plan of the source document.
#[test]
fn generate_then_moderate_beside_analyse() {
    let play = story("generate; moderate after generate; analyse after generate")
        .parallelism(2)
        .stop_on_error()
        .limit("120s")
        .replies("generate: ok 3s; moderate: ok 2s; analyse: ok 1s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, generate started",
            "3s generate completed, moderate started, analyse started",
            "4s analyse completed",
            "5s moderate completed, COMPLETED",
        ]
    );
    assert_eq!(play.execution.totals(), Totals { total: 3, completed: 3, ..Totals::default() });
}

// S2-FR-008, S4-14, S2-X-02: steps that depend on a failed step are skipped, however far away; the other steps run.
#[test]
fn a_failure_blocks_what_depends_on_it_and_nothing_else() {
    let play = story("draft; publish after draft; tweet after publish; clean").replies("draft: invalid").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, draft started",
            "1s draft failed INVALID, publish skipped DEPENDENCY_FAILED by draft, tweet skipped DEPENDENCY_SKIPPED by publish, clean started",
            "2s clean completed, PARTIAL",
        ]
    );
    assert_eq!(play.execution.first_failure().unwrap().reason, "INVALID");
}

// S4-28: one failure does not lose the results of siblings.
#[test]
fn a_sibling_of_a_failure_keeps_its_result() {
    let play = story("a; b; c after b").parallelism(2).replies("a: invalid 1s; b: ok 2s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started",
            "1s a failed INVALID",
            "2s b completed, c started",
            "3s c completed, PARTIAL",
        ]
    );
    assert!(play.execution.steps().nth(1).unwrap().output().is_some());
}

// S4-11, S4-25: COMPLETED when no step failed, PARTIAL when some failed and some completed, FAILED otherwise.
#[test]
fn how_it_ended_follows_from_how_the_steps_ended() {
    let end = |replies: &str| story("a; b").replies(replies).play().state();
    assert_eq!(end("a: ok; b: ok"), ExecutionState::Completed);
    assert_eq!(end("a: invalid; b: ok"), ExecutionState::Partial);
    assert_eq!(end("a: ok; b: invalid"), ExecutionState::Partial);
    assert_eq!(end("a: invalid; b: invalid"), ExecutionState::Failed);
    // A fatal failure stops the execution; it does not undo what has completed.
    assert_eq!(end("a: ok; b: fatal"), ExecutionState::Partial);
    let chain = story("a; b after a").replies("a: invalid").play();
    assert_eq!(chain.state(), ExecutionState::Failed);
    assert_eq!(chain.execution.totals(), Totals { total: 2, failed: 1, skipped: 1, ..Totals::default() });
    let stops = story("a; b").stop_on_error().replies("b: invalid").play();
    assert_eq!((stops.state(), stops.execution.totals().completed), (ExecutionState::Failed, 1));
}

// S2-NFR-016, S2-FR-072: each step tells how long it took, from its first attempt, and how far the whole is.
#[test]
fn steps_tell_their_duration_and_the_progress() {
    let play = story("a; b").tries("a", 2, "4s").replies("a: transient 2s, ok 3s; b: ok 5s").play();
    let told: Vec<_> = play
        .events
        .iter()
        .filter_map(|event| match event.body {
            Body::Step { event: StepEvent::Completed { progress, duration }, .. } => {
                Some((progress.done, progress.total, duration))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [(1, 2, Duration::from_secs(9)), (2, 2, Duration::from_secs(5))]);
}
