//! Outputs that become arguments.

use serde_json::json;

use crate::support::story;

// S2-FR-035, S4-17, S4-18, X11: a whole reference keeps its type, a reference inside a text is written out, and naming a step is depending on it.
#[test]
fn outputs_arrive_with_their_types() {
    let play = story("publish; draft")
        .output(
            "draft",
            &json!({"words": 120, "tags": ["a", "b"], "draft": true, "title": "Hi", "id": 9_007_199_254_740_993_u64}),
        )
        .arguments(
            "publish",
            json!({
                "words": "${draft.result.words}",
                "tags": "${draft.output.tags}",
                "first": "${draft.result.tags[0]}",
                "draft": "${draft.result.draft}",
                "id": "${draft.result.id}",
                "line": "${draft.result.title} has ${draft.result.words} words",
                "literal": "$${draft.result}",
            }),
        )
        .play();
    assert_eq!(
        play.picture(),
        ["0s started, draft started", "1s draft completed, publish started", "2s publish completed, COMPLETED",]
    );
    assert_eq!(
        play.arguments("publish"),
        r#"{"draft":true,"first":"a","id":9007199254740993,"line":"Hi has 120 words","literal":"${draft.result}","tags":["a","b"],"words":120}"#
    );
}

// What an output brings in is data: it is not looked at for further references.
#[test]
fn an_output_is_never_a_template() {
    let play =
        story("a; b").output("a", &json!("${a.result.secret}")).arguments("b", json!({"text": "${a.result}"})).play();
    assert_eq!(play.arguments("b"), r#"{"text":"${a.result.secret}"}"#);
}

// S4-18: a path that leads nowhere fails the step, before any call, and is not tried again.
#[test]
fn a_path_that_leads_nowhere_fails_the_step() {
    let play = story("draft; publish; tweet after publish")
        .output("draft", &json!({"title": "Hi"}))
        .arguments("publish", json!({"text": "${draft.result.titel}"}))
        .tries("publish", 3, "1s")
        .play();
    assert_eq!(
        play.full_picture(),
        [
            "0s started, draft started, draft call 1.1",
            "1s draft call 1.1 ok, draft completed, publish started, publish failed UNRESOLVED_REFERENCE, tweet skipped DEPENDENCY_FAILED by publish, PARTIAL",
        ]
    );
    assert_eq!(
        play.execution.first_failure().unwrap().message,
        "Cannot resolve path: draft.result.titel (`draft.result` has no `titel`; did you mean `title`?)"
    );
}
