//! Calls that wait for approval: S2-FR-049, S2-FR-052, S2-FR-053.

use std::time::Duration;

use belay_execution::{
    ApprovalMode, Body, DecideContext, Decision, ErrorClass, Event, Execution, ExecutionEvent, ExecutionState,
    OperationEvent, OperationId, RequiredAction, StepState, Waiting,
};

use crate::support::{START, Story, act_of, action, call, is, requirement, story, without_recoveries};

/// The first call of the step `a`.
fn first() -> OperationId {
    call("a", 1, 1)
}

fn record(execution: &mut Execution, words: &str) {
    let (actor, body) = act_of(words);
    execution.record(execution.last_time(), actor, body).unwrap();
}

// S2-X-19: the effect of a call is asked about; a yes puts it in place, and the plan goes on with the next step.
#[test]
fn an_effect_is_committed_once_it_is_approved() {
    let play = story("delete; b after delete").replies("delete: ok effect:approved:60s").play();
    assert_eq!(
        play.full_picture(),
        [
            "0s started, delete started, delete call 1.1",
            "1s delete held with its effect, asked about delete call 1.1, awaiting approval",
            "61s delete APPROVED, delete call 1.1 ok, delete completed, b started, b call 1.1",
            "62s b call 1.1 ok, b completed, COMPLETED",
        ]
    );
    let asked = play.just_after(is::approval_requested);
    assert!(asked.is_parked() && asked.actions().is_empty());
    assert_eq!(asked.in_doubt(), []);
    let since = START.saturating_add(Duration::from_secs(1));
    let operation = asked.operation_key(&call("delete", 1, 1)).unwrap();
    assert_eq!(asked.waiting(), [Waiting::Approval { since, operation }]);
    let step = asked.steps().next().unwrap();
    assert_eq!((step.state(), step.approvals().count()), (StepState::AwaitingApproval, 1));
    let approved = play.just_after(is::decided);
    assert_eq!((asked.waited(), approved.waited()), (Duration::ZERO, Duration::from_secs(60)));
    assert_eq!(play.execution.waited(), Duration::from_secs(60));
    assert_eq!(action(&approved), (call("delete", 1, 1), RequiredAction::Commit));
    assert_eq!(approved.in_doubt(), [operation]);
}

// A call that is asked about before its work runs with its grant, and may be asked about again for what it did beyond its word.
#[test]
fn a_call_is_let_run_and_then_asked_about_its_effect() {
    let play = story("a").replies("a: ok 5s call:approved:2s effect:approved:3s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, a held, awaiting approval",
            "2s a APPROVED",
            "7s a held with its effect, awaiting approval",
            "10s a APPROVED, a completed, COMPLETED",
        ]
    );
    assert_eq!(play.just_after(is::decided).actions(), [], "it waits for a slot");
    assert_eq!(action(&play.just_after(is::dispatched)), (first(), RequiredAction::Dispatch));
}

// S2-X-07: a no ends the step, with the person's words for whoever wrote the plan. It is not tried again.
#[test]
fn a_no_fails_the_step_and_says_why() {
    let play = story("a; b after a; c").tries("a", 3, "1s").replies("a: ok effect:denied:4s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a held with its effect, c started",
            "2s c completed, awaiting approval",
            "5s a DENIED, a failed APPROVAL_DENIED, b skipped DEPENDENCY_FAILED by a, PARTIAL",
        ]
    );
    let failure = play.execution.first_failure().unwrap();
    assert_eq!(failure.class, ErrorClass::ApprovalDenied);
    assert_eq!(failure.message, "denied by ann: as I see it");
    let denied = play.just_after(is::decided);
    assert_eq!(denied.waited(), Duration::from_secs(3), "another step ran during the first second of the step's wait");
    assert_eq!(action(&denied), (first(), RequiredAction::Discard));
}

// B-04: where a policy sets a limit, nobody's answer is a no.
#[test]
fn what_nobody_decides_in_time_is_a_no() {
    let play = story("a").replies("a: ok effect:expired:600s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a held with its effect, awaiting approval",
            "601s a EXPIRED, a failed APPROVAL_DENIED, FAILED",
        ]
    );
    assert_eq!(
        play.execution.first_failure().unwrap().message,
        "The approval expired without a decision, which counts as denied (rule rule: because)."
    );
}

// B-04: where none does, it waits as long as it takes; the step's own limits do not count the wait.
#[test]
fn a_wait_for_a_person_runs_into_no_limit_of_the_step() {
    let story =
        story("a").step_limit("a", "5s").attempt_limit("a", "3s").replies("a: ok effect:approved:900s:conflict");
    assert_eq!(
        story.picture(),
        [
            "0s started, a started",
            "1s a held with its effect, awaiting approval",
            "901s a APPROVED, a call 1.1 stopped CONFLICT, a call 1.2",
            "902s a completed, COMPLETED",
        ]
    );
}

#[test]
fn a_person_can_leave_the_step_out() {
    let play = story("a; b after a; c").replies("a: ok effect:skipped:4s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a held with its effect, c started",
            "2s c completed, awaiting approval",
            "5s a SKIPPED, a skipped APPROVAL_SKIPPED, b skipped DEPENDENCY_SKIPPED by a, PARTIAL",
        ]
    );
    assert_eq!(play.execution.totals().skipped, 2);
    assert!(play.execution.first_failure().is_none());
}

// Skipping is not success where something is missing for it: what others needed, or everything.
#[test]
fn an_execution_whose_skipped_steps_leave_a_hole_is_partial() {
    let ended = |steps: &str, replies: &str| story(steps).replies(replies).play().execution.state();
    assert_eq!(ended("a; c", "a: ok effect:skipped:4s"), ExecutionState::Completed, "nobody needed it");
    assert_eq!(ended("a; b after a; c", "a: ok effect:skipped:4s"), ExecutionState::Partial);
    assert_eq!(ended("a", "a: ok effect:skipped:4s"), ExecutionState::Partial, "nothing was done");
    assert_eq!(ended("a; b after a", "a: ok effect:skipped:4s"), ExecutionState::Partial);
}

// The policy's no comes from the runner, and goes the same way.
#[test]
fn a_policy_that_denies_fails_the_step() {
    let play = story("a; b after a").tries("a", 3, "1s").replies("a: denied").play();
    assert_eq!(
        play.picture(),
        ["0s started, a started", "1s a failed DENIED, b skipped DEPENDENCY_FAILED by a, FAILED"]
    );
    assert_eq!(play.execution.first_failure().unwrap().class, ErrorClass::PolicyDenied);
}

// FAIL and SKIP ask nobody: the fold decides, at once and for good.
#[test]
fn an_execution_can_be_started_to_ask_nobody() {
    let told = |mode| story("a; b after a; c").mode(mode).replies("a: ok call:approved effect:approved").play();
    let play = told(ApprovalMode::Fail);
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, a held, a DENIED by its mode, a failed NON_INTERACTIVE, \
             b skipped DEPENDENCY_FAILED by a, c started",
            "1s c completed, PARTIAL",
        ]
    );
    let failure = play.execution.first_failure().unwrap();
    assert_eq!(failure.class, ErrorClass::ApprovalDenied);
    assert_eq!(
        failure.message,
        "Rule rule requires approval (because), but this run cannot ask. Use `--approve prompt`, or allow it with a rule of the policy."
    );
    let facts: Vec<(&str, &str)> = failure.metadata.iter().map(|(key, fact)| (key.as_str(), fact.as_str())).collect();
    assert_eq!(facts, [("allowing_rule", "{id: x}"), ("allowing_rule_2", "{id: y}")]);
    assert_eq!(
        told(ApprovalMode::Skip).picture(),
        [
            "0s started, a started, a held, a SKIPPED by its mode, a skipped NON_INTERACTIVE, \
             b skipped DEPENDENCY_SKIPPED by a, c started",
            "1s c completed, PARTIAL",
        ]
    );
}

// AUTO asks the gate, which asks nobody.
#[test]
fn the_policy_can_decide_for_the_person() {
    let told = |decided| story("a").mode(ApprovalMode::Auto).replies(&format!("a: ok effect:{decided}")).play();
    assert_eq!(told("approved").state(), ExecutionState::Completed);
    let failure = |decided| told(decided).execution.first_failure().cloned().unwrap();
    assert_eq!(failure("denied").reason, "NON_INTERACTIVE");
    assert_eq!(
        told("skipped").picture().last().unwrap(),
        "1s a held with its effect, awaiting approval, a SKIPPED, a skipped NON_INTERACTIVE, PARTIAL"
    );
}

// S2-FR-052: what waits for a person stops what depends on it, and nothing else.
#[test]
fn a_wait_for_a_person_stops_nothing_else() {
    let play = story("a; b after a; c; d after c").replies("a: ok effect:approved:60s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a held with its effect, c started",
            "2s c completed, d started",
            "3s d completed, awaiting approval",
            "61s a APPROVED, a completed, b started",
            "62s b completed, COMPLETED",
        ]
    );
}

// S2-FR-052: a call that is let run waits for a place among those that run, and is the first to get one.
#[test]
fn a_call_that_is_let_run_waits_for_a_place() {
    let play = story("a; c; d").replies("a: ok 5s call:approved:2s; c: ok 3s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, a held, c started",
            "2s a APPROVED",
            "3s c completed",
            "8s a completed, d started",
            "9s d completed, COMPLETED",
        ]
    );
}

// A commit that finds the workspace changed runs again in the same attempt, and is asked about anew.
#[test]
fn a_conflict_runs_again_without_burning_an_attempt() {
    let replies = "a: ok effect:approved:2s:conflict, ok effect:approved:2s";
    assert_eq!(
        story("a").replies(replies).picture(),
        [
            "0s started, a started",
            "1s a held with its effect, awaiting approval",
            "3s a APPROVED, a call 1.1 stopped CONFLICT, a call 1.2",
            "4s a held with its effect, awaiting approval",
            "6s a APPROVED, a completed, COMPLETED",
        ]
    );
}

// A retry that is due by itself is something that goes on.
#[test]
fn an_execution_awaits_approval_only_when_nothing_else_is_due() {
    let told = story("a; c").parallelism(2).tries("c", 2, "5s").replies("a: ok effect:approved:60s; c: transient, ok");
    assert_eq!(
        told.picture(),
        [
            "0s started, a started, c started",
            "1s a held with its effect, c waits 5s after TRANSIENT",
            "6s c started attempt 2",
            "7s c completed, awaiting approval",
            "61s a APPROVED, a completed, COMPLETED",
        ]
    );
}

// Nothing is committed during a pause; what is decided meanwhile is carried out after it. A proposed effect outlives also a pause that
// discards what runs, and no attempt is burnt.
#[test]
fn a_decision_during_a_pause_waits_for_the_resumption() {
    for pause in ["pause", "pause discarding"] {
        let told = story("a").replies("a: ok effect:approved:4s").acts(&format!("2s {pause}; 9s resume"));
        let play = told.play();
        let paused = if pause == "pause" { "2s paused" } else { "2s paused, discarding" };
        assert_eq!(
            play.picture(),
            [
                "0s started, a started",
                "1s a held with its effect, awaiting approval",
                paused,
                "5s a APPROVED",
                "9s resumed, a completed, COMPLETED",
            ]
        );
        let decided = play.just_after(is::decided);
        assert!(decided.is_parked() && decided.actions().is_empty());
    }
}

// What was decided just before the pause, and what is turned down during it, wait as well.
#[test]
fn a_pause_after_the_decision_stops_the_commit() {
    let play = story("a").replies("a: ok effect:approved:4s").play();
    let mut paused = play.just_after(is::decided);
    record(&mut paused, "pause");
    assert!(paused.is_parked());
    record(&mut paused, "resume");
    assert_eq!(action(&paused), (first(), RequiredAction::Commit));
    assert_eq!(
        story("a").replies("a: ok effect:denied:4s").acts("2s pause; 9s resume").picture()[3..],
        ["5s a DENIED", "9s resumed, a failed APPROVAL_DENIED, FAILED"]
    );
}

// A call that was let run before the pause runs like any other; one that is let run during it waits.
#[test]
fn a_pause_treats_a_call_that_was_let_run_as_one_that_runs() {
    let told = |acts| story("a").replies("a: ok 5s call:approved:2s, ok").acts(acts).picture();
    assert_eq!(told("3s pause; 9s resume")[2..], ["3s paused", "7s a completed, COMPLETED"]);
    assert_eq!(
        told("3s pause discarding; 9s resume")[2..],
        ["3s paused, discarding, a call 1.1 stopped", "9s resumed, a call 1.2", "10s a completed, COMPLETED"]
    );
    assert_eq!(
        told("1s pause; 9s resume")[1..],
        ["1s paused", "2s a APPROVED", "9s resumed", "14s a completed, COMPLETED"]
    );
}

// What is held and not asked about during a pause is asked about after it.
#[test]
fn nobody_is_asked_during_a_pause() {
    let play = story("a").replies("a: ok effect:approved").acts("0.5s pause; 9s resume").play();
    assert_eq!(
        play.full_picture()[2..],
        [
            "1s a held with its effect",
            "9s resumed, asked about a call 1.1, awaiting approval, a APPROVED, a call 1.1 ok, a completed, COMPLETED",
        ]
    );
}

#[test]
fn stopping_stops_what_waits() {
    let held = || story("a; b after a").replies("a: ok effect");
    let begin = ["0s started, a started", "1s a held with its effect, awaiting approval"];
    let cancelled = held().acts("5s cancel").play();
    assert_eq!(cancelled.picture()[..2], begin);
    assert_eq!(
        cancelled.picture()[2..],
        ["5s cancel requested, b skipped CANCELLED, a call 1.1 stopped, a cancelled, CANCELLED"]
    );
    let asked = cancelled.just_after(is::cancel_requested);
    assert_eq!(action(&asked), (first(), RequiredAction::Cancel));
    assert_eq!(
        held().limit("5s").picture()[2..],
        ["5s out of time, b skipped TIMED_OUT, a call 1.1 stopped, a cancelled, TIMED_OUT"]
    );
    assert_eq!(
        story("a; b").parallelism(2).stop_on_error().replies("a: ok effect; b: invalid 3s").picture()[2..],
        ["3s b failed INVALID, a call 1.1 stopped, a cancelled, FAILED"]
    );
}

/// A story with every kind of decision.
fn eventful() -> Story {
    story("a; b after a; c; d after c; e; f")
        .parallelism(2)
        .replies(
            "a: ok call:approved:1s effect:approved:3s:conflict, ok effect:approved:2s; c: ok effect:skipped:4s; \
             e: ok effect:denied:5s; f: ok 2s effect:approved:9s",
        )
        .acts("6s pause; 8s resume; 9s pause discarding; 11s resume")
}

// B-01, S2-NFR-005, S2-NFR-006, S2-NFR-007, S2-FR-057: the executor dies after every single event, once each: between hold and question,
// between question and decision, between decision and commit. The story comes out the same.
#[test]
fn a_crash_after_any_event_changes_nothing() {
    let undisturbed = eventful().play();
    assert!(undisturbed.state().is_terminal(), "{:?}", undisturbed.picture());
    for (turn, &events) in undisturbed.turns.iter().enumerate() {
        for kept in 0..=events {
            let mut play = eventful().rehearse();
            play.crashes = vec![None; turn].into_iter().chain([Some(kept)]).collect();
            play.run();
            assert_eq!(
                without_recoveries(&play.events),
                without_recoveries(&undisturbed.events),
                "turn {turn}, {kept} kept"
            );
        }
    }
}

fn is_about_a(body: &Body) -> bool {
    body.subject().step().is_some_and(|step| &**step == "a")
}

/// Why an event cannot be the next one.
#[track_caller]
fn refusal(now: &Execution, body: Body) -> String {
    let event = Event { sequence: now.last_sequence() + 1, time: now.created_at(), actor: None, body };
    now.clone().apply(&event).expect_err("it was accepted").violation.to_string()
}

// Number 3 of REQUIREMENTS section 4, told by the fold itself: it takes no completion of a held call without a yes to just that.
#[test]
fn what_cannot_be_is_refused() {
    let play = story("a; b").replies("a: ok effect:approved:4s").play();
    let found = |is: fn(&Body) -> bool| play.events.iter().find(|event| is(&event.body)).unwrap().body.clone();
    let (completed, decision) = (found(|body| is::call_completed(body) && is_about_a(body)), found(is::decided));
    let (held, asked) = (play.just_after(is::held), play.just_after(is::approval_requested));
    let approved = play.just_after(is::decided);
    let about = |event| Body::Operation { id: first(), event };
    let requested = |digest: &str| {
        let (approval, subject_digest) = ("namespaces/default/approvals/x".to_owned(), digest.to_owned());
        about(OperationEvent::Asked { approval, subject_digest })
    };
    let again = Body::Operation { id: first(), event: OperationEvent::Held(Box::new(requirement("another"))) };
    let by_mode =
        about(OperationEvent::Decided { approval: String::new(), decision: Decision::Skipped, reason: String::new() });
    let accept = |now: &mut Execution, body: &Body| drop(now.record(play.now, None, body.clone()).unwrap());

    assert_eq!(refusal(&held, completed.clone()), "`a` 1.1 was held, and nobody has approved it");
    assert!(refusal(&held, decision.clone()).starts_with("nobody was asked about `a` 1.1 by the approval"));
    assert!(refusal(&held, by_mode.clone()).starts_with("nobody was asked"), "this execution waits for people");
    assert!(refusal(&held, requested("another")).starts_with("`a` 1.1 is about sha256:"));
    assert_eq!(refusal(&held, ExecutionEvent::AwaitingApproval.into()), "something can proceed without a decision");
    // Nobody has been asked about what it was held for.
    accept(&mut held.clone(), &again);

    assert_eq!(
        refusal(&asked, completed.clone()),
        "`a` 1.1 waits for a decision, before which it is not held anew and does not end"
    );
    assert_eq!(
        refusal(&asked, again.clone()),
        "`a` 1.1 waits for a decision, before which it is not held anew and does not end"
    );
    assert!(refusal(&asked, by_mode).starts_with("nobody was asked"));

    assert_eq!(refusal(&approved, decision), "`a` 1.1 is already decided");
    let mut held_again = approved.clone();
    accept(&mut held_again, &again);
    assert_eq!(refusal(&held_again, completed), "`a` 1.1 was held, and nobody has approved it");
    assert_eq!(refusal(&held_again, again.clone()), "`a` 1.1 is held for this already");
    // A gate that lost its store forgets a yes: the call is held for the same anew, and asked about.
    let the_same = found(is::held);
    let mut forgotten = approved.clone();
    accept(&mut forgotten, &the_same);
    assert!(forgotten.actions().iter().any(|action| action.required == RequiredAction::RequestApproval));
    assert_eq!(refusal(&forgotten, the_same), "`a` 1.1 is held for this already");

    let denied = story("a; b").replies("a: ok effect:denied:4s").play().just_after(is::decided);
    assert_eq!(refusal(&denied, again.clone()), "`a` 1.1 was turned down, and cannot be held anew");
    let mut stopped = asked;
    record(&mut stopped, "cancel");
    assert_eq!(refusal(&stopped, again), "`a` 1.1 is being stopped");
    let context = DecideContext { now: play.now, ledger_id: "ledger" };
    let finishes = |event: &Event| matches!(event.body, Body::Execution(ExecutionEvent::Finished(_)));
    assert!(!stopped.advance(context).iter().any(finishes));
}
