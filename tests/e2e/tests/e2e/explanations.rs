//! Explanations of an execution as data: why it is in its state, and what its steps did when.

use std::fs;

use belay_e2e::Home;
use serde_json::{Value, json};

const WAITS: &str = "
id: waits
parallelism: 4
steps:
- {id: go, wait: {signal: go}, timeout: 1h}
- {id: ask, wait: {form: {title: 'Which?', schema: {type: object, properties: {v: {type: string}}}}}}
- {id: gone, tool: delete_file, arguments: {path: notes.txt}}
- {id: sleep, wait: {for: 1h}}
- {id: last, tool: noop, depends_on: [go]}
";

fn kinds(explanation: &Value) -> Vec<(&str, &str)> {
    let causes = explanation["causes"].as_array().unwrap();
    causes.iter().map(|cause| (cause["kind"].as_str().unwrap(), cause["stepId"].as_str().unwrap_or_default())).collect()
}

fn verbs(actions: &Value) -> Vec<&str> {
    actions.as_array().unwrap().iter().map(|action| action["verb"].as_str().unwrap()).collect()
}

/// The waits of an execution are the same for who drives it and for who only reads it, apart from who drives it.
#[test]
fn an_explanation_names_each_wait_its_subject_and_what_ends_it() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    fs::write(home.path("w/notes.txt"), "x").unwrap();
    home.file("waits.yaml", WAITS);
    let server = home.serve();
    let started = ["run", "waits.yaml", "--workspace", "w", "--id", "e", "--detach", "--approve", "prompt"];
    assert_eq!(home.run(started).code, 0);
    let asked = |words: &str| {
        let mut watch = home.start(["executions", "watch", "e"]);
        let line = watch.wait_for(words);
        format!("namespaces/default/approvals/{}", line.trim_end().rsplit(' ').next().unwrap())
    };
    let approval = asked("waiting for approval; next: belay approvals show ");
    let form = asked("waiting for an answer; next: belay approvals show ");
    let (code, value) = home.json(&["why", "e"]);
    let explanation = &value["explanation"];
    assert_eq!((code, &explanation["execution"]["state"]), (0, &json!("STATE_RUNNING")), "{value:#}");
    let waits = [("KIND_FORM", "ask"), ("KIND_APPROVAL", "gone"), ("KIND_SIGNAL", "go"), ("KIND_TIME", "sleep")];
    assert_eq!(kinds(explanation), waits);
    let causes = &explanation["causes"];
    assert_eq!(causes[0]["subject"], json!({ "form": form }));
    assert_eq!(causes[1]["subject"], json!({ "approval": approval }));
    assert_eq!(causes[1]["decision"]["rule"], "file_delete");
    assert_eq!(causes[1]["spec"]["tool"]["arguments"], json!({"path": "notes.txt"}));
    assert_eq!(causes[2]["subject"], json!({"signal": "go"}));
    assert!((0..4).all(|place| causes[place]["beginTime"].is_string()), "{causes:#}");
    assert!([2, 3].iter().all(|place| causes[*place]["untilTime"].is_string()), "{causes:#}");
    let next = ["VERB_ANSWER_FORM", "VERB_APPROVE", "VERB_DENY", "VERB_SEND_SIGNAL"];
    assert_eq!((verbs(&value["nextActions"]), verbs(&causes[1]["actions"])), (next.to_vec(), next[1..3].to_vec()));
    let id = form.rsplit('/').next().unwrap();
    assert_eq!(value["nextCommand"], format!("belay approvals answer {id}"));
    drop(server);

    let (_, alone) = home.json(&["why", "e"]);
    assert_eq!(kinds(&alone["explanation"]), [&[("KIND_NO_DRIVER", "")], &waits[..]].concat());
    assert_eq!(verbs(&alone["nextActions"])[0], "VERB_RESUME");
    assert_eq!(alone["nextCommand"], "belay executions resume e");
    assert_eq!(alone["explanation"]["causes"][1], *causes.get(0).unwrap(), "nothing else is different");

    let (_, timeline) = home.json(&["executions", "timeline", "e"]);
    let rows: Vec<_> = timeline["rows"].as_array().unwrap().iter().collect();
    let of =
        |id: &str| rows.iter().find(|row| row["stepId"] == id).unwrap()["segments"].as_array().unwrap().last().unwrap();
    let last =
        |id: &str| (of(id)["kind"].as_str().unwrap(), of(id).get("endTime").is_some(), of(id)["operation"].clone());
    for (id, kind) in
        [("go", "KIND_WAITING"), ("ask", "KIND_PERSON"), ("gone", "KIND_PERSON"), ("sleep", "KIND_WAITING")]
    {
        assert_eq!(last(id), (kind, false, json!(1)), "{timeline:#}");
    }
    assert_eq!((rows.len(), &timeline["pendingSteps"], timeline.get("endTime")), (4, &json!(1), None));
}

#[test]
fn what_was_cancelled_says_by_whom_and_what_was_stopped_and_skipped() {
    let home = Home::new();
    let plan = "id: w\nsteps: [{id: s, wait: {signal: go}}, {id: t, tool: noop, depends_on: [s]}]\n";
    home.file("wait.yaml", plan);
    let server = home.serve();
    assert_eq!(home.run(["run", "wait.yaml", "--id", "cut", "--detach"]).code, 0);
    home.start(["executions", "watch", "cut"]).wait_for("waits for the signal");
    assert_eq!(home.run(["executions", "cancel", "cut", "--reason", "wrong plan"]).code, 0);
    let (_, value) = home.json(&["why", "cut"]);
    let explanation = &value["explanation"];
    assert_eq!(kinds(explanation), [("KIND_CANCELLATION", ""), ("KIND_STEP_CANCELLATION", "s")], "{value:#}");
    let cause = &explanation["causes"][0];
    assert_eq!(cause["reason"], "wrong plan");
    assert!(cause["principal"].as_str().unwrap().contains(':'), "{cause}");
    let skipped = json!([{"stepId": "t", "skipReason": "SKIP_REASON_CANCELLED", "followsFailure": true}]);
    assert_eq!((&explanation["skippedSteps"], verbs(&value["nextActions"])), (&skipped, vec!["VERB_RETRY"]));
    let shown = home.run(["why", "cut"]);
    assert!(
        shown.out.contains(": wrong plan\n") && shown.out.contains("\n  stopped    1 step while running: s\n"),
        "{shown:?}"
    );
    drop(server);
}
