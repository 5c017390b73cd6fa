//! The policy: whose it is, which one holds, and that nothing runs without.

use belay_grant::SigningKey;
use belay_proto::v1::{self, tool_call::State};
use belay_tool_runner::{Accepted, Refused};
use serde_json::json;
use tonic::Code;

use crate::support::*;

#[tokio::test]
async fn without_a_policy_nothing_runs_and_it_is_kept_through_a_restart() {
    let bench = Bench::new();
    let runner = bench.start_without_policy().await;
    let refused = runner.call(runner.request("a", LOOK, json!([]))).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (Code::Unavailable, "POLICY_MISSING".into()));
    runner.offer(&bench, 3, ASK).await;
    let held = runner.run("a", CHANGE, json!([["write", "x", "y"]])).await;
    runner.lose().await;

    let runner = bench.start_without_policy().await;
    let done = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!(state(&done), State::Completed, "the last policy holds, though the gate is away");
    assert_eq!(done.receipt.unwrap().decision.unwrap().policy_revision, 3);
    runner.lose().await;

    let mut bench = bench;
    bench.key = SigningKey::from_bytes(&[9; 32]);
    let runner = bench.start_without_policy().await;
    let refused = runner.call(runner.request("b", LOOK, json!([]))).await.unwrap_err();
    assert_eq!(refusal(&refused), "POLICY_MISSING", "a policy of another gate does not hold");
    runner.offer(&bench, 1, FREE).await;
}

#[tokio::test]
async fn only_the_gate_s_and_only_newer_policies_are_taken() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let policy = runner.calls.as_ref().unwrap().policy();
    assert_eq!(policy.offer(bench.signed(1, FREE)).await.unwrap(), Accepted::Same);
    assert!(matches!(policy.offer(bench.signed(1, ASK)).await, Err(Refused::NotNewer { offered: 1, held: 1 })));
    assert_eq!(policy.offer(bench.signed(5, ASK)).await.unwrap(), Accepted::New);
    assert!(matches!(policy.offer(bench.signed(4, FREE)).await, Err(Refused::NotNewer { offered: 4, held: 5 })));
    let renumbered = v1::SignedPolicy { revision: 6, ..bench.signed(4, FREE) };
    assert!(matches!(policy.offer(renumbered).await, Err(Refused::Revision { said: 6, signed: 4 })));
    let mut tampered = bench.signed(7, FREE);
    let end = tampered.body.len() - 2;
    tampered.body[end] ^= 1;
    assert!(matches!(policy.offer(tampered).await, Err(Refused::Signature(_))));
    assert_eq!(policy.current().unwrap().revision, 5);
}
