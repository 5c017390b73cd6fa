//! Steps of forks that begin with a conversation of another execution.

use belay_execution::{
    BudgetUnit, CarriedLayers, CarriedOverTurns, ErrorClass, Execution, Json, NoBlobs, NotCarriedOver, StepEvent,
    StepState,
};
use belay_plan::OnExhausted;
use serde_json::json;

use super::agents::{asked, calls, completion, conflict, goal, tokens};
use crate::support::{Play, Story, failed};

fn carried(execution: &Execution, turn: u32) -> Result<CarriedOverTurns, NotCarriedOver> {
    execution.turns_to_carry_over(&"fix".into(), turn, &NoBlobs).expect("all values are inline")
}

/// The event with which a fork begins after a turn.
fn beginning(execution: &Execution, turn: u32) -> StepEvent {
    let CarriedOverTurns { conversation, round, layers, spent, .. } = carried(execution, turn).unwrap();
    let layers = layers.filter(|layers| !layers.is_empty());
    let layers = layers.map(|layers| CarriedLayers { execution: "origin".to_owned(), round, layers });
    StepEvent::ConversationCarriedOver {
        conversation: conversation.into(),
        turns: turn,
        layers,
        spent,
        reason: "why".to_owned(),
    }
}

/// A model that looks in its first two turns, works in its third and then gets nowhere.
fn origin() -> Story {
    goal(4)
        .output("fix~0", &calls(1, &[("look", json!({"n": 1}))]))
        .output("fix~1", &json!("one"))
        .output("fix~2", &calls(2, &[("look", json!({"n": 2}))]))
        .output("fix~3", &json!("two"))
        .output("fix~4", &calls(3, &[("work", json!({"n": 3}))]))
        .output("fix~5", &json!("three"))
        .output("fix~6", &json!({"text": "I do not know."}))
}

/// All that the model of a step has read before its answer, as one text.
fn conversation(play: &Play, id: &str) -> String {
    let turn = play.execution.step_key(id).unwrap();
    let value = |payload: &belay_execution::Payload| payload.inline().unwrap().value();
    let turns = play.execution.conversation(turn, &value);
    serde_json::to_string(
        &belay_agent::prompt(&turns, 100).messages.iter().map(|m| format!("{m:?}")).collect::<Vec<_>>(),
    )
    .unwrap()
}

// What "a fork at turn k" is: the next turn is the one after it, and reads what that of the first execution has read, to the byte.
#[test]
fn a_fork_goes_on_after_a_turn() {
    let first = origin().play();
    assert!(first.picture().last().unwrap().contains("fix failed TURN_LIMIT"), "{:?}", first.picture());
    let fork = goal(5)
        .carries_over("fix", beginning(&first.execution, 2))
        .output("fix~0", &calls(3, &[("look", json!({"n": 9}))]))
        .output("fix~1", &json!("nine"))
        .output("fix~2", &completion(4, &json!("found")))
        .output("fix~3", &json!("found"))
        .play();
    assert_eq!(
        fork.picture(),
        [
            "0s fix begins with 2 turns, started, fix started, fix lists 1, fix~0 started",
            "1s fix~0 completed, fix lists 1 more after 1, fix~1 started",
            "2s fix~1 completed, fix lists 1 more after 2, fix~2 started",
            "3s fix~2 completed, fix lists 1 more after 3, fix~3 started",
            "4s fix~3 completed, fix collects \"found\", fix completed, report started",
            "5s report completed, COMPLETED",
        ]
    );
    assert_eq!(asked(&fork, "fix~0"), asked(&first, "fix~4"), "the same turn is asked");
    assert_eq!(conversation(&fork, "fix~0"), conversation(&first, "fix~4"), "and the same prompt");
    assert_eq!(asked(&fork, "fix~2")["results"][0]["text"], "nine");
}

// (f): another model goes on from there. It is asked the same, under its own name, and the turns stay as they were.
#[test]
fn another_model_goes_on_after_a_turn() {
    let first = origin().play();
    let fork = goal(5)
        .agent("fix", "medium", &["work", "look"], 5)
        .carries_over("fix", beginning(&first.execution, 3))
        .output("fix~0", &completion(4, &json!(1)))
        .output("fix~1", &json!(1))
        .play();
    assert!(fork.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", fork.picture());
    let mut same = asked(&first, "fix~6");
    same["model"] = json!("medium");
    assert_eq!(asked(&fork, "fix~0"), same);
    assert_eq!(conversation(&fork, "fix~0"), conversation(&first, "fix~6"));
}

// A turn that has no result yet, that has ended the step, or that there was not, is none after which another can follow.
#[test]
fn a_fork_is_refused_where_no_turn_can_follow() {
    let first = origin().play();
    let no_turn = |turn| Err(NotCarriedOver::NoTurn { turn, last: 4 });
    assert_eq!(carried(&first.execution, 5), no_turn(5));
    assert_eq!(carried(&first.execution, 0), no_turn(0));
    let of_other = first.execution.turns_to_carry_over(&"report".into(), 1, &NoBlobs).unwrap();
    assert_eq!(of_other, Err(NotCarriedOver::NoGoal("report".into())));
    let of_none = first.execution.turns_to_carry_over(&"fix~0".into(), 1, &NoBlobs).unwrap();
    assert_eq!(of_none, Err(NotCarriedOver::NoStep("fix~0".into())));
    let running = first.just_after(|body| {
        matches!(body, belay_execution::Body::Step { step, event: StepEvent::Started, .. } if **step == *"fix~3")
    });
    assert_eq!(carried(&running, 2), Err(NotCarriedOver::Open("fix~3".into())));
    assert!(carried(&running, 1).is_ok(), "one that has ended is there");
    let done = goal(4).output("fix~0", &completion(1, &json!(1))).output("fix~1", &json!(1)).play();
    assert_eq!(carried(&done.execution, 1), Err(NotCarriedOver::Completed(1)));
    let fork =
        goal(5).carries_over("fix", beginning(&first.execution, 2)).output("fix~0", &json!({"text": "No."})).play();
    assert_eq!(carried(&fork.execution, 2), Err(NotCarriedOver::EarlierExecution(2)));
    let again = carried(&fork.execution, 3).unwrap().conversation.value();
    assert_eq!(again["turns"].as_array().unwrap().len(), 3, "a fork of a fork has the turns of both");
}

fn one_effect(story: Story) -> Story {
    story.one_effect("fix")
}

// What the calls of the turns have changed is taken over before the first turn: the call that does it begins with their layers, and those after it with what it leaves.
#[test]
fn what_the_calls_had_changed_is_taken_over() {
    let first = one_effect(origin()).play();
    let begin = beginning(&first.execution, 3);
    let StepEvent::ConversationCarriedOver { layers: Some(of_origin), .. } = &begin else { panic!("{begin:?}") };
    assert!(!of_origin.layers.is_empty());
    let layers = |play: &Play, id: &str| {
        let request = play.events.iter().find_map(|event| match &event.body {
            belay_execution::Body::Operation {
                id: call,
                event: belay_execution::OperationEvent::Requested(belay_execution::Work::ToolCall(request)),
            } if *call.step == *id => request.layers.clone(),
            _ => None,
        });
        request.unwrap()
    };
    let fork = one_effect(goal(6))
        .carries_over("fix", begin.clone())
        .output("fix~0", &json!({"files": []}))
        .output("fix~1", &calls(4, &[("work", json!({"n": 4}))]))
        .output("fix~3", &completion(5, &json!(1)))
        .output("fix~4", &json!(1))
        .play();
    let pictures = fork.picture();
    assert!(pictures[0].ends_with("fix lists 1, fix~0 started"), "{pictures:?}");
    assert!(pictures.last().unwrap().ends_with("COMPLETED"), "{pictures:?}");
    let takeover = layers(&fork, "fix~0");
    assert_eq!((takeover.carried.as_ref(), takeover.begin_with.len()), (Some(of_origin), 0));
    let later = layers(&fork, "fix~2");
    assert_eq!((later.carried, later.begin_with.len()), (None, 1), "they begin with what was taken over");
    assert_eq!(layers(&fork, "fix~5").begin_with.len(), 2, "and it is committed with the rest");
    // What others have changed meanwhile is shown.
    let versions = json!({"files": [{"path": "f", "yours": {"kind": "nothing"}, "theirs": {"kind": "nothing"}}]});
    let fork = one_effect(goal(6))
        .carries_over("fix", begin.clone())
        .output("fix~0", &versions)
        .output("fix~1", &completion(4, &json!(1)))
        .output("fix~2", &json!(1))
        .play();
    let told = asked(&fork, "fix~1")["message"].as_str().unwrap().to_owned();
    assert!(told.contains("your changes of these paths are dropped"), "{told}");
    // The layers may be gone, or in conflict all the time.
    for (reason, end) in [("LAYER_GONE", "fix failed LAYER_GONE"), ("STEP_CONFLICT", "fix failed STEP_CONFLICT")] {
        let gone =
            if reason == "LAYER_GONE" { failed(ErrorClass::PreconditionFailed, reason, "gone") } else { conflict() };
        let fork = one_effect(goal(6)).carries_over("fix", begin.clone()).outcomes("fix~0", [gone]).play();
        assert!(fork.picture().last().unwrap().contains(end), "{:?}", fork.picture());
    }
}

// What was committed is not there to be taken over.
#[test]
fn what_was_committed_is_not_taken_over() {
    let committed = one_effect(goal(4))
        .output("fix~0", &calls(1, &[("work", json!({"n": 1}))]))
        .output("fix~2", &completion(2, &json!(1)))
        .output("fix~3", &json!(1))
        .play();
    assert!(committed.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", committed.picture());
    assert_eq!(carried(&committed.execution, 1).unwrap().layers, None);
    assert_eq!(carried(&origin().play().execution, 1).unwrap().layers, None, "each call has committed its own");
}

// The rest of a long result is read by its id, though the call that returned it is in another execution.
#[test]
fn the_rest_of_a_result_is_read_in_a_fork() {
    let long = "word ".repeat(20_000);
    let first = goal(3)
        .output("fix~0", &calls(1, &[("look", json!({}))]))
        .output("fix~1", &json!(long))
        .output("fix~2", &json!({"text": "Hm."}))
        .play();
    let fork = goal(5)
        .carries_over("fix", beginning(&first.execution, 1))
        .output("fix~0", &calls(2, &[("read_result", json!({"id": "t0001c001", "offset": 99_000}))]))
        .output("fix~1", &completion(3, &json!(1)))
        .output("fix~2", &json!(1))
        .play();
    let read = asked(&fork, "fix~1")["results"][0]["text"].as_str().unwrap().to_owned();
    assert!(read.contains("word word") && !read.contains("There is no result"), "{}", &read[..200.min(read.len())]);
}

// What the step has used of its budget counts in the fork, and the preconditions hold before its first turn.
#[test]
fn a_fork_has_the_budget_that_is_left_and_its_preconditions_hold() {
    let mut counted = calls(1, &[("look", json!({"n": 1}))]);
    counted["usage"] = json!({"input": 900, "cached_input": 0, "output": 100, "reasoning": 0});
    let first = goal(1)
        .step_budget("fix", tokens(200_000, OnExhausted::Fail))
        .output("fix~0", &counted)
        .output("fix~1", &json!("one"))
        .play();
    let used = carried(&first.execution, 1).unwrap().spent.of(BudgetUnit::Tokens);
    assert!(used > 0, "it has used tokens");
    let fork = || {
        goal(4)
            .step_budget("fix", tokens(used + 10, OnExhausted::Fail))
            .carries_over("fix", beginning(&first.execution, 1))
    };
    let fork_of = fork().play();
    assert!(fork_of.picture().last().unwrap().contains("BUDGET_EXHAUSTED"), "{:?}", fork_of.picture());
    let guarded = goal(4)
        .carries_over("fix", beginning(&first.execution, 1))
        .checks("fix", json!([{"command": ["guard"]}]), json!([]))
        .outcomes("fix~0", [failed(ErrorClass::Transient, "COMMAND_FAILED", "exit code 1")])
        .play();
    assert!(guarded.picture().last().unwrap().contains("PRECONDITION_FAILED"), "{:?}", guarded.picture());
}

// A plan that no longer has one effect cannot take over what the turns had changed, and says so.
#[test]
fn a_fork_whose_plan_was_changed_says_what_it_lacks() {
    let first = one_effect(origin()).play();
    let begin = beginning(&first.execution, 3);
    let fork = one_effect(goal(6)).carries_over("fix", begin).starts_after("2s").acts("1s update divide fix").play();
    assert!(
        fork.picture().last().unwrap().contains("fix failed FILES_NOT_KEPT"),
        "{:?} {:?}",
        fork.picture(),
        fork.refused
    );
}

// A fork's step that is made to run again begins with the conversation again, and what an earlier version recorded otherwise is refused, not misread.
#[test]
fn a_step_that_runs_again_begins_with_the_conversation_again() {
    let first = origin().play();
    let mut fork =
        goal(3).carries_over("fix", beginning(&first.execution, 2)).output("fix~0", &json!({"text": "No."})).play();
    assert!(fork.picture().last().unwrap().contains("fix failed TURN_LIMIT"), "{:?}", fork.picture());
    fork.act(crate::support::act_of("retry"));
    let turns: Vec<&str> = fork
        .events
        .iter()
        .filter_map(|event| match &event.body {
            belay_execution::Body::Step { event: StepEvent::ItemsListed { items, .. }, .. } => Some(items[0].as_str()),
            _ => None,
        })
        .collect();
    assert!(turns.len() == 2 && turns.iter().all(|item| item.contains("\"turn\":3")), "{turns:?}");
    let empty = StepEvent::ConversationCarriedOver {
        conversation: Json::from_text("{}").into(),
        turns: 2,
        layers: None,
        spent: Default::default(),
        reason: String::new(),
    };
    let play = goal(3).carries_over("fix", empty).play();
    assert!(play.picture().last().unwrap().contains("fix~0 failed BLOB_DAMAGED"), "{:?}", play.picture());
    assert_eq!(play.execution.step(play.execution.step_key("fix").unwrap()).state(), StepState::Failed);
}
