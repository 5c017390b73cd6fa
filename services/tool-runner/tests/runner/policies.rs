//! The policy: who signs it, which revision is in force, and that nothing runs without it.

use std::{pin::Pin, sync::Arc};

use belay_grant::SigningKey;
use belay_proto::{
    gate_v1::{
        self,
        approval_gate_service_server::{ApprovalGateService, ApprovalGateServiceServer},
    },
    runner_v1,
    v1::{self, tool_call::State},
};
use belay_service_kit::{Access, HostedServices, Ids, Principal, Service, Shutdown, net};
use belay_tool_runner::{GateChannel, PolicyAcceptance, PolicyRefusal};
use futures::{Stream, stream};
use serde_json::json;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, service::Routes};

use crate::support::*;

#[tokio::test]
async fn nothing_runs_without_a_policy_which_survives_a_restart() {
    let bench = Bench::new();
    let runner = bench.start_without_policy().await;
    let refused = runner.call(runner.request("a", LOOK, json!([]))).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (Code::Unavailable, "POLICY_MISSING".into()));
    runner.offer(&bench, 3, ASK).await;
    let held = runner.run("a", CHANGE, json!([["write", "x", "y"]])).await;
    runner.lose().await;

    let runner = bench.start_without_policy().await;
    let done = runner.commit("a", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!(state(&done), State::Completed, "the stored policy is in force while the gate is down");
    assert_eq!(done.receipt.unwrap().decision.unwrap().policy_revision, 3);
    runner.lose().await;

    let mut bench = bench;
    bench.key = SigningKey::from_bytes(&[9; 32]);
    let runner = bench.start_without_policy().await;
    let refused = runner.call(runner.request("b", LOOK, json!([]))).await.unwrap_err();
    assert_eq!(refusal(&refused), "POLICY_MISSING", "the policy of another gate is not valid");
    runner.offer(&bench, 1, FREE).await;
}

#[tokio::test]
async fn only_newer_policies_of_the_gate_are_accepted() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let policy = runner.calls.as_ref().unwrap().policy();
    assert_eq!(policy.offer(bench.signed(1, FREE)).await.unwrap(), PolicyAcceptance::Same);
    assert!(matches!(
        policy.offer(bench.signed(1, ASK)).await,
        Err(PolicyRefusal::NotNewer { offered: 1, current: 1 })
    ));
    assert_eq!(policy.offer(bench.signed(5, ASK)).await.unwrap(), PolicyAcceptance::New);
    assert!(matches!(
        policy.offer(bench.signed(4, FREE)).await,
        Err(PolicyRefusal::NotNewer { offered: 4, current: 5 })
    ));
    let renumbered = v1::SignedPolicy { revision: 6, ..bench.signed(4, FREE) };
    assert!(matches!(policy.offer(renumbered).await, Err(PolicyRefusal::Revision { claimed: 6, signed: 4 })));
    let mut tampered = bench.signed(7, FREE);
    let end = tampered.body.len() - 2;
    tampered.body[end] ^= 1;
    assert!(matches!(policy.offer(tampered).await, Err(PolicyRefusal::Signature(_))));
    assert_eq!(policy.current().unwrap().revision, 5);
}

// S2-FR-049: each namespace has its policy, before a call and for its effect.
#[tokio::test]
async fn calls_are_judged_by_the_policy_of_their_namespace() {
    let bench = Bench::new();
    let runner = bench
        .start(&format!("{FREE}namespaces: {{strict: {{file_write: deny}}, asking: {{file_write: prompt}}}}\n"))
        .await;
    let call = |namespace: &str| format!("namespaces/{namespace}/executions/e/steps/s/calls/1.1");
    for (namespace, expected) in
        [("default", State::Completed), ("strict", State::Denied), ("asking", State::AwaitingApproval)]
    {
        let done = runner.run(&call(namespace), CHANGE, json!([["write", namespace, "y"]])).await;
        assert_eq!(state(&done), expected, "{namespace}");
    }
}

/// A gate that publishes the current policy, then every later one.
struct Gate(watch::Receiver<Option<v1::SignedPolicy>>);

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ApprovalGateService for Gate {
    type WatchDecisionsStream = Messages<gate_v1::WatchDecisionsResponse>;
    type WatchPolicyStream = Messages<gate_v1::WatchPolicyResponse>;

    async fn watch_policy(
        &self,
        request: Request<gate_v1::WatchPolicyRequest>,
    ) -> Result<Response<Self::WatchPolicyStream>, Status> {
        assert_eq!(request.metadata().get("authorization").unwrap(), "Bearer open sesame");
        let policies = stream::unfold((self.0.clone(), true), |(mut policies, first)| async move {
            if !first {
                policies.changed().await.ok()?;
            }
            let policy = policies.borrow_and_update().clone();
            Some((Ok(gate_v1::WatchPolicyResponse { policy }), (policies, false)))
        });
        Ok(Response::new(Box::pin(policies)))
    }

    async fn create_approval(&self, _: Request<gate_v1::CreateApprovalRequest>) -> Reply<v1::Approval> {
        unexpected()
    }
    async fn list_pending_approvals(
        &self,
        _: Request<gate_v1::ListPendingApprovalsRequest>,
    ) -> Reply<gate_v1::ListPendingApprovalsResponse> {
        unexpected()
    }
    async fn watch_decisions(&self, _: Request<gate_v1::WatchDecisionsRequest>) -> Reply<Self::WatchDecisionsStream> {
        unexpected()
    }
    async fn cancel_approval(&self, _: Request<gate_v1::CancelApprovalRequest>) -> Reply<v1::Approval> {
        unexpected()
    }
    async fn acknowledge_approvals(
        &self,
        _: Request<gate_v1::AcknowledgeApprovalsRequest>,
    ) -> Reply<gate_v1::AcknowledgeApprovalsResponse> {
        unexpected()
    }
    async fn forget_executions(
        &self,
        _: Request<gate_v1::ForgetExecutionsRequest>,
    ) -> Reply<gate_v1::ForgetExecutionsResponse> {
        unexpected()
    }
    async fn get_grant(&self, _: Request<gate_v1::GetGrantRequest>) -> Reply<runner_v1::Grant> {
        unexpected()
    }
    async fn get_verification_keys(
        &self,
        _: Request<gate_v1::GetVerificationKeysRequest>,
    ) -> Reply<gate_v1::GetVerificationKeysResponse> {
        unexpected()
    }
}

type Reply<T> = Result<Response<T>, Status>;

fn unexpected<T>() -> Reply<T> {
    Err(Status::unimplemented("a runner only watches the policy"))
}

/// An invalid policy is skipped, and the watch continues.
#[tokio::test]
async fn the_runner_follows_the_policy_of_the_gate() {
    let bench = Bench::new();
    let runner = bench.start_without_policy().await;
    let (publish, published) = watch::channel(Some(bench.signed(1, ASK)));
    let (_trigger, stop) = Shutdown::new();
    let address = net::Address::Unix(bench.path().join("gate.sock"));
    let listener = net::bind(&address).await.unwrap();
    let routes = Routes::new(ApprovalGateServiceServer::new(Gate(published)));
    let hosted = HostedServices::new(routes, "belay.gate.v1.ApprovalGateService", belay_proto::FILE_DESCRIPTOR_SET);
    tokio::spawn(listener.serve(hosted, Access::Unauthenticated(Principal::Service(Service::ToolRunner)), stop));

    let policy = Arc::clone(runner.calls.as_ref().unwrap().policy());
    let gate = GateChannel::new(net::connect_lazy(&address), Some("open sesame")).unwrap();
    let following = {
        let policy = Arc::clone(&policy);
        tokio::spawn(async move { policy.follow_gate(gate, &Ids::seeded(1)).await })
    };
    let reaches = async |revision| {
        while policy.current().is_none_or(|held| held.revision != revision) {
            tokio::task::yield_now().await;
        }
    };
    reaches(1).await;
    let mut forged = bench.signed(2, FREE);
    forged.signature[0] ^= 1;
    publish.send_replace(Some(forged));
    publish.send_replace(None);
    publish.send_replace(Some(bench.signed(3, FREE)));
    reaches(3).await;
    following.abort();
    assert!(GateChannel::new(net::connect_lazy(&address), Some("no\nheader")).is_err());
}
