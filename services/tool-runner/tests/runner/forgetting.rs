//! Forgetting executions that were deleted.

use std::fs;

use belay_proto::{runner_v1, v1::tool_call::State};
use serde_json::json;
use tonic::Code;

use crate::support::*;

const EXECUTION: &str = "namespaces/default/executions/e";

fn made_folder(id: &str) -> Option<runner_v1::MadeFolder> {
    Some(runner_v1::MadeFolder { namespace: "default".into(), id: id.into() })
}

async fn forget(runner: &Runner, name: &str, token: i64) -> Result<Vec<String>, tonic::Status> {
    forget_with(runner, name, None, token).await
}

/// Forgets an execution that was the last to use a folder.
async fn forget_with(
    runner: &Runner,
    name: &str,
    made_folder: Option<runner_v1::MadeFolder>,
    token: i64,
) -> Result<Vec<String>, tonic::Status> {
    let fence = Some(runner_v1::Fence { shard: 0, token });
    let executions = vec![runner_v1::DeletedExecution { name: name.into(), fence, made_folder }];
    let request = runner_v1::ForgetExecutionsRequest { executions };
    runner.client.clone().forget_executions(request).await.map(|response| response.into_inner().forgotten)
}

/// A call in a folder that the runner makes.
fn own(runner: &Runner, call: &str, folder: &str) -> runner_v1::CallToolRequest {
    runner_v1::CallToolRequest {
        workspace: String::new(),
        made_folder: made_folder(folder),
        ..runner.request(call, CHANGE, json!([["write", "x", "y"]]))
    }
}

fn ledger_contains(bench: &Bench, text: &str) -> bool {
    let files = fs::read_dir(bench.path().join("state")).unwrap().map(|entry| entry.unwrap().path());
    let mut ledgers = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ledger.db"));
    ledgers.any(|path| fs::read(path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()))
}

/// B-26: the rows of a deleted execution's calls go, those that wait for a person too, with the folder that the request names, and no other.
/// A workspace that a person named stays as it is.
#[tokio::test]
async fn a_forgotten_execution_leaves_its_person_s_directory_alone() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let elsewhere = "namespaces/default/executions/other/steps/s/calls/1.1";
    for held in [
        own(&runner, "a", "e"),
        runner.request("b", CHANGE, json!([["write", "named", "y"]])),
        own(&runner, elsewhere, "other"),
    ] {
        assert_eq!(state(&runner.call(held).await.unwrap()), State::AwaitingApproval);
    }
    let ended = "namespaces/default/executions/other/steps/s/calls/1.2";
    assert_eq!(state(&runner.run(ended, KEEP, json!([])).await), State::Completed);
    let made = bench.path().join("state/own/default");
    assert!(made.join("e").exists() && made.join("other").exists());
    fs::write(bench.workspace().join("mine"), "a person's").unwrap();
    assert!(ledger_contains(&bench, EXECUTION));

    assert_eq!(forget(&runner, EXECUTION, 0).await.unwrap(), [EXECUTION]);
    assert!(made.join("e").exists(), "the request names no folder: another execution works in it");
    assert_eq!(forget_with(&runner, EXECUTION, made_folder("e"), 0).await.unwrap(), [EXECUTION]);
    assert!(!made.join("e").exists(), "no execution works in it any more");
    assert!(made.join("other").exists(), "this one is of another execution");
    assert_eq!(fs::read_to_string(bench.workspace().join("mine")).unwrap(), "a person's");
    assert!(!ledger_contains(&bench, EXECUTION), "neither the ledger nor its log has a byte of it");
    for call in ["a", "b"] {
        assert_eq!(refusal(&runner.get(call).await.unwrap_err()), "CALL_NOT_FOUND");
        let late = runner.call(own(&runner, call, "e")).await.unwrap_err();
        assert_eq!(refusal(&late), "CALL_ACKNOWLEDGED", "a request that the network delayed does not run");
    }
    let kept = runner.call(own(&runner, elsewhere, "other")).await.unwrap();
    assert_eq!(state(&kept), State::AwaitingApproval, "what is another execution's stays");
    assert_eq!(runner.unacknowledged().await, [ended], "what is another execution's stays");
    assert_eq!(forget_with(&runner, EXECUTION, made_folder("e"), 0).await.unwrap(), [EXECUTION], "again");
    assert_eq!(forget(&runner, "namespaces/default/executions/never", 0).await.unwrap().len(), 1);
    runner.lose().await;
    let runner = bench.start(ASK).await;
    assert_eq!(refusal(&runner.get("a").await.unwrap_err()), "CALL_NOT_FOUND");
    let kept = runner.call(own(&runner, elsewhere, "other")).await.unwrap();
    assert_eq!(state(&kept), State::AwaitingApproval, "what is another execution's stays");
}

/// A row is what applies an effect again after a power loss, so it goes only when the effect is on the disk.
#[tokio::test]
async fn a_committed_effect_is_on_the_disk_before_its_row_goes() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let done = runner.call(runner.request("a", CHANGE, json!([["write", "kept", "y"]]))).await.unwrap();
    assert_eq!(state(&done), State::Completed);
    assert_eq!(forget(&runner, EXECUTION, 0).await.unwrap(), [EXECUTION]);
    assert!(!ledger_contains(&bench, EXECUTION));
    assert_eq!(fs::read_to_string(bench.workspace().join("kept")).unwrap(), "y");
    assert_eq!(runner.unacknowledged().await, Vec::<String>::new());
}

/// B-26: a call that still runs is cancelled before it is forgotten.
#[tokio::test]
async fn a_call_that_runs_ends_before_its_execution_is_forgotten() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let running = runner.spawn(runner.request("a", KEEP, json!([["wait"]])));
    bench.signals.has_run(1).await;
    assert_eq!(forget(&runner, EXECUTION, 0).await.unwrap(), [EXECUTION]);
    assert_eq!(state(&running.await.unwrap().unwrap()), State::Cancelled);
    assert_eq!(refusal(&runner.get("a").await.unwrap_err()), "CALL_NOT_FOUND");
}

#[tokio::test]
async fn a_replaced_executor_and_a_wrong_name_are_refused() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    assert_eq!(forget(&runner, EXECUTION, 7).await.unwrap(), [EXECUTION]);
    assert_eq!(refusal(&forget(&runner, EXECUTION, 6).await.unwrap_err()), "FENCED");
    for bad in ["", "namespaces/default", "namespaces/default/executions/e/steps/s", "namespaces//executions/e"] {
        assert_eq!(forget(&runner, bad, 8).await.unwrap_err().code(), Code::InvalidArgument, "{bad}");
    }
    // What no folder can be called is no folder, and nothing else is removed for it.
    for bad in ["", "..", ".", "a/b", "/"] {
        let folder = made_folder(bad);
        assert_eq!(forget_with(&runner, EXECUTION, folder, 8).await.unwrap(), Vec::<String>::new(), "{bad}");
    }
    assert!(bench.path().join("state").exists());
}
