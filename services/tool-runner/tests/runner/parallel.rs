//! Concurrent calls on one workspace: the result is that of some serial order.

use std::collections::BTreeSet;

use belay_proto::{runner_v1, v1::tool_call::State};
use futures::future::join_all;
use serde_json::json;

use crate::support::*;

const CALLS: usize = 64;

#[tokio::test]
async fn calls_on_disjoint_paths_all_commit() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let calls = (0..CALLS).map(|n| {
        let todo = json!([["write", format!("d{}/f{n}", n % 4), n.to_string()]]);
        runner.spawn(runner.request(&format!("s{n}"), CHANGE, todo))
    });
    let ends = join_all(calls).await.into_iter().map(|end| end.unwrap().unwrap()).collect::<Vec<_>>();
    // Two calls that create the same directory change the same path.
    for (n, end) in ends.iter().enumerate() {
        if state(end) == State::Cancelled {
            assert_eq!(reason(end), "CONFLICT");
            let todo = json!([["write", format!("d{}/f{n}", n % 4), n.to_string()]]);
            assert_eq!(state(&runner.run(&format!("again{n}"), CHANGE, todo).await), State::Completed);
        } else {
            assert_eq!(state(end), State::Completed);
        }
    }
    for n in 0..CALLS {
        assert_eq!(bench.text(&format!("d{}/f{n}", n % 4)), n.to_string());
    }
    assert_eq!(bench.tree().len(), CALLS + 4);
}

/// S2-NFR-004, S2-NFR-007: no change is lost or applied twice, however many calls conflict.
#[tokio::test]
async fn calls_on_one_path_are_serialisable() {
    let bench = Bench::new();
    bench.put("log", "");
    let runner = bench.start(FREE).await;
    let one = async |n: usize| {
        for conflicts in 0.. {
            let number = conflicts + 1;
            let call = format!("namespaces/default/executions/e/steps/s{n}/calls/1.{number}");
            let todo = json!([["append", "log", format!("{n}\n")], ["write", format!("own{n}"), "x"]]);
            let end = runner.run(&call, CHANGE, todo).await;
            if state(&end) == State::Completed {
                return conflicts;
            }
            assert_eq!((state(&end), reason(&end)), (State::Cancelled, "CONFLICT"));
        }
        unreachable!("some call commits in every round")
    };
    let conflicts: usize = join_all((0..CALLS).map(one)).await.into_iter().sum();
    let log = bench.text("log");
    let lines: Vec<usize> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!((lines.len(), lines.iter().collect::<BTreeSet<_>>().len()), (CALLS, CALLS), "{conflicts} conflicts");
    assert_eq!(bench.tree().len(), CALLS + 1);
    assert_eq!(bench.signals.runs(), CALLS + conflicts);
}

/// B-17: a short call never waits for a longer one, neither to read nor to commit; the receipt of the longer one names the calls that
/// committed.
#[tokio::test]
async fn no_call_waits_for_a_running_call() {
    let bench = Bench::new();
    bench.put("f", "0");
    let runner = bench.start(FREE).await;
    let slow = runner.spawn(runner.request("slow", CHANGE, json!([["write", "slow", ""], ["wait"]])));
    bench.signals.has_run(1).await;
    for (n, call) in ["a", "b", "c"].into_iter().enumerate() {
        let todo = json!([["write", "f", n.to_string()], ["write", format!("new/{call}"), ""]]);
        assert_eq!(state(&runner.run(call, CHANGE, todo).await), State::Completed);
        assert_eq!(state(&runner.run(&format!("look-{call}"), LOOK, json!([])).await), State::Completed);
    }
    assert_eq!(bench.text("f"), "2");
    bench.signals.resume.add_permits(1);
    let slow = slow.await.unwrap().unwrap();
    assert_eq!(state(&slow), State::Completed);
    let receipt = slow.receipt.unwrap();
    assert_eq!(receipt.concurrent_commits, ["a", "b", "c"].map(name));
    assert_eq!(receipt.concurrent_commit_count, 3);
    let alone = runner.run("alone", CHANGE, json!([["write", "f", "3"]])).await;
    assert_eq!(alone.receipt.unwrap().concurrent_commit_count, 0);
}

/// B-17: a call that touches a path that another commit has touched meanwhile, or its parent, gets a conflict that names that commit, even
/// if the files there are older than the call.
#[tokio::test]
async fn a_conflict_names_the_call_that_committed() {
    for (theirs, ours, met) in [
        (json!([["write", "f", "theirs"]]), json!([["write", "f", "ours"]]), "f"),
        (json!([["remove", "d"]]), json!([["write", "d/x", "ours"]]), "d/x"),
        (json!([["write", "d/new", "theirs"]]), json!([["remove", "d"]]), "d"),
        (json!([["remove", "d"], ["write", "d/x", "theirs"]]), json!([["write", "d/x", "ours"]]), "d/x"),
        (json!([["write", "d/e/y", "theirs"]]), json!([["remove", "d"], ["write", "d/z", "ours"]]), "d"),
    ] {
        let bench = Bench::new();
        let runner = bench.start(FREE).await;
        runner.run("base", CHANGE, json!([["write", "f", "0"], ["write", "d/x", "0"], ["write", "d/e/y", "0"]])).await;
        // It starts before the other call, and works after that one has committed.
        let mut todo = vec![json!(["wait"])];
        todo.extend(ours.as_array().unwrap().clone());
        let held = runner.spawn(runner.request("ours", CHANGE, json!(todo)));
        bench.signals.has_run(2).await;
        assert_eq!(state(&runner.run("theirs", CHANGE, theirs.clone()).await), State::Completed);
        let after = bench.tree();
        bench.signals.resume.add_permits(1);
        let end = held.await.unwrap().unwrap();
        assert_eq!((state(&end), reason(&end)), (State::Cancelled, "CONFLICT"), "{theirs} {ours}");
        let message = end.failure.unwrap().message;
        assert!(message.contains(&format!("`{met}`")) && message.contains(&name("theirs")), "{message}");
        assert_eq!(bench.tree(), after, "{theirs} {ours}");
    }
}

/// B-17: an exclusive call blocks the commits of others, which report the call that they wait for. It does not block readers, and can
/// commit itself.
#[tokio::test]
async fn an_exclusive_call_blocks_commits_only() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let request = runner_v1::CallToolRequest {
        exclusive: true,
        ..runner.request("alone", CHANGE, json!([["write", "alone", ""], ["wait"]]))
    };
    let alone = runner.spawn(request.clone());
    bench.signals.has_run(1).await;
    let other = runner.request("other", CHANGE, json!([["write", "other", ""]]));
    assert_eq!(runner.waits_for(&other).await, name("alone"));
    let other = runner.spawn(other);
    assert_eq!(state(&runner.run("look", LOOK, json!([])).await), State::Completed, "a reader never waits");
    let cancelled = runner.request("cancelled", CHANGE, json!([["write", "cancelled", ""]]));
    assert_eq!(runner.waits_for(&cancelled).await, name("alone"));
    assert_eq!(state(&runner.cancel("cancelled").await.unwrap()), State::Cancelled);
    let second = runner_v1::CallToolRequest { name: name("second"), ..request };
    assert_eq!(runner.waits_for(&second).await, name("alone"), "an exclusive call waits too");
    let second = runner.spawn(second);
    let runs = bench.signals.runs();
    assert!(bench.tree().is_empty());
    bench.signals.resume.add_permits(1);
    let alone = alone.await.unwrap().unwrap();
    assert_eq!((state(&alone), alone.receipt.unwrap().concurrent_commit_count), (State::Completed, 0));
    assert_eq!(state(&other.await.unwrap().unwrap()), State::Completed);
    bench.signals.has_run(runs + 1).await;
    bench.signals.resume.add_permits(1);
    let second = second.await.unwrap().unwrap();
    assert_eq!((state(&second), reason(&second)), (State::Completed, ""), "it started after the others");
    assert_eq!(bench.tree().into_keys().collect::<Vec<_>>(), ["alone", "other"]);
}

/// A policy rule can make a call exclusive.
#[tokio::test]
async fn a_policy_makes_a_call_exclusive() {
    const RULES: &str = "file_write: auto\nfile_delete: auto\nrules: [{id: one, on: intent, programs: [do], decide: auto, exclusive: true}]\n";
    let bench = Bench::new();
    let runner = bench.start(RULES).await;
    let build = runner.spawn(runner.request("build", COMMAND, json!([["wait"]])));
    bench.signals.has_run(1).await;
    let other = runner.request("other", CHANGE, json!([["write", "other", ""]]));
    assert_eq!(runner.waits_for(&other).await, name("build"));
    let other = runner.spawn(other);
    bench.signals.resume.add_permits(1);
    assert_eq!(state(&build.await.unwrap().unwrap()), State::Completed);
    assert_eq!(state(&other.await.unwrap().unwrap()), State::Completed);
}

/// A call that waits for approval does not block commits, even if it is exclusive.
#[tokio::test]
async fn an_exclusive_call_that_waits_for_approval_blocks_no_commits() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let request = runner_v1::CallToolRequest {
        exclusive: true,
        ..runner.request("held", CHANGE, json!([["write", "held", ""]]))
    };
    let held = runner.call(request).await.unwrap();
    assert_eq!(state(&held), State::AwaitingApproval);
    let other = runner.run("other", CHANGE, json!([["write", "other", ""]])).await;
    for (call, held) in [("other", other), ("held", held)] {
        let end = runner.commit(call, bench.sign(&bench.grant(&held))).await.unwrap();
        assert_eq!(state(&end), State::Completed, "{call}");
    }
    assert_eq!(bench.tree().into_keys().collect::<Vec<_>>(), ["held", "other"]);
}
