//! A hostile executor: nothing is committed without approval, and a waiting call keeps waiting.

use belay_grant::{Grant, SignedBytes, SigningKey};
use belay_proto::{runner_v1, v1::tool_call::State};
use serde_json::json;
use tonic::Code;

use crate::support::*;

/// B-05: without a valid, unspent grant for exactly this call and effect the runner refuses, and the call keeps waiting.
#[tokio::test]
async fn a_grant_for_anything_else_is_rejected() {
    let bench = Bench::new();
    bench.put("file", "1");
    let runner = bench.start(ASK).await;
    let held = runner.run("a", CHANGE, json!([["write", "file", "2"]])).await;
    let other = runner.run("other", CHANGE, json!([["write", "else", "x"]])).await;
    let good = bench.grant(&held);
    let but = |change: &dyn Fn(&mut Grant)| {
        let mut grant = good.clone();
        change(&mut grant);
        bench.sign(&grant)
    };
    let mut tampered = bench.sign(&good);
    let place = tampered.body.windows(4).position(|window| window == b"unix").unwrap();
    tampered.body[place] = b'U';
    let strange_key = SigningKey::from_bytes(&[8; 32]);
    let other_domain = SignedBytes::policy(&bench.key, bench.sign(&good).body);
    let forged_id = runner_v1::Grant { key_id: bench.sign(&good).key_id, ..sign(&strange_key, &good) };
    let cases: Vec<(&str, runner_v1::Grant, &str)> = vec![
        ("none", runner_v1::Grant::default(), ""),
        ("another key", sign(&strange_key, &good), "key"),
        ("another key under the gate's id", forged_id, "signature"),
        ("tampered", tampered, "signature"),
        (
            "signed as a policy",
            runner_v1::Grant {
                body: other_domain.body,
                signature: other_domain.signature,
                key_id: other_domain.key_id,
            },
            "signature",
        ),
        ("another call's", bench.sign(&bench.grant(&other)), "call"),
        ("another call's, renamed", but(&|grant| grant.call = name("other")), "call"),
        ("another digest", but(&|grant| grant.subject_digest = bench.grant(&other).subject_digest), "subject"),
        ("another revision", but(&|grant| grant.policy_revision = 2), "policy revision"),
        ("another audience", but(&|grant| grant.audience = "executor".into()), "audience"),
        ("many uses", but(&|grant| grant.uses = 2), "uses"),
        ("expired", but(&|grant| grant.expires = NOW), "and the time is"),
        ("not yet", but(&|grant| grant.not_before = NOW + 3600), "and the time is"),
    ];
    for (case, grant, says) in cases {
        let refused = runner.commit("a", grant).await.unwrap_err();
        assert_eq!((refused.code(), refusal(&refused)), (Code::PermissionDenied, "GRANT_REFUSED".into()), "{case}");
        assert!(refused.message().contains(says), "{case}: {}", refused.message());
        assert_eq!(runner.get("a").await.unwrap(), held, "{case}");
    }
    assert_eq!(bench.text("file"), "1");

    bench.clock.forward(23 * 3600);
    let done = runner.commit("a", bench.sign(&good)).await.unwrap();
    assert_eq!((state(&done), bench.text("file").as_str()), (State::Completed, "2"));
}

/// B-05.
#[tokio::test]
async fn a_call_does_not_run_on_an_invalid_grant() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let request = runner.request("a", SEND, json!([]));
    let held = runner.call(request.clone()).await.unwrap();
    let with = |grant| runner_v1::CallToolRequest { grant: Some(grant), ..request.clone() };
    for grant in [runner_v1::Grant::default(), sign(&SigningKey::from_bytes(&[8; 32]), &bench.grant(&held))] {
        assert_eq!(refusal(&runner.call(with(grant)).await.unwrap_err()), "GRANT_REFUSED");
    }
    assert_eq!((runner.get("a").await.unwrap(), bench.signals.runs()), (held.clone(), 0));
    // A grant for a call that never waited has no effect.
    let request_b = runner.request("b", SEND, json!([]));
    let grant = Grant { call: name("b"), ..bench.grant(&held) };
    let answer =
        runner.call(runner_v1::CallToolRequest { grant: Some(bench.sign(&grant)), ..request_b }).await.unwrap();
    assert_eq!((state(&answer), bench.signals.runs()), (State::AwaitingApproval, 0));
    runner.call(with(bench.sign(&bench.grant(&held)))).await.unwrap();
    assert_eq!(bench.signals.runs(), 1);
}

/// B-01, B-05: not for another call, not after a restart, and not for a call of the same name after an acknowledgement.
#[tokio::test]
async fn a_grant_is_valid_once() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let todo = json!([["append", "log", "x"]]);
    let held = runner.run("a", CHANGE, todo.clone()).await;
    let grant = bench.grant(&held);
    runner.commit("a", bench.sign(&grant)).await.unwrap();
    let other = runner.run("b", CHANGE, json!([["append", "log", "y"]])).await;
    let same_nonce = Grant { nonce: grant.nonce.clone(), ..bench.grant(&other) };
    let refused = runner.commit("b", bench.sign(&same_nonce)).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (Code::PermissionDenied, "GRANT_SPENT".into()));
    assert_eq!(runner.get("b").await.unwrap(), other);
    runner.discard("b").await.unwrap();
    runner.acknowledge("a").await;
    std::fs::remove_file(bench.workspace().join("log")).unwrap();
    runner.stop().await;

    // Same name, workspace and effect: the digest of the subject is the same, and the grant has not expired.
    let runner = bench.start(ASK).await;
    let again = runner.run("a", CHANGE, todo).await;
    assert_eq!(again.approval_need, held.approval_need);
    assert_eq!(refusal(&runner.commit("a", bench.sign(&grant)).await.unwrap_err()), "GRANT_SPENT");
    assert_eq!(bench.tree().len(), 0);
}

/// B-05: concurrent commits with one grant commit once, and all get the same response.
#[tokio::test]
async fn committing_many_times_at_once_commits_once() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let held = runner.run("a", CHANGE, json!([["append", "log", "x"]])).await;
    let grant = bench.sign(&bench.grant(&held));
    let commits = (0..16).map(|_| runner.commit("a", grant.clone()));
    let ended = futures::future::join_all(commits).await;
    let first = ended[0].as_ref().unwrap();
    assert_eq!(state(first), State::Completed);
    assert!(ended.iter().all(|end| end.as_ref().unwrap() == first));
    assert_eq!(bench.text("log"), "x");

    // A call that waits is read from the ledger by whoever asks first.
    for round in 0..20 {
        let name = format!("b{round}");
        let before = bench.text("log");
        let held = runner.run(&name, CHANGE, json!([["append", "log", "y"]])).await;
        let grant = bench.sign(&bench.grant(&held));
        let (got, committed, discarded, cancelled) =
            tokio::join!(runner.get(&name), runner.commit(&name, grant), runner.discard(&name), runner.cancel(&name));
        let ends = [committed.unwrap(), discarded.unwrap(), cancelled.unwrap()];
        assert!(ends.iter().all(|end| *end == ends[0]), "one of them was first, and the call ended once");
        let got = got.unwrap();
        assert!(got == ends[0] || got == held || state(&got) == State::Running, "{got:?}");
        let expected = if state(&ends[0]) == State::Completed { before + "y" } else { before };
        assert_eq!(bench.text("log"), expected);
    }
}

/// Invalid names, and grants for unknown calls.
#[tokio::test]
async fn an_unknown_call_is_not_committed() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let mut client = runner.client.clone();
    assert_eq!(runner.commit("never", runner_v1::Grant::default()).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(runner.discard("never").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(runner.effect("never").await.unwrap_err().code(), Code::NotFound);
    // Only the executor derives names, so nothing else is one.
    let calls = "namespaces/n/executions/e/steps/s/calls";
    for bad in [
        "".to_owned(),
        "a".to_owned(),
        format!("{calls}/a b"),
        format!("{calls}/1.1/x"),
        format!("{calls}/.."),
        format!("{calls}/1.1\n"),
        format!("{calls}/1.\u{202e}1"),
        format!("{calls}/12345678901234567890.1"),
        "namespaces/N/executions/E/steps/s/calls/1.1".to_owned(),
        "namespaces/n/executions/../steps/s/calls/1.1".to_owned(),
    ] {
        let request = runner_v1::CommitEffectRequest { name: bad.clone(), ..Default::default() };
        assert_eq!(client.commit_effect(request).await.unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
    }
}
