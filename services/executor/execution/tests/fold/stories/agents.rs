//! Steps in which a model works towards a goal.

use belay_execution::ErrorClass;
use belay_plan::{Budget, OnExhausted, limits::MAX_FOUND_FILES};
use serde_json::{Value, json};

use crate::support::{Outcome, Story, failed, story};

/// A step with a goal, whose model has these tools.
pub(super) fn goal(max_turns: u32) -> Story {
    story("fix; report after fix").agent("fix", "m", &["work", "look"], max_turns)
}

/// An answer of turn `turn` with these calls.
pub(super) fn calls(turn: u32, calls: &[(&str, Value)]) -> Value {
    let calls = calls.iter().enumerate().map(|(place, (tool, arguments))| {
        json!({"id": format!("t{turn:04}c{:03}", place + 1), "tool": tool, "arguments": arguments})
    });
    json!({"calls": calls.collect::<Vec<_>>()})
}

pub(super) fn completion(turn: u32, result: &Value) -> Value {
    calls(turn, &[("complete_step", json!({"result": result}))])
}

/// What a turn adds to the conversation.
pub(super) fn asked(play: &crate::support::Play, id: &str) -> Value {
    serde_json::from_str(&play.arguments(id)).unwrap()
}

// S2-FR-011, S2-FR-012, S2-FR-017, S2-FR-022, S2-FR-027, S2-FR-028, S2-FR-031, S2-FR-032, S2-FR-038, S2-NFR-004: turn after turn until the model completes the step.
#[test]
fn a_model_calls_tools_and_completes_the_step() {
    let play = goal(10)
        .parallelism(2)
        .output("fix~0", &calls(1, &[("look", json!({"path": "${x}"})), ("work", json!({"n": 1}))]))
        .output("fix~1", &json!({"found": 7}))
        .output("fix~2", &json!("done"))
        .output("fix~3", &completion(2, &json!({"answer": 7})))
        .output("fix~4", &json!({"answer": 7}))
        .arguments("report", json!({"of": "${fix.result.answer}"}))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, fix started, fix lists 1, fix~0 started",
            "1s fix~0 completed, fix lists 2 more after 1, fix~1 started, fix~2 started",
            "2s fix~1 completed, fix~2 completed, fix lists 1 more after 3, fix~3 started",
            "3s fix~3 completed, fix lists 1 more after 4, fix~4 started",
            "4s fix~4 completed, fix collects {\"answer\":7}, fix completed, report started",
            "5s report completed, COMPLETED",
        ]
    );
    assert_eq!(play.arguments("fix~1"), r#"{"path":"${x}"}"#, "what a model writes is taken as it is");
    assert_eq!(play.arguments("report"), r#"{"of":7}"#);
    let first = asked(&play, "fix~0");
    let names: Vec<&str> =
        first["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["work", "look", "complete_step", "read_result"], "in the order of the plan");
    assert_eq!(first["message"], "Do it.");
    // S2-FR-019: in the order in which they were asked for, whichever ended first.
    let results = json!([{"id": "t0001c001", "text": "{\"found\":7}"}, {"id": "t0001c002", "text": "done"}]);
    assert_eq!(asked(&play, "fix~3"), json!({"model": "m", "turn": 2, "results": results}));
    assert_eq!(play.execution.totals().total, 2, "what a model does on its way is no part of the plan");
}

// S2-FR-030, S2-X-05: what cannot be called costs a turn, and the model is told why. S2-X-04: so does an answer without a call.
#[test]
fn what_cannot_be_called_goes_back_to_the_model() {
    let invalid = json!({"id": "t0001c002", "tool": "work", "arguments": null, "invalid": "It ends in line 1 column 7.", "written": "{\"a\":"});
    let mut first = calls(1, &[("delete_all", json!({}))]);
    first["calls"].as_array_mut().unwrap().push(invalid);
    let both = calls(2, &[("look", json!({})), ("complete_step", json!({"result": 1}))]);
    let play = goal(10)
        .output("fix~0", &first)
        .output("fix~1", &both)
        .output("fix~2", &json!("seen"))
        .output("fix~3", &json!({"text": "I wonder."}))
        .output("fix~4", &completion(4, &json!(1)))
        .output("fix~5", &json!(1))
        .play();
    let told = |id: &str| -> Vec<(String, bool)> {
        let results = asked(&play, id)["results"].as_array().cloned().unwrap_or_default();
        let text = |result: &Value| result["text"].as_str().unwrap().to_owned();
        results.iter().map(|result| (text(result), result["is_error"] == true)).collect()
    };
    assert_eq!(
        told("fix~1"),
        [
            ("Tool 'delete_all' not found. There are: work, look, complete_step, read_result.".to_owned(), true),
            ("Nothing was called: It ends in line 1 column 7.".to_owned(), true),
        ]
    );
    let [(seen, false), (alone, true)] = &told("fix~3")[..] else { panic!("{:?}", told("fix~3")) };
    assert_eq!(seen, "seen");
    assert!(alone.contains("call complete_step alone"), "a completion is heard alone (S2-FR-080): {alone}");
    assert_eq!(asked(&play, "fix~4")["message"], "Call a tool, or complete_step if the task is done.");
    assert!(play.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", play.picture());
}

// A call that fails, is denied or is skipped is no failure of the plan: the model hears of it, and the plan does not stop.
#[test]
fn what_became_of_a_call_is_for_the_model_to_hear() {
    let play = goal(10)
        .stop_on_error()
        .outcomes("fix~1", [failed(ErrorClass::InvalidArguments, "TOOL_FAILED", "no such file")])
        .output("fix~0", &calls(1, &[("look", json!({}))]))
        .output("fix~2", &calls(2, &[("work", json!({}))]))
        .replies("fix~3: ok 1s effect:denied:1s")
        .output("fix~4", &calls(3, &[("work", json!({}))]))
        .replies("fix~5: ok 1s effect:skipped:1s")
        .output("fix~6", &completion(4, &json!(1)))
        .output("fix~7", &json!(1))
        .play();
    let told = |id: &str| asked(&play, id)["results"][0].clone();
    assert_eq!(told("fix~2"), json!({"id": "t0001c001", "is_error": true, "text": "TOOL_FAILED: no such file"}));
    assert!(told("fix~4")["text"].as_str().unwrap().starts_with("APPROVAL_DENIED: "), "{}", told("fix~4"));
    assert!(told("fix~6")["text"].as_str().unwrap().contains("skipped"), "{}", told("fix~6"));
    assert!(play.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", play.picture());
    assert_eq!((play.execution.totals().failed, play.execution.totals().skipped), (0, 0));
}

// X28: what passes is tried again first, after 1, 2 and 4 s; what a tool answers is not.
#[test]
fn what_passes_is_tried_again_and_the_answer_of_a_tool_is_not() {
    let exit = failed(ErrorClass::Transient, "COMMAND_FAILED", "exit code 1");
    let endless = failed(ErrorClass::Timeout, "TIMEOUT", "after 10 min");
    let lost = || failed(ErrorClass::Transient, "CONFLICT", "somebody else");
    let busy = failed(ErrorClass::RateLimit, "MODEL_UNAVAILABLE", "slow down");
    let play = goal(10)
        .outcomes("fix~0", [busy, completed(&calls(1, &[("work", json!({})), ("look", json!({}))]))])
        .outcomes("fix~1", [exit])
        .outcomes("fix~2", [lost(), lost(), completed(&json!("found"))])
        .output("fix~3", &calls(2, &[("work", json!({}))]))
        .outcomes("fix~4", [endless])
        .output("fix~5", &completion(3, &json!(1)))
        .output("fix~6", &json!(1))
        .play();
    let texts: Vec<Value> = (0..2).map(|place| asked(&play, "fix~3")["results"][place]["text"].clone()).collect();
    assert_eq!(texts, [json!("COMMAND_FAILED: exit code 1"), json!("found")]);
    let attempts = |id: &str| play.execution.step(play.execution.step_key(id).unwrap()).attempt();
    assert_eq!(["fix~0", "fix~1", "fix~2", "fix~4"].map(attempts), [2, 1, 3, 1]);
    assert_eq!(asked(&play, "fix~5")["results"][0]["text"], "TIMEOUT: after 10 min");
}

pub(super) fn completed(value: &Value) -> crate::support::Outcome {
    crate::support::Outcome::Completed(belay_execution::Json::canonical(value))
}

// S2-FR-014, S2-FR-015, S2-FR-016, S2-X-26: the turns are limited, and the calls of the last turn are still made.
#[test]
fn a_model_that_does_not_complete_the_step_fails_it_after_its_last_turn() {
    let play = goal(2)
        .output("fix~0", &calls(1, &[("look", json!({"n": 1}))]))
        .output("fix~2", &calls(2, &[("work", json!({"n": 2}))]))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, fix started, fix lists 1, fix~0 started",
            "1s fix~0 completed, fix lists 1 more after 1, fix~1 started",
            "2s fix~1 completed, fix lists 1 more after 2, fix~2 started",
            "3s fix~2 completed, fix lists 1 more after 3, fix~3 started",
            "4s fix~3 completed, fix failed TURN_LIMIT, report skipped DEPENDENCY_FAILED by fix, FAILED",
        ]
    );
    let failure = play.execution.step(play.execution.step_key("fix").unwrap()).failure().unwrap();
    assert!(failure.message.starts_with("Turn limit reached (2 turns)"), "{}", failure.message);
    let by_default = goal(0).rehearse();
    let spec = by_default.execution.step(by_default.execution.step_key("fix").unwrap()).spec();
    assert_eq!(spec.agent().unwrap().max_turns(), 10);
}

// S2, X30: a model that repeats itself is told, and then ends.
#[test]
fn a_model_that_repeats_itself_is_told_and_then_ends_the_step() {
    let same = |turn| calls(turn, &[("look", json!({"path": "a"}))]);
    let mut story = goal(10);
    for turn in 0..5 {
        let (asked, called) = (format!("fix~{}", turn * 2), format!("fix~{}", turn * 2 + 1));
        story = story.output(&asked, &same(turn + 1)).output(&called, &json!("nothing new"));
    }
    let play = story.play();
    let warned = asked(&play, "fix~6")["message"].as_str().unwrap_or_default().to_owned();
    assert!(warned.contains("the same 3 times"), "{warned}");
    let end = play.picture().last().unwrap().clone();
    assert!(end.contains("fix~8 failed AGENT_STUCK, fix failed AGENT_STUCK"), "{end}");
}

/// A model that says at once that it is done, is refused, and then works.
fn refused_claim(max_turns: u32) -> Story {
    goal(max_turns)
        .checks("fix", json!([]), json!([{"command": ["test"]}]))
        .output("fix~0", &completion(1, &json!("claimed")))
        .outcomes(
            "fix~1",
            [completed(&json!("claimed")), failed(ErrorClass::Transient, "COMMAND_FAILED", "exit code 1")],
        )
        .output("fix~2", &calls(2, &[("work", json!({}))]))
}

// S2-FR-013, S2-FR-078, S2-FR-079, S2-FR-080, S2-FR-081: completion is evidence. What does not hold goes back to the model, and the checks that ran are calls of the completion.
#[test]
fn a_completion_is_checked_and_what_does_not_hold_goes_back() {
    let play = refused_claim(10)
        .output("fix~4", &completion(3, &json!("made")))
        .outcomes("fix~5", [completed(&json!("made")), completed(&json!({"exit_code": 0}))])
        .play();
    let told = asked(&play, "fix~2")["results"][0]["text"].as_str().unwrap().to_owned();
    assert!(told.starts_with("POSTCONDITION_FAILED: "), "{told}");
    let end = play.picture().last().unwrap().clone();
    assert!(play.picture().join("\n").contains("fix collects \"made\", fix completed"), "{:?}", play.picture());
    assert!(end.ends_with("COMPLETED"), "{end}");
}

// What a model claimed last, and what was missing, is said where it has no turns left.
#[test]
fn the_failure_after_the_last_turn_says_what_was_missing() {
    let play = refused_claim(2).play();
    let failure = play.execution.step(play.execution.step_key("fix").unwrap()).failure().unwrap();
    assert_eq!(failure.reason.to_string(), "TURN_LIMIT");
    let missing = "What it said to be done in turn 1 was refused: A postcondition of the step does not hold";
    assert!(failure.message.contains(missing), "{}", failure.message);
}

// A model that cannot be asked fails its step with what happened; the step itself is not tried again (X29).
#[test]
fn a_model_that_cannot_be_asked_fails_the_step() {
    let refused = failed(ErrorClass::InvalidArguments, "MODEL_REFUSED", "no such key");
    let play = goal(10).outcomes("fix~0", [refused]).play();
    let end = play.picture().last().unwrap().clone();
    assert!(end.contains("fix~0 failed MODEL_REFUSED, fix failed MODEL_REFUSED"), "{end}");
}

// A model that cannot be asked any more gives way to the next one, which is asked the same turn and those after it; when the last one cannot be asked either, its failure is that of the step.
#[test]
fn the_next_model_goes_on_where_one_cannot_be_asked() {
    let unavailable = || failed(ErrorClass::PreconditionFailed, "MODEL_UNAVAILABLE", "no answer");
    let play = goal(10)
        .fallback_models("fix", &["second", "third"])
        .output("fix~0", &calls(1, &[("look", json!({}))]))
        .output("fix~1", &json!("seen"))
        .outcomes("fix~2", [unavailable()])
        .outcomes("fix~3", [failed(ErrorClass::InvalidArguments, "MODEL_REFUSED", "no such key")])
        .output("fix~4", &calls(2, &[("work", json!({}))]))
        .output("fix~5", &json!("done"))
        .output("fix~6", &completion(3, &json!(1)))
        .output("fix~7", &json!(1))
        .play();
    assert!(play.picture().last().unwrap().ends_with("report completed, COMPLETED"), "{:?}", play.picture());
    let models: Vec<Value> = [2, 3, 4, 6].map(|entry| asked(&play, &format!("fix~{entry}"))["model"].clone()).into();
    assert_eq!(models, ["m", "second", "third", "third"]);
    let of = |entry: &str| {
        let mut asked = asked(&play, entry);
        asked["model"].take();
        asked
    };
    assert_eq!((of("fix~2"), of("fix~2")), (of("fix~3"), of("fix~4")), "each is asked the same");
    let last = play.execution.step_key("fix~6").unwrap();
    let told = play.execution.conversation(last, &|payload| payload.inline().unwrap().value());
    assert_eq!(told.iter().map(|turn| turn.asked.turn).collect::<Vec<_>>(), [1, 2, 3], "each turn is told once");
    assert_eq!(play.execution.step(play.execution.step_key("fix").unwrap()).model(&play.execution), "third");

    let play = goal(10)
        .fallback_models("fix", &["second"])
        .outcomes("fix~0", [unavailable()])
        .outcomes("fix~1", [unavailable()])
        .play();
    let end = play.picture().last().unwrap().clone();
    assert!(end.contains("fix~1 failed MODEL_UNAVAILABLE, fix failed MODEL_UNAVAILABLE"), "{end}");
}

// A model that asks for verification has the execution paused once its step is done, and committed: nothing that follows starts before it is resumed.
#[test]
fn a_model_asks_for_verification() {
    let complete =
        |turn: u32, verify: bool| calls(turn, &[("complete_step", json!({"result": turn, "verify": verify}))]);
    let play = goal(10)
        .one_effect("fix")
        .output("fix~0", &calls(1, &[("work", json!({"n": 1}))]))
        .output("fix~2", &complete(2, true))
        .output("fix~3", &json!(2))
        .acts("9s resume")
        .play();
    let picture = play.picture().join("\n");
    assert!(picture.contains("paused, step `fix` is done, and its model asks for verification"), "{picture}");
    let (before, after) = picture.split_once("asks for verification").unwrap();
    assert!(before.contains("fix completed") && !before.contains("report"), "{picture}");
    assert!(after.contains("9s resumed, report started") && after.ends_with("COMPLETED"), "{picture}");
    // What counts is the completion that was accepted.
    let play = goal(10)
        .output("fix~0", &complete(1, true))
        .outcomes("fix~1", [failed(ErrorClass::PreconditionFailed, "POSTCONDITION_FAILED", "no")])
        .output("fix~2", &complete(2, false))
        .output("fix~3", &json!(2))
        .play();
    assert!(!play.picture().join("\n").contains("paused"), "{:?}", play.picture());
}

// A conflict is told to the model that took over as well, though two were asked for the turn before it.
#[test]
fn the_next_model_is_told_of_a_conflict() {
    let versions = json!({"files": [{"path": "f", "yours": {"kind": "nothing"}, "theirs": {"kind": "nothing"}}]});
    let play = goal(10)
        .one_effect("fix")
        .fallback_models("fix", &["second"])
        .output("fix~0", &calls(1, &[("work", json!({"n": 1}))]))
        .outcomes("fix~2", [failed(ErrorClass::InvalidArguments, "MODEL_REFUSED", "no such key")])
        .output("fix~3", &completion(2, &json!(1)))
        .output("fix~4", &json!(1))
        .outcomes("fix~5", [conflict()])
        .output("fix~6", &versions)
        .output("fix~7", &completion(3, &json!(2)))
        .output("fix~8", &json!(2))
        .play();
    let told = asked(&play, "fix~7");
    assert!(told["results"][0]["text"].as_str().unwrap().starts_with("The step is not completed"), "{told}");
    assert!(told["message"].as_str().unwrap().contains(r#"{"path":"f","#), "{told}");
    assert!(play.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", play.picture());
}

// A server that shortens prompts gives way to the next model's, whose counts are its own.
#[test]
fn the_counts_of_one_model_say_nothing_about_another() {
    let counted = |answer: Value, input: u64| {
        let mut answer = answer;
        answer["usage"] = json!({"input": input, "cached_input": 0, "output": 1, "reasoning": 0});
        answer
    };
    let play = goal(10)
        .fallback_models("fix", &["second"])
        .output("fix~0", &counted(calls(1, &[("look", json!({"n": 1}))]), 9_000))
        .output("fix~2", &counted(calls(2, &[("look", json!({"n": 2}))]), 4_000))
        .output("fix~5", &counted(completion(3, &json!(1)), 11_000))
        .output("fix~6", &json!(1))
        .play();
    let end = play.picture().join("\n");
    assert!(end.contains("fix~4 failed CONTEXT_TRUNCATED_BY_SERVER") && end.ends_with("COMPLETED"), "{end}");
    assert_eq!(asked(&play, "fix~5")["model"], "second");
}

// B-35: the budget of which a model may use more than is left decides what follows, and no other one.
#[test]
fn the_budget_that_is_too_small_says_whether_the_next_model_is_asked() {
    let costs = |micros: u64, on_exhausted| Budget { cost_micros: Some(micros), on_exhausted, ..Budget::default() };
    let of = |plan: Budget, step: Budget| {
        let play = goal(10)
            .fallback_models("fix", &["free"])
            .budget(plan)
            .step_budget("fix", step)
            .output("fix~1", &completion(1, &json!(1)))
            .output("fix~2", &json!(1))
            .play();
        play.picture().last().unwrap().clone()
    };
    let (little, enough) = (|follows| costs(5, follows), |follows| costs(1_000_000_000, follows));
    let step_falls_back = of(enough(OnExhausted::Fail), little(OnExhausted::NextFallback));
    assert!(step_falls_back.ends_with("COMPLETED"), "{step_falls_back}");
    let plan_fails = of(little(OnExhausted::Fail), enough(OnExhausted::NextFallback));
    assert!(plan_fails.contains("fix failed BUDGET_EXHAUSTED"), "{plan_fails}");
}

// The last step of a plan is verified before that ends as well; a cancellation ends it all the same.
#[test]
fn a_plan_does_not_end_before_its_last_step_is_verified() {
    let verify = |story: Story| {
        let complete = calls(1, &[("complete_step", json!({"result": 1, "verify": true}))]);
        story.output("fix~0", &complete).output("fix~1", &json!(1))
    };
    let alone = || verify(story("fix").agent("fix", "m", &["work"], 10));
    let play = alone().acts("9s resume").play();
    let picture = play.picture().join("\n");
    assert!(picture.contains("asks for verification\n9s resumed, COMPLETED"), "{picture}");
    let cancelled = alone().acts("9s cancel").play().picture().join("\n");
    assert!(cancelled.contains("asks for verification\n9s") && !cancelled.ends_with("verification"), "{cancelled}");
}

// What a person has skipped is asked of no other model.
#[test]
fn a_turn_that_a_person_skips_is_not_asked_of_another_model() {
    let play = goal(10)
        .fallback_models("fix", &["second"])
        .outcomes("fix~0", [failed(ErrorClass::RateLimit, "MODEL_UNAVAILABLE", "later")])
        .acts("1.5s skip-step fix~0 1")
        .play();
    let end = play.picture().join("\n");
    assert!(end.contains("fix~0 skipped REQUESTED, fix failed") && !end.contains("fix~1"), "{end}");
}

// X32: a prompt has a share of the window, above which older results are archived.
#[test]
fn older_results_are_archived_above_the_share_of_a_prompt() {
    let result = "x".repeat(1_000);
    let looks = |model: &str, percent: u32| {
        let mut story =
            story("fix; report after fix").agent("fix", model, &["look"], 20).prompt_percent("fix", percent);
        for turn in 1..=14 {
            story = story
                .output(&format!("fix~{}", 2 * turn - 2), &calls(turn, &[("look", json!({"turn": turn}))]))
                .output(&format!("fix~{}", 2 * turn - 1), &json!(result));
        }
        story.output("fix~28", &completion(15, &json!(1))).output("fix~29", &json!(1)).play()
    };
    let archived = |play: &crate::support::Play| asked(play, "fix~28")["archived"].as_u64();
    let (whole, none, share) = (looks("m", 0), looks("medium", 0), looks("medium", 30));
    assert_eq!((archived(&whole), archived(&none)), (None, None), "it fits into the window");
    assert_eq!(archived(&share), Some(4), "all but the last ten");
}

// B-34: with `per_step` the calls of the loop work in one layer after the other, and the whole is committed as one once the model has completed the step.
#[test]
fn a_whole_loop_is_one_effect() {
    let play = goal(10)
        .one_effect("fix")
        .output("fix~0", &calls(1, &[("work", json!({"n": 1}))]))
        .output("fix~2", &calls(2, &[("work", json!({"n": 2}))]))
        .output("fix~4", &completion(3, &json!(1)))
        .output("fix~5", &json!(1))
        .play();
    assert_eq!(play.picture().last().unwrap(), "8s report completed, COMPLETED", "{:?}", play.picture());
    let pictures = play.picture();
    assert!(pictures[6].starts_with("6s fix~5 completed, fix lists 1 more after 6, fix~6 started"), "{pictures:?}");
}

pub(super) fn conflict() -> Outcome {
    failed(ErrorClass::PreconditionFailed, "STEP_CONFLICT", "changed by someone else")
}

// Once others have changed what the loop has changed, no call of it can continue from there: those changes are dropped, and the model is shown both versions.
#[test]
fn a_model_is_shown_what_others_have_changed() {
    let versions = json!({"files": [{"path": "f", "yours": {"kind": "nothing"}, "theirs": {"kind": "nothing"}}]});
    let play = goal(10)
        .one_effect("fix")
        .output("fix~0", &calls(1, &[("work", json!({"n": 1}))]))
        .outcomes("fix~1", [conflict()])
        .output("fix~2", &versions)
        .output("fix~3", &completion(2, &json!(1)))
        .output("fix~4", &json!(1))
        .outcomes("fix~5", [conflict()])
        .output("fix~6", &json!({"files": []}))
        .output("fix~7", &completion(3, &json!(2)))
        .output("fix~8", &json!(2))
        .play();
    let pictures = play.picture();
    let end = pictures.join("\n");
    assert!(end.ends_with("report completed, COMPLETED"), "{end}");
    let told = asked(&play, "fix~3")["message"].as_str().unwrap().to_owned();
    assert!(told.contains("your changes of these paths are dropped") && told.contains(r#"{"path":"f","#), "{told}");
    let told = asked(&play, "fix~7");
    assert!(told["results"][0]["text"].as_str().unwrap().starts_with("The step is not completed"), "{told}");
    assert!(told["message"].as_str().unwrap().starts_with("Others changed the workspace while"), "{told}");
    assert!(end.contains("fix collects 2"), "the completion that was committed counts: {end}");
}

// Once what the calls have changed is gone, no call can continue from it: the step fails at once, and says what was used for it.
#[test]
fn a_step_whose_layers_are_gone_asks_its_model_no_more() {
    let mut first = calls(1, &[("work", json!({"n": 1}))]);
    first["usage"] = json!({"input": 1_000, "cached_input": 0, "output": 10, "reasoning": 0});
    let play = goal(10)
        .one_effect("fix")
        .output("fix~0", &first)
        .output("fix~2", &calls(2, &[("work", json!({"n": 2}))]))
        .outcomes("fix~3", [failed(ErrorClass::PreconditionFailed, "LAYER_GONE", "The layer is gone.")])
        .play();
    let end = play.picture().last().unwrap().clone();
    assert!(end.contains("fix~3 failed LAYER_GONE, fix failed LAYER_GONE"), "{end}");
    let failure = play.execution.step(play.execution.step_key("fix").unwrap()).failure().unwrap();
    assert!(failure.message.contains("tokens") && failure.message.contains("stays counted"), "{}", failure.message);
}

// A model without a turn left is not shown anything any more: the step fails with the conflict.
#[test]
fn a_conflict_in_the_last_turn_fails_the_step() {
    let play = goal(2)
        .one_effect("fix")
        .output("fix~0", &calls(1, &[("work", json!({"n": 1}))]))
        .outcomes("fix~1", [conflict()])
        .outcomes("fix~2", [conflict()])
        .output("fix~3", &calls(2, &[("work", json!({"n": 2}))]))
        .outcomes("fix~4", [conflict()])
        .play();
    let end = play.picture().last().unwrap().clone();
    assert!(end.contains("fix~4 failed STEP_CONFLICT, fix failed STEP_CONFLICT"), "{end}");
    let told = asked(&play, "fix~3");
    assert!(told["message"].as_str().unwrap().starts_with("Others are changing the workspace"), "{told}");
}

// A person may skip the step, or give its result, while its model works; and a retry begins with the first turn.
#[test]
fn a_step_that_runs_again_begins_with_the_first_turn() {
    let play = goal(1)
        .outcomes("fix~0", [completed(&calls(1, &[("look", json!({}))])), completed(&completion(1, &json!(2)))])
        .outcomes("fix~1", [completed(&json!("seen")), completed(&json!(2))])
        .acts("9s retry")
        .play();
    let end = play.picture().join("\n");
    assert!(end.contains("fix failed TURN_LIMIT"), "{end}");
    assert!(end.ends_with("COMPLETED"), "{end}");
}

pub(super) fn tokens(tokens: u64, on_exhausted: OnExhausted) -> Budget {
    Budget { tokens: Some(tokens), on_exhausted, ..Budget::default() }
}

// B-35, S2-FR-082, S2-FR-083: a turn holds an upper bound of what it may use, what its server has counted is used, and nothing is asked for which there is not enough.
#[test]
fn a_model_is_not_asked_for_what_is_not_left_of_its_budget() {
    let answers = |story: Story| {
        story
            .output("fix~0", &calls(1, &[("look", json!({}))]))
            .output("fix~2", &completion(2, &json!(1)))
            .output("fix~3", &json!(1))
    };
    let play = answers(goal(10).step_budget("fix", tokens(1_000, OnExhausted::Fail))).play();
    let end = play.picture().last().unwrap().clone();
    assert!(end.contains("fix~0 failed BUDGET_EXHAUSTED, fix failed BUDGET_EXHAUSTED"), "{end}");
    let failure = play.execution.step(play.execution.step_key("fix").unwrap()).failure().unwrap();
    assert!(
        failure.message.contains("has 1000 tokens left, and the next turn of the model may use"),
        "{}",
        failure.message
    );

    let play = answers(goal(10).budget(tokens(100_000, OnExhausted::Fail))).play();
    let spent = play.execution.spent();
    assert!(spent.tokens > 20 && spent.tokens < 5_000 && spent.cost_micros > 0, "{spent:?}");
    assert_eq!(spent.calls, 2, "turns are no calls: one of the model, and one of the plan");
}

// B-35: what nobody can price is not asked under a budget of its cost, also where the settings had a price when the plan was accepted.
#[test]
fn a_model_without_a_price_is_not_asked_under_a_limit_of_its_cost() {
    let budget = |cost_micros, tokens| Budget { cost_micros, tokens, ..Budget::default() };
    let play = |budget| {
        let story = story("fix").agent("fix", "unpriced", &["look"], 5).budget(budget);
        story.output("fix~0", &completion(1, &json!(1))).output("fix~1", &json!(1)).play()
    };
    let limited = play(budget(Some(1_000_000), None));
    let failure = limited.execution.step(limited.execution.step_key("fix").unwrap()).failure().unwrap();
    assert!(failure.message.contains("have no price for it any more"), "{}", failure.message);
    assert!(play(budget(None, Some(100_000))).picture().last().unwrap().ends_with("COMPLETED"));
}

// B-35: two models under one budget never hold more together than there is; the second waits until the first has answered.
#[test]
fn models_side_by_side_share_a_budget() {
    let one = |story: Story, id: &str| {
        let (turn, done) = (format!("{id}~0"), format!("{id}~1"));
        story.agent(id, "m", &["look"], 5).output(&turn, &completion(1, &json!(1))).output(&done, &json!(1))
    };
    let story = one(one(story("a; b").parallelism(2), "a"), "b").budget(tokens(4_000, OnExhausted::Fail));
    let play = story.play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, a lists 1, b started, b lists 1, a~0 started, b~0 started",
            "1s a~0 completed, a lists 1 more after 1, a~1 started",
            "2s b~0 completed, b lists 1 more after 1, b~1 started, a~1 completed, a collects 1, a completed",
            "3s b~1 completed, b collects 1, b completed, COMPLETED",
        ]
    );
}

// The limit of a step with a goal is for what its model and its tools do: how long people think counts for none of its turns, and once where two calls wait side by side.
#[test]
fn what_people_wait_is_no_part_of_the_limit_of_a_goal() {
    let story = || {
        story("fix")
            .agent("fix", "m", &["work", "look"], 5)
            .parallelism(2)
            .output("fix~0", &calls(1, &[("work", json!({"n": 1})), ("work", json!({"n": 2}))]))
            .replies("fix~1: ok 1s effect:approved:3600s; fix~2: ok 1s effect:approved:3610s")
            .output("fix~3", &completion(2, &json!(1)))
            .output("fix~4", &json!(1))
    };
    let play = story().step_limit("fix", "20s").play();
    assert!(play.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", play.picture());
    let grouped = story().in_group("night", 20, "fix").play();
    assert!(grouped.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", grouped.picture());
    // The second wait overlaps with the first, and buys no time of its own.
    let slow = story().replies("fix~3: ok 30s").step_limit("fix", "20s").play();
    let end = slow.picture().join("\n");
    assert!(end.contains("3630s fix~3 failed TOOL_TIMEOUT, fix failed TOOL_TIMEOUT"), "{end}");
}

// A model that stands in a group with `fail_fast` ends with what failed beside it, and nobody is said to have denied anything.
#[test]
fn a_goal_in_a_group_that_failed_ends_with_its_failure() {
    let play = story("fix; beside")
        .agent("fix", "m", &["look"], 5)
        .parallelism(2)
        .fail_fast_group("both", "fix beside")
        .output("fix~0", &calls(1, &[("look", json!({}))]))
        .replies("fix~0: ok 3s; beside: invalid 1s")
        .play();
    let failure = play.execution.step(play.execution.step_key("fix").unwrap()).failure();
    assert!(
        failure.is_some_and(|failure| failure.class != ErrorClass::ApprovalDenied),
        "{failure:?} {:?}",
        play.picture()
    );
}

// B-35: a turn that waits for tokens which another holds keeps no other step from going on.
#[test]
fn a_turn_that_waits_for_tokens_holds_nobody_up() {
    let one = |story: Story, id: &str| {
        let (turn, done) = (format!("{id}~0"), format!("{id}~1"));
        story.agent(id, "m", &["look"], 5).output(&turn, &completion(1, &json!(1))).output(&done, &json!(1))
    };
    let story = one(one(story("a; b; c").parallelism(3), "a"), "b").budget(tokens(4_000, OnExhausted::Fail));
    let play = story.play();
    let first = play.picture()[0].clone();
    assert!(first.contains("a~0 started") && first.contains("c started"), "{first}");
    assert!(play.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", play.picture());
    let asked = |id: &str| play.execution.step(play.execution.step_key(id).unwrap()).started_at().unwrap();
    assert!(asked("c") <= asked("b~1"), "{:?}", play.picture());
}

// S2-FR-018: the files that a plan names are read as calls before the first turn, and the model is shown what they held then, also when the step goes on later; one that cannot be read does not keep it
// from beginning.
#[test]
fn a_model_is_shown_the_files_that_the_plan_names() {
    let long = format!("{}é", "x".repeat(belay_agent::RESULT_TOKENS * 4));
    let play = goal(10)
        .files("fix", &["a.md", "gone.md", "long.md"])
        .output("fix~0", &json!({"content": "# A\n", "encoding": "utf-8"}))
        .outcomes("fix~1", [failed(ErrorClass::InvalidArguments, "FILE_NOT_FOUND", "There is no file gone.md.")])
        .output("fix~2", &json!({"content": long}))
        .output("fix~3", &calls(1, &[("read_result", json!({"id": "file00003", "offset": 40_000}))]))
        .output("fix~4", &completion(2, &json!(1)))
        .output("fix~5", &json!(1))
        .play();
    let picture = play.picture();
    assert_eq!(picture[0], "0s started, fix started, fix lists 3, fix~0 started");
    let reads =
        ["fix~0", "fix~1"].map(|id| serde_json::from_str::<Value>(&play.arguments(id)).unwrap()["path"].clone());
    assert_eq!(reads, [json!("a.md"), json!("gone.md")]);
    let message = asked(&play, "fix~3")["message"].as_str().unwrap().to_owned();
    let beginning = "Do it.\n\n<file path=\"a.md\">\n# A\n\n</file>\n\n<file path=\"gone.md\" not_read=\"true\">\n\
                     FILE_NOT_FOUND: There is no file gone.md.\n</file>\n\n<file path=\"long.md\">\nxxx";
    assert!(message.starts_with(beginning), "{}", &message[..300]);
    assert!(message.ends_with("[The rest: read_result with id file00003 and offset 40000.]\n</file>"));
    assert_eq!(asked(&play, "fix~4")["results"][0]["text"], "é");
    assert!(picture.last().unwrap().ends_with("COMPLETED"), "{picture:?}");
}

// S2-FR-021, S2-FR-084, S2-X-14: what does not fit into the window is trimmed down to the last ten results, and the step ends when that is not enough.
#[test]
fn a_conversation_that_does_not_fit_is_trimmed_and_then_ends() {
    let mut story = story("fix").agent("fix", "small", &["look"], 40);
    for turn in 0..19 {
        let long = "x".repeat(if turn < 12 { 300 } else { 500 });
        let (asked, called) = (format!("fix~{}", turn * 2), format!("fix~{}", turn * 2 + 1));
        story = story
            .output(&asked, &calls(turn + 1, &[("look", json!({"n": turn}))]))
            .output(&called, &json!(format!("{turn}{long}")));
    }
    let play = story.play();
    let archived: Vec<Value> = (1..19)
        .map(|turn| format!("fix~{}", turn * 2))
        .filter(|id| play.execution.step_key(id).is_some_and(|key| play.execution.step(key).output().is_some()))
        .map(|id| asked(&play, &id)["archived"].clone())
        .filter(|archived| !archived.is_null())
        .collect();
    assert!(archived.first().is_some_and(|first| first.as_u64() < Some(10)), "before there are twenty: {archived:?}");
    let end = play.picture().last().unwrap().clone();
    assert!(end.contains("fix failed CONTEXT_EXHAUSTED"), "{end}");
}

// A step whose model has failed can be left out: what its model has called is part of it, and nothing of that runs again.
#[test]
fn a_step_whose_model_has_failed_can_be_skipped() {
    let play = goal(1).output("fix~0", &calls(1, &[("look", json!({}))])).acts("9s retry skipping").play();
    let pictures = play.picture();
    assert!(pictures.join("\n").contains("fix failed TURN_LIMIT"), "{pictures:?}");
    let last: Vec<&str> = pictures.iter().skip_while(|line| !line.starts_with("9s")).map(String::as_str).collect();
    let end = last.join(", ");
    assert!(end.contains("fix skipped") && end.contains("report started") && !end.contains("fix~"), "{end}");
}

/// The message of the first turn.
fn first_message(play: &crate::support::Play, turn: &str) -> String {
    asked(play, turn)["message"].as_str().unwrap().to_owned()
}

// S2-FR-018: the files that patterns match are found before the first turn, read in the order of the plan and of their paths, and shown once, however often the plan names them.
#[test]
fn a_model_is_shown_the_files_that_patterns_match() {
    let long = format!("{}é", "x".repeat(belay_agent::RESULT_TOKENS * 4));
    let play = goal(10)
        .files("fix", &["b.md", "src/*.rs", "none/*", "./src/c.rs", "**/*.md"])
        .output("fix~0", &json!({"content": "B"}))
        .output("fix~1", &json!({"files": ["src/a.rs", "src/c.rs", "src/d.rs"], "truncated": false}))
        .output("fix~2", &json!({"files": [], "truncated": false}))
        .output("fix~3", &json!({"content": "C"}))
        .output("fix~4", &json!({"files": ["a.md", "b.md", "src/a.rs"], "truncated": true}))
        .output("fix~5", &json!({"content": "A"}))
        .outcomes("fix~6", [failed(ErrorClass::InvalidArguments, "FILE_NOT_FOUND", "There is no file src/d.rs.")])
        .output("fix~7", &json!({"content": long}))
        .output("fix~8", &calls(1, &[("read_result", json!({"id": "file00005", "offset": 40_000}))]))
        .output("fix~9", &completion(2, &json!(1)))
        .output("fix~10", &json!(1))
        .play();
    let picture = play.picture();
    assert_eq!(picture[0], "0s started, fix started, fix lists 5, fix~0 started");
    assert!(picture[5].ends_with("fix~4 completed, fix lists 3 more after 5, fix~5 started"), "{picture:?}");
    let read = |id: &str| serde_json::from_str::<Value>(&play.arguments(id)).unwrap();
    assert_eq!(read("fix~1"), json!({"pattern": "src/*.rs"}));
    assert_eq!(["fix~5", "fix~6", "fix~7"].map(|id| read(id)["path"].clone()), ["src/a.rs", "src/d.rs", "a.md"]);
    let message = first_message(&play, "fix~8");
    let beginning = "Do it.\n\n<file path=\"b.md\">\nB\n</file>\n\n<file path=\"src/a.rs\">\nA\n</file>\n\n\
                     <file path=\"src/d.rs\" not_read=\"true\">\nFILE_NOT_FOUND: There is no file src/d.rs.\n</file>\n\n\
                     <file pattern=\"none/*\" not_read=\"true\">\nNo file matches `none/*`.\n</file>\n\n\
                     <file path=\"./src/c.rs\">\nC\n</file>\n\n<file path=\"a.md\">\nxxx";
    assert!(message.starts_with(beginning), "{}", &message[..600]);
    let end = "[The rest: read_result with id file00005 and offset 40000.]\n</file>\n\n\
               <file pattern=\"**/*.md\" not_read=\"true\">\nNot shown: more files match.\n</file>";
    assert!(message.ends_with(end), "{}", &message[message.len() - 300..]);
    assert_eq!(asked(&play, "fix~9")["results"][0]["text"], "é");
    assert!(picture.last().unwrap().ends_with("COMPLETED"), "{picture:?}");
}

// A search that fails, or that a person skips, and one that finds nothing keep no model from beginning, and it is told.
#[test]
fn a_pattern_that_finds_nothing_is_said() {
    let play = goal(10)
        .files("fix", &["a/*", "b/*", "c/*"])
        .outcomes("fix~0", [failed(ErrorClass::SandboxViolation, "POLICY_DENIED", "not for models")])
        .replies("fix~1: ok 1s effect:skipped:1s")
        .output("fix~2", &json!("what a person gave"))
        .output("fix~3", &completion(1, &json!(1)))
        .output("fix~4", &json!(1))
        .play();
    let message = first_message(&play, "fix~3");
    for said in ["POLICY_DENIED: not for models", "A person skipped this call", "No file matches `c/*`."] {
        assert!(message.contains(said), "{said}: {message}");
    }
    assert!(play.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", play.picture());
}

// All patterns together show so many files at most, and name the others.
#[test]
fn not_more_files_are_shown_than_the_limit() {
    let paths = |folder: &str, count: usize| (0..count).map(|n| format!("{folder}/{n:03}")).collect::<Vec<_>>();
    let mut story = goal(10)
        .files("fix", &["a/*", "b/*"])
        .output("fix~0", &json!({"files": paths("a", MAX_FOUND_FILES - 1), "truncated": false}))
        .output("fix~1", &json!({"files": paths("b", 103), "truncated": true}));
    for n in 0..MAX_FOUND_FILES {
        story = story.output(&format!("fix~{}", n + 2), &json!({"content": n.to_string()}));
    }
    let turn = format!("fix~{}", MAX_FOUND_FILES + 2);
    let done = format!("fix~{}", MAX_FOUND_FILES + 3);
    let play = story.output(&turn, &completion(1, &json!(1))).output(&done, &json!(1)).play();
    let message = first_message(&play, &turn);
    assert_eq!(message.matches("<file path=").count(), MAX_FOUND_FILES);
    let said = "<file path=\"b/000\">\n63\n</file>\n\n<file pattern=\"b/*\" not_read=\"true\">\n\
                Not shown: at least 102 more files match:\n\"b/001\"\n\"b/002\"\n";
    assert!(message.contains(said), "{message}");
    assert!(message.ends_with("\"b/100\"\n…\n</file>"), "{message}");
}
