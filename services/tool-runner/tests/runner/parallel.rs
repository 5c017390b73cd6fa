//! Many calls on one workspace at once: what comes out is what some order of them would have given.

use std::collections::BTreeSet;

use belay_proto::v1::tool_call::State;
use futures::future::join_all;
use serde_json::json;

use crate::support::*;

const CALLS: usize = 64;

/// Disjoint calls all commit.
#[tokio::test]
async fn calls_on_other_paths_do_not_hinder_each_other() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let calls = (0..CALLS).map(|n| {
        let todo = json!([["write", format!("d{}/f{n}", n % 4), n.to_string()]]);
        runner.spawn(runner.request(&format!("s{n}"), CHANGE, todo))
    });
    let ends = join_all(calls).await.into_iter().map(|end| end.unwrap().unwrap()).collect::<Vec<_>>();
    // Two that both make a folder that was not there change the same path.
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

/// S2-NFR-007: no change is lost and none counts twice, however often the calls get into each other's way.
#[tokio::test]
async fn calls_on_one_path_come_out_as_in_some_order() {
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
    assert_eq!(bench.stage.runs(), CALLS + conflicts);
}

/// A commit waits until nobody has a view, and neither side keeps the other out.
#[tokio::test]
async fn a_commit_waits_for_views_and_can_be_cancelled_while_it_waits() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let slow = runner.spawn(runner.request("slow", CHANGE, json!([["write", "slow", ""], ["wait"]])));
    bench.stage.has_run(1).await;
    let quick = runner.spawn(runner.request("quick", CHANGE, json!([["write", "quick", ""]])));
    bench.stage.has_run(2).await;
    assert!(!bench.tree().contains_key("quick"), "somebody has a view");
    assert_eq!(state(&runner.cancel("quick").await.unwrap()), State::Cancelled);
    quick.await.unwrap().unwrap();
    let other = runner.spawn(runner.request("other", CHANGE, json!([["write", "other", ""]])));
    bench.stage.let_go.add_permits(1);
    assert_eq!(state(&slow.await.unwrap().unwrap()), State::Completed);
    assert_eq!(state(&other.await.unwrap().unwrap()), State::Completed);
    assert!(!bench.tree().contains_key("quick"));
}
