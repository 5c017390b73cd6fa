//! Calls of a step that have one effect: seen, approved, committed or discarded as one.

use belay_proto::{
    runner_v1,
    v1::{self, tool_call::State},
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::*;

/// A call of the step `s` in its first run.
fn of_step(runner: &Runner, number: usize, layers: &[String], todo: Value) -> runner_v1::CallToolRequest {
    let entry = number.to_string();
    let layers = v1::StepLayers { step: "s".into(), round: 1, layers: layers.to_vec(), entry };
    runner_v1::CallToolRequest { layers: Some(layers), ..runner.request(&format!("s~{number}"), CHANGE, todo) }
}

/// The call that commits the step.
fn commit_of(runner: &Runner, call: &str, round: i32, layers: &[String]) -> runner_v1::CallToolRequest {
    let layers = v1::StepLayers { step: "s".into(), round, layers: layers.to_vec(), entry: String::new() };
    runner_v1::CallToolRequest {
        tool: "commit_changes".into(),
        arguments: Some(v1::Payload::of_json("{}")),
        layers: Some(layers),
        ..runner.request(call, "commit_changes", json!([]))
    }
}

fn layer_of(end: &runner_v1::ToolCall) -> String {
    assert_eq!(state(end), State::Completed, "{end:?}");
    let receipt = end.receipt.as_ref().unwrap();
    assert_eq!((&*receipt.effect_digest, receipt.files.len()), ("", 0), "it has committed nothing");
    receipt.layer.clone()
}

fn sets(bench: &Bench) -> usize {
    std::fs::read_dir(bench.workspace().join(".belay/layers")).map_or(0, |sets| sets.count())
}

/// Until the layers are removed, which happens after the response.
async fn removed(bench: &Bench) {
    while sets(bench) > 0 {
        tokio::task::yield_now().await;
    }
}

/// B-34, B-06: what the calls of a step change is committed as one, and until then nobody sees it but calls that begin with their layers.
#[tokio::test]
async fn the_calls_of_a_step_have_one_effect() {
    let bench = Bench::new();
    bench.put("f", "0");
    let runner = bench.start(FREE).await;
    let call = async |number, layers: &[String], todo| {
        layer_of(&runner.call(of_step(&runner, number, layers, todo)).await.unwrap())
    };
    let before = bench.tree();
    let first = call(0, &[], json!([["write", "a", "a"], ["append", "f", "1"]])).await;
    let beside = call(1, &[], json!([["write", "b", "b"]])).await;
    let layers = [first.clone(), beside];
    let on_top = call(2, &layers, json!([["append", "f", "2"], ["append", "a", "+"], ["remove", "b"]])).await;
    let nothing = call(3, &layers, json!([])).await;
    assert_eq!(nothing, "", "it has changed nothing");
    assert_eq!(bench.tree(), before, "nothing is committed");
    let layers = [layers.to_vec(), vec![on_top]].concat();
    let end = runner.call(commit_of(&runner, "s~4", 1, &layers)).await.unwrap();
    assert_eq!(state(&end), State::Completed, "{end:?}");
    let paths: Vec<_> = end.receipt.as_ref().unwrap().files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a", "f"]);
    assert_eq!((bench.text("a"), bench.text("f")), ("a+".into(), "012".into()));
    assert!(!bench.workspace().join("b").exists());
    removed(&bench).await;
    bench.cleared().await;
    // A second request about the same call is told the same.
    let again = runner.call(commit_of(&runner, "s~4", 1, &layers)).await.unwrap();
    assert_eq!(again, end);
    let other = runner.call(commit_of(&runner, "s~4", 1, &layers[..1])).await.unwrap_err();
    assert_eq!(other.code(), tonic::Code::AlreadyExists);
}

/// Two calls of a step that run at once and touch one path: one of them runs again, on top of the other.
#[tokio::test]
async fn calls_of_a_step_that_touch_one_path_conflict() {
    let bench = Bench::new();
    bench.put("log", "");
    let runner = bench.start(FREE).await;
    let run = |number: usize| runner.spawn(of_step(&runner, number, &[], json!([["append", "log", "x"], ["wait"]])));
    let calls = [run(0), run(1)];
    bench.signals.has_run(2).await;
    bench.signals.resume.add_permits(2);
    let ends = join_all(calls).await.into_iter().map(|end| end.unwrap().unwrap()).collect::<Vec<_>>();
    let (kept, refused): (Vec<_>, Vec<_>) = ends.iter().partition(|end| state(end) == State::Completed);
    assert_eq!((kept.len(), state(refused[0]), reason(refused[0])), (1, State::Cancelled, "CONFLICT"));
    let first = layer_of(kept[0]);
    let mut again = of_step(&runner, 1, std::slice::from_ref(&first), json!([["append", "log", "y"]]));
    again.layers.as_mut().unwrap().entry = "again".into();
    again.name = name("s~1").replace("/1.1", "/1.2");
    let second = layer_of(&runner.call(again).await.unwrap());
    let end = runner.call(commit_of(&runner, "s~2", 1, &[first, second])).await.unwrap();
    assert_eq!((state(&end), bench.text("log")), (State::Completed, "xy".into()));
}

/// B-06: kept layers outlive the loss of the runner; what was under way leaves nothing.
#[tokio::test]
async fn layers_outlive_the_runner() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "a"]]))).await.unwrap());
    let lost =
        runner.spawn(of_step(&runner, 1, std::slice::from_ref(&first), json!([["write", "b", "lost"], ["wait"]])));
    bench.signals.has_run(2).await;
    runner.lose().await;
    drop(lost.await);
    let runner = bench.start(FREE).await;
    let second = of_step(&runner, 1, std::slice::from_ref(&first), json!([["append", "b", "b"], ["append", "a", "b"]]));
    let second = layer_of(&runner.call(second).await.unwrap());
    runner.stop().await;
    let runner = bench.start(FREE).await;
    let end = runner.call(commit_of(&runner, "s~2", 1, &[first, second])).await.unwrap();
    assert_eq!(state(&end), State::Completed, "{end:?}");
    assert_eq!((bench.text("a"), bench.text("b")), ("ab".into(), "b".into()));
    removed(&bench).await;
}

/// B-34: a person sees and decides about the whole; the rules for the tool that made a change decide whether they are asked.
#[tokio::test]
async fn the_effect_of_a_step_is_approved_as_one() {
    let bench = Bench::new();
    bench.put("f", "0");
    let runner = bench.start(ASK).await;
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "a"]]))).await.unwrap());
    let layers = [first.clone()];
    let second = layer_of(
        &runner.call(of_step(&runner, 1, &layers, json!([["remove", "f"], ["append", "a", "2"]]))).await.unwrap(),
    );
    let layers = [first, second];
    for (call, is_approved) in [("s~2", false), ("s~3", true)] {
        let held = runner.call(commit_of(&runner, call, 1, &layers)).await.unwrap();
        assert_eq!(state(&held), State::AwaitingApproval, "{held:?}");
        let need = held.approval_need.clone().unwrap();
        assert_eq!(need.kind(), v1::approval_need::Kind::Effect);
        let effect = need.effect.as_ref().unwrap();
        assert_eq!((effect.created, effect.modified, effect.deleted), (1, 0, 1), "{effect:?}");
        assert!(need.allowing_rules.iter().all(|rule| !rule.contains("commit_changes")), "{:?}", need.allowing_rules);
        let rules = need.allowing_rules.join("\n");
        assert!(rules.contains("change"), "the rules are about the tool that made the changes: {rules}");
        assert_eq!(bench.text("f"), "0", "nothing is committed");
        if is_approved {
            let end = runner.commit(call, bench.sign(&bench.grant(&held))).await.unwrap();
            assert_eq!(state(&end), State::Completed, "{end:?}");
        } else {
            let end = runner.discard(call).await.unwrap();
            assert_eq!((state(&end), sets(&bench)), (State::Denied, 1), "the step may ask again");
        }
    }
    assert_eq!(bench.text("a"), "a2");
    assert!(!bench.workspace().join("f").exists());
    removed(&bench).await;
}

/// A rule about a tool holds for what the tool changes in a step too.
#[tokio::test]
async fn a_denied_change_of_a_call_is_denied_to_its_step() {
    let bench = Bench::new();
    let rule = "rules: [{id: no-keep, on: effect, tools: [change], paths: [\"keep/**\"], decide: deny}, ";
    let runner = bench.start(&FREE.replace("rules: [", rule)).await;
    let denied = runner.call(of_step(&runner, 0, &[], json!([["write", "keep/f", "x"]]))).await.unwrap();
    assert_eq!((state(&denied), reason(&denied)), (State::Denied, "POLICY_DENIED"), "{denied:?}");
    let first = layer_of(&runner.call(of_step(&runner, 1, &[], json!([["write", "a", "x"]]))).await.unwrap());
    // The policy is stricter by the time of the commit.
    let stricter =
        FREE.replace("rules: [", "rules: [{id: no-a, on: effect, tools: [change], paths: [a], decide: deny}, ");
    runner.offer(&bench, 2, &stricter).await;
    let end = runner.call(commit_of(&runner, "s~2", 1, &[first])).await.unwrap();
    assert_eq!((state(&end), reason(&end)), (State::Denied, "POLICY_DENIED"), "{end:?}");
    assert_eq!(bench.tree().len(), 0);
}

#[tokio::test]
async fn what_others_commit_meanwhile_fails_the_step() {
    let bench = Bench::new();
    bench.put("f", "0");
    let runner = bench.start(FREE).await;
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["append", "f", "1"]]))).await.unwrap());
    assert_eq!(
        state(&runner.run("other", CHANGE, json!([["append", "f", "other"], ["write", "g", ""]])).await),
        State::Completed
    );
    let end = runner.call(commit_of(&runner, "s~1", 1, std::slice::from_ref(&first))).await.unwrap();
    assert_eq!((state(&end), reason(&end)), (State::Failed, "STEP_CONFLICT"), "{end:?}");
    assert_eq!(bench.text("f"), "0other");
    // Layers of an earlier run go when one of a later run is kept.
    let mut request = of_step(&runner, 0, &[], json!([["append", "f", "2"]]));
    request.name = name("s~0").replace("/1.1", "/2.1");
    request.layers.as_mut().unwrap().round = 2;
    let second = layer_of(&runner.call(request).await.unwrap());
    while sets(&bench) > 1 {
        tokio::task::yield_now().await;
    }
    let gone = runner.call(commit_of(&runner, "s~2", 1, &[first])).await.unwrap();
    assert_eq!((state(&gone), reason(&gone)), (State::Failed, "LAYER_GONE"), "{gone:?}");
    let end = runner.call(commit_of(&runner, "s~3", 2, &[second])).await.unwrap();
    assert_eq!((state(&end), bench.text("f")), (State::Completed, "0other2".into()));
    removed(&bench).await;
}

#[tokio::test]
async fn layers_go_with_their_execution() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "a"]]))).await.unwrap());
    assert_eq!(sets(&bench), 1);
    let name = "namespaces/default/executions/e".into();
    let executions = vec![runner_v1::DeletedExecution { name, ..Default::default() }];
    let request = runner_v1::ForgetExecutionsRequest { executions };
    runner.client.clone().forget_executions(request).await.unwrap();
    assert_eq!(sets(&bench), 0);
    assert_eq!(bench.tree().len(), 0);
}

/// B-05: no other tool commits as a step does, whose effect is judged by what its calls have noted: it would commit what nobody has judged.
#[tokio::test]
async fn only_the_call_that_changes_nothing_commits_a_step() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "a"]]))).await.unwrap());
    let mut other = of_step(&runner, 1, std::slice::from_ref(&first), json!([["write", "keep/f", "x"]]));
    other.layers.as_mut().unwrap().entry = String::new();
    let mut leaves = commit_of(&runner, "s~2", 1, &[first]);
    leaves.layers.as_mut().unwrap().entry = "2".into();
    for request in [other, leaves] {
        let refused = runner.call(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains("layers.entry"), "{refused:?}");
    }
    assert_eq!(bench.tree().len(), 0);
}
