//! Criteria of a goal that a model judges.

use belay_model_server::Reply;
use serde_json::json;

use super::script::{APIS, Ask, Scene, goal};

/// A model that counts one more each time, and a judge that is content with three.
fn content_with_three(ask: &Ask) -> Reply {
    if ask.body.to_string().contains("verdict") {
        let met = ask.task.contains(r#"What came of it, as JSON: "{\"n\":3}""#);
        return ask
            .calls("verdict", json!({"met": met, "why": format!("It says {}.", if met { "three" } else { "less" })}));
    }
    ask.completes(json!({"n": ask.turn}))
}

/// S2-FR-079: whatever the API, a model judges what another one says to have done; what it misses goes back, and what it was asked and has said is recorded, with its tokens.
#[test]
fn a_model_judges_what_another_has_done() {
    for api in APIS {
        let large = format!("  large: {{api: {api}, base_url: '{{url}}', model: l, window: 100000}}");
        let scene = Scene::with(api, "", &large, content_with_three);
        let more = json!({"postconditions": [{"judge": "It counts to three: ${a.result.n}.", "model": "large"}]});
        let ended = scene.run(&goal(&[]), &more, &["-o", "text"]);
        assert_eq!(ended.code, 0, "{api}: {ended:?}");
        assert_eq!(scene.step("a")["output"], json!({"n": 3}));
        let (judged, turns): (Vec<Ask>, Vec<Ask>) =
            scene.asks().into_iter().partition(|ask| ask.body.to_string().contains("verdict"));
        assert_eq!((judged.len(), turns.len()), (3, 3), "{api}");
        assert!(judged.iter().all(|ask| ask.body["model"] == "l"));
        assert!(judged[0].task.contains(r#"The criterion, as JSON: "It counts to three: 1.""#), "{}", judged[0].task);
        let told = turns[1].told().join(" ");
        assert!(told.contains("POSTCONDITION_FAILED") && told.contains("It says less."), "{api}: {told}");
        let events = scene.home.events("x");
        let calls = events.iter().filter(|event| event["toolCallRequested"]["tool"] == "judge_criterion").count();
        assert_eq!(calls, 3);
        assert!(format!("{events:?}").contains("It says three."));
    }
}

/// Without a name, the model judges that says that the step is done, also where it has taken over; and what does not fit into its window is not judged in part.
#[test]
fn the_model_that_has_taken_over_judges() {
    let other = "  other: {api: chat, base_url: '{url}', model: o, window: 8000, max_output: 1000}";
    let scene = Scene::with("chat", "", other, |ask| match ask.body["model"].as_str() {
        Some("m") => Reply::json("401 Unauthorized", r#"{"error": {"message": "no such key"}}"#),
        _ if ask.body.to_string().contains("verdict") => ask.calls("verdict", json!({"met": true, "why": "yes"})),
        _ if ask.task.contains("at length") => ask.completes(json!("word ".repeat(8_000))),
        _ => ask.completes(json!("short")),
    });
    let mut agent = goal(&[]);
    agent["fallback"] = json!(["other"]);
    let more = json!({"postconditions": [{"judge": "It is done."}]});
    let ended = scene.run(&agent, &more, &["-o", "text"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    agent["task"] = json!("Do it at length.");
    agent["model"] = json!("other");
    agent["fallback"] = json!([]);
    let plan = scene.plan(&agent, &more);
    let words: Vec<&str> =
        scene.words(&plan, &["-o", "text"]).into_iter().map(|word| if word == "x" { "y" } else { word }).collect();
    let ended = scene.home.run(words);
    assert!(
        ended.code != 0 && ended.out.contains("CONTEXT_EXHAUSTED") && ended.out.contains("is to judge has about"),
        "{ended:?}"
    );
}

/// What a judge uses counts for the budget, and without enough of it nothing is judged.
#[test]
fn a_judgement_takes_from_the_budget() {
    const LARGE: &str = "  large: {api: chat, base_url: '{url}', model: l, window: 400000, max_output: 50000}";
    let judged_by = |model: &str| {
        let scene = Scene::with("chat", "max_output: 1000", LARGE, content_with_three);
        let mut agent = goal(&[]);
        agent["max_turns"] = json!(3);
        let more = json!({
            "postconditions": [{"judge": "It counts to three.", "model": model}],
            "budget": {"tokens": 30_000, "on_exhausted": "fail"},
        });
        let ended = scene.run(&agent, &more, &["-o", "text"]);
        (scene, ended)
    };
    let (scene, ended) = judged_by("m");
    assert_eq!(ended.code, 0, "{ended:?}");
    let counted: usize = scene.asks().iter().map(|ask| ask.body.to_string().len() / 4 + 9).sum();
    let used = scene.execution().to_string();
    assert!(used.contains(&format!(r#""tokens":"{counted}""#)), "{counted} is not what was used: {used}");
    let (scene, ended) = judged_by("large");
    assert_eq!(ended.code, 31, "{ended:?}");
    assert!(ended.out.contains("BUDGET_EXHAUSTED"), "{ended:?}");
    assert!(scene.asks().iter().all(|ask| ask.body["model"] == "m"), "what may use more than is left is not asked");
}

/// A judge that answers something else is asked again, and then the step fails with that: its model could not mend it; what is written wrongly in a plan is said by its field.
#[test]
fn a_judge_that_judges_nothing_is_no_judge() {
    let scene = Scene::new(|ask| match ask.body.to_string().contains("verdict") {
        true => ask.says("I think so.", &[]),
        false => ask.completes(json!({"n": ask.turn})),
    });
    let judged = |check: serde_json::Value| json!({"postconditions": [check], "retry": {"max_attempts": 2, "backoff": ["10ms"]}});
    let ended = scene.run(&goal(&[]), &judged(json!({"judge": "It is done."})), &["-o", "text"]);
    assert_eq!(
        (ended.code, scene.step("a")["failure"]["code"].clone()),
        (30, json!("MODEL_ANSWER_INVALID")),
        "{ended:?}"
    );
    let message = scene.step("a")["failure"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("its answer is not a verdict"), "{message}");
    assert_eq!(scene.asks().len(), 3, "a turn, and two judgements");

    let refused = |plan: serde_json::Value, says: &str| {
        let plan = scene.home.file("other.json", plan.to_string());
        let ended = scene.home.run(scene.words(&plan, &["-o", "text"]));
        assert!(ended.code == 2 && ended.talk.contains(says), "{says:?}: {ended:?}");
    };
    let step = |more: serde_json::Value| {
        let mut step = json!({"id": "a", "agent": goal(&[])});
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"id": "p", "steps": [step]})
    };
    refused(step(json!({"postconditions": [{"judge": "x", "model": "othre"}]})), "postconditions[0].model");
    refused(step(json!({"preconditions": [{"judge": "x"}]})), "make it one of the `postconditions`");
    refused(step(json!({"postconditions": [{"judge": "x", "file": "y"}]})), "must say one thing");
    refused(step(json!({"postconditions": [{"file": "y", "model": "m"}]})), "is for `judge`");
    let tool = json!({"id": "p", "steps": [{"id": "a", "tool": "noop", "postconditions": [{"judge": "x"}]}]});
    refused(tool, "is for steps with a goal");
}
