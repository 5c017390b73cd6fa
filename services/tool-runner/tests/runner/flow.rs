//! From the intent to the commit: what runs, what needs approval, and what is committed.

use belay_grant::{ChangeKind, Kind, digest_of};
use belay_policy::Tier;
use belay_proto::{
    runner_v1,
    v1::{self, ErrorClass, approval_need, policy_decision::Verdict, tool_call::State},
};
use serde_json::json;
use tonic::Code;

use crate::support::*;

/// The call itself needs approval.
const ASK_CALL: &str = "file_write: prompt\nrules: [{id: look-first, on: intent, tools: [change, send], decide: prompt, reason: Look first.}]\n";

#[tokio::test]
async fn an_allowed_effect_is_committed_with_a_receipt() {
    let bench = Bench::new();
    bench.put("old", "1");
    let runner = bench.start(FREE).await;
    let call = runner.run("a", CHANGE, json!([["write", "new/file", "x"], ["write", "old", "2"]])).await;
    assert_eq!((state(&call), bench.text("new/file"), bench.text("old")), (State::Completed, "x".into(), "2".into()));
    let receipt = call.receipt.unwrap();
    let effect = receipt.effect.unwrap();
    assert_eq!(
        (effect.created, effect.modified, effect.deleted),
        (2, 1, 0),
        "a directory counts, and so does its content"
    );
    let paths: Vec<_> = effect.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["old", "new", "new/file"], "modified paths come before new ones");
    assert!(receipt.effect_digest.starts_with("sha256:") && receipt.live_base && receipt.grant_nonce.is_empty());
    assert_eq!(receipt.decision.unwrap().verdict(), Verdict::Auto);
    assert_eq!(receipt.ledger_id, "a ledger");
}

#[tokio::test]
async fn a_call_without_effect_needs_no_approval() {
    let bench = Bench::new();
    bench.put("same", "1");
    let runner = bench.start(ASK).await;
    let call =
        runner.run("a", CHANGE, json!([["write", "same", "1"], ["write", "gone", "x"], ["remove", "gone"]])).await;
    assert_eq!(state(&call), State::Completed);
    assert_eq!((call.receipt.unwrap().effect, bench.left_over()), (None, Vec::<String>::new()));
}

/// S2-NFR-006: a staged effect survives restarts unapplied until it is granted, and is then committed once.
#[tokio::test]
async fn an_effect_waits_for_its_grant() {
    let bench = Bench::new();
    bench.put("kept", "old text\n");
    bench.put("gone", "bye\n");
    let before = bench.tree();
    let runner = bench.start(ASK).await;
    let todo = json!([["write", "kept", "new text\n"], ["remove", "gone"], ["write", "blob", "a\u{0}b"]]);
    let held = runner.run("a", CHANGE, todo.clone()).await;
    let need = held.approval_need.clone().unwrap();
    assert_eq!((state(&held), need.kind()), (State::AwaitingApproval, approval_need::Kind::Effect));
    assert_eq!(held.result, None, "the result is returned only with the commit");
    let effect = need.effect.clone().unwrap();
    assert_eq!((effect.created, effect.modified, effect.deleted), (1, 1, 1));
    assert_eq!(bench.tree(), before);
    assert_eq!(runner.get("a").await.unwrap(), held);
    assert_eq!(runner.run("a", CHANGE, todo.clone()).await, held, "the same call returns the same state");
    runner.lose().await;

    let runner = bench.start(ASK).await;
    assert_eq!(runner.run("a", CHANGE, todo).await, held);
    let (subject, bytes, contents) = runner.effect("a").await.unwrap();
    assert_eq!(digest_of(&bytes), need.subject_digest);
    assert_eq!((subject.kind, subject.tool.as_str(), subject.step.as_str()), (Kind::Effect, CHANGE, "a"));
    assert_eq!(subject.workspace, bench.workspace().canonicalize().unwrap().to_str().unwrap());
    let changes: Vec<_> = subject.changes.iter().map(|change| (change.path.as_str(), change.kind)).collect();
    assert_eq!(changes, [("gone", ChangeKind::Deleted), ("kept", ChangeKind::Modified), ("blob", ChangeKind::Created)]);
    let kept = &subject.changes[1];
    assert_eq!(
        (contents[&kept.before].as_slice(), contents[&kept.after].as_slice()),
        (&b"old text\n"[..], &b"new text\n"[..])
    );
    assert_eq!(contents.len(), 4, "binary files too");
    assert!(contents.iter().all(|(digest, data)| digest_of(data) == *digest));

    let done = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!((state(&done), bench.text("kept").as_str()), (State::Completed, "new text\n"));
    assert!(!bench.tree().contains_key("gone") && done.result.is_some() && done.approval_need.is_none());
    let receipt = done.receipt.clone().unwrap();
    assert_eq!((receipt.grant_nonce, receipt.effect), (bench.grant(&held).nonce, Some(effect)));
    assert_eq!(receipt.effect_digest, subject.effect_digest);
    let again = runner.commit("a", runner_v1::Grant::default()).await.unwrap();
    assert_eq!(again, done, "committing again does nothing");
    let refused = runner.effect("a").await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (Code::FailedPrecondition, "CALL_NOT_HELD".into()));
}

/// A call runs only after approval. The approval covers its declared paths; other paths are judged by the policy.
#[tokio::test]
async fn a_call_that_needs_approval_runs_once_it_is_granted() {
    let bench = Bench::new();
    let runner = bench.start(ASK_CALL).await;
    let request = |call: &str, paths: &[&str]| {
        let arguments = json!({"do": [["write", "sub/declared", "x"]], "paths": paths}).to_string();
        let arguments = Some(v1::Payload { content: Some(v1::payload::Content::Json(arguments)) });
        runner_v1::CallToolRequest { arguments, ..runner.request(call, CHANGE, json!([])) }
    };
    let covered = request("a", &["sub", "./sub/../sub/declared"]);
    let held = runner.call(covered.clone()).await.unwrap();
    let need = held.approval_need.clone().unwrap();
    assert_eq!((need.kind(), need.effect.clone(), bench.signals.runs()), (approval_need::Kind::Call, None, 0));
    let decision = need.decision.unwrap();
    assert_eq!((decision.rule.as_str(), decision.reason.as_str()), ("look-first", "Look first."));
    assert_eq!(runner.effect("a").await.unwrap().0.kind, Kind::Call);
    assert_eq!(refusal(&runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap_err()), "CALL_NOT_HELD");

    let granted = runner_v1::CallToolRequest { grant: Some(bench.sign(&bench.grant(&held))), ..covered };
    let done = runner.call(granted.clone()).await.unwrap();
    assert_eq!((state(&done), bench.text("sub/declared").as_str()), (State::Completed, "x"));
    assert_eq!(done.receipt.as_ref().unwrap().grant_nonce, bench.grant(&held).nonce);
    assert_eq!(runner.call(granted).await.unwrap(), done, "sent again, it does not run again");
    assert_eq!(bench.signals.runs(), 1);

    std::fs::remove_dir_all(bench.workspace().join("sub")).unwrap();
    let uncovered = request("b", &["other"]);
    let held = runner.call(uncovered.clone()).await.unwrap();
    let granted = runner_v1::CallToolRequest { grant: Some(bench.sign(&bench.grant(&held))), ..uncovered };
    let second = runner.call(granted).await.unwrap();
    assert_eq!(second.approval_need.unwrap().kind(), approval_need::Kind::Effect);
}

/// B-01: a MANUAL call spends its grant before it starts; after a crash nothing runs it again.
#[tokio::test]
async fn a_granted_manual_call_starts_once() {
    let bench = Bench::new();
    let runner = bench.start(ASK_CALL).await;
    let request = runner.request("a", SEND, json!([["wait"]]));
    let held = runner.call(request.clone()).await.unwrap();
    let granted = runner_v1::CallToolRequest { grant: Some(bench.sign(&bench.grant(&held))), ..request };
    drop(runner.spawn(granted.clone()));
    bench.signals.has_run(1).await;
    runner.lose().await;
    let runner = bench.start(ASK_CALL).await;
    assert_eq!(state(&runner.call(granted).await.unwrap()), State::OutcomeUnknown);
    assert_eq!(bench.signals.runs(), 1);
}

/// S2-X-07: a denial before or after the run leaves no trace.
#[tokio::test]
async fn a_denied_call_leaves_no_trace() {
    let policy = "file_write: auto\nrules:
  - {id: no-sending, on: intent, tools: [send], decide: deny, reason: It stays here.}
  - {id: no-secrets, on: effect, paths: [secret], decide: deny, reason: Not there.}\n";
    let bench = Bench::new();
    let runner = bench.start(policy).await;
    let sent = runner.run("a", SEND, json!([])).await;
    assert_eq!((state(&sent), reason(&sent), bench.signals.runs()), (State::Denied, "POLICY_DENIED", 0));
    assert_eq!(sent.failure.unwrap().error_class(), ErrorClass::PolicyDenied);
    let wrote = runner.run("b", CHANGE, json!([["write", "fine", "x"], ["write", "secret", "x"]])).await;
    assert_eq!((state(&wrote), reason(&wrote)), (State::Denied, "POLICY_DENIED"));
    assert!(wrote.failure.unwrap().message.contains("no-secrets"));
    assert_eq!((bench.tree().len(), bench.left_over()), (0, Vec::<String>::new()));
}

/// B-06, S2-FR-033, S2-X-07: a call that failed, was cancelled, timed out or was invalid leaves the workspace byte for byte unchanged.
#[tokio::test]
async fn a_call_that_does_not_complete_changes_nothing() {
    let bench = Bench::new();
    bench.put("kept", "1");
    let before = bench.tree();
    let runner = bench.start(FREE).await;
    let after = |last: serde_json::Value| json!([["write", "kept", "2"], ["write", "new", "x"], last]);
    for (call, last) in [("failed", json!(["fail"])), ("broken", json!(["panic"])), ("odd", json!(["odd"]))] {
        assert_eq!(state(&runner.run(call, CHANGE, after(last)).await), State::Failed, "{call}");
    }
    let timeout = Some(belay_proto::duration(std::time::Duration::from_millis(50)));
    let late = runner_v1::CallToolRequest { timeout, ..runner.request("late", CHANGE, after(json!(["wait"]))) };
    assert_eq!(state(&runner.call(late).await.unwrap()), State::TimedOut);
    let running = runner.spawn(runner.request("cancelled", CHANGE, after(json!(["wait"]))));
    bench.signals.has_run(5).await;
    assert_eq!(state(&runner.cancel("cancelled").await.unwrap()), State::Cancelled);
    assert_eq!(bench.left_over(), Vec::<String>::new(), "B-07: it is gone when the cancellation returns");
    running.await.unwrap().unwrap();
    // A read-only tool may write to its view; the changes are dropped.
    assert_eq!(state(&runner.run("look", LOOK, json!([["write", "kept", "3"]])).await), State::Completed);
    assert_eq!((bench.tree(), bench.left_over()), (before, Vec::new()));
}

/// S2-X-07: a denial is durable and leaves no trace, and so does a cancellation.
#[tokio::test]
async fn a_discarded_call_leaves_no_trace() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let todo = json!([["write", "new", "x"]]);
    let held = runner.run("a", CHANGE, todo.clone()).await;
    let denied = runner.discard("a").await.unwrap();
    assert_eq!((state(&denied), reason(&denied)), (State::Denied, "APPROVAL_DENIED"));
    assert!(denied.end_time.is_some() && denied.approval_need.is_none(), "{denied:?}");
    assert_eq!(runner.discard("a").await.unwrap(), denied, "discarding is idempotent");
    let late = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!(late, denied, "an ended call is never committed");
    runner.run("b", CHANGE, todo.clone()).await;
    assert_eq!(state(&runner.cancel("b").await.unwrap()), State::Cancelled);
    runner.run("call", SEND, json!([])).await;
    assert_eq!(state(&runner.cancel("call").await.unwrap()), State::Cancelled);
    runner.lose().await;
    let runner = bench.start(ASK).await;
    assert_eq!(state(&runner.run("a", CHANGE, todo.clone()).await), State::Denied);
    assert_eq!(state(&runner.run("b", CHANGE, todo).await), State::Cancelled);
    assert_eq!((bench.tree().len(), bench.left_over()), (0, Vec::<String>::new()));

    let running = runner.spawn(runner.request("busy", KEEP, json!([["wait"]])));
    bench.signals.has_run(3).await;
    assert_eq!(refusal(&runner.discard("busy").await.unwrap_err()), "CALL_NOT_HELD");
    runner.cancel("busy").await.unwrap();
    running.await.unwrap().unwrap();
}

/// A change of the workspace under a running or waiting call is a conflict: it leaves no trace, and the call can run again.
#[tokio::test]
async fn a_workspace_that_changed_meanwhile_is_a_conflict() {
    let bench = Bench::new();
    bench.put("file", "1");
    let runner = bench.start(FREE).await;
    let running = runner.spawn(runner.request("a", CHANGE, json!([["append", "file", "2"], ["wait"]])));
    bench.signals.has_run(1).await;
    bench.put("file", "a person's");
    bench.signals.resume.add_permits(1);
    let ended = running.await.unwrap().unwrap();
    assert_eq!(
        (state(&ended), reason(&ended), bench.text("file").as_str()),
        (State::Cancelled, "CONFLICT", "a person's")
    );

    runner.offer(&bench, 2, ASK).await;
    let held = runner.run("b", CHANGE, json!([["append", "file", "2"]])).await;
    let other = runner.run("other", CHANGE, json!([["write", "elsewhere", "x"]])).await;
    assert_eq!(state(&runner.commit("other", bench.sign(&bench.grant(&other))).await.unwrap()), State::Completed);
    bench.put("file", "changed again");
    let ended = runner.commit("b", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!(
        (state(&ended), reason(&ended), bench.text("file").as_str()),
        (State::Cancelled, "CONFLICT", "changed again")
    );
    assert!(ended.receipt.unwrap().grant_nonce.is_empty(), "the grant was not spent");
    bench.cleared().await;
}

/// If someone empties Belay's own directory, a waiting call ends with a conflict, never with a partial commit.
#[tokio::test]
async fn staged_files_that_were_removed_are_a_conflict() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let held = runner.run("a", CHANGE, json!([["write", "new", "x"]])).await;
    std::fs::remove_dir_all(bench.workspace().join(".belay/commits")).unwrap();
    std::fs::create_dir(bench.workspace().join(".belay/commits")).unwrap();
    let ended = runner.commit("a", bench.sign(&bench.grant(&held))).await;
    if let Ok(ended) = ended {
        assert_eq!((state(&ended), reason(&ended)), (State::Cancelled, "CONFLICT"));
    }
    assert_eq!(bench.tree().len(), 0);
}

/// An approved effect is committed only if the current policy does not deny it.
#[tokio::test]
async fn a_newer_policy_can_still_deny_an_approved_effect() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    let held = runner.run("a", CHANGE, json!([["write", "new", "x"]])).await;
    runner.offer(&bench, 2, "file_write: deny\n").await;
    let ended = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!((state(&ended), reason(&ended), bench.tree().len()), (State::Denied, "POLICY_DENIED", 0));
    let decision = ended.receipt.unwrap().decision.unwrap();
    assert_eq!((decision.policy_revision, decision.verdict()), (2, Verdict::Deny));
}

/// B-10: a command is refused if the sandbox is weaker than the policy or the runner requires.
#[tokio::test]
async fn commands_need_the_required_tier() {
    let mut bench = Bench::new();
    bench.enforcement.tier = runner_v1::enforcement_report::Tier::C.into();
    let runner = bench.start(&format!("sandbox: {{min_tier: {:?}}}\n", Tier::A)).await;
    let refused = runner.run("a", COMMAND, json!([])).await;
    assert_eq!((reason(&refused), bench.signals.runs()), ("SANDBOX_UNAVAILABLE", 0));
    assert_eq!(refused.failure.unwrap().error_class(), ErrorClass::SandboxViolation);
    assert_eq!(state(&runner.run("b", CHANGE, json!([])).await), State::Completed, "other tools need no sandbox");
    runner.offer(&bench, 2, "sandbox: {min_tier: C}\nterminal_commands: auto\n").await;
    let done = runner.run("c", COMMAND, json!([["write", "x", "y"]])).await;
    assert_eq!((state(&done), done.receipt.unwrap().enforced), (State::Completed, vec!["a layer".to_owned()]));
    let report = runner.client.clone().get_enforcement(runner_v1::GetEnforcementRequest {}).await.unwrap().into_inner();
    assert_eq!(report, bench.enforcement);
}

/// A call that changes something costs one durable transaction; others cost none.
#[tokio::test]
async fn a_call_costs_at_most_one_commit_of_the_ledger() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    for (call, tool, todo, expected) in [
        ("a", LOOK, json!([]), 0),
        ("b", CHANGE, json!([]), 0),
        ("c", CHANGE, json!([["fail"]]), 0),
        ("d", CHANGE, json!([["write", "x", "y"]]), 1),
        ("e", CHANGE, json!([["write", "x", "z"], ["write", "y", "z"]]), 1),
        ("f", KEEP, json!([]), 1),
        ("g", SEND, json!([]), 2),
    ] {
        let before = bench.ledger_commits();
        runner.run(call, tool, todo).await;
        assert_eq!(bench.ledger_commits() - before, expected, "{call}");
    }
}

/// Git treats such a directory as a repository although it has no `.git`, and obeys its configuration.
#[tokio::test]
async fn changes_to_a_bare_repository_need_approval() {
    let bench = Bench::new();
    for (path, text) in
        [("r/HEAD", "ref: refs/heads/x\n"), ("r/objects/x", ""), ("r/refs/x", ""), ("s/HEAD", ""), ("s/objects/x", "")]
            .into_iter()
            .chain([("u\u{200b}/HEAD", "ref: refs/heads/x\n"), ("u\u{200b}/objects/x", ""), ("u\u{200b}/refs/x", "")])
    {
        std::fs::create_dir_all(bench.workspace().join(path).parent().unwrap()).unwrap();
        bench.put(path, text);
    }
    let runner = bench.start(FREE).await;
    let rule = |call: &runner_v1::ToolCall| call.receipt.clone().unwrap().decision.unwrap().rule;
    // Whatever the folder is called.
    for (id, path) in [("a", "r/config"), ("b", "r/hooks/post-update"), ("c", "s/refs/x"), ("g", "u\u{200b}/config")] {
        let call = runner.run(id, CHANGE, json!([["write", path, "x"]])).await;
        assert_eq!((state(&call), rule(&call).as_str()), (State::AwaitingApproval, "bare_repository"), "{path}");
    }
    for (id, path) in [("d", "config"), ("e", "s/config"), ("f", "r/objects/y")] {
        assert_eq!(state(&runner.run(id, CHANGE, json!([["write", path, "x"]])).await), State::Completed, "{path}");
    }
}

/// A rule about a call sees the names that it gives as they are, and not as a message would show them.
#[tokio::test]
async fn a_rule_about_a_call_sees_names_as_they_are() {
    let bench = Bench::new();
    let policy = "rules: [{id: unseen, on: intent, paths: [\"**/u\\u200b.txt\"], decide: deny}]\n";
    let runner = bench.start(policy).await;
    for (id, path, expected) in [
        ("a", "x/u\u{200b}.txt", State::Denied),
        ("b", "x/../x/u\u{200b}.txt", State::Denied),
        ("c", "x/u.txt", State::Completed),
    ] {
        let arguments = json!({"do": [], "paths": [path]}).to_string();
        let arguments = Some(v1::Payload { content: Some(v1::payload::Content::Json(arguments)) });
        let request = runner_v1::CallToolRequest { arguments, ..runner.request(id, CHANGE, json!([])) };
        assert_eq!(state(&runner.call(request).await.unwrap()), expected, "{path:?}");
    }
}

/// Git runs and obeys these whatever they are called, because a repository's configuration names them.
#[tokio::test]
async fn changes_to_what_a_repository_names_need_approval() {
    let bench = Bench::new();
    let here = bench.workspace().canonicalize().unwrap();
    let here = here.display();
    for (path, text) in [
        (
            ".git/config",
            format!(
                "[core]\n\tbare = false\n\tHooksPath = \"tools/hooks\" ; in the work tree\n[include]\n\tpath = ../team/git.inc\n\
                 [includeIf \"gitdir:~/x/\"]\n\tpath = {here}/absolute.inc\n[include]\npath = ~/own.inc\npath = /etc/gitconfig\n\
                 [alias]\n\thooksPath = aliases\n"
            ),
        ),
        ("team/git.inc", "[core]\nhooksPath = more/hooks\n[include]\npath = nested.inc\npath = git.inc\n".to_owned()),
        ("team/nested.inc", "[core]\nhooksPath = linked".to_owned()),
        ("sub/.git/config", "[core]\nhooksPath = ../shared".to_owned()),
        ("lib/.git", "gitdir: ../.git/modules/lib\n".to_owned()),
        (".git/modules/lib/config", "[core]\nhooksPath = own-hooks".to_owned()),
        ("tree/.git", format!("gitdir: {here}/.git/worktrees/tree\n")),
        (".git/worktrees/tree/commondir", "../..\n".to_owned()),
        (".git/worktrees/tree/config.worktree", "[core]\nhooksPath = of-tree".to_owned()),
        ("top/.git/config", "[core]\nhooksPath = .".to_owned()),
        (".husky/config", String::new()),
        ("behind/x", String::new()),
    ] {
        std::fs::create_dir_all(bench.workspace().join(path).parent().unwrap()).unwrap();
        bench.put(path, &text);
    }
    std::os::unix::fs::symlink("behind", bench.workspace().join("linked")).unwrap();
    let runner = bench.start(FREE).await;
    let rule = |call: &runner_v1::ToolCall| call.receipt.clone().unwrap().decision.unwrap().rule;
    for (n, path) in [
        "tools/hooks/pre-commit",
        "tools/hooks/lib/common.sh",
        "TOOLS/hooks/pre-push",
        "team/git.inc",
        "absolute.inc",
        "more/hooks/post-checkout",
        "team/nested.inc",
        "behind/post-merge",
        "sub/src/../../sub/x/../../lib/own-hooks/pre-commit",
        "tree/of-tree/pre-commit",
        "tree/tools/hooks/pre-commit",
        "top/pre-commit",
    ]
    .into_iter()
    .enumerate()
    {
        let call = runner.run(&format!("a{n}"), CHANGE, json!([["write", path, "x"]])).await;
        assert_eq!((state(&call), rule(&call).as_str()), (State::AwaitingApproval, "named_by_config"), "{path}");
    }
    for (n, path) in [
        "tools/hooks.md",
        "tools/lint",
        "own.inc",
        "hooks/pre-commit",
        "aliases/x",
        "sub/tools/hook",
        "lib/src/x",
        "tree/x",
        "top/src/pre-commit",
        "nested.inc",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            state(&runner.run(&format!("b{n}"), CHANGE, json!([["write", path, "x"]])).await),
            State::Completed,
            "{path}"
        );
    }
}

/// A call that changes the configuration is judged by what it named before and by what it names then.
#[tokio::test]
async fn a_configuration_counts_as_it_was_and_as_it_will_be() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.workspace().join(".git")).unwrap();
    bench.put(".git/config", "[core]\nhooksPath = old\n");
    let open = format!("protect: false\n{FREE}");
    let runner = bench.start(&open).await;
    let moved = json!([
        ["write", ".git/config", "[core]\nhooksPath = new\n"],
        ["write", "old/x", "x"],
        ["write", "new/x", "x"],
        ["write", "x", "x"]
    ]);
    let call = runner.run("a", CHANGE, moved).await;
    assert_eq!(state(&call), State::AwaitingApproval);
    let effect = call.approval_need.unwrap().effect.unwrap();
    let flagged = effect.changes.iter().filter(|change| change.flags.iter().any(|flag| flag == "named_by_config"));
    assert_eq!(
        flagged.map(|change| change.path.as_str()).collect::<Vec<_>>(),
        ["new", "new/x", "old", "old/x"],
        "{effect:?}"
    );
}

/// B-01: a call that is meant for another ledger is refused, unless this one has it: then the runner knows how it ended.
#[tokio::test]
async fn a_call_meant_for_another_ledger_is_refused_unless_this_one_has_it() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let meant_for = |ledger_id: &str| {
        let request = runner.request("a", CHANGE, json!([["write", "new", "x"]]));
        runner_v1::CallToolRequest { ledger_id: ledger_id.into(), ..request }
    };
    let refused = runner.call(meant_for("another")).await.unwrap_err();
    assert_eq!(refusal(&refused), "LEDGER_CHANGED");
    let ended = runner.call(meant_for("a ledger")).await.unwrap();
    assert_eq!(state(&ended), State::Completed);
    assert_eq!(runner.call(meant_for("another")).await.unwrap(), ended);
}
