//! Steps that wait for a time, a signal or a person's answer.

use std::time::Duration;

use belay_execution::{
    ApprovalMode, Body, DecideContext, Decision, ExecutionState, Json, MAX_SIGNALS, OperationEnd, OperationEvent,
    RequiredAction, StepState, WaitCondition, WaitEnd, Waiting, Work,
};

use crate::support::{START, act_of, action, call, is, story};

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
    let waiting = play.just_after(is::wait_requested);
    assert!(waiting.is_parked() && waiting.actions().is_empty() && waiting.in_doubt().is_empty());
    let (since, until) = (START.saturating_add(Duration::from_secs(1)), START.saturating_add(Duration::from_secs(61)));
    assert_eq!(waiting.wake_at(), Some(until));
    assert_eq!(waiting.waiting(), [Waiting::Time { since, until }]);
    assert_eq!(
        (waiting.state(), waiting.steps().nth(1).unwrap().state()),
        (ExecutionState::Running, StepState::Waiting)
    );
    assert_eq!(play.execution.steps().nth(1).unwrap().output(), Some(&Json::from_text("null").into()));
}

// A wait holds no slot: steps that do not depend on it run, even one step at a time.
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
    assert_eq!(play.execution.steps().next().unwrap().output(), Some(&Json::from_text("7").into()));
    let waiting = play.just_after(is::wait_requested);
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
    let outputs: Vec<_> = play.execution.steps().filter_map(|step| step.output()?.inline()).map(Json::as_str).collect();
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
    let ended = |end| Body::Operation { id: call("w", 1, 1), event: OperationEvent::Ended(OperationEnd::Wait(end)) };
    let refused = |body: Body| play.execution.clone().record(play.now, None, body).unwrap_err().violation.to_string();
    assert!(refused(ended(WaitEnd::Elapsed)).contains("cannot end by `elapsed`"));
    assert!(refused(ended(WaitEnd::TimedOut)).contains("cannot end by `timed out`"));
    assert!(refused(ended(WaitEnd::Cancelled)).contains("cannot end by `cancelled`"));
    assert_eq!(
        refused(ended(WaitEnd::Signalled { sequence: 9 })),
        "event 9 is not the oldest signal `go` that is kept"
    );
    let started = OperationEvent::Requested(Work::Wait(WaitCondition::Time { until: START }));
    let again = Body::Operation { id: call("w", 1, 2), event: started.clone() };
    assert_eq!(refused(again), "`w` 1.2 does not follow 1.1");
    let start = story("a").rehearse();
    let mut running = start.execution;
    running.advance(DecideContext { now: START, ledger_id: "ledger" });
    let no_wait =
        Body::Operation { id: call("a", 1, 1), event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Elapsed)) };
    assert_eq!(running.record(START, None, no_wait).unwrap_err().violation.to_string(), "`a` 1.1 is not a wait");
}

#[test]
fn signals_that_nobody_takes_are_bounded() {
    let mut execution = story("w").waits("w", "go").play().execution;
    let (actor, other) = act_of("signal other 1");
    for _ in 0..MAX_SIGNALS {
        execution.record(START, actor.clone(), other.clone()).unwrap();
    }
    assert_eq!(
        execution.record(START, actor, other).unwrap_err().violation.to_string(),
        "the execution keeps 1000 signals that no step has taken"
    );
}

// The question goes to the gate once; the answer is the step's result.
#[test]
fn a_step_waits_for_an_answer() {
    let story = story("a; ask after a; b after ask")
        .asks("ask", "How many of ${a.result.n}?")
        .output("a", &serde_json::json!({"n": 7}))
        .arguments("b", serde_json::json!({"n": "${ask.result.n}"}));
    let play = story.acts(r#"9s answer ask {"n":3}"#).play();
    assert_eq!(
        play.full_picture(),
        [
            "0s started, a started, a call 1.1",
            "1s a call 1.1 ok, a completed, ask started, ask asks How many of 7?, asked about ask call 1.1",
            "9s ask wait Answered, ask completed, b started, b call 1.1",
            "10s b call 1.1 ok, b completed, COMPLETED",
        ]
    );
    assert_eq!(play.execution.steps().nth(1).unwrap().output(), Some(&Json::from_text(r#"{"n":3}"#).into()));

    let to_ask = play.just_after(is::wait_requested);
    assert_eq!(
        action(&to_ask),
        (call("ask", 1, 1), RequiredAction::RequestApproval),
        "until the gate has confirmed it"
    );
    assert!(to_ask.in_doubt().is_empty());
    let asked = play.just_after(is::approval_requested);
    assert!(asked.is_parked() && asked.actions().is_empty() && asked.wake_at().is_none());
    let wait = asked.operation_key(&call("ask", 1, 1)).unwrap();
    let since = START.saturating_add(Duration::from_secs(1));
    assert_eq!(asked.waiting(), [Waiting::Form { since, until: None, wait }]);
    assert_eq!(asked.requested_approvals().collect::<Vec<_>>(), [wait], "asked again from a gate that lost its store");
    let step = asked.steps().nth(1).unwrap();
    assert_eq!((asked.state(), step.state()), (ExecutionState::Running, StepState::Waiting));
    assert_eq!(step.approvals().collect::<Vec<_>>(), ["form `ask` 1.1"]);
}

// The digest covers what was shown: another title, description or schema is another question.
#[test]
fn a_form_s_digest_is_of_all_of_it() {
    let form = |title: &str, description: &str, schema| {
        belay_execution::Form::new(title.into(), description.into(), &schema).subject_digest
    };
    let one = form("t", "d", serde_json::json!({"b": 1, "a": 2}));
    assert_eq!(one, form("t", "d", serde_json::json!({"a": 2, "b": 1})));
    for other in [form("u", "d", serde_json::json!({"b": 1, "a": 2})), form("t", "", serde_json::json!({}))] {
        assert_ne!(one, other);
    }
}

#[test]
fn a_form_can_be_denied_skipped_or_run_out() {
    let asked = || story("ask; b after ask").asks("ask", "?");
    assert_eq!(
        asked().acts("2s deny ask").picture()[1..],
        ["2s ask wait Declined (Denied), ask failed APPROVAL_DENIED, b skipped DEPENDENCY_FAILED by ask, FAILED"]
    );
    assert_eq!(
        asked().acts("2s skip ask").picture()[1..],
        ["2s ask wait Declined (Skipped), ask skipped APPROVAL_SKIPPED, b skipped DEPENDENCY_SKIPPED by ask, PARTIAL"]
    );
    assert_eq!(
        asked().step_limit("ask", "5s").acts("6s answer ask 1").picture()[1..],
        ["5s ask wait TimedOut, ask failed STEP_TIMEOUT, b skipped DEPENDENCY_FAILED by ask, FAILED"]
    );
    assert_eq!(
        asked().acts("1s cancel; 2s answer ask 1").picture()[1..],
        ["1s cancel requested, ask wait Cancelled, ask cancelled, b skipped CANCELLED, CANCELLED"]
    );
}

// B-04: where no person is asked, the step does not wait for one.
#[test]
fn an_execution_that_asks_no_person_declines_forms_at_once() {
    let asked = |mode| story("ask; b after ask").asks("ask", "?").mode(mode).picture();
    for mode in [ApprovalMode::Fail, ApprovalMode::Auto] {
        assert_eq!(
            asked(mode),
            ["0s started, ask started, ask asks ?, ask wait Declined (Denied), ask failed NON_INTERACTIVE, \
              b skipped DEPENDENCY_FAILED by ask, FAILED"]
        );
    }
    assert_eq!(
        asked(ApprovalMode::Skip),
        ["0s started, ask started, ask asks ?, ask wait Declined (Skipped), ask skipped NON_INTERACTIVE, \
          b skipped DEPENDENCY_SKIPPED by ask, PARTIAL"]
    );
}

// The person's time is theirs: an answer during a pause counts, and what depends on it starts after the pause.
#[test]
fn a_form_is_answered_during_a_pause() {
    let story = story("ask; b after ask").asks("ask", "?").acts("1s pause; 2s answer ask 1; 9s resume");
    assert_eq!(
        story.picture()[1..],
        ["1s paused", "2s ask wait Answered, ask completed", "9s resumed, b started", "10s b completed, COMPLETED"]
    );
}

#[test]
fn a_form_whose_texts_do_not_resolve_fails_its_step() {
    let asked =
        |value: serde_json::Value| story("a; ask after a").asks("ask", "${a.result.text}").output("a", &value).play();
    let long = asked(serde_json::json!({"text": "x".repeat(201)}));
    assert_eq!(long.picture()[1..], ["1s a completed, ask started, ask failed UNRESOLVED_REFERENCE, PARTIAL"]);
    let failure = long.execution.steps().nth(1).unwrap().failure().cloned().unwrap();
    assert!(failure.message.starts_with("wait.form.title: has 201 characters"), "{failure}");
    let longest = "x".repeat(200);
    let asks = asked(serde_json::json!({"text": longest}));
    assert_eq!(asks.picture()[1..], [format!("1s a completed, ask started, ask asks {longest}")]);
    let missing = asked(serde_json::json!({}));
    assert_eq!(missing.picture()[1..], ["1s a completed, ask started, ask failed UNRESOLVED_REFERENCE, PARTIAL"]);
    let lines = asked(serde_json::json!({"text": "two\nlines"}));
    assert_eq!(lines.picture()[1..], ["1s a completed, ask started, ask asks two lines"], "a title is one line");
    let step_title = story("ask").asks("ask", "").play();
    assert_eq!(step_title.picture(), ["0s started, ask started, ask asks ask"], "the step's title serves");
}

#[test]
fn what_a_form_cannot_do_is_refused() {
    let play = story("ask; b after ask").asks("ask", "?").play();
    let ended = |end| Body::Operation { id: call("ask", 1, 1), event: OperationEvent::Ended(OperationEnd::Wait(end)) };
    let answered = || ended(WaitEnd::Answered { answer: Json::from_text("1") });
    let person = || Some(belay_execution::Actor::new("person"));
    let record = |actor, body| {
        play.execution.clone().record(play.now, actor, body).map_err(|illegal| illegal.violation.to_string())
    };
    assert!(record(person(), answered()).is_ok());
    assert!(record(None, answered()).unwrap_err().contains("cannot end by `answered`"), "somebody has to answer");
    let declined = |decision| ended(WaitEnd::Declined { decision, reason: String::new() });
    assert!(record(None, declined(Decision::Denied)).is_err(), "only a mode declines without a person");
    for decision in [Decision::Approved, Decision::Expired] {
        assert!(record(person(), declined(decision)).is_err(), "{decision:?}");
    }
    assert!(record(person(), ended(WaitEnd::Elapsed)).is_err());
    let refused = || ended(WaitEnd::Refused { message: "It is too long.".into() });
    assert!(record(person(), refused()).is_err(), "the gate refuses, and no person");
    let mut failed = play.execution.clone();
    failed.record(play.now, None, refused()).unwrap();
    failed.advance(belay_execution::DecideContext { now: play.now, ledger_id: "" });
    let failure = failed.steps().next().unwrap().failure().unwrap().to_string();
    assert!(failure.contains("FORM_REFUSED") && failure.contains("`?`: It is too long."), "{failure}");
    let requested = |digest: &str| {
        let event = OperationEvent::Asked { approval: "form".into(), subject_digest: digest.into() };
        Body::Operation { id: call("ask", 1, 1), event }
    };
    let to_ask = play.just_after(|body| matches!(body, Body::Operation { .. }));
    let early = to_ask.clone().record(play.now, person(), answered()).unwrap_err();
    assert!(early.violation.to_string().contains("cannot end by `answered`"), "nobody was asked yet");
    let other = to_ask.clone().record(play.now, None, requested("sha256:other")).unwrap_err();
    assert!(other.violation.to_string().contains("was asked about as sha256:other"));
    let digest = to_ask.operations().next().unwrap().wait().unwrap().form().unwrap().subject_digest.clone();
    assert!(to_ask.clone().record(play.now, None, requested(&digest)).is_ok());
    assert_eq!(record(None, requested(&digest)).unwrap_err(), "`ask` 1.1 needs no approval or answer to be requested");
    let signal = story("w").waits("w", "go").play();
    let asked = OperationEvent::Asked { approval: "form".into(), subject_digest: digest };
    let body = Body::Operation { id: call("w", 1, 1), event: asked };
    assert_eq!(
        signal.execution.clone().record(signal.now, None, body).unwrap_err().violation.to_string(),
        "`w` 1.1 waits for no answer"
    );
}
