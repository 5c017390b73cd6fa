//! An attacker on the services' network who tries to commit effects that no person approved, and calls again that somebody approved once.

use std::time::Duration;

use belay_grant::{Grant, Keys, Scope, SigningKey, Subject};
use belay_proto::gate_v1::approval_gate_service_client::ApprovalGateServiceClient;
use belay_proto::runner_v1::tool_runner_service_client::ToolRunnerServiceClient;
use belay_proto::v1::approval_service_client::ApprovalServiceClient;
use belay_proto::{
    gate_v1,
    runner_v1::{self, call_tool_response::Event},
    v1::{self, approval, approval_need},
};
use belay_service_kit::status;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::{Code, Status};

use super::client::RPC_TIMEOUT;
use super::hosts::{self, Owners};
use super::people::PERSON;
use super::records::{Observations, RepeatedCalls};
use crate::trace;

/// Tries as long as the simulation runs. The audit checks that no effect is in place without its own grant. B-05. With `repeated`, calls whose grants
/// were spent are made again while there are faults.
pub(super) async fn forge(
    seed: u64,
    owners: Owners,
    keys: Keys,
    observed: Observations,
    repeated: Option<RepeatedCalls>,
) -> turmoil::Result {
    let key_id = keys.iter().map(|(id, _)| id.to_owned()).collect::<String>();
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        tokio::time::sleep(Duration::from_millis(random.random_range(100..1500))).await;
        let mut gate = ApprovalGateServiceClient::new(hosts::channel(hosts::SERVICES_URI));
        let request = v1::ListApprovalsRequest {
            parent: "namespaces/-".into(),
            page_size: 1000,
            ..v1::ListApprovalsRequest::default()
        };
        let mut people = ApprovalServiceClient::new(hosts::channel(hosts::PEOPLE_URI));
        let Ok(Ok(page)) = tokio::time::timeout(RPC_TIMEOUT, people.list_approvals(request)).await else { continue };
        let approvals = page.into_inner().approvals;
        let is_done = |approval: &&v1::Approval| {
            approval.state() == approval::State::Consumed && approval.kind() == approval_need::Kind::Call
        };
        let done: Vec<_> = approvals.iter().filter(is_done).collect();
        if let Some(repeated) = repeated.as_ref().filter(|_| !observed.is_healed() && !done.is_empty()) {
            let target = done[random.random_range(0..done.len())];
            drop(tokio::time::timeout(RPC_TIMEOUT, repeat(target, &owners, repeated)).await);
        }
        let is = |state| move |approval: &&v1::Approval| approval.state() == state;
        let Some(target) = approvals.iter().find(is(approval::State::Pending)) else { continue };
        let other = approvals
            .iter()
            .find(is(approval::State::Approved))
            .or_else(|| approvals.iter().find(is(approval::State::Consumed)));
        let foreign = match other {
            Some(other) => {
                let request = gate_v1::GetGrantRequest { approval: other.name.clone() };
                let answer = tokio::time::timeout(RPC_TIMEOUT, gate.get_grant(request)).await;
                answer.ok().and_then(Result::ok).map(tonic::Response::into_inner)
            }
            None => None,
        };
        let grant = foreign.filter(|_| random.random_bool(0.5)).unwrap_or_else(|| forged(target, &mut random, &key_id));
        let request = runner_v1::CommitEffectRequest {
            name: target.call.clone(),
            grant: Some(grant),
            fence: Some(runner_v1::Fence { shard: hosts::shard(&target.execution), token: owners.newest_fence() }),
        };
        let mut runner = ToolRunnerServiceClient::new(hosts::channel(hosts::RUNNER_URI));
        match tokio::time::timeout(RPC_TIMEOUT, runner.commit_effect(request)).await {
            Ok(Err(status)) if status.code() == Code::PermissionDenied => trace::count("forged grants refused"),
            Ok(Err(status)) => trace::event(format_args!("a forger is answered {:?}", status::reason(&status))),
            Ok(Ok(call)) => trace::event(format_args!("a forger got a call in state {:?}", call.into_inner().state())),
            Err(_) => {}
        }
    }
}

/// Makes an approved call again: once more with its grant, when the runner holds it again because its end was acknowledged.
async fn repeat(approval: &v1::Approval, owners: &Owners, repeated: &RepeatedCalls) -> Result<(), Status> {
    let request = v1::GetApprovalRequest { name: approval.name.clone(), view: v1::ApprovalView::Full.into() };
    let mut people = ApprovalServiceClient::new(hosts::channel(hosts::PEOPLE_URI));
    let subject = people.get_approval(request).await?.into_inner().subject;
    let subject = Subject::parse(&subject).map_err(|error| Status::internal(error.to_string()))?;
    let request = gate_v1::GetGrantRequest { approval: approval.name.clone() };
    let mut gate = ApprovalGateServiceClient::new(hosts::channel(hosts::SERVICES_URI));
    let grant = gate.get_grant(request).await?.into_inner();
    let is_shared = subject.workspace == hosts::SHARED_WORKSPACE;
    let made_folder = (!is_shared).then(|| hosts::made_folder(&subject.workspace));
    let request = runner_v1::CallToolRequest {
        name: approval.call.clone(),
        tool: subject.tool,
        arguments: Some(v1::Payload::of_json(subject.arguments)),
        workspace: if is_shared { subject.workspace } else { String::new() },
        made_folder,
        fence: Some(runner_v1::Fence { shard: hosts::shard(&approval.execution), token: owners.newest_fence() }),
        attempt: 1,
        ..runner_v1::CallToolRequest::default()
    };
    repeated.add(&approval.call);
    let mut runner = ToolRunnerServiceClient::new(hosts::channel(hosts::RUNNER_URI));
    let mut updates = runner.call_tool(request.clone()).await?.into_inner();
    while let Some(update) = updates.message().await? {
        if matches!(update.event, Some(Event::Held(_) | Event::Result(_))) {
            break;
        }
    }
    let request = runner_v1::CallToolRequest { grant: Some(grant), ..request };
    match runner.call_tool(request).await {
        Err(refused) if status::reason(&refused).as_deref() == Some("GRANT_SPENT") => {
            trace::count("spent grants refused");
        }
        other => trace::event(format_args!("{} is made again: {other:?}", approval.call)),
    }
    Ok(())
}

/// A grant that is valid except for its signing key, which may have the id of the gate's key.
fn forged(target: &v1::Approval, random: &mut StdRng, key_id: &str) -> runner_v1::Grant {
    let now = hosts::now_micros() / 1_000_000;
    let grant = Grant {
        v: 1,
        approval: target.name.clone(),
        subject_digest: target.subject_digest.clone(),
        call: target.call.clone(),
        audience: Grant::AUDIENCE.to_owned(),
        approver: PERSON.to_owned(),
        policy_revision: target.decision.as_ref().map_or(1, |decision| decision.policy_revision),
        not_before: now - 60,
        expires: now + 3600,
        scope: Scope::Once,
        uses: 1,
        nonce: format!("forged-{}", random.random::<u64>()),
    };
    let signed = grant.sign(&SigningKey::from_bytes(&random.random()));
    let key_id = if random.random_bool(0.5) { key_id.to_owned() } else { signed.key_id };
    runner_v1::Grant { body: signed.body, signature: signed.signature, key_id }
}
