//! The policy: whose it is, which one holds, and that nothing runs without.

use std::{pin::Pin, sync::Arc};

use belay_grant::SigningKey;
use belay_proto::v1::{
    self,
    approval_gate_service_server::{ApprovalGateService, ApprovalGateServiceServer},
    tool_call::State,
};
use belay_service_kit::{Access, Hosted, Principal, Service, Shutdown, net};
use belay_tool_runner::{Accepted, GateChannel, Refused};
use futures::{Stream, stream};
use serde_json::json;
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, service::Routes};

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

/// The gate as the runner hears it: the policy that holds, then every later one.
struct Gate(watch::Receiver<Option<v1::SignedPolicy>>);

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ApprovalGateService for Gate {
    type WatchApprovalsStream = Messages<v1::WatchApprovalsResponse>;
    type WatchPolicyStream = Messages<v1::WatchPolicyResponse>;

    async fn watch_policy(
        &self,
        request: Request<v1::WatchPolicyRequest>,
    ) -> Result<Response<Self::WatchPolicyStream>, Status> {
        assert_eq!(request.metadata().get("authorization").unwrap(), "Bearer open sesame");
        let policies = stream::unfold((self.0.clone(), true), |(mut policies, first)| async move {
            if !first {
                policies.changed().await.ok()?;
            }
            let policy = policies.borrow_and_update().clone();
            Some((Ok(v1::WatchPolicyResponse { policy }), (policies, false)))
        });
        Ok(Response::new(Box::pin(policies)))
    }

    async fn create_approval(&self, _: Request<v1::CreateApprovalRequest>) -> Answer<v1::Approval> {
        unasked()
    }
    async fn get_approval(&self, _: Request<v1::GetApprovalRequest>) -> Answer<v1::Approval> {
        unasked()
    }
    async fn list_approvals(&self, _: Request<v1::ListApprovalsRequest>) -> Answer<v1::ListApprovalsResponse> {
        unasked()
    }
    async fn watch_approvals(&self, _: Request<v1::WatchApprovalsRequest>) -> Answer<Self::WatchApprovalsStream> {
        unasked()
    }
    async fn list_approval_changes(
        &self,
        _: Request<v1::ListApprovalChangesRequest>,
    ) -> Answer<v1::ListApprovalChangesResponse> {
        unasked()
    }
    async fn get_approval_change(
        &self,
        _: Request<v1::GetApprovalChangeRequest>,
    ) -> Answer<v1::GetApprovalChangeResponse> {
        unasked()
    }
    async fn decide_approval(&self, _: Request<v1::DecideApprovalRequest>) -> Answer<v1::Approval> {
        unasked()
    }
    async fn cancel_approval(&self, _: Request<v1::CancelApprovalRequest>) -> Answer<v1::Approval> {
        unasked()
    }
    async fn acknowledge_approvals(
        &self,
        _: Request<v1::AcknowledgeApprovalsRequest>,
    ) -> Answer<v1::AcknowledgeApprovalsResponse> {
        unasked()
    }
    async fn get_grant(&self, _: Request<v1::GetGrantRequest>) -> Answer<v1::Grant> {
        unasked()
    }
    async fn get_policy(&self, _: Request<v1::GetPolicyRequest>) -> Answer<v1::SignedPolicy> {
        unasked()
    }
    async fn get_verification_keys(
        &self,
        _: Request<v1::GetVerificationKeysRequest>,
    ) -> Answer<v1::GetVerificationKeysResponse> {
        unasked()
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn unasked<T>() -> Answer<T> {
    Err(Status::unimplemented("a runner asks for policies only"))
}

/// The policies of the gate are followed; a bad one is left out, and the watch goes on.
#[tokio::test]
async fn the_gate_is_followed() {
    let bench = Bench::new();
    let runner = bench.start_without_policy().await;
    let (publish, published) = watch::channel(Some(bench.signed(1, ASK)));
    let (_trigger, stop) = Shutdown::new();
    let address = net::Address::Unix(bench.path().join("gate.sock"));
    let listener = net::bind(&address).await.unwrap();
    let routes = Routes::new(ApprovalGateServiceServer::new(Gate(published)));
    let hosted = Hosted::new(routes, "belay.v1.ApprovalGateService", v1::FILE_DESCRIPTOR_SET);
    tokio::spawn(listener.serve(hosted, Access::Everybody(Principal::Service(Service::ToolRunner)), stop));

    let policy = Arc::clone(runner.calls.as_ref().unwrap().policy());
    let gate = GateChannel::new(net::connect_lazy(&address), Some("open sesame")).unwrap();
    let following = {
        let policy = Arc::clone(&policy);
        tokio::spawn(async move { policy.follow_gate(gate).await })
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
