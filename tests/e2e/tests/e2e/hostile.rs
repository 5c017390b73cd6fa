//! A hostile client at the runner's socket: nothing happens in a workspace that neither the policy nor a person allowed.

use std::{fs, path::PathBuf};

use belay_e2e::{
    Person, Runner, Service, Services,
    client::retry,
    folder::{Content, cleared, content},
    runner::{reason, request},
};
use belay_grant::{Grant, Scope, SigningKey, key_id};
use belay_proto::{
    gate_v1::{self, approval_gate_service_client::ApprovalGateServiceClient},
    runner_v1::{self, CommitEffectRequest, Fence, ToolCall},
    v1::{self, Approval, Decision, tool_call::State},
};
use tonic::Code;

/// The command changes two files; the built-in policy requires approval for that.
const STAMP: &str = r#"{"command":["sh","-c","echo stamped >> kept.txt && echo new > new.txt"]}"#;

fn call_name(call: &str) -> String {
    format!("namespaces/default/executions/hostile/steps/a/calls/{call}")
}

/// The three services, a workspace with files, and a client of the runner's socket that is not the executor.
struct Scene {
    _folder: tempfile::TempDir,
    services: Services,
    runner: Runner,
    workspace: PathBuf,
    before: Content,
}

impl Scene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut services = Services::start(folder.path()).await;
        // Its place is taken.
        services.kill(Service::Executor).await;
        let workspace = services.workspace("w");
        fs::write(workspace.join("kept.txt"), "as it was\n").unwrap();
        fs::create_dir(workspace.join("deep")).unwrap();
        std::os::unix::fs::symlink("/etc", workspace.join("out")).unwrap();
        let (runner, before) = (Runner::new(&services.runner()), content(&workspace));
        Self { _folder: folder, services, runner, workspace, before }
    }

    fn cancel(&self, call: &str) -> runner_v1::CancelToolCallRequest {
        let workspace = self.workspace.to_str().unwrap().into();
        runner_v1::CancelToolCallRequest { name: call_name(call), workspace, ..Default::default() }
    }

    fn request(&self, call: &str, tool: &str, arguments: &str) -> runner_v1::CallToolRequest {
        let workspace = self.workspace.to_str().unwrap().into();
        runner_v1::CallToolRequest { workspace, made_folder: None, ..request(&call_name(call), tool, arguments) }
    }

    /// A command whose effect waits for approval.
    async fn held(&self, call: &str) -> ToolCall {
        let held = self.runner.call(self.request(call, "run_terminal", STAMP)).await.unwrap();
        assert_eq!(held.state(), State::AwaitingApproval, "{held:?}");
        held
    }

    /// Creates an approval for a call at the endpoint for services, as an executor does.
    async fn ask(&self, held: &ToolCall) -> Approval {
        let request = gate_v1::CreateApprovalRequest {
            call: held.name.clone(),
            subject_digest: held.approval_need.as_ref().unwrap().subject_digest.clone(),
            requested_by: "test".into(),
            approval_mode: v1::ApprovalMode::Wait.into(),
            form: Vec::new(),
            request_reason: "as planned".into(),
            fencing_token: 0,
        };
        retry(|| async { self.gate().create_approval(request.clone()).await }).await.unwrap()
    }

    /// The grant of a call that a person approved.
    async fn granted(&self, held: &ToolCall) -> runner_v1::Grant {
        let asked = self.ask(held).await;
        Person::at(&self.services.people()).decide(&asked, Decision::Approve).await.unwrap();
        let request = gate_v1::GetGrantRequest { approval: asked.name };
        self.gate().get_grant(request).await.unwrap().into_inner()
    }

    fn gate(&self) -> ApprovalGateServiceClient<tonic::transport::Channel> {
        Person::at(&self.services.gate()).as_service()
    }

    async fn commit(&self, call: &str, grant: Option<runner_v1::Grant>) -> Result<ToolCall, tonic::Status> {
        let request = CommitEffectRequest { name: call_name(call), grant, fence: None };
        self.runner.raw().commit_effect(request).await.map(tonic::Response::into_inner)
    }

    async fn refused(&self, call: &str, grant: Option<runner_v1::Grant>) -> (Code, String) {
        reason(&self.commit(call, grant).await.expect_err("it is refused"))
    }

    fn assert_untouched(&self) {
        assert_eq!(content(&self.workspace), self.before, "the workspace is as it was, byte for byte");
    }
}

/// A grant with the right content for this call, to be signed with any key.
fn made_up(held: &ToolCall) -> Grant {
    let need = held.approval_need.as_ref().unwrap();
    Grant {
        v: 1,
        approval: "namespaces/default/approvals/made-up".into(),
        subject_digest: need.subject_digest.clone(),
        call: held.name.clone(),
        audience: Grant::AUDIENCE.into(),
        approver: "nobody".into(),
        policy_revision: need.decision.as_ref().unwrap().policy_revision,
        not_before: 0,
        expires: i64::MAX,
        scope: Scope::Once,
        uses: 1,
        nonce: "made-up".into(),
    }
}

fn signed(grant: &Grant, key: &SigningKey, key_id: String) -> runner_v1::Grant {
    let belay_grant::SignedBytes { body, signature, .. } = grant.sign(key);
    runner_v1::Grant { body, signature, key_id }
}

/// B-05, S2-FR-049, S2-FR-051: an effect that requires approval is not committed without a grant, nor with a forged one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gates_own_grant_nothing_is_committed() {
    let scene = Scene::new().await;
    let held = scene.held("1.1").await;
    let refusal = (Code::PermissionDenied, "GRANT_REFUSED".to_owned());
    assert_eq!(scene.refused("1.1", None).await, refusal, "no grant");
    assert_eq!(scene.refused("1.1", Some(runner_v1::Grant::default())).await, refusal, "an empty one");

    let stranger = SigningKey::from_bytes(&[7; 32]);
    let own = signed(&made_up(&held), &stranger, key_id(&stranger.verifying_key()));
    assert_eq!(scene.refused("1.1", Some(own)).await, refusal, "signed by a stranger");
    let request = gate_v1::GetVerificationKeysRequest {};
    let keys = scene.gate().get_verification_keys(request).await.unwrap().into_inner().keys;
    let under_its_name = signed(&made_up(&held), &stranger, keys[0].key_id.clone());
    assert_eq!(scene.refused("1.1", Some(under_its_name)).await, refusal, "signed by a stranger in the gate's name");

    // Every byte of a valid grant matters.
    let good = scene.granted(&held).await;
    for place in (0..good.body.len()).step_by(7) {
        let mut forged = good.clone();
        forged.body[place] ^= 1;
        assert_eq!(scene.refused("1.1", Some(forged)).await, refusal, "byte {place} of what is signed");
    }
    for place in 0..good.signature.len() {
        let mut forged = good.clone();
        forged.signature[place] ^= 1;
        assert_eq!(scene.refused("1.1", Some(forged)).await, refusal, "byte {place} of the signature");
    }
    scene.assert_untouched();

    let committed = scene.commit("1.1", Some(good)).await.expect("after all of that, the true one is good");
    assert_eq!(committed.state(), State::Completed);
    assert_eq!(fs::read_to_string(scene.workspace.join("kept.txt")).unwrap(), "as it was\nstamped\n");
    cleared(&scene.workspace).await;
}

/// B-01, B-05: a grant is valid for one call, once, for any caller, also after a restart of the runner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_valid_for_one_call_once() {
    let mut scene = Scene::new().await;
    let (first, second) = (scene.held("1.1").await, scene.held("2.1").await);
    let digest = |call: &ToolCall| call.approval_need.as_ref().unwrap().subject_digest.clone();
    assert_eq!(digest(&first), digest(&second), "a person would see the same twice");
    let grant = scene.granted(&first).await;
    let refusal = (Code::PermissionDenied, "GRANT_REFUSED".to_owned());
    assert_eq!(scene.refused("2.1", Some(grant.clone())).await, refusal, "another call with the same effect");
    scene.assert_untouched();

    let committed = scene.commit("1.1", Some(grant.clone())).await.unwrap();
    assert!(!committed.receipt.as_ref().unwrap().grant_nonce.is_empty());
    let after = content(&scene.workspace);
    for restart in [false, true] {
        if restart {
            scene.services.restart(Service::Runner).await;
            scene.services.ready().await;
        }
        let again = scene.commit("1.1", Some(grant.clone())).await.unwrap();
        assert_eq!(again.end_time, committed.end_time, "the same end, not another one");
        assert_eq!(scene.refused("2.1", Some(grant.clone())).await, refusal, "another call");
        assert_eq!(content(&scene.workspace), after, "one line, however often");
    }
    // A call that started before the first commit conflicts with it.
    let late = scene.granted(&second).await;
    let stale = scene.commit("2.1", Some(late)).await.unwrap();
    assert_eq!((stale.state(), stale.failure.unwrap().reason.as_str()), (State::Cancelled, "CONFLICT"));
    assert_eq!(content(&scene.workspace), after);
    cleared(&scene.workspace).await;
}

/// B-05: a discarded call stays discarded, with or without a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discarded_effect_cannot_be_brought_back() {
    let scene = Scene::new().await;
    let held = scene.held("1.1").await;
    let grant = scene.granted(&held).await;
    let discard = runner_v1::DiscardEffectRequest { name: call_name("1.1"), ..Default::default() };
    let denied = scene.runner.raw().discard_effect(discard).await.unwrap().into_inner();
    assert_eq!(denied.state(), State::Denied);
    let late = scene.commit("1.1", Some(grant)).await.unwrap();
    assert_eq!(late.state(), State::Denied, "it has ended");
    scene.assert_untouched();
    cleared(&scene.workspace).await;
}

/// B-05: callers at the endpoint for services create approvals and never decide, and people get no grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_does_not_decide_and_a_person_gets_no_grant() {
    let scene = Scene::new().await;
    let held = scene.held("1.1").await;
    let asked = scene.ask(&held).await;
    let as_service = Person::at(&scene.services.gate());
    let refused = as_service.decide(&asked, Decision::Approve).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let person = Person::at(&scene.services.people());
    let other = Approval { subject_digest: "sha256:00".into(), ..asked.clone() };
    // B-03.
    let mismatch = person.decide(&other, Decision::Approve).await.unwrap_err();
    assert_eq!(mismatch.code(), Code::FailedPrecondition, "a digest that was not seen is not approved: {mismatch}");
    person.decide(&asked, Decision::Approve).await.unwrap();
    let grant = person.as_service().get_grant(gate_v1::GetGrantRequest { approval: asked.name }).await.unwrap_err();
    assert_eq!(reason(&grant), (Code::PermissionDenied, "NOT_A_SERVICE".into()));
    scene.assert_untouched();
}

/// S2-FR-042, S2-FR-043, S2-FR-075, S2-X-06, S2-X-08, S2-X-12, S2-X-31: no path leads out of the workspace, and no workspace lies elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_path_and_no_workspace_leads_out() {
    let scene = Scene::new().await;
    let escapes = [
        "../../../etc/passwd",
        r"..\\..\\..\\windows\\system32\\config\\sam",
        "/etc/passwd",
        r"C:\\Windows\\System32",
        "/tmp/external.txt",
        "out/passwd",
        "deep/../../x",
        ".belay/lock",
    ];
    for (n, escape) in escapes.into_iter().enumerate() {
        for (m, (tool, more)) in
            [("read_file", ""), ("write_file", r#","content":"x""#), ("delete_file", "")].into_iter().enumerate()
        {
            let arguments = format!(r#"{{"path":"{escape}"{more}}}"#);
            let call =
                scene.runner.call(scene.request(&format!("{}.{}", n + 1, m + 1), tool, &arguments)).await.unwrap();
            let failure = call.failure.clone().unwrap_or_default();
            assert!(matches!(call.state(), State::Failed | State::Denied), "{tool} {escape}: {call:?}");
            assert!(
                ["OUTSIDE_WORKSPACE", "WRONG_FILE_TYPE"].contains(&failure.reason.as_str()),
                "{tool} {escape}: {failure:?}"
            );
            if tool == "read_file" {
                assert!(
                    failure.message.contains("outside the workspace") || failure.message.contains("outside workspace"),
                    "{failure:?}"
                );
            }
        }
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let state = scene.services.runner().parent().unwrap().join("runner");
    let elsewheres =
        [elsewhere.path().to_str().unwrap(), "/", "relative", state.to_str().unwrap(), "/proc", "/nowhere"];
    for (n, workspace) in elsewheres.into_iter().enumerate() {
        let call = call_name(&format!("99.{}", n + 1));
        let order = runner_v1::CallToolRequest {
            workspace: workspace.into(),
            made_folder: None,
            ..request(&call, "write_file", r#"{"path":"a","content":"b"}"#)
        };
        match scene.runner.call(order).await {
            Err(status) => assert_eq!(reason(&status).0, Code::InvalidArgument, "{workspace}: {status}"),
            Ok(call) => {
                assert_eq!(call.state(), State::Failed, "{workspace}: {call:?}");
                let reason = call.failure.unwrap().reason;
                assert!(
                    ["WORKSPACE_INVALID", "WORKSPACE_NOT_ALLOWED"].contains(&reason.as_str()),
                    "{workspace}: {reason}"
                );
            }
        }
    }
    assert!(content(elsewhere.path()).is_empty());
    scene.assert_untouched();
}

/// B-08: a replaced executor is rejected, whatever it requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_that_was_replaced_is_refused() {
    let scene = Scene::new().await;
    let fence = |token| Some(Fence { shard: 3, token });
    let held = scene.held("1.1").await;
    let grant = scene.granted(&held).await;
    let newer =
        runner_v1::CallToolRequest { fence: fence(5), ..scene.request("2.1", "read_file", r#"{"path":"kept.txt"}"#) };
    assert_eq!(scene.runner.call(newer).await.unwrap().state(), State::Completed);

    let fenced = (Code::FailedPrecondition, "FENCED".to_owned());
    let old = runner_v1::CallToolRequest {
        fence: fence(4),
        ..scene.request("3.1", "write_file", r#"{"path":"a","content":"b"}"#)
    };
    assert_eq!(reason(&scene.runner.call(old).await.unwrap_err()), fenced);
    let commit = CommitEffectRequest { name: call_name("1.1"), grant: Some(grant), fence: fence(4) };
    assert_eq!(reason(&scene.runner.raw().commit_effect(commit).await.unwrap_err()), fenced);
    let discard = runner_v1::DiscardEffectRequest { name: call_name("1.1"), fence: fence(4), failure: None };
    assert_eq!(reason(&scene.runner.raw().discard_effect(discard).await.unwrap_err()), fenced);
    let cancel = runner_v1::CancelToolCallRequest { fence: fence(4), ..scene.cancel("1.1") };
    assert_eq!(reason(&scene.runner.raw().cancel_tool_call(cancel).await.unwrap_err()), fenced);
    let acknowledge = runner_v1::AcknowledgeToolCallsRequest { names: vec![call_name("2.1")], fence: fence(4) };
    assert_eq!(reason(&scene.runner.raw().acknowledge_tool_calls(acknowledge).await.unwrap_err()), fenced);
    scene.assert_untouched();
    assert_eq!(scene.runner.get(&call_name("1.1")).await.unwrap().state(), State::AwaitingApproval, "it still waits");
}

/// B-06, B-07, S2-FR-045, S2-FR-048: a command that fails, times out or is cancelled leaves no changes and no process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_does_not_complete_leaves_nothing() {
    let scene = Scene::new().await;
    let script = |end: &str| {
        format!(r#"{{"command":["sh","-c","echo x >> kept.txt; rm -r deep; mkdir -p a/b; echo y > a/b/c; {end}"]}}"#)
    };
    let failed = scene.runner.call(scene.request("1.1", "run_terminal", &script("exit 3"))).await.unwrap();
    assert_eq!((failed.state(), failed.failure.unwrap().reason.as_str()), (State::Failed, "COMMAND_FAILED"));
    scene.assert_untouched();

    let limit = belay_proto::duration(std::time::Duration::from_millis(300));
    let slow = script("setsid sleep 86413 & sleep 86413");
    let order = runner_v1::CallToolRequest { timeout: Some(limit), ..scene.request("2.1", "run_terminal", &slow) };
    assert_eq!(scene.runner.call(order).await.unwrap().state(), State::TimedOut);
    scene.assert_untouched();

    let order = scene.request("3.1", "run_terminal", &script("echo ready; setsid sleep 86413 & sleep 86413"));
    let mut stream = scene.runner.raw().call_tool(order).await.unwrap().into_inner();
    while let Some(message) = stream.message().await.unwrap() {
        if matches!(message.event, Some(runner_v1::call_tool_response::Event::Output(_))) {
            break;
        }
    }
    let cancel = scene.cancel("3.1");
    let cancelled = scene.runner.raw().cancel_tool_call(cancel).await.unwrap().into_inner();
    assert_eq!(cancelled.state(), State::Cancelled);
    assert!(!is_running("sleep\x0086413"), "when the answer is there, no process is");
    scene.assert_untouched();
    cleared(&scene.workspace).await;
}

/// Whether a process with these words in its command line runs, as far as /proc tells.
fn is_running(words: &str) -> bool {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .any(|entry| fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|command| command.contains(words)))
}
