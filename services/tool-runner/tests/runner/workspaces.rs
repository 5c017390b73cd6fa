//! The directories that calls may use as workspaces.

use std::{fs, os::unix::fs::symlink, time::Duration};

use belay_proto::{runner_v1, v1::tool_call::State};
use belay_tool_runner::AllowedWorkspaces;
use belay_workspace::Workspace;
use serde_json::json;
use tonic::Code;

use crate::support::*;

/// S2-FR-043: a call names one workspace, a directory or a folder of the runner's own, which lies where its namespace and id say.
#[tokio::test]
async fn a_call_names_a_directory_or_a_folder_of_the_runner() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let folder = |namespace: &str, id: &str| Some(runner_v1::MadeFolder { namespace: namespace.into(), id: id.into() });
    let request = |call: &str, made_folder| runner_v1::CallToolRequest {
        workspace: String::new(),
        made_folder,
        ..runner.request(call, CHANGE, json!([["write", call, "y"]]))
    };
    let done = runner.call(request("a", folder("default", "made"))).await.unwrap();
    assert_eq!(state(&done), State::Completed);
    assert!(!done.receipt.unwrap().live_base, "no one else uses it");
    assert_eq!(fs::read_to_string(bench.path().join("state/own/default/made/a")).unwrap(), "y");
    let done = runner.call(request("b", folder("default", "made"))).await.unwrap();
    assert_eq!(state(&done), State::Completed);
    assert!(bench.path().join("state/own/default/made/b").exists(), "a call of any execution that names it");
    let directory = bench.workspace().to_str().unwrap().to_owned();
    for (why, refused) in [
        ("it names none", request("c", None)),
        (
            "it names two",
            runner_v1::CallToolRequest { workspace: directory, ..request("c", folder("default", "made")) },
        ),
        ("it climbs", request("c", folder("default", ".."))),
        ("it climbs", request("c", folder("..", "made"))),
        ("it has no id", request("c", folder("default", ""))),
    ] {
        assert_eq!(runner.call(refused).await.unwrap_err().code(), Code::InvalidArgument, "{why}");
    }
}

/// A directory that somebody deleted takes its effects with it: the calls have ended as they had.
#[tokio::test]
async fn a_call_has_ended_though_its_workspace_was_deleted() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let done = runner.run("a", CHANGE, json!([["write", "x", "y"]])).await;
    assert_eq!(state(&done), State::Completed);
    runner.lose().await;
    fs::remove_dir_all(bench.workspace()).unwrap();
    let runner = bench.start(FREE).await;
    assert_eq!(runner.get("a").await.unwrap(), done);
    assert_eq!(runner.unacknowledged().await, [name("a")]);
}

/// A person may remove a workspace and make it again, or clean it of what is not in version control, while the runner has it open.
#[tokio::test]
async fn a_workspace_that_was_made_again_is_opened_again() {
    // Longer than the test: the workspace stays open between calls.
    let mut bench = Bench::new();
    bench.linger = Duration::from_secs(3600);
    let runner = bench.start(FREE).await;
    assert_eq!(state(&runner.run("a", CHANGE, json!([["write", "x", "1"]])).await), State::Completed);
    fs::remove_dir_all(bench.workspace()).unwrap();
    fs::create_dir(bench.workspace()).unwrap();
    let done = runner.run("b", CHANGE, json!([["write", "y", "2"]])).await;
    assert_eq!(state(&done), State::Completed, "{done:?}");
    assert_eq!((bench.text("y").as_str(), bench.workspace().join("x").exists()), ("2", false));
    fs::remove_dir_all(bench.workspace().join(".belay")).unwrap();
    let done = runner.run("c", CHANGE, json!([["write", "y", "3"]])).await;
    assert_eq!((state(&done), bench.text("y").as_str()), (State::Completed, "3"), "{done:?}");
    let unreachable = bench.path().join("moved");
    fs::rename(bench.workspace(), &unreachable).unwrap();
    let failed = runner.run("d", CHANGE, json!([["write", "y", "4"]])).await;
    assert_eq!(state(&failed), State::Failed);
    fs::rename(&unreachable, bench.workspace()).unwrap();
    let done = runner.run("e", CHANGE, json!([["write", "y", "5"]])).await;
    assert_eq!((state(&done), bench.text("y").as_str()), (State::Completed, "5"), "{done:?}");
}

/// Checked by canonical path.
#[tokio::test]
async fn a_named_workspace_must_be_allowed() {
    let mut bench = Bench::new();
    let check = async |runner: &Runner, folder: &std::path::Path| {
        let request = runner_v1::CheckWorkspaceRequest { workspace: folder.to_str().unwrap().into() };
        runner.client.clone().check_workspace(request).await.map(|answer| answer.into_inner().workspace)
    };
    let real = bench.workspace().canonicalize().unwrap();
    symlink(&real, bench.path().join("link")).unwrap();
    fs::write(bench.path().join("file"), "").unwrap();
    // The state directory of another Belay, recognised by its files.
    fs::create_dir_all(bench.path().join("other/deep/er")).unwrap();
    fs::write(bench.path().join("other/gate.key"), "").unwrap();
    fs::write(bench.path().join("other/gate.db"), "").unwrap();
    let runner = bench.start(FREE).await;
    assert_eq!(check(&runner, &bench.path().join("link")).await.unwrap(), real.to_str().unwrap());
    for (folder, expected) in [
        (bench.path().join("state"), "WORKSPACE_INVALID"),
        (bench.path().join("state/own"), "WORKSPACE_INVALID"),
        (bench.path().join("other"), "WORKSPACE_INVALID"),
        (bench.path().join("other/deep/er"), "WORKSPACE_INVALID"),
        (bench.path().to_owned(), "WORKSPACE_INVALID"),
        (bench.path().join("nowhere"), "WORKSPACE_INVALID"),
        (bench.path().join("file"), "WORKSPACE_INVALID"),
        ("/".into(), "WORKSPACE_INVALID"),
        ("relative".into(), "WORKSPACE_NOT_ALLOWED"),
    ] {
        fs::create_dir_all(bench.path().join("state/own")).unwrap();
        let refused = check(&runner, &folder).await.unwrap_err();
        assert_eq!(
            (refused.code(), refusal(&refused)),
            (Code::InvalidArgument, expected.into()),
            "{}",
            folder.display()
        );
    }
    // One directory has one canonical path: calls by either name share its lock.
    let by_link = runner_v1::CallToolRequest {
        workspace: bench.path().join("link").to_str().unwrap().into(),
        ..runner.request("b", CHANGE, json!([["write", "b", ""]]))
    };
    let (one, other) =
        tokio::join!(runner.call(by_link), runner.call(runner.request("a", CHANGE, json!([["write", "a", ""]]))));
    assert_eq!((state(&one.unwrap()), state(&other.unwrap())), (State::Completed, State::Completed));
    runner.lose().await;

    bench.allowed = AllowedWorkspaces::Roots(vec![real.clone()]);
    let runner = bench.start(FREE).await;
    fs::create_dir(real.join("sub")).unwrap();
    symlink("/usr", real.join("out")).unwrap();
    assert!(check(&runner, &real.join("sub")).await.is_ok());
    assert_eq!(refusal(&check(&runner, &real.join("out")).await.unwrap_err()), "WORKSPACE_NOT_ALLOWED");
    let outside = runner_v1::CallToolRequest { workspace: "/usr".into(), ..runner.request("c", CHANGE, json!([])) };
    let refused = runner.call(outside).await.unwrap();
    assert_eq!((state(&refused), reason(&refused)), (State::Failed, "WORKSPACE_NOT_ALLOWED"));
}

/// An idle workspace is free for other processes; one in use elsewhere is refused with a transient error.
#[tokio::test]
async fn an_idle_workspace_is_free_for_another_process() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let held = runner.run("a", CHANGE, json!([["write", "x", "y"]])).await;
    // It closes a moment after the last call; a waiting call does not keep it open.
    let other = loop {
        match Workspace::open(&bench.workspace(), &[]) {
            Ok(other) => break other,
            Err(belay_workspace::OpenError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    other.sweep(|id| !id.starts_with("ffffffff")).unwrap();
    let refused = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (Code::Unavailable, "WORKSPACE_FAILED".into()));
    let busy = runner.run("b", CHANGE, json!([])).await;
    assert_eq!((reason(&busy), busy.failure.as_ref().unwrap().retryable), ("WORKSPACE_FAILED", true));
    drop(other);
    let done = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!((state(&done), bench.text("x").as_str()), (State::Completed, "y"), "the staged effect is still there");
}
