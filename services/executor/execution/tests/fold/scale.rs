//! As many steps as a plan may have, and exactly as many events as that takes.

use std::time::Duration;

use belay_execution::{Decision, ExecutionState, Json, SubjectKind, Totals};
use belay_plan::{OnError, Plan, PlanDraft, RunWhen, StepDraft, StepKindDraft, limits::MAX_STEPS};
use serde_json::json;

use crate::support::{Outcome, Play, Question, Reply, act_of, created, failure};

/// The events of one step that completes at its first call: started, requested, completed, completed.
const EVENTS_OF_A_STEP: usize = 4;

fn step(place: usize, depends_on: Option<usize>) -> StepDraft {
    StepDraft {
        group: String::new(),
        id: format!("s{place}"),
        description: String::new(),
        title: String::new(),
        depends_on: depends_on.map(|place| format!("s{place}").into()).into_iter().collect(),
        run_when: RunWhen::Success,
        condition: String::new(),
        for_each: None,
        repeat: None,
        fail_fast: false,
        group_timeouts: Default::default(),
        fail_fast_groups: Vec::new(),
        fallback: Vec::new(),
        compensate: None,
        resources: Vec::new(),
        preconditions: Vec::new(),
        postconditions: Vec::new(),
        output_schema: None,
        budget: None,
        timeout: None,
        attempt_timeout: None,
        exclusive: false,
        network: None,
        verbatim: Vec::new(),
        retry: None,
        on_error: OnError::new(),
        kind: StepKindDraft::Tool { tool: "work".to_owned(), arguments: json!({}) },
    }
}

/// `MAX_STEPS` steps; `depends_on` says on which step another depends.
fn play(parallelism: u32, depends_on: impl Fn(usize) -> Option<usize>, first: Outcome) -> Play {
    asked(parallelism, depends_on, first, Vec::new())
}

/// The same, where each call is held for these questions.
fn asked(
    parallelism: u32,
    depends_on: impl Fn(usize) -> Option<usize>,
    first: Outcome,
    questions: Vec<Question>,
) -> Play {
    let steps = (0..MAX_STEPS).map(|place| step(place, depends_on(place))).collect();
    let plan = Plan::new(PlanDraft { id: "big".to_owned(), steps, parallelism, ..PlanDraft::default() }).unwrap();
    let script = move |call: &belay_execution::OperationId, _| Reply {
        outcome: if &*call.step == "s0" { first.clone() } else { completed() },
        latency: Duration::from_secs(1),
        stops_in: Some(Duration::ZERO),
        questions: questions.clone(),
    };
    let mut play = Play::new(created(plan), Box::new(script));
    play.thorough = false;
    // The driver here performs all actions anew in each turn, 256 at a time: few turns, so that it is the fold that works.
    play.batches = true;
    play
}

fn completed() -> Outcome {
    Outcome::Completed(Json::from_text("null"))
}

/// Each step depends on the one before.
fn chain(place: usize) -> Option<usize> {
    place.checked_sub(1)
}

/// All steps depend on the first.
fn fan(place: usize) -> Option<usize> {
    (place > 0).then_some(0)
}

#[track_caller]
fn assert_all_completed(mut play: Play) {
    play.run();
    assert_eq!(play.state(), ExecutionState::Completed);
    // Created, started, finished.
    assert_eq!(play.events.len(), 3 + MAX_STEPS * EVENTS_OF_A_STEP);
}

// S2-NFR-008: at least 100 steps.
#[test]
fn a_chain_of_the_longest_plan_runs_to_its_end() {
    assert_all_completed(play(1, chain, completed()));
}

#[test]
fn a_fan_of_the_longest_plan_runs_to_its_end() {
    assert_all_completed(play(256, fan, completed()));
    assert_all_completed(play(1, fan, completed()));
}

#[test]
fn one_failure_skips_all_others() {
    for shape in [chain, fan] {
        let mut play = play(256, shape, Outcome::Failed(failure("invalid")));
        play.run();
        assert_eq!(
            play.execution.totals(),
            Totals { total: MAX_STEPS, failed: 1, skipped: MAX_STEPS - 1, ..Totals::default() }
        );
    }
}

// All steps wait at the same time, since none of them needs a place among those that run.
#[test]
fn a_plan_whose_every_step_waits_for_a_person_runs_to_its_end() {
    let answer = Some((Decision::Approved, Duration::from_secs(60)));
    let question = Question { kind: SubjectKind::Call, answer, conflicts: false };
    let mut play = asked(256, |_| None, completed(), vec![question]);
    play.run();
    assert_eq!(play.state(), ExecutionState::Completed);
    // Held, asked, decided, dispatched: four more a step; and once it awaited approval.
    assert_eq!(play.events.len(), 4 + MAX_STEPS * (EVENTS_OF_A_STEP + 4));
}

#[test]
fn a_cancellation_ends_all_steps_at_once() {
    let mut play = play(256, |_| None, completed());
    play.acts.push_back((play.now.saturating_add(Duration::from_millis(1)), act_of("cancel")));
    play.run();
    let totals = Totals { total: MAX_STEPS, cancelled: 256, skipped: MAX_STEPS - 256, ..Totals::default() };
    assert_eq!(play.execution.totals(), totals);
}
