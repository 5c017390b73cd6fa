//! Calls of a step that have one effect: seen, approved, committed or discarded as one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use belay_proto::{
    runner_v1,
    v1::{self, tool_call::State},
};
use belay_tool_runner::{StagedEffect, View, WorkspaceDirectory};
use belay_workspace::{CommitError, Stop, ViewError};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    hooks::{HookedDirectories, Hooks},
    support::*,
};

/// A call of the step `s` in its first run.
fn of_step(runner: &Runner, number: usize, layers: &[String], todo: Value) -> runner_v1::CallToolRequest {
    let entry = number.to_string();
    let layers = v1::StepLayers { step: "s".into(), round: 1, layers: layers.to_vec(), entry, carried: None };
    runner_v1::CallToolRequest { layers: Some(layers), ..runner.request(&format!("s~{number}"), CHANGE, todo) }
}

/// The call that commits the step.
fn commit_of(runner: &Runner, call: &str, round: i32, layers: &[String]) -> runner_v1::CallToolRequest {
    let layers = v1::StepLayers { step: "s".into(), round, layers: layers.to_vec(), ..v1::StepLayers::default() };
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

/// What others have changed stays, and the step goes on from there with all that is not in conflict with it.
#[tokio::test]
async fn a_step_goes_on_without_what_conflicts() {
    let bench = Bench::new();
    bench.put("f", "0");
    bench.put("hidden", "0");
    let deny = FREE.replace(
        "rules: [",
        "rules: [{id: no-reading, on: intent, paths: [hidden], tools: [read_file, rebase_changes], decide: deny}, ",
    );
    let runner = bench.start(&deny).await;
    let todo = json!([["append", "f", "1"], ["append", "hidden", "1"], ["write", "h", "h"]]);
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], todo)).await.unwrap());
    let others = json!([["append", "f", "other"], ["append", "hidden", "other"]]);
    assert_eq!(state(&runner.run("other", CHANGE, others).await), State::Completed);
    let begin_with = std::slice::from_ref(&first);
    let conflict = runner.call(of_step(&runner, 1, begin_with, json!([]))).await.unwrap();
    assert_eq!((state(&conflict), reason(&conflict)), (State::Failed, "STEP_CONFLICT"), "{conflict:?}");
    let rebase = runner_v1::CallToolRequest {
        tool: "rebase_changes".into(),
        arguments: Some(v1::Payload::of_json("{}")),
        ..of_step(&runner, 2, begin_with, json!([]))
    };
    let rebased = runner.call(rebase).await.unwrap();
    assert_eq!(state(&rebased), State::Completed, "{rebased:?}");
    let file = |content: &str| json!({"kind": "file", "content": content, "size_bytes": content.len()});
    let not_shown =
        json!({"kind": "not_shown", "why": "The policy does not allow the call to read it without asking a person."});
    assert_eq!(
        serde_json::from_str::<Value>(&crate::secrets::result(&rebased)).unwrap(),
        json!({"files": [
            {"path": "f", "yours": file("01"), "theirs": file("0other")},
            {"path": "hidden", "yours": not_shown, "theirs": not_shown},
        ]})
    );
    let layers = [first, layer_of(&rebased)];
    let again = layer_of(&runner.call(of_step(&runner, 3, &layers, json!([["append", "f", "+1"]]))).await.unwrap());
    let layers = [layers.to_vec(), vec![again]].concat();
    let end = runner.call(commit_of(&runner, "s~4", 1, &layers)).await.unwrap();
    assert_eq!(state(&end), State::Completed, "{end:?}");
    assert_eq!([bench.text("f"), bench.text("h"), bench.text("hidden")], ["0other+1", "h", "0other"]);
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

/// A disk on which a view over layers takes as long as nobody stops it.
#[derive(Clone, Default)]
struct Endless(Arc<AtomicUsize>);

impl Hooks for Endless {
    fn view_over(
        &self,
        place: &dyn WorkspaceDirectory,
        id: &str,
        (set, layers): (&str, &[String]),
        stop: Stop<'_>,
    ) -> Result<Box<dyn View>, ViewError> {
        if !layers.is_empty() {
            self.0.fetch_add(1, Ordering::SeqCst);
            while !stop() {
                thread::yield_now();
            }
        }
        place.view_over(id, set, layers, stop)
    }
}

/// S4-06: a call of a step ends when it is cancelled or its time is up, also while its view begins; its tool has not run then.
#[tokio::test]
async fn a_call_is_stopped_while_its_view_begins() {
    let (mut bench, endless) = (Bench::new(), Endless::default());
    bench.directories = Arc::new(HookedDirectories(endless.clone()));
    let runner = bench.start(FREE).await;
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "x"]]))).await.unwrap());
    let on_top = |number| of_step(&runner, number, std::slice::from_ref(&first), json!([["write", "b", "x"]]));
    let runs = bench.signals.runs();
    let cancelled = runner.spawn(on_top(1));
    while endless.0.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(state(&runner.cancel("s~1").await.unwrap()), State::Cancelled);
    assert_eq!(state(&cancelled.await.unwrap().unwrap()), State::Cancelled);
    let timeout = Some(belay_proto::duration(Duration::from_millis(50)));
    let end = runner.call(runner_v1::CallToolRequest { timeout, ..on_top(2) }).await.unwrap();
    assert_eq!((state(&end), reason(&end)), (State::TimedOut, "TIMEOUT"), "{end:?}");
    assert_eq!(bench.signals.runs(), runs);
    assert_eq!(std::fs::read_dir(bench.workspace().join(".belay/views")).unwrap().count(), 0);
}

const PIN: &str = "zebra-umbrella-7";
/// Only what stands before it says that it is one.
const TOKEN: &str = "tiger-lamp-42-moon";

/// S2-FR-077a, B-29: what a call knew as a secret, because its schema marks it or its output has shown it, is hidden in the approval of its step too, and in the ledger.
#[tokio::test]
async fn the_approval_of_a_step_hides_what_its_calls_knew() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let told = json!([["say", format!("password={TOKEN}\n"), ""], ["write", format!("{TOKEN}.txt"), ""]]);
    let second = layer_of(&runner.call(of_step(&runner, 0, &[], told)).await.unwrap());
    let arguments = json!({"do": [["write", format!("{PIN}.txt"), format!("pin={PIN}")]], "pin": PIN}).to_string();
    let marked = runner_v1::CallToolRequest {
        arguments: Some(v1::Payload::of_json(&*arguments)),
        ..of_step(&runner, 1, &[], json!([]))
    };
    let first = layer_of(&runner.call(marked).await.unwrap());
    let held = runner.call(commit_of(&runner, "s~2", 1, &[first, second])).await.unwrap();
    assert_eq!(state(&held), State::AwaitingApproval, "{held:?}");
    let (subject, bytes, _) = runner.effect("s~2").await.unwrap();
    let paths: Vec<&str> = subject.changes.iter().map(|change| &*change.path).collect();
    assert_eq!(paths.len(), 2);
    assert!(paths.iter().all(|path| path.ends_with(".txt") && path.contains('[')), "{paths:?}");
    let has = |bytes: &[u8], secret: &str| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
    assert!(!has(&bytes, PIN) && !has(&bytes, TOKEN));
    let state_folder = bench.path().join("state");
    let is_shown = || {
        let files = std::fs::read_dir(&state_folder).unwrap().map(|entry| entry.unwrap().path());
        let texts = files.filter(|path| path.is_file()).map(|path| std::fs::read(path).unwrap());
        texts.into_iter().any(|text| has(&text, PIN) || has(&text, TOKEN))
    };
    assert!(!is_shown());
    // The runner that commits is another one, and has them from the ledger.
    runner.lose().await;
    let runner = bench.start(ASK).await;
    let end = runner.commit("s~2", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!((state(&end), bench.text(&format!("{PIN}.txt"))), (State::Completed, format!("pin={PIN}")));
    removed(&bench).await;
    assert!(!is_shown());
}

/// S2-FR-077a: so does the approval of a call of its own.
#[tokio::test]
async fn the_approval_of_a_call_hides_what_its_output_has_shown() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let told = json!([["say", format!("password={TOKEN}\n"), ""], ["write", format!("{TOKEN}.txt"), ""]]);
    let held = runner.call(runner.request("s", CHANGE, told)).await.unwrap();
    assert_eq!(state(&held), State::AwaitingApproval, "{held:?}");
    let (subject, bytes, _) = runner.effect("s").await.unwrap();
    assert!(subject.changes[0].path.ends_with(".txt") && !String::from_utf8_lossy(&bytes).contains(TOKEN));
}

/// B-06: when nothing is left of what the calls of a step have changed, the call that commits them ends durably all the same.
#[tokio::test]
async fn calls_that_undo_each_other_commit_nothing_once() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "x"]]))).await.unwrap());
    let undone = of_step(&runner, 1, std::slice::from_ref(&first), json!([["remove", "a"]]));
    let layers = [first, layer_of(&runner.call(undone).await.unwrap())];
    let end = runner.call(commit_of(&runner, "s~2", 1, &layers)).await.unwrap();
    assert_eq!((state(&end), bench.tree().len()), (State::Completed, 0), "{end:?}");
    removed(&bench).await;
    runner.lose().await;
    let runner = bench.start(FREE).await;
    let again = runner.call(commit_of(&runner, "s~2", 1, &layers)).await.unwrap();
    assert_eq!(again, end);
}

/// Commits that are stuck, or refused when they are applied, as long as the flag is set; layers are kept.
#[derive(Clone)]
struct StuckCommits {
    is_on: Arc<AtomicBool>,
    tried: Arc<AtomicUsize>,
    stuck: bool,
}

impl Hooks for StuckCommits {
    fn apply(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        if staged.plan.contains("\"place\"") || !self.is_on.load(Ordering::SeqCst) {
            return place.apply(staged);
        }
        self.tried.fetch_add(1, Ordering::SeqCst);
        let stopped = || Box::new(CommitError::Stopped);
        Err(match self.stuck {
            true => CommitError::Stuck { id: staged.id.clone(), forward: stopped(), back: stopped() },
            false => CommitError::Conflict { paths: vec![belay_workspace::RelPath::parse("a").unwrap()] },
        })
    }
}

fn unapplied(stuck: bool) -> StuckCommits {
    StuckCommits { is_on: Arc::new(AtomicBool::new(true)), tried: Arc::default(), stuck }
}

/// B-06: a runner that is lost once the effect of a step is committed leaves no layers of it.
#[tokio::test]
async fn layers_of_a_committed_step_do_not_outlive_a_loss() {
    let (mut bench, hooks) = (Bench::new(), unapplied(true));
    let real = std::mem::replace(&mut bench.directories, Arc::new(HookedDirectories(hooks.clone())));
    let runner = bench.start(FREE).await;
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "x"]]))).await.unwrap());
    let layers = [first];
    let commit = runner.spawn(commit_of(&runner, "s~1", 1, &layers));
    while hooks.tried.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(sets(&bench), 1);
    runner.lose().await;
    drop(commit.await);
    bench.directories = real;
    let runner = bench.start(FREE).await;
    let end = runner.call(commit_of(&runner, "s~1", 1, &layers)).await.unwrap();
    assert_eq!(state(&end), State::Completed, "{end:?}");
    assert_eq!(state(&runner.run("other", CHANGE, json!([["write", "b", ""]])).await), State::Completed);
    assert_eq!((bench.text("a"), sets(&bench)), ("x".into(), 0));
}

/// A commit that cannot be applied leaves the layers, also for a runner that is started later: the call is made again.
#[tokio::test]
async fn layers_stay_when_their_commit_is_not_applied() {
    let (mut bench, hooks) = (Bench::new(), unapplied(false));
    bench.directories = Arc::new(HookedDirectories(hooks.clone()));
    let runner = bench.start(FREE).await;
    let layers = [layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "a", "x"]]))).await.unwrap())];
    let end = runner.call(commit_of(&runner, "s~1", 1, &layers)).await.unwrap();
    assert_eq!((state(&end), reason(&end), bench.tree().len()), (State::Cancelled, "CONFLICT", 0), "{end:?}");
    hooks.is_on.store(false, Ordering::SeqCst);
    runner.lose().await;
    let runner = bench.start(FREE).await;
    let end = runner.call(commit_of(&runner, "s~2", 1, &layers)).await.unwrap();
    assert_eq!((state(&end), bench.text("a")), (State::Completed, "x".into()), "{end:?}");
    removed(&bench).await;
}

/// B-05: a rule about a tool judges what that tool has done in a folder, whoever has made the folder; and a rule about what another tool did there does not
/// judge it.
#[tokio::test]
async fn each_call_is_judged_by_what_it_did_itself() {
    let rule = "rules: [{id: no-keep, on: effect, tools: [command], paths: [\"new/first\"], decide: deny}, ";
    let policy = FREE.replace("rules: [", rule);
    for is_new in [false, true] {
        let bench = Bench::new();
        if !is_new {
            std::fs::create_dir(bench.workspace().join("new")).unwrap();
        }
        let runner = bench.start(&policy).await;
        let first =
            layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "new/first", "x"]]))).await.unwrap());
        let by_command = |number, todo| runner_v1::CallToolRequest {
            tool: COMMAND.into(),
            ..of_step(&runner, number, std::slice::from_ref(&first), todo)
        };
        let beside = runner.call(by_command(1, json!([["write", "new/second", "y"]]))).await.unwrap();
        let layers = [first.clone(), layer_of(&beside)];
        let denied = runner.call(by_command(2, json!([["append", "new/first", "z"]]))).await.unwrap();
        assert_eq!((state(&denied), reason(&denied)), (State::Denied, "POLICY_DENIED"), "{is_new} {denied:?}");
        let end = runner.call(commit_of(&runner, "s~3", 1, &layers)).await.unwrap();
        assert_eq!((state(&end), bench.text("new/first")), (State::Completed, "x".into()), "{end:?}");
    }
}

/// A call of the step `s` of another execution, which takes over what the calls of this one have changed.
fn takeover(runner: &Runner, layers: &[String]) -> runner_v1::CallToolRequest {
    let carried =
        v1::CarriedLayers { execution: "namespaces/default/executions/e".into(), round: 1, layers: layers.to_vec() };
    let layers =
        v1::StepLayers { step: "s".into(), round: 1, entry: "0".into(), carried: Some(carried), ..Default::default() };
    runner_v1::CallToolRequest {
        tool: "rebase_changes".into(),
        arguments: Some(v1::Payload::of_json("{}")),
        layers: Some(layers),
        ..of_fork(runner, "s~0")
    }
}

/// A call of another execution.
fn of_fork(runner: &Runner, call: &str) -> runner_v1::CallToolRequest {
    let request = commit_of(runner, call, 1, &[]);
    let name = request.name.replace("/executions/e/", "/executions/fork/");
    runner_v1::CallToolRequest { name, ..request }
}

/// An execution takes over what the calls of another one have changed: without what conflicts, as a layer of its own, which stays when those of the other go.
#[tokio::test]
async fn the_layers_of_another_execution_are_taken_over() {
    let bench = Bench::new();
    bench.put("f", "0");
    bench.put("g", "0");
    let runner = bench.start(FREE).await;
    let todo = json!([["append", "f", "1"], ["append", "g", "1"], ["write", "h", "h"]]);
    let first = layer_of(&runner.call(of_step(&runner, 0, &[], todo)).await.unwrap());
    let over = std::slice::from_ref(&first);
    let second = of_step(&runner, 1, over, json!([["append", "h", "+"], ["write", "i", "i"]]));
    let both = [first.clone(), layer_of(&runner.call(second).await.unwrap())];
    assert_eq!(state(&runner.run("other", CHANGE, json!([["append", "g", "other"]])).await), State::Completed);

    let taken = runner.call(takeover(&runner, &both)).await.unwrap();
    let result = serde_json::from_str::<Value>(&crate::secrets::result(&taken)).unwrap();
    let paths: Vec<&str> =
        result["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["g"], "{taken:?}");
    let layer = layer_of(&taken);
    assert_eq!(sets(&bench), 2, "each execution has its own");
    let name = "namespaces/default/executions/e".into();
    let executions = vec![runner_v1::DeletedExecution { name, ..Default::default() }];
    runner.client.clone().forget_executions(runner_v1::ForgetExecutionsRequest { executions }).await.unwrap();
    runner.lose().await;

    let runner = bench.start(FREE).await;
    let mut later = runner_v1::CallToolRequest {
        name: of_fork(&runner, "s~1").name,
        ..of_step(&runner, 1, std::slice::from_ref(&layer), json!([["append", "f", "2"]]))
    };
    let layers = [layer, layer_of(&runner.call(later.clone()).await.unwrap())];
    later.name = of_fork(&runner, "s~2").name;
    later.layers.as_mut().unwrap().carried = takeover(&runner, &both).layers.unwrap().carried;
    assert_eq!(runner.call(later).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    let end =
        runner_v1::CallToolRequest { layers: commit_of(&runner, "s", 1, &layers).layers, ..of_fork(&runner, "s~3") };
    let end = runner.call(end).await.unwrap();
    assert_eq!(state(&end), State::Completed, "{end:?}");
    let texts = ["f", "g", "h", "i"].map(|path| bench.text(path));
    assert_eq!(texts, ["012", "0other", "h+", "i"]);
    removed(&bench).await;
    let gone =
        runner.call(runner_v1::CallToolRequest { name: of_fork(&runner, "s~4").name, ..takeover(&runner, &both) });
    assert_eq!(reason(&gone.await.unwrap()), "LAYER_GONE");
}

/// B-05: what is taken over is judged by the tools that have made it, when it is taken over and when it is committed, and by the policy of that time.
#[tokio::test]
async fn what_is_taken_over_is_judged_by_the_tools_that_have_made_it() {
    let rule = |tool: &str| {
        let rule = format!("rules: [{{id: no-keep, on: effect, tools: [{tool}], paths: [made], decide: deny}}, ");
        FREE.replace("rules: [", &rule)
    };
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let made = layer_of(&runner.call(of_step(&runner, 0, &[], json!([["write", "made", "x"]]))).await.unwrap());
    let made = std::slice::from_ref(&made);
    runner.offer(&bench, 2, &rule("rebase_changes")).await;
    let layer = layer_of(&runner.call(takeover(&runner, made)).await.unwrap());
    runner.offer(&bench, 3, &rule(CHANGE)).await;
    let again = runner_v1::CallToolRequest { name: of_fork(&runner, "s~1").name, ..takeover(&runner, made) };
    let denied = runner.call(again).await.unwrap();
    assert_eq!((state(&denied), reason(&denied)), (State::Denied, "POLICY_DENIED"), "{denied:?}");
    let layers = commit_of(&runner, "s", 1, std::slice::from_ref(&layer)).layers;
    let end = runner.call(runner_v1::CallToolRequest { layers, ..of_fork(&runner, "s~2") }).await.unwrap();
    assert_eq!((state(&end), reason(&end)), (State::Denied, "POLICY_DENIED"), "{end:?}");
    assert_eq!(bench.tree().len(), 0);
}
